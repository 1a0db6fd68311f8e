"""O03, O04 and O05, sick and healthy."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from gobrrr.analysis.answer.summary import speed_of_light
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.recording import Dependence
from gobrrr.observe.trace import read_trace
from tests.conditions.lives import live_of
from tests.conditions.makers import extra, followed, seen_of, shipped
from tests.evidence import certain, check, evidence_from, findings, found, predict, watched
from tests.traces import Trace

UPDATE = ("aten::mul_", "aten::lerp_", "aten::addcmul_", "aten::sqrt", "aten::div_", "aten::addcdiv_")
TRAININGS = ["t5_training", "wide_training", "narrow_training_item", "compiled_training", "tf32_training"]


def backward(trace: Trace) -> None:
    for _ in range(10):
        trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 200.0, host_us=10.0)
    trace.synchronize()


def loop_over_parameters(trace: Trace, parameters: int = 30) -> None:
    for size in range(parameters):
        for name in UPDATE:
            trace.op(name, [[64 + size, 64], [64 + size, 64]], 2.0, dtype="float32", host_us=20.0)


def test_an_optimizer_that_loops_over_the_parameters(tmp_path: Path):
    def body(trace: Trace) -> None:
        backward(trace)
        with trace.annotated("Optimizer.step#AdamW.step"):
            loop_over_parameters(trace)

    seen = certain(seen_of(tmp_path, body))
    finding = found("O03", seen)
    assert finding.certainty == "high"
    assert "180 of 190 launches a step are the optimizer's" in finding.evidence[0]
    # 180 launches of 20 us each, of which recording has a part, and kernels of 2 us in between
    assert 180 * 5e3 < finding.at_stake_ns[1] < 180 * 18e3
    # half of the idle time; at the most all of it, and the 2 us of the kernels meanwhile, whose launches are gone
    assert finding.at_stake_ns[0] == pytest.approx((finding.at_stake_ns[1] - 179 * 2e3) / 2, rel=1e-3)
    given = predict("fused-optimizer", seen, finding)
    assert given is not None
    # one launch behind the backward pass's 2 ms, for 180 kernels of 2 us: 179 of them lose the 1 us of an empty kernel
    # at the least, and at the most all of it is launch and ramp, so that the one launch's 20 us on the host are left
    left = [2000e3 + (2 + 179) * 1e3, 2000e3 + 20e3]
    assert given.predicted_saving_ns == pytest.approx([seen.wall_ns - one for one in left], abs=15e3)


def test_a_closure_s_passes_are_not_the_optimizer_s(tmp_path: Path):
    """Lightning runs forward and backward pass within `optimizer.step(closure)`."""

    def body(trace: Trace, update: bool) -> None:
        with trace.annotated("Optimizer.step#AdamW.step"):
            for _ in range(70):
                trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, host_us=20.0)
            with trace.inside("autograd::engine::evaluate_function: MmBackward0"):
                trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, host_us=20.0)
            if update:
                loop_over_parameters(trace)

    assert check("O03", seen_of(tmp_path, lambda trace: body(trace, update=False))) is None
    finding = found("O03", seen_of(tmp_path, lambda trace: body(trace, update=True)))
    assert "180 of 251 launches a step are the optimizer's" in finding.evidence[0]


def test_on_a_cpu_the_fused_form_spares_passes_as_well(tmp_path: Path):
    def body(trace: Trace) -> None:
        backward(trace)
        with trace.annotated("Optimizer.step#AdamW.step"):
            loop_over_parameters(trace)

    seen = certain(seen_of(tmp_path, body))
    plain = found("O03", seen).at_stake_ns
    there = found("O03", watched(seen, live=structs.replace(live_of(), kind="cpu"))).at_stake_ns
    assert there[0] == pytest.approx(plain[0])
    # half of the idle time is sure; to all of it come 180 loops of 2 us, of which 7/20 of a floor of less than 0.1 us
    # stay (on a GPU launch and ramp of its kernels, which is all of 2 us)
    assert there[1] - 2 * there[0] == pytest.approx(180 * 2e3, rel=0.05)


def test_an_adam_by_hand_needs_no_annotation(tmp_path: Path):
    def body(trace: Trace) -> None:
        backward(trace)
        loop_over_parameters(trace)

    finding = found("O03", seen_of(tmp_path, body))
    assert finding.certainty == "medium"
    assert "updates in place" in finding.evidence[0]


def test_what_a_foreach_call_does_one_by_one_counts(tmp_path: Path):
    """Where it has no kernel for all of them, as on a CPU, it calls the plain operation of each parameter."""

    def body(trace: Trace) -> None:
        with trace.annotated("Optimizer.step#Adam.step"):
            for name in ("mul_", "addcmul_", "addcdiv_"):
                with trace.inside(f"aten::_foreach_{name}"):
                    for _ in range(40):
                        trace.op(f"aten::{name}", [[64, 64]], 2.0, dtype="float32", host_us=20.0)

    finding = found("O03", seen_of(tmp_path, body))
    assert any("120 of them take one parameter each" in fact for fact in finding.evidence)
    assert finding.at_stake_ns[1] > 120 * 8_000


def test_the_foreach_form_is_healthy(tmp_path: Path):
    def body(trace: Trace) -> None:
        backward(trace)
        with trace.annotated("Optimizer.step#AdamW.step"):
            for _ in range(12):
                trace.op("aten::_foreach_addcdiv_", [[4096, 4096]], 60.0, dtype="float32")

    assert check("O03", seen_of(tmp_path, body)) is None


def by_group(groups: int, trace: Trace) -> None:
    """A fused step that makes two calls for each group."""
    backward(trace)
    with trace.annotated("Optimizer.step#AdamW.step"):
        for _ in range(groups):
            for name in ("aten::_foreach_add_", "aten::_fused_adamw_"):
                trace.op(name, [[64, 64]], 2.0, dtype="float32", host_us=20.0)


def test_a_group_for_each_parameter_is_told(tmp_path: Path):
    seen = certain(seen_of(tmp_path, partial(by_group, 60)))
    finding = found("O03", seen)
    assert "many parameter groups" in finding.title
    assert "60 calls of the same kind" in finding.evidence[0]
    assert finding.treatments == ["fewer-groups"]
    # 120 launches of 20 us each, of which recording has a part; one group's two stay
    assert finding.at_stake_ns == (0, pytest.approx(found_idle(seen, 120) * 59 / 60, rel=0.05))
    assert predict("fused-optimizer", seen, finding) is None
    given = predict("fewer-groups", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[0] == 0
    assert given.predicted_saving_ns[1] > 0.5 * finding.at_stake_ns[1]


def found_idle(seen: Evidence, launches: int) -> float:
    """What a step's launches take of the host behind 2 ms of the backward pass, less the 2 us of each kernel."""
    return seen.wall_ns - 2e6 - launches * 2e3


