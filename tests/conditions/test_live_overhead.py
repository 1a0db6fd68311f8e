"""O05 to O10 and O12 on what a live run observed, sick and healthy."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import structs

from gobrrr.analysis.findings.claims import ClaimedFinding, outside
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import scope_of
from gobrrr.conditions.again import longer_steps
from gobrrr.model.diagnosis import Finding, NotChecked
from gobrrr.model.live import Collection, Collector, Compiled, DeviceMemory, GraphBreak, Recompile, Switches, Threads
from gobrrr.model.recording import CallLine, Recording
from tests.conditions.lives import framed, live_of, ran
from tests.conditions.makers import seen_of
from tests.evidence import check, claimed, findings, found, predict, watched
from tests.traces import Trace

LIVE_ONLY = ("O07", "O08", "O09", "O10")


def eager(trace: Trace, count: int = 20) -> None:
    """Small pointwise calls that the host launches one by one: 100 us each, of which the device works 2."""
    for _ in range(count):
        trace.op("aten::mul", [[512, 512], [512, 512]], 2.0, dtype="float32", host_us=100.0)


def told(code: str, folder: Path, **observed: object) -> Finding | NotChecked | None:
    return check(code, ran(folder, eager, **observed))


@pytest.mark.parametrize("code", LIVE_ONLY)
def test_a_trace_can_t_tell_and_says_so(code: str, tmp_path: Path):
    for result in (check(code, seen_of(tmp_path, eager)), told(code, tmp_path)):
        assert isinstance(result, NotChecked)
        assert "live run" in result.needs


# -- O07


def collector(*runs: tuple[int, float, int], steps: int = 10) -> Collector:
    made = tuple(Collection(step=step, ns=ns, generation=generation) for step, ns, generation in runs)
    return Collector(steps=steps, enabled=True, runs=made, tracked=1_000_000)


def test_pauses_in_many_steps_are_at_stake_with_their_mean(tmp_path: Path):
    seen = ran(tmp_path, eager, collector=collector(*((step, 4e5, 2) for step in range(5))))
    finding = found("O07", seen)
    assert finding.at_stake_ns == pytest.approx((2e5, 2e5))
    assert finding.certainty == "high"
    given = predict("gc-freeze", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == pytest.approx((2e5, 2e5))


def test_one_long_pause_counts_with_its_mean_and_is_a_guess(tmp_path: Path):
    seen = ran(tmp_path, eager, collector=collector((3, 12e6, 2)))
    finding = found("O07", seen)
    assert finding.at_stake_ns == pytest.approx((0, 1.2e6))
    given = predict("gc-freeze", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == pytest.approx((0, 1.2e6))
    assert given.expected_ns == pytest.approx(0.6e6)
    assert finding.certainty == "low"
    assert any("guess" in fact for fact in finding.evidence)


def test_a_pause_that_the_median_step_does_not_hold_takes_nothing_from_others(tmp_path: Path):
    plain = {one.code: one for one in findings(ran(tmp_path, eager, collector=collector()))}
    paused = {one.code: one for one in findings(ran(tmp_path, eager, collector=collector((3, 12e6, 2))))}
    assert "O07" not in plain
    assert paused["O07"].at_stake_ns[1] == pytest.approx(1.2e6)
    assert paused["O01"].at_stake_ns == plain["O01"].at_stake_ns


def test_a_pause_of_each_step_lies_in_the_step(tmp_path: Path):
    every = collector(*((step, 5e5, 1) for step in range(10)))
    settled = {one.code: one for one in findings(ran(tmp_path, eager, collector=every))}
    assert settled["O07"].at_stake_ns[0] == pytest.approx(5e5)
    assert any("belong to O07" in fact for fact in settled["O01"].evidence)


def test_a_collector_that_hardly_runs_is_healthy(tmp_path: Path):
    for one in (collector(), collector((3, 9e5, 1)), collector(*((step, 1e3, 0) for step in range(10)))):
        assert told("O07", tmp_path, collector=one) is None


def test_the_programs_own_collection_is_at_the_line_that_calls_it(tmp_path: Path):
    """The frame tells where the function begins; the step that was looked at, the line of the call."""
    step, name = "train.py(7): step", "<built-in function collect>"

    def body(trace: Trace) -> None:
        framed(trace, step, lambda: (eager(trace), framed(trace, name, lambda: setattr(trace, "now", trace.now + 500))))

    seen = ran(tmp_path, body, collector=collector(*((one, 5e5, 2) for one in range(10))))
    assert found("O07", seen).where[0].source == step
    looked = Recording(
        target="", calls=(), sites=(), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False,
        lines=(CallLine(caller=step, callee="collect", source="train.py(9): step"),),
    )  # fmt: skip
    known = watched(seen, seen=looked)
    finding = found("O07", known)
    assert finding.where[0].source == "train.py(9): step"
    given = predict("gc-freeze", known, finding)
    assert given is not None
    assert "train.py:9" in given.how


def test_a_function_that_ran_when_the_profiler_started_keeps_its_lines(tmp_path: Path):
    """The profiler names it by the line that it had come to: 40, of a function that begins at 7."""
    name = "<built-in function collect>"

    def body(trace: Trace) -> None:
        inner = lambda: (eager(trace), framed(trace, name, lambda: setattr(trace, "now", trace.now + 500)))  # noqa: E731
        framed(trace, "train.py(40): main", inner)

    seen = ran(tmp_path, body, collector=collector(*((one, 5e5, 2) for one in range(10))))
    call = CallLine(caller="train.py(7): main", callee="collect", source="train.py(9): main")
    other = CallLine(caller="train.py(70): main", callee="sleep", source="train.py(71): main")
    for lines, source in ((call,), "train.py(9): main"), ((call, other), "train.py(40): main"):
        looked = Recording(
            target="", calls=(), sites=(), peak_bytes=0, start_bytes=0, module_calls=0, on_cpu=False, lines=lines
        )
        assert found("O07", watched(seen, seen=looked)).where[0].source == source


# -- O08


def test_no_switch_is_on(tmp_path: Path):
    assert told("O08", tmp_path, switches=Switches()) is None
    # what costs nothing in a step
    harmless = Switches(environment=(("TORCH_LOGS", "graph_breaks"), ("NCCL_DEBUG", "INFO")))
    assert told("O08", tmp_path, switches=harmless) is None


def test_anomaly_detection_costs_its_stacks_and_its_checks(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(5):
            framed(trace, "torch/fx/traceback.py(497): format_stack", lambda: setattr(trace, "now", trace.now + 398.0))
            trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, dtype="float32", host_us=10.0)
        for _ in range(5):
            with trace.inside("autograd::engine::evaluate_function: MmBackward0"):
                trace.op("aten::isnan", [[64, 64]], 2.0, dtype="float32", host_us=50.0)

    seen = ran(tmp_path, body, switches=Switches(anomaly=True, anomaly_at="train.py(3): main"))
    finding = found("O08", seen)
    assert [(one.op, one.source) for one in finding.where] == [("anomaly detection", "train.py(3): main")]
    # 5 stacks of 400 us, and 5 checks whose 50 us lie behind a device that is done
    assert finding.at_stake_ns[1] == pytest.approx(2e6 + 2.5e5, rel=0.15)
    assert finding.at_stake_ns[0] == 0  # on a GPU it may be hidden
    given = predict("debug-off", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == pytest.approx(finding.at_stake_ns, rel=0.05)
    # without the switch the same calls are the program's own
    assert check("O08", ran(tmp_path, body, switches=Switches())) is None


def test_a_tracer_may_cost_anything_up_to_python(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(10):
            trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, dtype="float32", host_us=20.0)
            trace.now += 80.0

    seen = ran(tmp_path, body, switches=Switches(tracer="pydevd"))
    finding = found("O08", seen)
    assert finding.at_stake_ns[0] == 0
    assert finding.at_stake_ns[1] == pytest.approx(seen.line("overhead", "python"), rel=0.01)
    assert any("pydevd" in fact for fact in finding.evidence)


FILL, ADD = ("aten::fill_", [[4096, 4096], []]), ("aten::index_add_", [[4096, 64], [], [4096], [4096, 64], []])


@pytest.mark.parametrize(
    ("calls", "switches"),
    [([FILL], ["fill_uninitialized_memory = False"]), ([ADD], ["use_deterministic_algorithms(False)"]),
     ([FILL, ADD], ["fill_uninitialized_memory = False", "use_deterministic_algorithms(False)"])],
)  # fmt: skip
def test_each_cost_of_determinism_is_told_with_its_own_switch(
    calls: list[tuple[str, list[list[int]]]], switches: list[str], tmp_path: Path
):
    def body(trace: Trace) -> None:
        for _ in range(10):
            for name, shapes in calls:
                with trace.inside("aten::empty" if name == FILL[0] else "train"):
                    trace.op(name, shapes, 30.0, dtype="float32", host_us=10.0)

    seen = ran(tmp_path, body, switches=Switches(deterministic=True, deterministic_at="train.py(3): main"))
    finding = found("O08", seen)
    assert finding.where[0].source == "train.py(3): main"
    given = predict("debug-off", seen, finding)
    assert given is not None
    told_ = given.how.splitlines()
    assert len(told_) == len(switches)
    assert all(switch in line for switch, line in zip(switches, told_, strict=True))
    assert (given.predicted_saving_ns[0] > 0) == (FILL in calls)
    assert check("O08", ran(tmp_path, body, switches=Switches())) is None


def test_determinism_that_changes_nothing_in_the_step_is_not_told(tmp_path: Path):
    assert told("O08", tmp_path, switches=Switches(deterministic=True)) is None


def test_blocking_launches_save_at_most_the_smaller_of_host_and_device(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(10):
            trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 30.0, host_us=100.0)
            trace.synchronize()

    seen = ran(tmp_path, body, switches=Switches(launch_blocking=True))
    busy = seen.budget.busy_ns / seen.steps.count
    assert found("O08", seen).at_stake_ns == pytest.approx((0, busy))


# -- O09


def whole_step(seen: Evidence) -> float:
    """All that the step loses to launching and Python, and to chains: mul after mul spares half of what they move."""
    chains = claimed("M01", seen)
    fused = chains.claim.total / seen.steps.count if isinstance(chains, ClaimedFinding) else 0.0
    return seen.line("overhead", "launching") + seen.line("overhead", "python") + fused


def threads(**given: object) -> Threads:
    return Threads(**{"intra": 2, "inter": 2, "usable": 2, **given})  # type: ignore[arg-type]


def test_as_many_threads_as_processors_are_healthy(tmp_path: Path):
    for one in (threads(), threads(intra=1), threads(quota=1.5), threads(workers=4, worker_threads=3.0)):
        assert told("O09", tmp_path, threads=one) is None


def test_threads_that_wait_for_processors_of_others_are_told_on_a_cpu_alone(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(10):
            trace.op("aten::mul", [[1024, 1024], [1024, 1024]], 1000.0, dtype="float32")
            trace.op("aten::mul", [[8, 8], [8, 8]], 1000.0, dtype="float32")  # too small to be split

    seen = ran(tmp_path, body, threads=threads(waited_ns=4e6))
    assert check("O09", seen) is None  # a GPU's kernels take no turns
    seen = watched(seen, live=structs.replace(live_of(threads=threads(waited_ns=4e6)), kind="cpu"))
    finding = found("O09", seen)
    assert finding.title == "threads that wait for processors used by others"
    assert finding.at_stake_ns == pytest.approx((0, 4e6))
    given = predict("limit-threads", seen, finding)
    assert given is not None
    assert "set_num_threads(1)" in given.how
    # a thread that spins takes the turn of one that works: with enough waits the small operations count too
    long = watched(seen, live=structs.replace(live_of(threads=threads(waited_ns=1e9)), kind="cpu"))
    floors = np.nansum(seen.calls.floor_ns)
    assert found("O09", long).at_stake_ns == pytest.approx((0, 20e6 - floors / seen.steps.count))
    for healthy in (threads(waited_ns=0.09 * seen.wall_ns), threads(waited_ns=4e6, intra=1), threads()):
        quiet = watched(seen, live=structs.replace(live_of(threads=healthy), kind="cpu"))
        assert check("O09", quiet) is None


def test_workers_with_pools_of_their_own_are_named_with_the_wait_for_input(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.load(3000.0)
        trace.copy_in(8_000_000, 200.0, pinned=True)
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 300.0)

    many = threads(workers=4, worker_threads=64.0, usable=8, intra=8)
    seen = ran(tmp_path, body, threads=many)
    finding = found("O09", seen)
    # 3 ms of loading, in the first 0.3 of which the device still works
    assert finding.at_stake_ns == pytest.approx((0, 2.7e6), rel=0.1)
    given = predict("limit-threads", seen, finding)
    assert given is not None
    assert "worker_init_fn" in given.how
    assert check("O09", ran(tmp_path, body, threads=threads(workers=4, worker_threads=3.0, usable=8))) is None


# -- O10

BREAK = GraphBreak(reason="Unsupported Tensor.item() call", source="/home/me/train.py(12): forward")


def test_a_break_is_at_stake_with_its_own_function_s_time(tmp_path: Path):
    def body(trace: Trace) -> None:
        framed(trace, "train.py(9): forward", lambda: eager(trace, 10))
        framed(trace, "train.py(30): loss", lambda: eager(trace, 30))

    seen = ran(tmp_path, body, compiled=Compiled(graphs=3, breaks=(BREAK,)))
    finding = found("O10", seen)
    assert finding.at_stake_ns[0] == 0
    # a quarter of the launches and of their chains
    assert finding.at_stake_ns[1] == pytest.approx(0.25 * whole_step(seen), rel=0.1)
    assert finding.where[0].source == "/home/me/train.py(12): forward"
    given = predict("whole-graph", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(finding.at_stake_ns[1]))
    assert "torch.where" in given.how


def test_functions_without_frames_may_be_the_whole_step(tmp_path: Path):
    finding = found("O10", ran(tmp_path, eager, compiled=Compiled(graphs=3, breaks=(BREAK,))))
    assert finding.certainty == "low"
    assert any("no frame" in fact for fact in finding.evidence)


def test_a_break_costs_what_lies_between_the_compiled_pieces(tmp_path: Path):
    """Five launches before, ten in a piece, six between, ten in a piece, nine behind: six are the break's."""

    def body(trace: Trace) -> None:
        eager(trace, 5)
        for between in (6, 9):
            with trace.inside("Torch-Compiled Region: 0/0"):
                eager(trace, 10)
            eager(trace, between)

    seen = ran(tmp_path, body, compiled=Compiled(graphs=2, breaks=(BREAK,)))
    finding = found("O10", seen)
    assert finding.at_stake_ns[1] == pytest.approx(6 / 40 * whole_step(seen), rel=0.2)
    assert any("outside of compiled code" in fact for fact in finding.evidence)


