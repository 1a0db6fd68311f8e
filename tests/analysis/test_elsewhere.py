"""Another machine: floors that fall as its ceilings rise, times that follow them, and a host that stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import WorkClass
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.what_if import FIXED_NS, in_turn, shortened
from gobrrr.analysis.savings.elsewhere import factors, on_machine, repriced
from gobrrr.analysis.savings.gains import length
from gobrrr.hardware import find
from gobrrr.model.machine import Ceiling, Machine
from tests.analysis.slow_simulator import arrays, every, named, same, unprofiled
from tests.analysis.tables import DDP, HOLDOUT, SHIPPED, evidence, short
from tests.conftest import H100
from tests.spread import examples, some
from tests.traces import Trace

LARGE = [[8192, 8192], [8192, 8192], []]
"""Of an addition: 128 MiB each way and more than any cache."""
PLUS = ["", "", "1"]
SQUARE = [[8192, 8192], [8192, 8192]]
MATRIX = [[64, 64], [64, 64]]
NAMES = ("a100-80gb", "h100", "h200", "b200", "mi300x", "l4")
EXAMPLES = some([*SHIPPED[2:28:4], DDP[0], *HOLDOUT[4:12:4]])


def times(one: Ceiling | None, factor: float) -> Ceiling | None:
    return None if one is None else msgspec.structs.replace(one, value=one.value * factor)


def faster(
    machine: Machine, *, compute: float = 1.0, memory: float = 1.0, link: float = 1.0, host: float = 1.0
) -> Machine:
    """The machine with some ceilings that many times as high; the caches belong to the memory."""
    return msgspec.structs.replace(
        machine,
        name="other",
        matrix_flop_per_s={key: times(one, compute) for key, one in machine.matrix_flop_per_s.items()},
        vector_flop_per_s={key: times(one, compute) for key, one in machine.vector_flop_per_s.items()},
        memory_bytes_per_s=times(machine.memory_bytes_per_s, memory),
        cache_bytes_per_s=times(machine.cache_bytes_per_s, memory),
        inner_cache_bytes_per_s=times(machine.inner_cache_bytes_per_s, memory),
        link_bytes_per_s=times(machine.link_bytes_per_s, link),
        host_bytes_per_s=times(machine.host_bytes_per_s, host),
    )


def mixed(folder: Path, steps: int = 3) -> Evidence:
    """An addition, a product, an operation that no rule counts, a reduction and a copy of input, a step."""
    trace = Trace()
    for number in range(steps):
        with trace.step(number):
            trace.copy_in(64 << 20, 1_500.0, pinned=True)
            trace.op("aten::add", LARGE, 200.0, concrete=PLUS, kernel="sum")
            trace.op("aten::mm", SQUARE, 2_000.0, kernel="product")
            trace.op("mylib::strange", MATRIX, 300.0, kernel="strange")
            end = trace.collective(900.0, 1 << 24, after=trace.free + 1)
            trace.free = end
            trace.synchronize()
    return unprofiled(trace, folder)


def own(one: Evidence) -> Machine:
    assert one.machine is not None
    return one.machine


def there(one: Evidence, machine: Machine, off: float = 0.0) -> StepGraph:
    return on_machine(one, machine, off)(one.graph)


def beyond(graph: StepGraph) -> np.ndarray:
    """What of each time is not launch and ramp."""
    return np.maximum(graph.duration - FIXED_NS, 0.0)


# -- by hand ------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "shorter"),
    [
        ("memory", {"sum", "strange"}),
        ("compute", {"product"}),
        ("link", {"AllReduce"}),
        ("host", {"Memcpy"}),
    ],
)
def test_twice_a_ceiling_halves_just_what_rests_on_it(tmp_path: Path, what: str, shorter: set[str]):
    """What has no floor follows the memory; of each time FIXED_NS is left as it is."""
    one = mixed(tmp_path)
    after = there(one, faster(own(one), **{what: 2.0}))
    for kernel in ("sum", "product", "strange", "AllReduce", "Memcpy"):
        mine = named(one, kernel)
        assert len(mine) == 3
        factor = 0.5 if kernel in shorter else 1.0
        assert beyond(after)[mine] == pytest.approx(factor * beyond(one.graph)[mine]), kernel
        assert (one.graph.duration - beyond(one.graph))[mine] == pytest.approx(FIXED_NS)


def test_a_kernel_that_another_roof_stops_gets_no_faster_than_that(tmp_path: Path):
    """The addition's floor is its bytes; with 200 times the bandwidth it is its sums."""
    one = mixed(tmp_path)
    mine = named(one, "sum")
    machine = own(one)
    vector = machine.vector_flop_per_s["float32"].value
    new = repriced(one.priced, faster(machine, memory=200.0)).floor_ns[mine]
    by_bytes = 3 * 8192 * 8192 * 2 / machine.memory_bytes_per_s.value * 1e9  # type: ignore[union-attr]
    by_sums = 8192 * 8192 / vector * 1e9
    assert one.priced.floor_ns[mine] == pytest.approx(by_bytes, rel=1e-3)
    assert by_bytes / 200 < by_sums
    assert new == pytest.approx(by_sums, rel=1e-3)


def test_what_this_machines_ceilings_say_nothing_of_keeps_its_time(tmp_path: Path):
    one = mixed(tmp_path)
    unknown = msgspec.structs.replace(own(one), name="other", link_bytes_per_s=None, host_bytes_per_s=None)
    assert there(one, unknown).duration == pytest.approx(one.graph.duration)


def test_a_step_on_a_machine_that_nobody_knows_is_compared_with_none(tmp_path: Path):
    one = replace(mixed(tmp_path), machine=None)
    with pytest.raises(ValueError, match="not known"):
        on_machine(one, find("b200"))