def test_a_few_groups_are_healthy(tmp_path: Path):
    """With and without decay, on two devices, in two types."""
    assert check("O03", seen_of(tmp_path, partial(by_group, 8))) is None


def test_an_optimizer_behind_a_host_that_is_far_ahead_costs_nothing(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(40):
            trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 400.0, host_us=10.0)
        with trace.annotated("Optimizer.step#SGD.step"):
            loop_over_parameters(trace)

    assert check("O03", seen_of(tmp_path, body)) is None


def test_few_parameters_are_no_finding(tmp_path: Path):
    def body(trace: Trace) -> None:
        backward(trace)
        with trace.annotated("Optimizer.step#SGD.step"):
            loop_over_parameters(trace, 4)

    assert check("O03", seen_of(tmp_path, body)) is None


def test_the_held_out_loop_optimizer_is_found_and_takes_its_part_of_the_launch_bound_step():
    settled = {one.code: one for one in findings(extra("holdout/foreach_off"))}
    assert "768 of 1,262 launches" in settled["O03"].evidence[0]
    assert any("belong to O03" in fact for fact in settled["O01"].evidence)


@pytest.mark.parametrize("name", TRAININGS)
def test_other_trainings_do_not_have_it(name: str):
    assert check("O03", extra(f"holdout/{name}")) is None


def cells(trace: Trace, turns: int = 50, us: float = 4.0) -> None:
    for turn in range(turns):
        trace.view("aten::select", [turns, 64, 512], ["0", str(turn)])
        trace.op("aten::mm", [[64, 512], [512, 2048]], us, dtype="float32")
        trace.op("aten::tanh", [[64, 2048]], us, dtype="float32")


def test_a_loop_over_timesteps(tmp_path: Path):
    seen = seen_of(tmp_path, cells)
    finding = found("O04", seen)
    assert finding.where[0].op == "aten::select"
    assert (
        finding.evidence[0]
        == "aten::select with 0, 1, 2, ... in turn: 50 turns a step, 100 pieces of device work, 2 a turn"
    )
    # it is all that makes this step launch-bound
    assert [one.code for one in findings(seen) if one.code in ("O01", "O04")] == ["O04"]


LOOPED = ("aten::select", "aten::mm", "aten::tanh")


