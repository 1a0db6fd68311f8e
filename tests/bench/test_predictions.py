"""The fits find what they are given: known shares and known costs behind made-up measurements. Without torch."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from bench import fit_dispatch, fit_efficiency, predictions
from bench.fit_dispatch import FEATURES, HOST_BOUND
from bench.fit_efficiency import FEWEST, Point
from bench.zoo_recordings import Labelled
from gobrrr.analysis.pricing.expected import TimeParts, expect
from gobrrr.cost import price
from gobrrr.hardware import efficiency, find
from gobrrr.hardware.efficiency import Share, ShareKey
from gobrrr.model.recording import RecordedCall
from gobrrr.model.work import OpCall, TensorList
from tests.recordings import recorded, recording, relu, share, tensor, view

# Shares


def measured(true: Share, kind: ShareKey, *, model: str = "", noise: float = 0.0, seed: int = 0) -> list[Point]:
    """Calls from tiny to huge, bound by either side, in the cache or not, that take what the share says."""
    rng = np.random.default_rng(seed)
    made = []
    for size in np.geomspace(10.0, 1e7, 12):
        for compute, memory in ((size, size / 20), (size / 20, size)):
            inside = 1.0 if size < 1e4 else 0.0
            parts = TimeParts(float(compute), 0.0, float(memory), inside)
            ns = parts.time(true) * math.exp(noise * rng.standard_normal())
            made.append(Point(model, kind, parts, ns, 3, (ns / 1e3) ** 0.3))
    return made


ADD, MM = ShareKey("add", "", "pointwise", "float32"), ShareKey("mm", "odd", "matmul", "bfloat16")
TRUE = {
    ADD: share(fixed_ns=2500.0, compute=0.55, memory=0.83, cached=1.6),
    MM: share(fixed_ns=6000.0, compute=0.31, memory=0.6, cached=0.9),
}


def fitted(monkeypatch: pytest.MonkeyPatch, points: list[Point], **more: Any) -> dict[str, Share]:
    monkeypatch.setattr(fit_efficiency, "points", lambda: tuple(points))
    return fit_efficiency.fit(**more)


@pytest.mark.parametrize("kind", TRUE, ids=lambda one: one.op)
def test_known_shares_are_recovered(monkeypatch: pytest.MonkeyPatch, kind: ShareKey):
    true = TRUE[kind]
    found = fitted(monkeypatch, measured(true, kind))[efficiency.keys(kind)[0]]
    for field in ("fixed_ns", "compute", "memory", "cached"):
        assert getattr(found, field) == pytest.approx(getattr(true, field), rel=0.06), field
    assert found.spread < 0.03
    assert (found.kernels, found.points) == (3.0, 24)


def test_the_spread_is_that_of_the_measurements(monkeypatch: pytest.MonkeyPatch):
    points = [one for seed in range(8) for one in measured(TRUE[ADD], ADD, noise=0.2, seed=seed)]
    found = fitted(monkeypatch, points)["add"]
    assert found.spread == pytest.approx(0.2, rel=0.15)
    assert found.memory == pytest.approx(0.83, rel=0.1)


def test_each_kind_has_its_own_entry_and_more_general_ones(monkeypatch: pytest.MonkeyPatch):
    points = [*measured(TRUE[ADD], ADD), *measured(TRUE[MM], MM)]
    found = fitted(monkeypatch, points)
    assert set(found) == {*efficiency.keys(ADD), *efficiency.keys(MM)}
    assert found["mm"].compute == pytest.approx(0.31, rel=0.06)
    assert found[""].points == 48
    assert found[""].spread > 0.1  # one entry for both misses both


def test_too_few_cases_make_no_entry(monkeypatch: pytest.MonkeyPatch):
    few = measured(TRUE[ADD], ADD)[: FEWEST - 1]
    assert fitted(monkeypatch, few) == {}
    assert "add" in fitted(monkeypatch, measured(TRUE[ADD], ADD)[:FEWEST])


def test_a_model_that_is_left_out_has_no_part_in_it(monkeypatch: pytest.MonkeyPatch):
    own, others = measured(TRUE[MM], ADD, model="gpt"), measured(TRUE[ADD], ADD, model="bert")
    monkeypatch.setattr(fit_efficiency, "points", lambda: tuple(others))
    alone = fit_efficiency.fit()
    assert fitted(monkeypatch, [*own, *others], without="gpt") == alone
    assert fitted(monkeypatch, [*own, *others]) != alone


def test_no_share_leaves_its_bounds(monkeypatch: pytest.MonkeyPatch):
    """Calls faster than light (a wrong count) don't make shares above 1."""
    fast = measured(share(fixed_ns=1.0, compute=9.0, memory=9.0, cached=9.0), ADD)
    found = fitted(monkeypatch, fast)["add"]
    assert 0 < found.compute <= 1
    assert 0 < found.memory <= 1
    assert 0 < found.cached <= 4
    assert found.fixed_ns >= 500


