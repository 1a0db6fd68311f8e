"""A machine that was measured under load: what stays as a lower bound, what is measured again, what replaces what."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gobrrr.doors import pipeline
from gobrrr.hardware import cache
from gobrrr.hardware.bounds import at_least, at_most, busiest, doubt, doubtful, merged, unsettled
from gobrrr.hardware.ceilings import datasheet_of, machine_of
from gobrrr.hardware.dispatch import load
from gobrrr.model.contention import Contention
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.measured import Curve, CurvePoint, MeasuredFigure, Measurement, Quantity, Skipped, StageRun
from gobrrr.observe.trace import read_trace
from gobrrr.report import machine as screen
from gobrrr.report.html import render as html
from gobrrr.report.layout import Page, plain
from gobrrr.report.terminal import render
from tests.hardware.measured_samples import H100, environment
from tests.traces import Trace

QUIET = Contention(seconds=4.0, processors=2, others=0.01, waited=0.01)
BUSY = Contention(seconds=4.0, processors=2, others=1.3, waited=0.6)
UNKNOWN = "Some GPU that no table knows"


def figure(group: str, name: str, value: float, *, best: float | None = None, spread: float = 0.01) -> MeasuredFigure:
    unit = {"matrix": "FLOP/s", "vector": "FLOP/s", "dispatch": "s"}.get(group, "B/s")
    amount = Quantity(value=value, low=value * (1 - spread / 2), high=value * (1 + spread / 2), runs=20, best=best)
    return MeasuredFigure(group=group, name=name, unit=unit, amount=amount, stage=name)


def measured(*entries: MeasuredFigure, busy: tuple[str, ...] = (), kind: str = "cpu", name: str = "A CPU",
             tries: int = 1, shared: Contention = BUSY, **more: object) -> Measurement:  # fmt: skip
    """Each entry is a stage of its own name; those in `busy` ran beside others."""
    names = dict.fromkeys([one.stage for one in entries] + list(busy))
    runs = tuple(
        StageRun(name=one, date="2026-05-05", contention=shared if one in busy else QUIET, tries=tries) for one in names
    )
    given: dict[str, object] = {"entries": entries, "stages": runs, "environment": environment(name, kind), **more}
    return Measurement(**given)  # type: ignore[arg-type]


MATMUL = figure("matrix", "float32", 1e11, best=1.6e11)
COPY = figure("memory", "copy", 1e10, best=1.5e10)


def test_the_best_of_the_repeats_is_a_lower_bound_of_a_rate_and_an_upper_one_of_a_time() -> None:
    assert at_least(MATMUL.amount) == 1.6e11
    assert at_least(figure("matrix", "x", 1e11, spread=0.4).amount) == pytest.approx(1.2e11)  # an older file
    assert at_least(figure("matrix", "x", 1e11, best=float("inf")).amount) == pytest.approx(1.005e11)
    assert at_most(Quantity(value=3.0, low=2.0, high=4.0, runs=9, best=1.0)) == 1.0
    assert at_most(Quantity(value=3.0, low=2.0, high=4.0, runs=9)) == 2.0


def test_on_a_quiet_machine_the_median_is_the_ceiling() -> None:
    found = machine_of(measured(MATMUL, COPY))
    peak = found.matrix_flop_per_s["float32"]
    assert (peak.value, peak.at_least) == (1e11, "")
    assert doubtful(measured(MATMUL, COPY)) == unsettled(measured(MATMUL, COPY)) == []
    assert busiest(measured(MATMUL, COPY)) is None


def test_beside_others_it_is_a_lower_bound_that_says_why() -> None:
    one = measured(MATMUL, COPY, busy=("float32",))
    peak = machine_of(one).matrix_flop_per_s["float32"]
    assert peak.value == 1.6e11
    assert peak.at_least.startswith("other processes had 1.3 of the 2 processors")
    assert "best of 20 repeats" in peak.source
    assert "2026-05-05" in peak.source
    memory = machine_of(one).memory_bytes_per_s
    assert memory is not None
    assert (memory.value, memory.at_least) == (1e10, "")
    assert unsettled(one) == ["float32"]
    assert busiest(one) == BUSY
    assert machine_of(one).notes[1].endswith("matrix float32")


def test_repeats_that_differ_make_a_lower_bound_as_well() -> None:
    one = measured(figure("matrix", "float32", 1e11, best=2e11, spread=0.4), COPY)
    peak = machine_of(one).matrix_flop_per_s["float32"]
    assert (peak.value, peak.at_least) == (2e11, "its repeats were 40 % apart")
    assert unsettled(one) == ["float32"]
    assert busiest(one) is None


def test_what_always_differs_is_not_measured_again_for_ever() -> None:
    wide = figure("matrix", "float32", 1e11, best=2e11, spread=0.4)
    assert unsettled(measured(wide, tries=3)) == ["float32"]
    assert unsettled(measured(wide, tries=4)) == []


def test_a_datasheet_beats_a_lower_bound_below_it() -> None:
    sheet = datasheet_of(H100)
    assert sheet is not None
    below = figure("matrix", "bfloat16", 4e14, best=5e14, spread=0.5)
    above = figure("memory", "copy", 3e12, best=4e12, spread=0.5)
    found = machine_of(measured(below, above, kind="cuda", name=H100), sheet)
    assert found.matrix_flop_per_s["bfloat16"] == sheet.matrix_flop_per_s["bfloat16"]
    assert found.memory_bytes_per_s is not None
    assert (found.memory_bytes_per_s.value, bool(found.memory_bytes_per_s.at_least)) == (4e12, True)


def test_a_steady_figure_counts_unless_a_doubtful_one_was_above_it() -> None:
    steady = figure("memory", "copy", 3e10)
    for best, value, bound in ((2e10, 3e10, False), (4e10, 4e10, True)):
        one = measured(steady, figure("memory", "read", 1e10, best=best), busy=("read",))
        found = machine_of(one).memory_bytes_per_s
        assert found is not None
        assert (found.value, bool(found.at_least)) == (value, bound)


def test_the_caches_curve_is_a_bound_as_well() -> None:
    size = MeasuredFigure(group="cache", name="last level", unit="B", stage="caches",
                 amount=Quantity(value=2.0**25, low=2.0**25, high=2.0**25, runs=1))  # fmt: skip
    points = (CurvePoint(x=2.0**24, y=Quantity(value=1e10, low=9e9, high=1.1e10, runs=5, best=2e10)),)
    curve = Curve(name="bandwidth by working set", x_unit="B", y_unit="B/s", points=points, stage="caches")
    for busy, value in (((), 1e10), (("caches",), 2e10)):
        one = measured(size, COPY, busy=busy, curves=(curve,))
        found = machine_of(one).cache_bytes_per_s
        assert found is not None
        assert (found.value, bool(found.at_least)) == (value, bool(busy))
        assert unsettled(one) == list(busy)


def test_a_gpus_figures_are_disturbed_by_who_uses_the_gpu_not_the_host() -> None:
    for shared, bound in ((BUSY, False), (msgspec.structs.replace(QUIET, device=0.7), True)):
        one = measured(MATMUL, busy=("float32",), shared=shared, kind="cuda", name=UNKNOWN)
        assert bool(doubt(one, one.entries[0])) == bound
    host = measured(figure("dispatch", "add", 1e-5), busy=("add",), kind="cuda", name=UNKNOWN)
    assert doubt(host, host.entries[0])


def test_the_least_repeat_of_a_disturbed_dispatch_is_the_hosts() -> None:
    reference = load().reference_s
    entries = tuple(figure("dispatch", name, seconds * 3, best=seconds) for name, seconds in reference.items())
    disturbed = load().like(measured(*entries, busy=tuple(reference)))
    assert disturbed.middle.forward_ns == pytest.approx(load().middle.forward_ns)
    assert load().like(measured(*entries)).middle.forward_ns == pytest.approx(3 * load().middle.forward_ns)


def test_a_stage_that_others_left_no_time_for_is_tried_again() -> None:
    late = (Skipped(what="matmul, bfloat16", why="less than 4 s was left", stage="late", late=True),)
    assert unsettled(measured(MATMUL, busy=("float32", "late"), skipped=late)) == ["float32", "late"]
    alone = measured(MATMUL, figure("matrix", "late", 1.0), skipped=late)  # a slow machine: it would be late again
    assert unsettled(alone) == []


def test_a_quiet_figure_replaces_a_bound_and_not_the_other_way_round() -> None:
    busy, quiet = measured(MATMUL, COPY, busy=("float32", "copy")), measured(figure("matrix", "float32", 2e11), COPY)
    assert merged(busy, quiet) == quiet
    assert [(one.name, one.amount.value) for one in merged(quiet, busy).entries] == [("float32", 2e11), ("copy", 1e10)]
    assert unsettled(merged(quiet, busy)) == []


def test_of_two_bounds_the_higher_stays_and_the_tries_add_up() -> None:
    low, high = (measured(figure("matrix", "float32", 1e11, best=best), busy=("float32",)) for best in (1.5e11, 1.7e11))
    for one in (merged(low, high), merged(high, low)):
        assert at_least(one.entries[0].amount) == 1.7e11
        assert [run.tries for run in one.stages] == [2]


def test_what_was_not_run_again_stays() -> None:
    kept = measured(MATMUL, COPY, busy=("float32",))
    found = merged(kept, measured(figure("matrix", "float32", 2e11)))
    assert [(one.name, one.amount.value) for one in found.entries] == [("float32", 2e11), ("copy", 1e10)]
    assert [run.name for run in found.stages] == ["float32", "copy"]


def test_a_busy_day_takes_nothing_from_the_kept_file(tmp_path: Path) -> None:
    cache.keep(measured(figure("matrix", "float32", 2e11), COPY), tmp_path)
    kept = cache.keep(measured(MATMUL, COPY, busy=("float32", "copy")), tmp_path)
    assert kept.entries[0].amount.value == 2e11
    assert cache.newest("A CPU", tmp_path)[0] == kept
    assert cache.like(kept.environment, tmp_path) == kept
    assert cache.like(environment("another"), tmp_path) is None


def test_a_file_from_before_there_were_stages_is_replaced(tmp_path: Path) -> None:
    cache.save(msgspec.structs.replace(measured(COPY), stages=()), tmp_path)
    new = measured(MATMUL, busy=("float32",))
    assert cache.keep(new, tmp_path) == new


def test_a_kept_file_holds_all_of_it() -> None:
    one = measured(MATMUL, busy=("float32",))
    assert cache.decode(msgspec.json.encode(one)) == one


def test_the_screen_says_that_the_machine_was_busy() -> None:
    out = plain(screen.pages([measured(MATMUL, COPY, busy=("float32",))], Page(width=80)))
    assert max(map(len, out.splitlines())) <= 80
    text = " ".join(out.split())
    assert "! The machine was busy: other processes had 1.3 of the 2 processors" in text
    assert "differ: matrix float32." in text
    assert "busy" not in plain(screen.pages([measured(MATMUL, COPY)], Page(width=80)))


# -- an answer that rests on such a file


def products(folder: Path, us: float = 2000.0) -> Path:
    """Steps of one float32 product of 2 x 1024^3 = 2.15 GFLOP that takes 2 ms: 1.07 TFLOP/s."""
    trace = Trace(device=UNKNOWN)
    for number in range(4):
        with trace.step(number):
            trace.op("aten::mm", [(1024, 1024), (1024, 1024)], us, dtype="float32")
    return trace.write(folder)


def diagnosed(folder: Path, kept: Measurement, monkeypatch: pytest.MonkeyPatch, us: float = 2000.0) -> Diagnosis:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    cache.save(kept)
    return pipeline.diagnose(read_trace(str(products(folder, us))))


def gpu(peak: MeasuredFigure, busy: bool = False) -> Measurement:
    """Of a GPU that no datasheet knows: its float32 products run on the vector units."""
    shared = msgspec.structs.replace(QUIET, device=0.5)
    copy = figure("memory", "copy", 1e12)
    return measured(peak, copy, kind="cuda", name=UNKNOWN, busy=("float32",) if busy else (), shared=shared)


@pytest.mark.parametrize("spread", [0.01, 0.6])
def test_a_wide_spread_is_no_reason_for_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: float) -> None:
    peak = figure("matrix", "float32", 1.2e12, best=1.6e12, spread=spread)
    found = diagnosed(tmp_path, gpu(peak), monkeypatch)
    assert found.regime == "compute"
    assert found.certainty == ("medium" if spread > 0.25 else "high")
    assert found.coverage.device_time == 1.0
    lines = render(found).splitlines()
    said = " ".join(" ".join(lines[:6]).split())
    assert ("(float32 vector): when that was measured, its repeats were 60 % apart" in said) == (spread > 0.25)
    assert bool(found.caveats) == bool(found.lower_bounds) == (spread > 0.25)
    if spread > 0.25:
        assert found.lower_bounds == ["float32 vector"]
        assert "Speed of light (the least time for this work in its number types): at most" in render(found)
        assert any("at most 67 % of the float32 peak; the device may do more" in one for one in found.evidence)
        assert "its repeats were 60 % apart" in html(found)


def test_others_on_the_gpu_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosed(tmp_path, gpu(figure("matrix", "float32", 1.2e12, best=1.6e12), busy=True), monkeypatch)
    assert "when that was measured, other processes used the GPU 50 % of the time" in found.caveats[0]
    assert (found.regime, found.certainty) == ("compute", "medium")


def test_a_kernel_above_a_lower_bound_contradicts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.15 TFLOP/s where 1.2 or 1.6 were measured: it contradicts a ceiling, and raises a lower bound."""
    steady, wide = (figure("matrix", "float32", 1.2e12, best=1.6e12, spread=one) for one in (0.01, 0.6))
    assert diagnosed(tmp_path, gpu(steady), monkeypatch, 1000.0).certainty == "low"
    found = diagnosed(tmp_path, gpu(wide), monkeypatch, 1000.0)
    assert (found.regime, found.certainty) == ("compute", "medium")
    assert not any("faster than their floor" in one for one in [*found.evidence, *found.notes])