def test_a_trace_does_not_know_what_the_turns_need(tmp_path: Path):
    seen = certain(seen_of(tmp_path, cells))
    finding = found("O04", seen)
    assert (finding.at_stake_ns[0], finding.certainty) == (0.0, "medium")
    assert any("is not known" in fact for fact in finding.evidence)
    assert finding.treatments == ["cuda-graph", "compile", "batched-loop"]
    given = predict("batched-loop", seen, finding)
    assert given is not None
    assert (given.predicted_saving_ns[0], given.expected_ns) == (0.0, pytest.approx(0.0, abs=1.0))
    assert "only if the turns do not need each other" in given.assumes


@pytest.mark.parametrize("depends", ["no", "sum"])
def test_turns_that_do_not_need_each_other_are_batched(depends: Dependence, tmp_path: Path):
    seen = followed(seen_of(tmp_path, cells), 50, LOOPED, depends)
    finding = found("O04", seen)
    assert (finding.where[0].source, finding.where[0].count) == ("train.py(12): step", 50)
    assert finding.treatments == ["batched-loop", "cuda-graph"]
    assert any("its turns are independent" in fact for fact in finding.evidence)
    assert predict("recurrent-layer", seen, finding) is None


def rows_with_weights(trace: Trace) -> None:
    """64 rows times 64 MB of weights, which no cache holds: each turn reads all of them in 20 us."""
    for turn in range(64):
        trace.view("aten::select", [64, 1, 4096], ["0", str(turn)])
        trace.op("aten::mm", [[1, 4096], [4096, 8192]], 24.0, host_us=120.0)


def test_one_operation_on_all_turns_reads_the_weights_once(tmp_path: Path):
    """The limit of the loop is that of one product of all rows: of 64 x 4096, 4096 x 8192 and 64 x 8192 numbers."""
    weights = 4096 * 8192 * 2
    once = (64 * 4096 * 2 + weights + 64 * 8192 * 2) / 3.35e12 * 1e9
    plain = seen_of(tmp_path, rows_with_weights)
    again, each = (followed(plain, 64, ("aten::select", "aten::mm"), again=count * weights) for count in (63, 0))
    assert speed_of_light(again, again.machine) == pytest.approx(once, rel=0.05)
    assert speed_of_light(each, each.machine) > 50 * once
    needing = followed(plain, 64, ("aten::select", "aten::mm"), "yes", again=63 * weights)
    assert speed_of_light(needing, needing.machine) == speed_of_light(each, each.machine)
    # what the loop may save includes what is read again, on a CPU as well
    on_cpu = [watched(one, live=structs.replace(live_of(), kind="cpu")) for one in (again, each)]
    for one, other in ((again, each), on_cpu):
        more = found("O04", one).at_stake_ns[1] - found("O04", other).at_stake_ns[1]
        assert more == pytest.approx(63 * weights / 3.35e12 * 1e9, rel=0.05)


def test_turns_that_need_each_other_are_never_batched(tmp_path: Path):
    seen = followed(seen_of(tmp_path, cells), 50, LOOPED, "yes")
    finding = found("O04", seen)
    assert finding.treatments == ["cuda-graph", "compile"]
    assert any("aten::select reads what the turn before made" in fact for fact in finding.evidence)
    assert all(predict(name, seen, finding) is None for name in ("batched-loop", "grouped-matmul", "recurrent-layer"))


def test_the_timesteps_of_a_cell_are_one_call_of_its_layer(tmp_path: Path):
    finding = found("O04", followed(seen_of(tmp_path, cells), 50, LOOPED, "yes", "LSTMCell"))
    assert finding.treatments == ["recurrent-layer", "cuda-graph", "compile"]


def test_layers_of_a_live_run_are_no_loop(tmp_path: Path):
    assert check("O04", followed(seen_of(tmp_path, cells), 50, LOOPED, "layers")) is None


def test_few_turns_of_few_operations_are_no_finding(tmp_path: Path):
    few = partial(cells, turns=8)
    assert check("O04", followed(seen_of(tmp_path, few), 8, LOOPED)) is None


def norms(trace: Trace, turns: int = 40) -> None:
    for turn in range(turns):
        trace.op("aten::linalg_vector_norm", [[64 + turn, 64]], 2.0, dtype="float32", host_us=20.0)
        with trace.inside("aten::_local_scalar_dense"):
            trace.item()


READING = ("aten::linalg_vector_norm", "aten::_local_scalar_dense")


def reading(folder: Path) -> Evidence:
    """A loop that reads the norm of each of 40 tensors."""
    return followed(certain(seen_of(folder, norms)), 40, READING)


STEP_IN_TIME, TURNS = ("aten::mm", "aten::addmm", "aten::tanh"), 32