@pytest.mark.parametrize(
    "reason",
    ["Unsupported Tensor.backward() call: ...", "Call to `torch._dynamo.graph_break()`: User-inserted",
     "Attempted to inline function marked as skipped: the function `Optimizer.zero_grad` should not be traced"],
)  # fmt: skip
def test_breaks_by_design_are_none(reason: str, tmp_path: Path):
    made = Compiled(graphs=2, breaks=(GraphBreak(reason=reason, source="train.py(12): step"),))
    assert told("O10", tmp_path, compiled=made) is None


def test_no_compiler_no_finding(tmp_path: Path):
    for made in (Compiled(graphs=0), Compiled(graphs=5)):
        assert told("O10", tmp_path, compiled=made) is None
        assert told("O05", tmp_path, compiled=made) is None


def test_a_resumed_function_is_the_function(tmp_path: Path):
    def body(trace: Trace) -> None:
        framed(trace, "pkg/train.py(12): torch_dynamo_resume_in_forward_at_12", lambda: eager(trace, 5))
        framed(trace, "other/train.py(12): forward", lambda: eager(trace, 5))

    seen = ran(tmp_path, body)
    scope = scope_of(seen, ["/home/me/pkg/train.py(14): forward"])
    assert scope.known
    assert len(scope.calls) == 15
    assert scope.spans.length == pytest.approx(seen.steps.count * seen.wall_ns / 2, rel=0.05)


