"""A CPU as the device: no launches, no queue, no tensor cores, no graphs, no pinned memory, and none in the words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from gobrrr.analysis.answer.study import study
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import StepPath as StepPath
from gobrrr.analysis.findings.path import path_of, step_saving
from gobrrr.conditions import catalogue
from gobrrr.conditions.common import as_far_as_priced
from gobrrr.conditions.overlap import explained
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.program import Program, ProgramObject
from gobrrr.model.recording import Dependence
from gobrrr.observe.trace import read_trace
from gobrrr.report import words
from gobrrr.treatments import catalogue as treatments
from tests.conditions.lives import live_of
from tests.conditions.makers import followed, seen_of, shipped, what_its_calls_lose
from tests.evidence import certain, check, found, predict, watched
from tests.report.samples import overhead, waiting_for_input
from tests.traces import Trace

OF_A_GPU = re.compile(r"launch|tensor core|\bgpu\b|cuda|device idles|TF32|pinned|\bgraph\b", re.IGNORECASE)
NOT_THERE = {"cuda-graph", "tf32", "prefetch-pinned", "pad-dimensions", "cudnn-benchmark"}


def ceiling(value: float) -> Ceiling:
    return Ceiling(value=value, provenance="measured", source="written in a test")


def processor(bfloat16: float) -> Machine:
    return Machine(
        name="a CPU",
        matrix_flop_per_s={"float32": ceiling(2e11), "bfloat16": ceiling(bfloat16), "float64": ceiling(1e11)},
        vector_flop_per_s={"float32": ceiling(2e11), "float64": ceiling(1e11)},
        memory_bytes_per_s=ceiling(2e10),
    )


def on_cpu(seen: Evidence) -> Evidence:
    """The same evidence as of a run on a CPU."""
    return watched(certain(seen), live=structs.replace(live_of(), kind="cpu"))


def small_calls(trace: Trace) -> None:
    for _ in range(60):
        trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, dtype="float32", host_us=20.0)


def test_dispatch_bound_is_what_a_launch_bound_step_is_called(tmp_path: Path):
    seen = on_cpu(seen_of(tmp_path, small_calls))
    finding = found("O01", seen)
    assert finding.title == "dispatch-bound"
    assert finding.treatments == ["compile", "larger-batch"]
    assert not any(OF_A_GPU.search(fact) for fact in finding.evidence)
    assert finding.at_stake_ns[0] == 0
    given = predict("larger-batch", seen, finding)
    assert given is not None
    # 18 of 20 us are dispatched once for 16 times the work; at the least the time grows with the work. The 2 us of
    # computing read their weights once: 16 times 2 x 64^3 FLOP at 66.9 TFLOP/s take longer than all the bytes do now
    floor = seen.priced.groups[0].floor
    assert floor is not None
    longer = 16 * 2 * 64**3 / 66.9e12 * 1e9 / floor.ns
    saved = 18 / 20 * 15 / 16 + 2 / 20 * (1 - longer / 16)
    assert given.predicted_saving_ns == (0, pytest.approx(seen.wall_ns * saved, rel=0.02))


@pytest.mark.parametrize(
    ("codes", "low", "line", "answer"),
    [
        (["O01"], 0.0, True, True),
        (["O01"], 0.0, False, False),  # a module, or an operation: the finding says more of it
        (["O01"], 5.0, True, False),  # on a GPU: a graph takes the launches away
        (["O01", "M01"], 0.0, True, False),
    ],
)
def test_the_line_is_the_answer_where_no_mechanism_explains_it(
    codes: list[str], low: float, line: bool, answer: bool, tmp_path: Path
):
    seen = on_cpu(seen_of(tmp_path, small_calls))
    told = [structs.replace(found("O01", seen), code=code, at_stake_ns=(low, 9.0)) for code in codes]
    held = SimpleNamespace(where=SimpleNamespace(held_by_line=line))
    assert (explained(held, told) == []) is answer  # type: ignore[arg-type]


def test_host_and_device_are_one_path(tmp_path: Path):
    seen = on_cpu(seen_of(tmp_path, small_calls))
    path = path_of(seen)
    assert path.host + path.busy == pytest.approx(path.wall)
    calls = seen.calls_where(seen.groups_where("matmul"))
    ns = seen.calls.ns[calls]
    # each nanosecond of computing is one of the step's, whatever the host does
    assert step_saving(seen, calls, ns / 2, ns)[0] == pytest.approx(float(ns.sum()) / 2 / seen.steps.count)
    assert StepPath(10.0, 4.0, 6.0, 1, serial=True).device_saving(2.0, 9.0) == (2.0, 4.0)


def slow_matmuls(trace: Trace) -> None:
    for _ in range(6):
        shapes = [[1024, 1024], [1024, 1024]]
        trace.op("aten::mm", shapes, 12_000.0, dtype="float32", host_us=20.0, kernel="CPU aten::mm")


def test_float32_matmuls_are_named_where_16_bit_is_faster_here(tmp_path: Path):
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            slow_matmuls(trace)
    rank = read_trace(str(trace.write(tmp_path))).ranks[0]
    fast, slow = (on_cpu(study(rank, processor(bfloat16=one)).evidence[0]) for one in (4e11, 1e11))
    finding = found("C01", fast)
    # 12 ms at 179 of 200 GFLOP/s: half of that in bfloat16 less the dispatch of a cast, nothing for sure
    assert finding.at_stake_ns == (0, pytest.approx(6 * 6e6, rel=0.02))
    assert not any(OF_A_GPU.search(fact) for fact in (finding.title, *finding.evidence))
    given = predict("bf16-autocast", fast, finding)
    assert given is not None
    assert 'autocast("cpu"' in given.how
    assert check("C01", slow) is None


def attention(trace: Trace, dtype: str = "float32", dropout: bool = False, ms: float = 1.0) -> None:
    scores = [4, 8, 256, 256]
    given = {"dtype": dtype, "host_us": 20.0}
    trace.op("aten::bmm", [[32, 256, 64], [32, 64, 256]], 4000.0 * ms, **given)
    trace.op("aten::div", [scores, []], 6000.0 * ms, **given)
    trace.op("aten::_softmax", [scores, [], []], 8000.0 * ms, **given)
    if dropout:
        trace.op("aten::bernoulli_", [scores, []], 1000.0 * ms, **given)
    trace.op("aten::bmm", [[32, 256, 256], [32, 256, 64]], 4000.0 * ms, **given)


def attention_seen(folder: Path, **options: object) -> Evidence:
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            attention(trace, **options)  # type: ignore[arg-type]
    return on_cpu(study(read_trace(str(trace.write(folder))).ranks[0], processor(bfloat16=4e11)).evidence[0])


def test_a_cpu_s_fused_attention_does_the_same_arithmetic_in_one_pass(tmp_path: Path):
    seen = attention_seen(tmp_path)
    # 2 matmuls of 2 * 32 * 256 * 256 * 64 = 268 MFLOP at a quarter and at half of 200 GFLOP/s, of 22 ms
    slow, fast = (2 * 268_435_456 / (share * 2e11) * 1e9 for share in (0.25, 0.5))
    finding = found("M02", seen)
    assert finding.at_stake_ns == (pytest.approx(22e6 - slow, rel=0.01), pytest.approx(22e6 - fast, rel=0.01))
    given = predict("sdpa", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)


def test_a_cpu_s_attention_that_is_as_fast_as_a_fused_one_is_healthy(tmp_path: Path):
    assert check("M02", attention_seen(tmp_path, ms=0.2)) is None


def test_a_cpu_s_attention_with_a_dropout_or_in_16_bit_is_promised_nothing_for_sure(tmp_path: Path):
    dropped = found("M02", attention_seen(tmp_path, dropout=True))
    assert dropped.at_stake_ns[0] == 0 < dropped.at_stake_ns[1]
    assert "takes no dropout" in dropped.evidence[0]
    assert found("M02", attention_seen(tmp_path, dtype="bfloat16")).at_stake_ns[0] == 0


def convolution(trace: Trace, inside: bool) -> None:
    """5.4 ms for 64 x 64 x 9 products on 8 x 32 x 32 points: 604 MFLOP, 3.02 ms at 200 GFLOP/s."""
    image, weight = [8, 64, 32, 32], [64, 64, 3, 3]
    strides = [[65536, 1, 2048, 64], [576, 1, 192, 64]] if inside else [[65536, 1024, 32, 1], [576, 9, 3, 1]]
    trace.op("aten::mkldnn_convolution", [image, weight, [], [], [], [], []], 5400.0, dtype="float32",
             concrete=["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"], strides=[*strides, *[[]] * 5])  # fmt: skip


def test_a_cpu_s_convolutions_want_their_channels_innermost(tmp_path: Path):
    def seen(inside: bool) -> Evidence:
        trace = Trace()
        for number in range(3):
            with trace.step(number):
                convolution(trace, inside)
        return on_cpu(study(read_trace(str(trace.write(tmp_path))).ranks[0], processor(bfloat16=4e11)).evidence[0])

    outside = seen(inside=False)
    finding = found("M05", outside)
    assert finding.title == "convolutions on channels-first (NCHW) images"
    assert finding.at_stake_ns == (0, pytest.approx(5.4e6 - 2 * 8 * 32 * 32 * 64 * 64 * 9 / 2e11 * 1e9, rel=0.1))
    given = predict("channels-last", outside, finding)
    assert given is not None
    assert given.predicted_saving_ns == what_its_calls_lose(finding)
    assert check("M05", watched(outside, live=None)) is None  # a GPU's library shows its converters
    assert check("M05", seen(inside=True)) is None


IMAGE, WEIGHT, ORDERS = [8, 64, 32, 32], [64, 64, 3, 3], {
    True: ([65536, 1, 2048, 64], [576, 1, 192, 64]), False: ([65536, 1024, 32, 1], [576, 9, 3, 1]),
}  # fmt: skip


def convolved(folder: Path, image: bool | list[int], weight: bool, shape: list[int] = IMAGE) -> Evidence:
    """Images and weights with the channels inside or not, or of given strides."""
    strides = [image if isinstance(image, list) else ORDERS[image][0], ORDERS[weight][1]]
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            trace.op("aten::mkldnn_convolution", [shape, WEIGHT, [], [], [], [], []], 5400.0, dtype="float32",
                     concrete=["", "", "", *["[1, 1]"] * 3, "1"], strides=[*strides, *[[]] * 5])  # fmt: skip
    return on_cpu(study(read_trace(str(trace.write(folder))).ranks[0], processor(bfloat16=4e11)).evidence[0])


def test_a_model_that_has_the_order_is_not_told_to_take_it(tmp_path: Path):
    """Its weights have it: so does what the library works on, however the images or an expanded gradient come."""
    assert check("M05", convolved(tmp_path, image=False, weight=True)) is None
    assert check("M05", convolved(tmp_path, image=[64, 1, 0, 0], weight=False)) is None
    assert found("M05", convolved(tmp_path, image=False, weight=False)).treatments == ["channels-last"]


def test_what_turning_can_t_take_is_not_the_order_s(tmp_path: Path):
    """A call of 5.4 ms on 6 x 6 points: 41 thousand elements, 0.17 ms at the most that was measured; under 4 %."""
    finding = check("M05", convolved(tmp_path, image=[2304, 36, 6, 1], weight=False, shape=[1, 64, 6, 6]))
    assert finding is None or finding.at_stake_ns[1] < 0.04 * 5.4e6


@pytest.mark.parametrize("name", ["gpt2_b8_s1024.fwd", "gpt_fp32_notf32.faulty", "dit_adaln.faulty", "mlp_tiny.faulty"])
def test_no_finding_speaks_of_what_a_cpu_has_not(name: str):
    seen = on_cpu(shipped(name))
    results = [as_far_as_priced(one.code, seen, one.check(seen)) for one in catalogue()]
    claims = [one for one in results if isinstance(one, ClaimedFinding) and not one.hidden]
    found_ = [one.finding for one in claims]
    assert not {one.code for one in found_} & {"C02", "C03", "C06", "D02", "Q01"}
    for one in found_:
        if one.code in ("O01", "O03", "O04", "D01"):  # those that speak of the host
            assert not any(OF_A_GPU.search(fact) for fact in (one.title, *one.evidence)), one.evidence
    known = {one.name: one for one in treatments()}
    given = {name for one in claims for name in one.finding.treatments if known[name].predict(seen, one) is not None}
    assert given
    assert not given & NOT_THERE


def test_what_only_a_gpu_can_have_is_not_missing_either(tmp_path: Path):
    """However little is priced, C02 and C03 are no open questions on a CPU."""
    seen = on_cpu(seen_of(tmp_path, small_calls, shapes=False))
    for code in ("C02", "C03"):
        assert as_far_as_priced(code, seen, None) is None


def test_a_run_that_was_timed_without_the_profiler_is_not_inflated(tmp_path: Path):
    seen = shipped("mlp_tiny.faulty")
    assert check("Q01", seen) is not None
    assert check("Q01", watched(seen, live=live_of())) is None


def rnn(trace: Trace) -> None:
    """Thirty turns, and a backward pass with a node for each of their operations (numbers 0 to 29)."""
    for turn in range(30):
        trace.view("aten::select", [30, 8, 64], ["0", str(turn)])
        for _ in range(2):
            trace.op("aten::mm", [[8, 64], [64, 64]], 2.0, dtype="float32", host_us=20.0)
            trace.events[-1]["args"]["Sequence number"] = turn
    trace.now += 10
    for turn in reversed(range(30)):
        begin = trace.now
        trace.op("aten::mm", [[8, 64], [64, 64]], 2.0, dtype="float32", host_us=20.0)
        trace._add(
            "cpu_op", "autograd::engine::evaluate_function: MmBackward0", begin - 1, trace.now - begin + 1,
            {"Sequence number": turn},
        )  # fmt: skip
        trace.now += 2


def test_a_loop_s_backward_pass_is_the_loop_s(tmp_path: Path):
    seen = certain(seen_of(tmp_path, rnn))
    assert "90 pieces of device work" in found("O04", seen).evidence[0]
    finding = found("O04", on_cpu(seen))
    assert finding.treatments == ["compile", "batched-loop"]
    assert "120 operations, 4 a turn" in finding.evidence[0]  # select and two of them, and the backward pass's
    assert not any(OF_A_GPU.search(fact) for fact in finding.evidence)


TAKEN = ("aten::select", "aten::_local_scalar_dense")


def taken_apart(trace: Trace) -> None:
    """Forty turns that take one element each, which computes nothing, and 60 products."""
    for turn in range(40):
        for name in TAKEN:
            trace.view(name, [40], ["0", str(turn)], 10.0)
    small_calls(trace)


def test_a_loop_that_only_dispatches_holds_a_processor(tmp_path: Path):
    """Nothing in it has device work: there it is the processor's time all the same, 80 operations of 10 us less what
    recording them took."""
    seen = on_cpu(seen_of(tmp_path, taken_apart))
    finding = found("O04", seen)
    assert "40 turns a step, 80 operations, 2 a turn" in finding.evidence[0]
    assert 40 * 10e3 < finding.at_stake_ns[1] <= 40 * 20e3
    assert check("O04", seen_of(tmp_path, taken_apart)) is None


def test_elements_that_a_processor_reads_one_by_one_are_reads(tmp_path: Path):
    seen = followed(on_cpu(seen_of(tmp_path, taken_apart)), 40, TAKEN)
    finding = found("O02", seen)
    assert finding.treatments == ["read-once"]
    assert [one.source for one in finding.where] == ["train.py(12): step", "train.py(13): step"]
    assert finding.where[0].count == 40
    assert 40 * 10e3 < finding.at_stake_ns[1] <= 40 * 20e3
    assert check("O04", seen) is None


@pytest.mark.parametrize(("depends", "lines"), [("yes", "step = torch.compile(step)"), ("no", "")])
def test_a_loop_outside_of_the_model_is_compiled_with_its_function(depends: Dependence, lines: str, tmp_path: Path):
    """The model's own code has none of it; where no turn needs another, a batch is the remedy."""

    def body(trace: Trace) -> None:
        for turn in range(40):
            trace.view("aten::select", [40, 64], ["0", str(turn)], 10.0)
            trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, dtype="float32", host_us=20.0)

    program = Program(model=ProgramObject(kind="torch.nn.Linear", base="torch.nn.Linear", name="critic"))
    seen = followed(on_cpu(seen_of(tmp_path, body)), 40, ("aten::select", "aten::mm"), depends)
    seen = watched(seen, live=structs.replace(live_of(), kind="cpu", program=program))
    finding = found("O04", seen)
    assert ("batched-loop" in finding.treatments) == (not lines)
    given = predict("compile", seen, finding)
    assert given is not None
    assert (lines or "critic = torch.compile(critic)") in given.how


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (overhead, r"the processor spends \d+ % of the step in dispatch and Python"),
        (waiting_for_input, "the step waits for input data"),
    ],
)
def test_the_sentence_of_a_cpu_s_verdict(made: Callable[..., object], said: str):
    diagnosis = structs.replace(made(), live=structs.replace(live_of(), kind="cpu"))
    assert re.search(said, words.reason(diagnosis))
    assert "idles" not in words.reason(diagnosis)
    launching = next(line for line in overhead().budget if line.cause == "launching")
    assert words.label(launching, cpu=True) == "dispatch"
    assert words.label(launching) == "launching"
