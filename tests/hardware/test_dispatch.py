"""The host's time for an operation, worked out by hand from the costs; other hosts; the shipped file."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.hardware.dispatch import Host, Hosts, listed, load
from gobrrr.model.measured import Environment, MeasuredFigure, Measurement, Quantity
from gobrrr.model.work import OpCall, TensorList
from tests.recordings import add, host, hosts, item, recorded, tensor, view


def issued(kernels: int, modules: float = 0.0, call: OpCall | None = None, **more: Any) -> float:
    return host().host_ns(recorded(call or add(8), **more), kernels, modules)


@pytest.mark.parametrize(("phase", "own"), [("forward", 20_000), ("backward", 30_000), ("optimizer", 5_000)])
def test_an_operation_costs_by_its_phase_and_a_launch_for_each_further_kernel(phase: str, own: int):
    assert issued(1, phase=phase) == own
    assert issued(4, phase=phase) == own + 3 * 6_000


@pytest.mark.parametrize(("phase", "own"), [("forward", 1_000), ("backward", 7_000), ("optimizer", 1_000)])
def test_a_view_launches_nothing(phase: str, own: int):
    assert issued(0, call=view(8), phase=phase) == own


def test_work_of_the_host_s_own_costs_as_much_as_an_operation_that_launches():
    assert issued(0, place="host") == 20_000


def test_module_calls_are_shared_out_over_the_forward_pass_only():
    assert issued(1, modules=0.5) == 20_000 + 0.5 * 4_000
    assert issued(0, modules=0.5, call=view(8)) == 1_000 + 0.5 * 4_000
    assert issued(1, modules=0.5, phase="backward") == 30_000


def test_the_optimizer_pays_for_each_tensor_in_its_lists():
    lists = (TensorList((tensor(8),) * 50), TensorList((tensor(8),) * 50))
    call = OpCall(name="aten::_foreach_add_", inputs=lists)
    assert listed(recorded(call)) == 50
    assert issued(2, call=call, phase="optimizer") == 5_000 + 6_000 + 50 * 300
    assert issued(2, call=call) == 20_000 + 6_000
    assert listed(recorded(add(8))) == 0
    assert listed(recorded(OpCall(name="aten::ones"))) == 0


def test_a_wait_that_launches_nothing_costs_a_view():
    assert issued(0, call=item(), waits=True, place="host") == 1_000


# Hosts


@pytest.mark.parametrize(("name", "factor"), [("fast", 0.5), ("middle", 1.0), ("slow", 2.0)])
def test_a_host_is_the_middle_one_times_its_factor(name: Host, factor: float):
    found = hosts().of(name)
    for phase in ("forward", "backward", "optimizer"):
        for kernels in (0, 1, 3):
            one = recorded(add(8), phase=phase)
            assert found.host_ns(one, kernels, 0.3) == pytest.approx(factor * host().host_ns(one, kernels, 0.3))
    assert found.latency_ns == host().latency_ns  # the device's part


def measured(**seconds: float) -> Measurement:
    def entry(group: str, name: str, value: float) -> MeasuredFigure:
        amount = Quantity(value=value, low=value, high=value, runs=5)
        return MeasuredFigure(group=group, name=name, unit="s", amount=amount)

    made = tuple(entry("dispatch", name, value) for name, value in seconds.items())
    environment = Environment(device_name="NVIDIA H100 80GB HBM3", kind="cuda", date="2026-03-04T05:06:07Z")
    return Measurement(environment=environment, entries=(*made, entry("launch", "add", 99.0)))


REFERENCE = {"add": 4e-6, "mm": 6e-6, "view": 1e-6}


def test_a_measured_host_is_slower_by_the_median_ratio():
    """Ratios 2, 3 and 10 to the reference: three times as slow, whatever the odd one out says."""
    stored = hosts(reference_s=REFERENCE)
    found = stored.like(measured(add=8e-6, mm=18e-6, view=10e-6, other=1.0))
    assert found.middle.forward_ns == pytest.approx(60_000)
    assert found.middle.launch_ns == pytest.approx(18_000)
    assert found.middle.latency_ns == 3_000
    assert "NVIDIA H100 80GB HBM3, 2026-03-04" in found.source
    assert found.reference_s["add"] == 8e-6


def test_a_measured_host_is_itself_when_it_is_the_reference():
    stored = hosts(reference_s=REFERENCE)
    assert stored.like(measured(**REFERENCE)).middle == stored.middle


def test_nothing_to_compare_changes_nothing():
    assert hosts().like(measured(add=8e-6)) == hosts()
    assert hosts(reference_s=REFERENCE).like(measured(other=8e-6)) == hosts(reference_s=REFERENCE)


def test_the_ends_of_a_measured_host_lie_around_it():
    found = hosts(reference_s=REFERENCE, fast_factor=0.1).like(measured(**REFERENCE))
    fast, middle, slow = (found.of(one).forward_ns for one in ("fast", "middle", "slow"))
    assert fast < middle < slow
    assert (fast, slow) == pytest.approx((middle / 2, middle * 2))


def test_the_shipped_model_loads_and_is_sane():
    found = load()
    assert isinstance(found, Hosts)
    assert 0 < found.fast_factor < 1 < found.slow_factor
    assert "bench.fit_dispatch" in found.source
    middle = found.middle
    assert 1_000 < middle.view_ns < middle.forward_ns < 100_000
    assert all(getattr(middle, one) >= 0 for one in middle.__struct_fields__)
    assert 1_000 <= middle.latency_ns <= 20_000
    one = recorded(add(8))
    assert found.of("fast").host_ns(one, 1, 0) < middle.host_ns(one, 1, 0) < found.of("slow").host_ns(one, 1, 0)


def test_the_shipped_model_can_be_compared_with_a_measured_host():
    """`gobrrr machine` measures these kinds of operations; a host that is the reference leaves the model as it is."""
    found = load()
    assert {"add", "matmul", "view"} <= set(found.reference_s)
    assert found.like(measured(**found.reference_s)).middle == found.middle


def test_a_host_that_is_known_to_be_slower_is_so_in_everything_but_the_devices_latency() -> None:
    stored = load()
    other = stored.times(0.5)
    assert other.middle.forward_ns == stored.middle.forward_ns / 2
    assert other.middle.latency_ns == stored.middle.latency_ns
    assert other.fast_factor == pytest.approx(1 / other.slow_factor)
    assert "0.5 times" in other.source