def test_the_fit_s_times_are_the_prediction_s():
    """The vectorised formula of the fit and `Parts.time` are one."""
    one = share(fixed_ns=3000.0, compute=0.4, memory=0.7, cached=1.3)
    for parts in (
        TimeParts(5e3, 1e3, 2e3, 0.0),
        TimeParts(1e3, 5e3, 9e3, 0.4),
        TimeParts(0.0, 0.0, 9e3, 1.0),
        TimeParts(1, 1, 1, 0, 9),
    ):
        columns = np.array([(*parts, 1.0, 1.0)])
        value = np.array([one.fixed_ns, one.compute, one.memory, one.cached])
        assert fit_efficiency._times(value, columns)[0] == pytest.approx(parts.time(one))


@pytest.mark.slow
def test_the_shipped_shares_are_those_of_the_command():
    """One entry, fitted again from the measurements in bench/results."""
    again = [one for one in fit_efficiency.points() if "mm|bfloat16" in efficiency.keys(one.kind)]
    assert fit_efficiency._share(again) == efficiency.load().shares["mm|bfloat16"]


def test_the_shipped_ceilings_are_those_of_the_measured_card():
    assert fit_efficiency.measured_over_datasheet() == efficiency.load().measured_over_datasheet
    least = min(one.ns for one in fit_efficiency.points())
    assert efficiency.load().least_ns == least


# Dispatch


COSTS = dict(zip(FEATURES, (21e3, 4e3, 33e3, 9e3, 5e3), strict=True))


def foreach(tensors: int) -> OpCall:
    return OpCall(name="aten::_foreach_add_", inputs=(TensorList((tensor(8, dtype="float32"),) * tensors),))


def counted(forward: int, modules: int, backward: int, views: int, optimizer: int, tensors: int) -> list[RecordedCall]:
    calls = [recorded(relu(64))] * forward + [recorded(view(8))] * 3
    calls += [recorded(relu(64), phase="backward")] * backward
    calls += [recorded(view(8), phase="backward")] * views
    return calls + [recorded(foreach(tensors), phase="optimizer")] * optimizer


def kernels_of(call: OpCall) -> int:
    return expect(call, price(call), find("h100"), efficiency.load()).kernels


def labelled(*how_many: int, busy: float = 0.3) -> Labelled:
    """A step whose wall time is the sum of its costs, counted by hand."""
    forward, modules, backward, views, optimizer, tensors = how_many
    calls = counted(*how_many)
    further = optimizer * (kernels_of(foreach(tensors)) - 1) + (forward + backward) * (kernels_of(relu(64)) - 1)
    counts = (forward + optimizer, modules, backward, views, further)
    wall = sum(many * cost for many, cost in zip(counts, COSTS.values(), strict=True))
    wall += optimizer * tensors * fit_dispatch.optimizer_costs()["tensor_ns"]
    return Labelled("m", "train", recording(calls, module_calls=modules), wall * busy, wall, wall, 0, 0)


