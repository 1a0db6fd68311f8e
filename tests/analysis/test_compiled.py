"""What compiled code saves, on traces whose step with it can be said by hand. Times in us."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from gobrrr.analysis.findings.claims import ClaimedFinding, of_calls
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS, launch_call_ns
from gobrrr.analysis.replay.what_if import burdened
from gobrrr.analysis.savings.compiled import (
    COMPILED_LAUNCH,
    INFERENCE_GUARDS,
    INFERENCE_REPLAY,
    as_graphs,
    compilable,
    compiled,
    in_the_model,
    is_compiled,
    of_the_model,
)
from gobrrr.analysis.savings.regions import IN_GRAPH_NS, as_graph
from gobrrr.doors.pipeline import evidence_of
from gobrrr.observe.trace import read_trace
from tests.analysis.slow_simulator import unprofiled
from tests.analysis.tables import diagnosis
from tests.analysis.test_regions import LAUNCH as OF_A_GRAPH
from tests.analysis.test_regions import MATRIX, OPTIMIZER, REACTION, launch_bound, now, then
from tests.conditions.lives import framed
from tests.conftest import H100
from tests.evidence import evidence_from, found, predict
from tests.traces import Trace

NONE = np.array([], dtype=np.int64)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_wrapper_needs_so_many_launch_calls_for_a_launch_and_the_optimizer_what_it_needs_now(tmp_path, share):
    """A step of 20 launches, 100 us each, and an optimizer of 10."""
    evidence = launch_bound(tmp_path)
    call = launch_call_ns(evidence) / 1e3
    calls = COMPILED_LAUNCH.needed(share)
    assert 0 < call * calls < 100
    changed = then(evidence, compiled(evidence, NONE), share)
    # from its first operation on, what is compiled is the wrapper's
    assert changed == pytest.approx(
        (20 * calls + INFERENCE_GUARDS.needed(share)) * call + 5 + 9 * 100 + 4 + REACTION, abs=10
    )


def test_beside_its_guards_the_host_is_asked_for_no_more_than_now(tmp_path: Path):
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            for _ in range(20):
                trace.op("aten::mul", MATRIX, 5.0, host_us=8.0)
            trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    call = launch_call_ns(evidence) / 1e3
    assert call * COMPILED_LAUNCH.value > 8
    for share in (0.0, 0.5):
        then_ = now(evidence) + INFERENCE_GUARDS.needed(share) * call
        assert then(evidence, compiled(evidence, NONE), share) == pytest.approx(then_, rel=0.01)


def test_what_is_fused_is_not_launched(tmp_path: Path):
    """Of two that follow each other one is left; half of the wrapper's time goes with them."""
    evidence = launch_bound(tmp_path)
    gone = np.arange(20 * 3 + 10 * 3)
    gone = gone[(gone % 30 < 20) & (gone % 2 == 1)]
    call = launch_call_ns(evidence) / 1e3
    changed = then(evidence, compiled(evidence, gone), 0.5)
    assert changed == pytest.approx(
        (10 * COMPILED_LAUNCH.value + INFERENCE_GUARDS.value) * call + 5 + 9 * 100 + 4 + REACTION, abs=10
    )


def test_casts_stay_beside_the_wrapper(tmp_path: Path):
    """What a narrower type makes the host do in front of calls is not fused away."""
    evidence = launch_bound(tmp_path)
    work = np.flatnonzero(in_the_model(evidence))[:60]
    after = compiled(evidence, NONE)
    both = then(evidence, lambda share: lambda graph: after(share)(burdened(graph, work, 10_000.0)), 0.5)
    assert both == pytest.approx(then(evidence, after, 0.5) + 20 * 10, rel=0.02)


@pytest.mark.parametrize("waiting", ["aten::nonzero", "aten::item"])
def test_a_wait_breaks_the_graph_and_nothing_is_expected(tmp_path: Path, waiting: str):
    evidence = launch_bound(tmp_path, wait=True, waiting=waiting)
    assert then(evidence, compiled(evidence, NONE), 0.5) == pytest.approx(now(evidence))
    assert then(evidence, compiled(evidence, NONE), 0.0) > now(evidence)
    assert then(evidence, compiled(evidence, NONE), 1.0) < now(evidence)


# -- graphs of compiled code ------------------------------------------------------------


def test_without_a_wait_it_is_one_graph_and_the_optimizer_stays_outside(tmp_path: Path):
    evidence = launch_bound(tmp_path)
    for share in (0.0, 0.5, 1.0):
        replay = INFERENCE_REPLAY.needed(share) * launch_call_ns(evidence) / 1e3
        # a graph by hand begins with the first launch call here, the compiler's with the operation that makes it
        least = then(evidence, as_graph(evidence), 0.0) - 95 - OF_A_GRAPH + replay
        assert then(evidence, as_graphs(evidence), share) == pytest.approx(least, abs=6)


def test_graphs_are_cut_where_the_host_waits(tmp_path: Path):
    """A graph of 11 kernels, the wait as it is, a graph of 9, the optimizer as it is."""
    evidence = launch_bound(tmp_path, wait=True)
    changed = then(evidence, as_graphs(evidence), 0.5)
    pause = (KERNEL_GAP_NS + (IN_GRAPH_NS - KERNEL_GAP_NS) * 0.5) / 1e3
    launch = INFERENCE_REPLAY.value * launch_call_ns(evidence) / 1e3
    copied = launch + 11 * 5 + 10 * pause + 1.5
    assert changed == pytest.approx(copied + 5 + launch + 5 + 9 * 100 + 4 + REACTION, abs=15)
    assert then(evidence, as_graphs(evidence), 0.0) == now(evidence)
    assert then(evidence, as_graphs(evidence), 1.0) < changed


