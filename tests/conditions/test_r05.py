"""R05: a graph that no backward pass uses; and steps that train, or record none."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import NotChecked
from tests.conditions.lives import ran
from tests.conditions.makers import seen_of, shipped
from tests.evidence import check, found, predict, watched
from tests.traces import Trace

OPS, NODE_EACH = 20, 2
SMALL = [[8, 64], [64, 64]]
DISPATCH_NS = 2e3


def numbered(trace: Trace, rise: int = NODE_EACH, us: float = 2.0) -> None:
    """Operations whose numbers rise by `rise` from each to the next, as autograd gives them."""
    for at in range(OPS + 1):
        trace.op("aten::linear", SMALL, us, host_us=40.0)
        trace.events[-1]["args"]["Sequence number"] = 7 + rise * at


def alive(folder: Path, **observed: object) -> Evidence:
    return ran(folder, numbered, dispatch_ns=DISPATCH_NS, **observed)


def test_nodes_of_a_graph_that_nobody_uses(tmp_path: Path):
    seen = alive(tmp_path)
    finding = found("R05", seen)
    nodes = OPS * NODE_EACH  # what follows the last operation is not known
    assert finding.at_stake_ns == pytest.approx((0.3 * nodes * DISPATCH_NS, 2.5 * nodes * DISPATCH_NS), rel=0.05)
    assert finding.evidence[0] == "autograd makes 40 nodes a step, and no step has a backward pass"
    given = predict("inference-mode", seen, finding)
    assert given is not None
    assert given.how.endswith("within torch.inference_mode()")
    assert 0 < given.predicted_saving_ns[1] <= finding.at_stake_ns[1]


def test_on_a_processor_results_that_are_kept_take_new_memory(tmp_path: Path):
    """By hand: 21 results of [8, 64] in bfloat16, 1 ns a byte, where 2 us are above the floors."""
    seen = alive(tmp_path)
    on_cpu = watched(seen, live=structs.replace(seen.profile.live, kind="cpu"))  # type: ignore[type-var]
    more = found("R05", on_cpu).at_stake_ns[1] - found("R05", seen).at_stake_ns[1]
    assert more == pytest.approx(OPS * 8 * 64 * 2, rel=0.1)


def training(trace: Trace) -> None:
    numbered(trace)
    with trace.inside("autograd::engine::evaluate_function: AddmmBackward0"):
        trace.op("aten::mm", SMALL, 2.0)


def test_a_step_that_trains_uses_its_graph(tmp_path: Path):
    assert check("R05", ran(tmp_path, training, dispatch_ns=DISPATCH_NS)) is None


def test_nothing_is_recorded_where_nothing_requires_a_gradient(tmp_path: Path):
    assert check("R05", ran(tmp_path, lambda trace: numbered(trace, rise=0), dispatch_ns=DISPATCH_NS)) is None


def test_without_grad_mode_operations_have_no_numbers(tmp_path: Path):
    def body(trace: Trace) -> None:
        for _ in range(OPS):
            trace.op("aten::linear", SMALL, 2.0)

    assert check("R05", ran(tmp_path, body, dispatch_ns=DISPATCH_NS)) is None


def test_a_large_step_does_not_mind_its_few_nodes(tmp_path: Path):
    seen = ran(tmp_path, lambda trace: numbered(trace, us=4000.0), dispatch_ns=DISPATCH_NS)
    assert check("R05", seen) is None


def test_in_a_trace_the_cost_of_a_node_is_not_known(tmp_path: Path):
    result = check("R05", seen_of(tmp_path, numbered))
    assert isinstance(result, NotChecked)
    assert "live run" in result.needs


def test_public_forward_passes_were_recorded_without_a_graph():
    assert check("R05", shipped("gpt2_b8_s1024.fwd")) is None


@pytest.mark.torch
@pytest.mark.slow
def test_inference_that_forgets_its_mode_is_seen_as_it_runs():
    torch = pytest.importorskip("torch")
    from tests.live.look import codes, diagnosed

    layers = [torch.nn.Linear(8, 8) for _ in range(20)]
    net, x = torch.nn.Sequential(*layers).eval(), torch.ones(1, 8)
    assert "R05" in codes(diagnosed(lambda: net(x), warmup=1, window=2, profiled=1, look=False))
    with torch.inference_mode():
        assert "R05" not in codes(diagnosed(lambda: net(x), warmup=1, window=2, profiled=1, look=False))