STEPS = [
    labelled(10, 3, 0, 0, 0, 1), labelled(50, 20, 0, 0, 0, 1), labelled(200, 10, 150, 20, 0, 1),
    labelled(30, 30, 60, 90, 0, 1), labelled(100, 5, 100, 5, 4, 50), labelled(80, 40, 40, 10, 30, 8),
    labelled(300, 90, 500, 250, 2, 200), labelled(5, 2, 7, 1, 60, 3), labelled(60, 6, 10, 44, 10, 1),
]  # fmt: skip


def test_the_features_of_a_step_are_counts():
    found = dict(zip(FEATURES, fit_dispatch.features(labelled(10, 3, 4, 5, 2, 7)).tolist(), strict=True))
    further = 2 * (kernels_of(foreach(7)) - 1)
    assert found == {
        "forward_ns": 12, "module_ns": 3, "backward_ns": 4, "backward_view_ns": 5, "launch_ns": further,
    }  # fmt: skip


@pytest.mark.slow
def test_the_fit_explains_every_step_it_was_given():
    """All costs, or others that give the same steps: the wall times come back."""
    costs = fit_dispatch.fit(STEPS)
    assert all(one >= 0 for one in costs.values())
    for step in STEPS:
        counts = fit_dispatch.features(step)
        issued = sum(counts * np.array(list(costs.values())))
        assert issued + fit_dispatch.lists_ns(step) == pytest.approx(step.wall_ns, rel=0.02)
    for name in ("forward_ns", "backward_ns", "module_ns", "backward_view_ns"):
        assert costs[name] == pytest.approx(COSTS[name], rel=0.15), name


@pytest.mark.slow
def test_device_bound_steps_are_left_out_of_the_fit():
    slow = labelled(100, 0, 0, 0, 0, 1, busy=HOST_BOUND + 0.1)
    odd = Labelled("m", "x", slow.recording, slow.wall_ns * 50 * 0.9, slow.wall_ns * 50, 1.0, 0, 0)
    assert fit_dispatch.fit([*STEPS, odd]) == fit_dispatch.fit(STEPS)


def test_the_model_of_the_costs_is_the_cost_of_the_calls():
    """What `Dispatch.host_ns` adds up over a step is what the fit took apart; the forward pass's views come on top."""
    model = fit_dispatch.dispatch(COSTS)
    for step in STEPS:
        calls = step.recording.calls
        modules = step.recording.module_calls / sum(one.phase == "forward" for one in calls)
        own = sum(
            model.host_ns(one, kernels_of(one.call) if one.call.name != "aten::view" else 0, modules) for one in calls
        )
        assert own - 3 * model.view_ns == pytest.approx(step.wall_ns)


# What bench/predictions.py found


def found() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(predictions.TARGET.read_text())
    return read


def test_misses():
    rows = [{"p": 110.0, "m": 100.0}, {"p": 80.0, "m": 100.0}]
    assert predictions.misses(rows, "p", "m") == pytest.approx([0.1, 0.2])


def test_the_stored_predictions_are_of_enough_models_and_below_no_floor():
    rows = found()["rows"]
    assert len({row["model"] for row in rows}) >= 12
    for row in rows:
        assert row["low_ns"] <= row["step_ns"] <= row["high_ns"]
        assert row["step_ns"] >= row["device_ns"] * 0.999
        assert row["step_ns"] >= row["host_ns"] * 0.5


def test_the_stored_spread_is_that_of_the_stored_predictions():
    errors = [math.log(row["busy_ns"] / row["device_ns"]) for row in found()["rows"]]
    spread = math.sqrt(sum(one**2 for one in errors) / len(errors))
    assert efficiency.load().step_spread == pytest.approx(spread, abs=6e-4)


def test_the_device_time_s_promise():
    """docs/design.md, section 10: 15 % from the datasheet, 10 % with the card's own ceilings, over all models."""
    rows = found()["rows"]
    assert float(np.mean(predictions.misses(rows, "device_ns", "busy_ns"))) < 0.15
    calibrated = [row for row in rows if "calibrated_ns" in row]
    assert float(np.mean(predictions.misses(calibrated, "calibrated_ns", "busy_ns"))) < 0.10
