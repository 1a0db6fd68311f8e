"""Predictions from recordings written by hand: the contract, regimes by batch, memory, several machines. No torch."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import gobrrr
from gobrrr.analysis.savings.elsewhere import OTHER_MACHINE_ERROR
from gobrrr.api import load, save
from gobrrr.doors.prediction import forecast, predict
from gobrrr.errors import UsageError
from gobrrr.hardware import find
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.recording import Assumption, Recording
from gobrrr.model.work import OpCall, Scalar
from gobrrr.report.json import to_json
from tests.recordings import (
    add,
    host,
    hosts,
    item,
    machine,
    mm,
    recorded,
    recording,
    relu,
    stored,
    strange,
    tensor,
    view,
)
from tests.spread import examples
from tests.test_contract import CHECKER, CONTRACT, checker, misfits, refused, unequal

SEVERAL = ("h100", "a100-80gb", "h200", "b200", "mi300x")


def layer(rows: int, width: int) -> list[OpCall]:
    """A feed-forward layer: two products, and pointwise work between them."""
    wide = [mm(rows, width, 4 * width), relu(rows, 4 * width), mm(rows, 4 * width, width)]
    return [view(rows, width), *wide, add(rows, width)]


def network(rows: int, width: int = 1024, depth: int = 8) -> Recording:
    """Forward and backward passes and an optimizer's."""
    forward = [recorded(one) for _ in range(depth) for one in layer(rows, width)]
    backward = [replace(one, phase="backward", node="Backward0") for one in reversed(forward) for _ in range(2)]
    optimizer = [recorded(add(width, 4 * width, dtype="float32"), phase="optimizer") for _ in range(2 * depth)]
    return recording([*forward, *backward, *optimizer], target="net.py:step", module_calls=3 * depth)


def here(step: Recording, *names: str) -> Diagnosis:
    return _here(id(step), names or ("h100",)) if id(step) in _KEPT else _predicted(step, names or ("h100",))


def _predicted(step: Recording, names: tuple[str, ...]) -> Diagnosis:
    return predict(step, [find(name) for name in names])


@cache
def _here(which: int, names: tuple[str, ...]) -> Diagnosis:
    """One of `STEPS`, predicted once."""
    return _predicted(_KEPT[which], names)


STEPS: dict[str, Recording] = {
    "small": network(16),
    "large": network(65536),
    "pointwise": recording([relu(2**26)] * 6),
    "waits": recording([mm(4096, 4096, 4096), recorded(item(), waits=True), *layer(64, 64)]),
    "copies": recording([recorded(relu(2**22), host_copy="HtoD"), *layer(4096, 1024)]),
    "unknown": recording([strange(2**26), relu(64)]),
    "one": recording([relu(1)]),
    "too large": recording([relu(2**20)], peak_bytes=10**12),
    "recomputed": recording([mm(1024, 1024, 1024), recorded(mm(1024, 1024, 1024), recomputed=True, needed=0.5)]),
}
_KEPT = {id(one): one for one in STEPS.values()}
EVERY = pytest.mark.parametrize("name", list(STEPS))


def as_json(found: Diagnosis) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(to_json(found), parse_constant=refused)
    return read


# The contract


@EVERY
def test_it_keeps_the_contract(name: str):
    found = as_json(here(STEPS[name], *SEVERAL))
    assert found["origin"] == "static"
    assert found["unprofiled_wall_ns"]["how"] == "estimated"
    assert misfits({**found, "wall_ns": 0}, CONTRACT) == []  # no profiler slowed anything: there is no such time
    assert found["wall_ns"] is None
    assert unequal(found) == []


@pytest.mark.skipif(not CHECKER.is_file(), reason="the other checker is not beside this checkout")
@EVERY
def test_the_other_checker_agrees(name: str):
    assert checker().faults(as_json(here(STEPS[name], *SEVERAL))) == []


@EVERY
def test_it_survives_a_file(name: str, tmp_path: Path):
    found = here(STEPS[name], "h100", "b200")
    save(found, tmp_path / "saved.json")
    assert load(tmp_path / "saved.json") == found


@EVERY
def test_rows_hold_what_the_diagnosis_says(name: str):
    found = here(STEPS[name], *SEVERAL)
    first = found.machines[0]
    assert [one.machine for one in found.machines] == [find(one).name for one in SEVERAL]
    assert first.step_ns == found.unprofiled_wall_ns.value
    assert (first.low_ns, first.high_ns) == (found.unprofiled_wall_ns.low, found.unprofiled_wall_ns.high)
    assert first.regime == found.regime
    assert first.changed == []
    assert found.machine == first.machine
    for row in found.machines:
        assert row.low_ns <= row.step_ns <= row.high_ns
        assert row.step_ns >= row.device_ns * (1 - 1e-6) - 100
        assert row.speed_of_light_ns is None or row.speed_of_light_ns <= row.device_ns * (1 + 1e-6)
        assert 0 <= row.compute_share + row.memory_share + row.overhead_share <= 1 + 1e-9