# -- O05


def again(**given: object) -> Compiled:
    guard = "tensor 'x' size mismatch at index 0. expected 207, actual 208"
    one = Recompile(function="forward", source="/home/me/train.py(9): forward", count=7, reason=guard)
    return Compiled(**{"graphs": 8, "recompiles": (one,), **given})  # type: ignore[arg-type]


def test_steps_that_compiled_count_with_what_they_took_longer(tmp_path: Path):
    times = (1e6, 1e6, 21e6, 1e6, 1e6, 11e6, 1e6, 1e6, 1e6, 1e6)
    assert longer_steps(live_of(ns=times).times, 2) == pytest.approx(3e6)
    seen = ran(tmp_path, eager, ns=times, compiled=again(steady_compiles=2))
    finding = found("O05", seen)
    assert finding.at_stake_ns == pytest.approx((0, seen.wall_ns))  # 3 ms, more than the median step
    assert any("size mismatch" in fact for fact in finding.evidence)
    given = predict("static-shapes", seen, finding)
    assert given is not None
    assert "mark_dynamic" in given.how
    # in steps that the analysed ones do not hold: half of it is expected
    assert given.predicted_saving_ns == pytest.approx(finding.at_stake_ns)


def test_a_function_that_was_given_up_runs_eagerly(tmp_path: Path):
    def body(trace: Trace) -> None:
        framed(trace, "train.py(9): forward", lambda: eager(trace, 10))
        framed(trace, "train.py(30): loss", lambda: eager(trace, 30))

    seen = ran(tmp_path, body, compiled=again(limit_hit=True))
    finding = found("O05", seen)
    assert finding.at_stake_ns == pytest.approx((0, 0.25 * whole_step(seen)), rel=0.1)
    assert any("gave up" in fact for fact in finding.evidence)