def by_hand(trace: Trace) -> None:
    for _ in range(TURNS):
        for name in STEP_IN_TIME:
            trace.op(name, [[8, 64], [64, 64]], 2.0, host_us=20.0)


def recurrence(folder: Path, free: tuple[int, ...] = (0,)) -> Evidence:
    """A recurrence written by hand, whose first product needs no other turn."""
    return followed(certain(seen_of(folder, by_hand)), TURNS, STEP_IN_TIME, "yes", free=free)


def test_the_input_s_product_of_a_recurrence_is_made_once(tmp_path: Path):
    seen = recurrence(tmp_path)
    finding = found("O04", seen)
    assert finding.treatments == ["hoist-product", "cuda-graph", "compile"]
    assert "products of a turn that depend on no earlier turn: 1 (aten::mm)" in finding.evidence
    given = predict("hoist-product", seen, finding)
    assert given is not None
    # one of three operations, but for one turn's
    assert given.predicted_saving_ns == (0, pytest.approx(seen.wall_ns / 3 * (1 - 1 / TURNS), rel=0.1))


def test_without_such_a_product_nothing_is_hoisted(tmp_path: Path):
    seen = recurrence(tmp_path, free=())
    finding = found("O04", seen)
    assert "hoist-product" not in finding.treatments
    assert predict("hoist-product", seen, finding) is None


def test_a_read_for_each_tensor_is_one_finding_with_its_loop(tmp_path: Path):
    seen = reading(tmp_path)
    finding = found("O02", seen)
    assert (finding.where[0].source, finding.where[0].count) == ("train.py(12): step", 40)
    assert "40 turns a step, 40 values read one by one" in finding.evidence[0]
    assert finding.treatments == ["read-once", "remove-sync"]
    assert check("O04", seen) is None
    given = predict("read-once", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[0] > 0.3 * seen.wall_ns


def test_on_a_cpu_a_loop_of_reads_costs_its_dispatch(tmp_path: Path):
    def body(trace: Trace) -> None:
        for turn in range(40):
            trace.op("aten::linalg_vector_norm", [[64 + turn, 64]], 2.0, dtype="float32", host_us=20.0)
            trace.view("aten::_local_scalar_dense", [[]], [])

    seen = watched(seen_of(tmp_path, body), live=structs.replace(live_of(), kind="cpu"))
    assert found("O02", followed(seen, 40, READING)).treatments == ["read-once"]
    assert check("O02", seen) is None  # waits there are none


def test_a_read_at_the_end_of_a_long_turn_is_not_what_the_loop_is_for(tmp_path: Path):
    """It is the turn that is to be batched."""

    def body(trace: Trace) -> None:
        for _ in range(20):
            for _ in range(8):
                trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, host_us=20.0)
            with trace.inside("aten::_local_scalar_dense"):
                trace.item()

    seen = followed(seen_of(tmp_path, body), 20, (*["aten::mm"] * 8, "aten::_local_scalar_dense"))
    assert found("O04", seen).where[0].source == "train.py(12): step"


def branches(trace: Trace) -> None:
    for _ in range(40):
        trace.op("aten::lt", [[64]], 2.0, dtype="float32", host_us=20.0)
        for _ in range(8):
            trace.op("aten::mul", [[64], []], 2.0, dtype="float32", host_us=20.0)
        with trace.inside("aten::_local_scalar_dense"):
            trace.item()


BRANCHING = ("aten::lt", *["aten::mul"] * 8, "aten::_local_scalar_dense")


@pytest.mark.parametrize(
    ("depends", "treatments"), [("unknown", ["batched-loop", "remove-sync"]), ("yes", ["remove-sync"])]
)
def test_a_loop_that_branches_on_what_it_reads_is_batched_with_its_reads(
    depends: Dependence, treatments: list[str], tmp_path: Path
):
    seen = followed(certain(seen_of(tmp_path, branches)), 40, BRANCHING, depends)
    finding = found("O02", seen)
    assert finding.treatments == treatments
    given = predict("batched-loop", seen, finding)
    assert (given is not None) == (depends == "unknown")
    if given is not None:
        assert given.predicted_saving_ns[0] == 0  # whether the turns need each other is not known
        assert given.predicted_saving_ns[1] == pytest.approx(finding.at_stake_ns[1], rel=0.05)
        assert "torch.where" in given.how