def test_the_row_of_a_machine_is_the_prediction_for_it_alone():
    step = STEPS["large"]
    together = here(step, *SEVERAL).machines
    for row, name in zip(together, SEVERAL, strict=True):
        alone = here(step, name).machines[0]
        assert replace(row, changed=[]) == alone


# Regimes


def test_small_batches_are_overhead_bound_and_large_ones_are_not():
    regimes = [here(network(rows)).regime for rows in (1, 16, 65536)]
    assert regimes[:2] == ["overhead", "overhead"]
    assert regimes[2] == "compute"
    assert here(STEPS["pointwise"]).regime == "memory"


def test_a_host_bound_step_takes_as_long_for_a_batch_of_one_as_of_sixteen():
    one, more = (here(network(rows)).machines[0].step_ns for rows in (1, 16))
    assert more == pytest.approx(one, rel=0.01)


@pytest.mark.parametrize("name", SEVERAL)
def test_more_rows_never_take_less_time(name: str):
    times = [here(network(rows), name).machines[0].step_ns for rows in (8, 128, 2048, 32768)]
    assert times == sorted(times)


def test_the_step_by_hand():
    """4 calls of 20 us on the host; the device has 3 x (2 us + 402.7 MB at half of 2 TB/s)."""
    step = recording([relu(2**26)] * 3 + [view(8)])
    found = predict(step, [machine()], stored=stored(), hosts=hosts())
    each = 2_000 + 2 * 2 * 2**26 / 1e12 * 1e9
    assert found.machines[0].device_ns == pytest.approx(3 * each)
    assert found.machines[0].step_ns == pytest.approx(3 * each, rel=1e-6)
    assert found.machines[0].host_ns == 3 * 20_000 + 1_000
    assert found.speed_of_light_ns == pytest.approx(2 * 2 * 2**26 / 2e12 * 1e9, rel=1e-6)  # one chain, if fused


# The interval


def test_the_interval_is_that_of_hosts_and_shares():
    """One kind of call: its own spread (0.2), beyond the whole step's (0.1). A host-bound step: 0.5 to 2 times."""
    device = predict(recording([relu(2**28)] * 3), [machine()], stored=stored(), hosts=hosts()).machines[0]
    assert (device.low_ns / device.step_ns, device.high_ns / device.step_ns) == pytest.approx(
        (math.exp(-0.2), math.exp(0.2)), rel=1e-3
    )
    issuing = predict(recording([relu(1)] * 50), [machine()], stored=stored(), hosts=hosts()).machines[0]
    assert (issuing.low_ns / issuing.step_ns, issuing.high_ns / issuing.step_ns) == pytest.approx((0.5, 2.0), rel=1e-3)


def test_another_gpu_than_the_measured_one_is_less_certain():
    def spread(name: str) -> float:
        on = machine(name=name)
        works = {relu(2**28): gobrrr.cost.price(relu(2**28))}
        return forecast(recording([relu(2**28)]), works, on, stored(), hosts()).device_spread

    assert spread("round") == pytest.approx(0.2)
    assert spread("other") == pytest.approx(math.hypot(0.2, OTHER_MACHINE_ERROR))


def test_kinds_that_miss_apart_are_more_certain_together():
    """Two kinds of the same time and spread: a root of two less, but never below what whole steps missed."""
    table = stored({"relu": stored().shares[""], "clamp_min": stored().shares[""], "add": stored().shares[""]})
    large = [relu(3 * 2**26), add(2 * 2**26)]
    works = {one: gobrrr.cost.price(one) for one in large}
    found = forecast(recording(large), works, machine(), table, hosts())
    assert found.device_spread == pytest.approx(0.2 / math.sqrt(2), rel=1e-3)
    calm = replace(table, step_spread=0.19)
    assert forecast(recording(large), works, machine(), calm, hosts()).device_spread == pytest.approx(0.19)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.sampled_from([relu(64), relu(2**24), mm(64, 64, 64), mm(2048, 2048, 2048), view(8), strange(64)]),
             min_size=1, max_size=8),
    st.sampled_from(SEVERAL),
)  # fmt: skip
def test_any_step_adds_up_and_stays_below_light(calls: list[OpCall], name: str):
    found = as_json(here(recording([*calls, add(8)]), name))
    assert unequal(found) == []
    (row,) = found["machines"]
    assert row["low_ns"] <= row["step_ns"] <= row["high_ns"]