def test_a_step_that_its_host_bounds_gets_no_faster_on_a_faster_gpu(tmp_path: Path):
    """100 launches of 60 us with kernels of 10 us: but for the last kernel, which the step's end waits for."""
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(100):
                trace.op("aten::add", [[512, 512], [512, 512], []], 10.0, concrete=PLUS, host_us=60.0)
            trace.synchronize()
    one = unprofiled(trace, tmp_path)
    before, after = length(one, one.graph), length(one, there(one, faster(own(one), compute=10.0, memory=10.0)))
    assert before == pytest.approx(100 * 60e3, rel=0.01)
    assert 0 <= before - after <= 10e3


def test_a_change_first_and_the_machine_then(tmp_path: Path):
    """Half of the product's work, on a machine twice as fast: a quarter of its time, and of its floor."""
    one = mixed(tmp_path)
    mine = named(one, "product")
    half = in_turn(
        [lambda graph: shortened(graph, mine, np.full(3, 0.5)), on_machine(one, faster(own(one), compute=2.0))]
    )(one.graph)
    assert half.duration[mine] == pytest.approx(FIXED_NS + (2_000e3 / 2 - FIXED_NS) / 2)
    assert half.floor[mine] == pytest.approx(one.priced.floor_ns[mine] / 4)


# -- laws, on recorded steps ------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=short)
def test_the_same_machine_changes_nothing(path: Path):
    """But for work that was recorded as faster than its floor: no machine is taken to do that."""
    one = evidence(path)
    after = there(one, own(one))
    kept = np.maximum(one.graph.duration, np.nan_to_num(one.priced.floor_ns))
    assert after.duration == pytest.approx(kept)
    assert after.floor == pytest.approx(one.graph.floor, nan_ok=True)
    own_of_work = ("graph.duration", "graph.floor", "graph.base")
    changed = {key: value for key, value in arrays(after).items() if key not in own_of_work}
    assert same(changed, {key: value for key, value in arrays(one.graph).items() if key in changed})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", EXAMPLES, ids=short)
def test_no_time_is_under_its_new_floor_and_the_host_stays(path: Path, name: str):
    one = evidence(path)
    after, floors = there(one, find(name)), repriced(one.priced, find(name)).floor_ns
    # what had no floor has none there; a card without a link to others has none for collectives
    lost = np.isnan(floors) & ~np.isnan(one.priced.floor_ns)
    assert not (np.isnan(one.priced.floor_ns) & ~np.isnan(floors)).any()
    assert (one.priced.kind[lost] == WorkClass.COMMUNICATION).all()
    assert not lost.any() or find(name).link_bytes_per_s is None
    assert (after.duration >= np.nan_to_num(floors) - 1e-6).all()
    assert np.array_equal(after.left, one.graph.left)
    assert np.array_equal(after.reaction, one.graph.reaction)


ceilings = st.fixed_dictionaries({key: st.floats(0.25, 8) for key in ("compute", "memory", "link", "host")})


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(EXAMPLES), ceilings, ceilings)
def test_higher_ceilings_are_lower_floors_shorter_times_and_no_longer_step(path: Path, low: dict, more: dict):
    one = evidence(path)
    slow, fast = faster(own(one), **low), faster(own(one), **{key: low[key] * max(more[key], 1.0) for key in low})
    floors = [repriced(one.priced, machine).floor_ns for machine in (slow, fast)]
    assert (np.nan_to_num(floors[1]) <= np.nan_to_num(floors[0]) * (1 + 1e-9)).all()
    graphs = [there(one, machine) for machine in (slow, fast)]
    assert (graphs[1].duration <= graphs[0].duration * (1 + 1e-9)).all()
    assert length(one, graphs[1]) <= length(one, graphs[0]) * 1.001 + 1e3


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(EXAMPLES), ceilings, st.floats(-0.2, 0.2))
def test_longer_by_a_share_is_longer(path: Path, drawn: dict, off: float):
    one = evidence(path)
    machine = faster(own(one), **drawn)
    plain, other = there(one, machine).duration, there(one, machine, off).duration
    assert ((other >= plain - 1e-6) if off >= 0 else (other <= plain + 1e-6)).all()


@pytest.mark.parametrize("path", EXAMPLES, ids=short)
def test_each_class_of_work_follows_its_own_ceiling(path: Path):
    """Four ceilings raised by four factors: no work gets faster than the highest one that it may rest on."""
    one = evidence(path)
    by = factors(one, faster(own(one), compute=2.0, memory=3.0, link=5.0, host=7.0))
    kind = one.priced.kind
    assert by[kind == WorkClass.COMMUNICATION] == pytest.approx(1 / 5)
    assert by[kind == WorkClass.TRANSFER] == pytest.approx(1 / 7)
    rest = by[kind == WorkClass.COMPUTE]
    assert ((rest >= 1 / 3 - 1e-9) & (rest <= 1 / 2 + 1e-9)).all()
    unknown = np.isnan(one.priced.floor_ns) & (kind == WorkClass.COMPUTE)
    assert by[unknown] == pytest.approx(1 / 3)


def test_there_and_back_again():
    """What another machine makes of it, and this one of that: where nothing lay at its floor, the same times."""
    one = evidence(H100 / "gpt2_b8_s1024.fwd.json.gz")
    machine = find("b200")
    by = factors(one, machine)
    back = replace(one, machine=machine, priced=repriced(one.priced, machine))
    assert by * factors(back, own(one)) == pytest.approx(np.ones(len(by)))
    assert repriced(back.priced, own(one)).floor_ns == pytest.approx(one.priced.floor_ns, nan_ok=True)
    assert len(every(one.graph)) == len(by)