def test_layers_that_repeat_are_not_counted_up(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(50):
            trace.view("aten::select", [50, 64, 512], ["0", "0"])
            trace.op("aten::mm", [[64, 512], [512, 2048]], 4.0, dtype="float32")
            trace.op("aten::tanh", [[64, 2048]], 4.0, dtype="float32")

    seen = seen_of(tmp_path, body)
    assert check("O04", seen) is None
    assert check("O01", seen) is not None
    assert check("O04", shipped("mlp_tiny.faulty")) is None


def test_a_loop_of_long_kernels_is_healthy(tmp_path: Path):
    assert check("O04", seen_of(tmp_path, lambda trace: cells(trace, us=300.0))) is None


def test_a_short_loop_is_no_finding(tmp_path: Path):
    assert check("O04", seen_of(tmp_path, lambda trace: cells(trace, turns=12))) is None


def test_the_held_out_cells_are_found_and_the_library_s_layer_is_not():
    finding = found("O04", extra("holdout/lstm_cells"))
    assert finding.where[0].count == 100
    assert any("_thnn_fused_lstm_cell" in fact for fact in finding.evidence)
    assert check("O04", extra("holdout/cudnn_lstm")) is None


def test_the_shipped_loop_over_experts_is_one_and_its_fixed_form_is_none():
    finding = found("O04", shipped("moe_host_loop.faulty"))
    assert finding.where[0].op == "aten::eq"
    assert finding.treatments[0] == "grouped-matmul"
    assert check("O04", shipped("moe_host_loop.fixed")) is None


def compiled(tmp_path: Path, which: tuple[int, ...], event: str = "_compile.compile_inner (dynamo_timed)"):
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            if number in which:
                trace.host(event, 8000.0)
            backward(trace)
    return evidence_from(trace.write(tmp_path))


def test_each_step_compiles_again(tmp_path: Path):
    seen = compiled(tmp_path, (0, 1, 2, 3))
    finding = found("O05", seen)
    assert finding.at_stake_ns[0] == finding.at_stake_ns[1] == pytest.approx(8e6, rel=0.1)
    assert "4 of 4 recorded steps compile" in finding.evidence
    given = predict("static-shapes", certain(seen), finding)
    assert given is not None
    assert given.predicted_saving_ns == (0, pytest.approx(finding.at_stake_ns[1], rel=0.01))
    assert given.expected_ns == pytest.approx(finding.at_stake_ns[1] / 2, rel=0.01)


def test_a_step_that_compiles_keeps_its_device_s_time(tmp_path: Path):
    seen = compiled(tmp_path, (0, 1, 2, 3))
    given = predict("static-shapes", seen, found("O05", seen))
    assert given is not None
    assert given.predicted_saving_ns[1] <= seen.wall_ns - 2e6


def test_modules_that_an_eager_program_loads_need_a_warm_up(tmp_path: Path):
    loaded = found("O05", compiled(tmp_path, (0, 1, 2, 3), "cuModuleLoadData"))
    assert loaded.treatments == ["warm-up"]
    assert found("O05", compiled(tmp_path, (0, 1, 2, 3))).treatments == ["static-shapes"]


def test_a_recorded_warm_up_is_said_to_be_one(tmp_path: Path):
    """Two steps, so that the first is not left out of the estimate as an outlier."""
    trace = Trace()
    for number in range(2):
        with trace.step(number):
            if not number:
                trace.host("_compile.compile_inner (dynamo_timed)", 8000.0)
            backward(trace)
    finding = found("O05", evidence_from(trace.write(tmp_path)))
    assert finding.at_stake_ns[0] == 0
    assert any("warm up" in fact for fact in finding.evidence)


def test_running_a_compiled_region_is_not_compiling(tmp_path: Path):
    assert check("O05", compiled(tmp_path, (0, 1, 2, 3), "TorchDynamo Cache Lookup")) is None
    for name in ("dit_adaln.fixed", "bert_base_b32_s512.fwd_compiled", "vit_b16_b64.fwd_compiled"):
        assert check("O05", shipped(name)) is None


def test_a_wait_names_the_source_line_where_frames_were_read(tmp_path: Path):
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            for line in (12, 31):
                begin = trace.now + 1
                trace.now += 2
                for _ in range(20):
                    trace.op("aten::mm", [[64, 64], [64, 64]], 2.0, host_us=100.0)
                for _ in range(10):
                    trace.op("aten::mm", [[4096, 4096], [4096, 4096]], 200.0, host_us=10.0)
                trace.item()
                trace._add("python_function", f"train.py({line}): step", begin, trace.now - begin)
    profile = read_trace(str(trace.write(tmp_path)), python=True)
    finding = found("O02", evidence_of(profile.ranks[0])[0])
    assert {one.source for one in finding.where} == {"train.py(12): step", "train.py(31): step"}
    assert "train.py(12): step, train.py(31): step" in finding.evidence[0]