def test_what_only_the_profiled_steps_compiled_is_no_finding(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.host("_compile.compile_inner (dynamo_timed)", 8000.0)
        eager(trace)

    assert check("O05", ran(tmp_path, body, compiled=Compiled(graphs=1, steady_compiles=1))) is not None
    # the device of this trace is a GPU, where loading a kernel is known by the length of its launch
    quiet = found("O05", ran(tmp_path, body))
    assert quiet.at_stake_ns[1] == pytest.approx(8e6, rel=0.1)


def test_a_number_that_changes_is_handed_over_as_a_tensor(tmp_path: Path):
    one = Recompile(function="forward", count=3, reason="self.calls == 4")
    seen = ran(tmp_path, eager, ns=(1e6, 9e6) * 5, compiled=again(recompiles=(one,), steady_compiles=5))
    given = predict("static-shapes", seen, found("O05", seen))
    assert given is not None
    assert "self.calls == 4" in given.how


# -- O06


def emptied(trace: Trace) -> None:
    trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 300.0)
    framed(trace, "train.py(30): step", lambda: framed(trace, "torch/cuda/memory.py(215): empty_cache", _freed(trace)))
    trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 300.0)


def _freed(trace: Trace):
    def freed() -> None:
        trace._add("cuda_runtime", "cudaFree", trace.now, 900.0, {"correlation": trace._next()})
        trace.now += 900.0

    return freed