def test_what_depends_on_the_shape_that_a_wait_tells_is_in_no_graph(tmp_path: Path):
    evidence = launch_bound(tmp_path, wait=True, waiting="aten::nonzero")
    assert then(evidence, as_graphs(evidence), 0.5) == now(evidence)
    assert then(evidence, as_graphs(evidence), 1.0) < now(evidence)


@pytest.mark.parametrize("name", ["bert_base_b32_s512", "dit_xl_b8_s256", "vit_b16_b64"])
def test_what_is_compiled_is_not_told_to_be_compiled(name: str):
    eager, done = (diagnosis(H100 / f"{name}.{which}.json.gz") for which in ("fwd", "fwd_compiled"))
    assert "compile" in [one.treatment for one in eager.prescriptions]
    assert "compile" not in [one.treatment for one in done.prescriptions]


def generated(tmp_path: Path, *, eager: int, mark: str = "") -> Evidence:
    """A step of 4 of the compiler's kernels and 4 matmuls, and `eager` additions behind them."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            with trace.annotated(mark) if mark else nullcontext():
                for _ in range(4):
                    trace.op("aten::mm", [[64, 64], [64, 64]], 5.0, host_us=20.0)
                    trace.op("triton_poi_fused_relu_0", [[64, 64]], 5.0, host_us=20.0, kernel="triton_poi_fused_relu_0")
            for _ in range(eager):
                trace.op("aten::add", [[64, 64], [64, 64]], 5.0, host_us=20.0)
            trace.synchronize()
    return evidence_from(trace.write(tmp_path))


@pytest.mark.parametrize("mark", ["Torch-Compiled Region: 0/0", ""], ids=["marked", "unmarked"])
@pytest.mark.parametrize(("eager", "compiled"), [(2, True), (40, False)])
def test_compiled_code_is_known_by_its_marks_or_by_its_kernels(tmp_path: Path, eager: int, compiled: bool, mark: str):
    evidence = generated(tmp_path, eager=eager, mark=mark)
    assert is_compiled(evidence) is compiled
    finding = found("O01", evidence)
    assert (predict("compile", evidence, finding) is None) is compiled
    # of a step that is compiled in part only the rest is
    inside = in_the_model(evidence).reshape(3, -1)
    assert not inside[:, 1:8].any()
    assert inside[:, 8:].all()


def test_a_few_kernels_with_such_a_name_make_no_compiled_step(tmp_path: Path):
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for at in range(40):
                kernel = "triton_tem_fused_flex_attention_0" if at % 10 == 0 else "add"
                trace.op("aten::add", [[64, 64], [64, 64]], 5.0, host_us=20.0, kernel=kernel)
            trace.synchronize()
    assert not is_compiled(evidence_from(trace.write(tmp_path)))


def test_the_chains_of_an_optimizer_are_not_compiled_with_the_model(tmp_path: Path):
    """Found.claim keeps what is launched in the model's passes."""
    evidence = launch_bound(tmp_path)
    every = np.arange(len(evidence.calls))
    inside = in_the_model(evidence)
    assert (inside[every % 30 < 20]).all()
    assert not (inside[every % 30 >= 20]).any()
    ns = evidence.calls.ns
    found = ClaimedFinding(None, of_calls(every, ns / 2, ns), every)
    less = of_the_model(evidence, found)
    assert less.claim.total == pytest.approx(found.claim.total * 2 / 3)
    assert len(less.gone) == len(every) * 2 // 3
    assert OPTIMIZER in evidence.events.names


@pytest.mark.parametrize(("node", "trains"), [("", False), ("CompiledFunctionBackward", True)])
def test_operations_tell_of_a_backward_pass_and_python_frames_do_not(tmp_path: Path, node: str, trains: bool):
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            framed(
                trace, "torch/autograd/function.py(307): BackwardCFunction", lambda: trace.op("aten::mul", MATRIX, 5.0)
            )
            if node:
                with trace.inside(node):
                    trace.op("aten::mul", MATRIX, 5.0)
            trace.synchronize()
    evidence = evidence_of(read_trace(str(trace.write(tmp_path)), python=True).ranks[0])[0]
    assert any("BackwardCFunction" in name for name in evidence.events.names)
    assert evidence.training is trains


def test_what_lies_between_two_optimizers_is_the_model_s(tmp_path: Path):
    """As a generator's pass between the discriminator's update and its own."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            for _ in range(2):
                for _ in range(6):
                    trace.op("aten::mul", MATRIX, 5.0, host_us=100.0)
                with trace.annotated(OPTIMIZER):
                    for _ in range(4):
                        trace.op("aten::addcmul_", MATRIX, 5.0, host_us=100.0)
            trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    assert len(compilable(evidence)[0]) == 2 * 3
    assert in_the_model(evidence).sum() == 2 * 6 * 3


def test_what_the_host_does_beside_launching_is_not_compiled_away(tmp_path: Path):
    """A step that allocates for 3 ms in the middle still does."""
    trace = Trace(shapes=False)
    for number in range(3):
        with trace.step(number):
            for at in range(20):
                trace.op("aten::mul", MATRIX, 5.0, host_us=100.0)
                if at == 10:
                    trace._add("cuda_runtime", "cudaMalloc", trace.now, 3_000.0, {"correlation": trace._next()})
                    trace.now += 3_000.0
            trace.synchronize()
    evidence = unprofiled(trace, tmp_path)
    assert then(evidence, compiled(evidence, NONE), 1.0) > 3_000