# Memory, notes


def test_what_does_not_fit_is_said():
    found = here(STEPS["too large"], "h100", "h200")
    assert [one.fits for one in found.machines] == [False, False]
    assert any("does not fit: tensors hold 1.00 TB at their peak" in one for one in found.notes)
    assert found.memory_peak_bytes == 1e12


def test_what_fits_is_not_said_to_be_too_big():
    step = recording([relu(2**20)], peak_bytes=100 * 10**9)
    found = here(step, "h200", "h100")
    assert [one.fits for one in found.machines] == [True, False]
    assert not any("does not fit" in one for one in found.notes)
    assert predict(step, [machine(memory_bytes=None)]).machines[0].fits is None


def test_notes_say_what_was_assumed():
    step = recording(
        [strange(2**26)], on_cpu=True, notes=("a note of the door",),
        assumptions=(Assumption("the value of a bool tensor", "True", "/home/x/model.py(12): forward"),),
    )  # fmt: skip
    notes = here(step).notes
    assert notes[0].startswith("predicted, not measured: datasheet ceilings of H100-SXM5-80GB")
    assert any("no operation of the step is on a GPU" in one for one in notes)
    assert any("100 % of the device time is in operations without a cost rule" in one for one in notes)
    assert "the value of a bool tensor at model.py(12): forward is assumed to be True: it depends on real data" in notes
    assert "a note of the door" in notes


def test_a_guess_lowers_the_coverage():
    assert here(STEPS["unknown"]).coverage.calls == pytest.approx(0.5)
    assert here(STEPS["large"]).coverage.device_time == 1.0


def test_a_step_without_work_for_a_device_is_refused():
    for calls in ([], [view(8)], [recorded(relu(8), place="host")]):
        with pytest.raises(UsageError, match="nothing to predict") as error:
            here(recording(calls, target="net.py:st\x1bep"))
        assert "\x1b" not in str(error.value)


# From machine to machine


def test_what_meets_another_roof_is_named():
    """2 n^3 FLOP over 6 n^2 bytes, n/3 FLOP a byte: 400 is above the H100's 295 and the A100's 153, 200 between."""
    between, above = mm(600, 600, 600), mm(8192, 8192, 8192)
    no_cache = [replace(find(name), cache_bytes=None) for name in ("h100", "a100-80gb")]
    found = predict(recording([between] * 50 + [above]), no_cache)
    ((op, bound),) = [(one.op, one.bound) for one in found.machines[1].changed]
    assert (op, bound) == ("aten::mm", "compute")
    assert found.machines[1].changed[0].ns > 0
    assert "600" in found.machines[1].changed[0].shapes


def test_the_ridge_is_the_peak_over_the_bandwidth():
    found = here(STEPS["large"], "h100", "a100-80gb")
    assert found.machines[0].ridge_flop_per_byte == pytest.approx(989.4e12 / 3.35e12, rel=0.01)
    assert found.machines[1].ridge_flop_per_byte == pytest.approx(312e12 / 2.04e12, rel=0.02)
    assert {one.step_flop_per_byte for one in found.machines} == {found.machines[0].step_flop_per_byte}


def test_ceilings_are_called_what_they_are():
    measured = find("h100").memory_bytes_per_s
    assert measured is not None
    on = replace(find("h100"), memory_bytes_per_s=replace(measured, provenance="measured"))
    assert predict(STEPS["large"], [on]).machines[0].ceilings == "measured"
    assert here(STEPS["large"]).machines[0].ceilings == "datasheet"


def test_a_slower_host_moves_the_host_s_part_only():
    slow = hosts(middle=host().scaled(3.0))
    usual, slower = (
        predict(network(16), [machine()], stored=stored(), hosts=one).machines[0] for one in (hosts(), slow)
    )
    assert slower.host_ns == pytest.approx(3 * usual.host_ns)
    assert slower.device_ns == usual.device_ns
    assert usual.host == "a round host"


def test_work_with_text_that_a_terminal_would_obey_is_printed_safely():
    call = OpCall(name="mylib::a\x1b[31mb", inputs=(tensor(2**20), Scalar("\x07")))
    found = here(recording([call, relu(2**20)], target="a\x1b]0;b:step"))
    assert "\x1b" not in str(found)
    assert "\x07" not in str(found)