def test_the_line_that_empties_the_cache_is_named(tmp_path: Path):
    finding = found("O06", ran(tmp_path, emptied, memory=DeviceMemory(mallocs=2.0, frees=2.0, retries=0.0)))
    assert finding.where[0].op == "torch.cuda.empty_cache"
    assert finding.where[0].source == "train.py(30): step"
    assert "a step without the profiler: 2 allocations, 2 frees" in finding.evidence


def test_an_allocator_that_was_quiet_without_the_profiler_is_healthy(tmp_path: Path):
    assert check("O06", ran(tmp_path, emptied, memory=DeviceMemory(mallocs=0.0, frees=0.0))) is None
    assert check("O06", ran(tmp_path, emptied)) is not None


# -- O12


def reports(trace: Trace, name: str) -> None:
    def slow() -> None:
        trace.now += 500.0

    eager(trace, 5)
    framed(trace, "train.py(12): step", lambda: framed(trace, name, slow))


@pytest.mark.parametrize(
    ("name", "what"),
    [("<built-in function print>", "print"), ("logging/__init__.py(1477): info", "logging"),
     ("/usr/lib/python3.11/logging/__init__.py(1477): info", "logging"), ("tqdm/std.py(1222): update", "tqdm"),
     ("torch/utils/tensorboard/writer.py(339): add_scalar", "tensorboard"), ("json/__init__.py(183): dumps", "json"),
     ("wandb/sdk/wandb_run.py(1600): log", "wandb"),
     ("<built-in method write of _io.TextIOWrapper object at 0x7f>", "writing a file")],
)  # fmt: skip
def test_what_reports_is_named_with_its_line(name: str, what: str, tmp_path: Path):
    seen = ran(tmp_path, lambda trace: reports(trace, name))
    finding = found("O12", seen)
    assert (finding.where[0].op, finding.where[0].source) == (what, "train.py(12): step")
    assert finding.at_stake_ns[1] == pytest.approx(0.5e6, rel=0.05)
    assert finding.at_stake_ns[0] == pytest.approx(0.25e6, rel=0.05)
    given = predict("log-less", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == pytest.approx(finding.at_stake_ns, rel=0.02)


@pytest.mark.parametrize(
    "name",
    [
        "tqdm/std.py(1160): __iter__", "train.py(30): print_model", "torch/_logging/_internal.py(9): warning",
        "logging/__init__.py(1734): getEffectiveLevel",
        "/home/me/wandb/train.py(30): forward", "/home/me/rich/json/encoder.py(30): encode",
    ],
)  # fmt: skip
def test_what_reports_nothing_is_healthy(name: str, tmp_path: Path):
    assert check("O12", ran(tmp_path, lambda trace: reports(trace, name))) is None


def test_what_one_step_of_several_reports_is_not_each_step_s(tmp_path: Path):
    """A thread that loses its processor within a frame stands there for long, once."""
    steps = iter(range(3))

    def body(trace: Trace) -> None:
        if next(steps) == 1:
            reports(trace, "<built-in function print>")
        else:
            eager(trace, 5)
            framed(trace, "train.py(12): step", lambda: None)

    assert check("O12", ran(tmp_path, body)) is None


def test_reports_need_frames(tmp_path: Path):
    assert isinstance(check("O12", seen_of(tmp_path, eager)), NotChecked)


# -- claims


def test_what_lies_beyond_the_steps_is_added(tmp_path: Path):
    seen: Evidence = ran(tmp_path, eager, collector=collector((3, 12e6, 2)))
    result = claimed("O07", seen)
    assert result is not None
    assert not isinstance(result, NotChecked)
    both = result.claim + outside(5.0, 1.0)
    assert both.beyond == pytest.approx(result.claim.beyond + 5.0)
    assert both.total == pytest.approx(result.claim.total + 5.0)


# -- D01: workers


def fed(us: float):
    def body(trace: Trace) -> None:
        trace.load(us)
        trace.copy_in(2_000_000, 50.0, pinned=True)
        trace.op("aten::mm", [[512, 512], [512, 512]], 20.0)

    return body


def test_a_batch_that_is_there_sooner_than_a_worker_could_send_it_is_promised_nothing(tmp_path: Path):
    seen = ran(tmp_path, fed(200.0))
    given = predict("dataloader-workers", seen, found("D01", seen))
    assert given is not None
    assert given.predicted_saving_ns == (0, 0)
    assert "num_workers=0" in given.how


def test_a_slow_batch_is_there_as_often_as_the_workers_make_one(tmp_path: Path):
    seen = ran(tmp_path, fed(20_000.0))
    given = predict("dataloader-workers", seen, found("D01", seen))
    assert given is not None
    # eight workers, one batch in 2.5 ms, in 5 if they get into each other's way; the step itself takes less
    assert given.predicted_saving_ns == pytest.approx([seen.wall_ns - one * 20e6 / 8 for one in (2, 1)], rel=0.01)


def test_workers_promise_nothing_certain_where_the_step_needs_all_processors(tmp_path: Path):
    seen = ran(tmp_path, fed(20_000.0), threads=threads(intra=2, usable=2))
    assert seen.profile.live is not None
    on_cpu = watched(seen, live=msgspec.structs.replace(seen.profile.live, kind="cpu"))
    given = predict("dataloader-workers", on_cpu, found("D01", on_cpu))
    assert given is not None
    assert given.predicted_saving_ns[0] == 0


@pytest.mark.parametrize(("usable", "workers"), [(2, 1), (6, 4), (64, 8)])
def test_workers_beside_a_step_on_the_same_processors(tmp_path: Path, usable: int, workers: int):
    """They share its caches and maybe its cores: nothing is sure, and no more are told than there is room for."""
    seen = ran(tmp_path, fed(20_000.0))
    finding = found("D01", seen)
    there = threads(intra=2, usable=usable)
    given = predict(
        "dataloader-workers", watched(seen, live=structs.replace(live_of(threads=there), kind="cpu")), finding
    )
    assert given is not None
    # a worker needs 20 ms for a batch: one alone is no faster than the step is
    assert given.predicted_saving_ns == (0, pytest.approx(seen.wall_ns - 20e6 / workers, abs=0.1e6))
    assert f"num_workers={workers}," in given.how
