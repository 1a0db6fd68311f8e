"""Ranks together: held against a second simulator of programs that meet, which knows no graph and no trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.events.links import link
from gobrrr.analysis.events.observer import NO_COST
from gobrrr.analysis.pricing.price import WorkClass, price_all
from gobrrr.analysis.replay.graph import StepGraph, graph_of
from gobrrr.analysis.replay.ranks import collectives, matched, run_together
from gobrrr.analysis.replay.simulator import GraphRun, run
from gobrrr.analysis.replay.what_if import hosted
from gobrrr.analysis.savings.gains import Stopwatch
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.events import I8, EventKind
from gobrrr.model.profile import RankProfile, TraceMeta
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import DDP, Row, launched, table
from tests.conftest import H100_EXTRA
from tests.spread import examples, spread

CALL, REACTION = 5_000, 3_000
HOUR = 3_600_000_000_000
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
NS = 2.0
"""Of two times in ns that are equal but for rounding."""

# -- programs that meet ------------------------------------------------------------


@dataclass(frozen=True)
class Do:
    """The host computes for `host` ns, calls, and a kernel of `ns` is queued; then it may wait for the device.

    `meets`: the kernel is a collective, which ends on all ranks `ns` after the last of them has begun it.
    """

    host: int
    ns: int
    meets: bool = False
    waits: bool = False


@dataclass(frozen=True)
class Ran:
    """What a program did: (call, begin, end) of each kernel, and (begin, end) of each wait of the host."""

    kernels: list[tuple[float, float, float]]
    waits: list[tuple[float, float]]

    @property
    def end(self) -> float:
        return max([end for _, _, end in self.kernels] + [end for _, end in self.waits])


def alone(program: Sequence[Do], ends: Sequence[float], host_times: float = 1.0) -> tuple[Ran, list[float]]:
    """One rank with the ends of its collectives given, and when it begins them. One stream, and no latency."""
    now = free = 0.0
    kernels, waits, begun = [], [], []
    for one in program:
        now += one.host * host_times
        call, now = now, now + CALL * host_times
        begin = max(now, free)
        if one.meets:
            free = max(ends[len(begun)], begin + one.ns)
            begun.append(begin)
        else:
            free = begin + one.ns
        kernels.append((call, begin, free))
        if one.waits:
            waits.append((now, max(now, free) + REACTION))
            now = waits[-1][1]
    return Ran(kernels, waits), begun


def meeting(programs: Sequence[Sequence[Do]], host_times: Sequence[float] | None = None) -> list[Ran]:
    """All ranks: the ends of collectives are moved back until nobody has to wait any longer."""
    paces = host_times or [1.0] * len(programs)
    transfer = [min(each) for each in zip(*([one.ns for one in rank if one.meets] for rank in programs), strict=True)]
    ends = [0.0] * len(transfer)
    while True:
        each = [alone(rank, ends, pace) for rank, pace in zip(programs, paces, strict=True)]
        came = [max(begun) for begun in zip(*(begun for _, begun in each), strict=True)]
        later = [at + ns for at, ns in zip(came, transfer, strict=True)]
        if later == ends:
            return [ran for ran, _ in each]
        ends = later


def recorded(program: Sequence[Do], ran: Ran, clock: int = 0, name: str = REDUCE) -> StepGraph:
    """The graph of the trace that a profiler without a cost would write of it; its clock is ahead by `clock`."""
    rows: list[Row] = []
    for number, (one, (call, begin, end)) in enumerate(zip(program, ran.kernels, strict=True)):
        kernel = name if one.meets else "kernel"
        times = clock + int(call), clock + int(begin), int(end - begin)
        rows += launched(kernel, *times, number + 1, call_ns=CALL)
    rows += [
        Row(EventKind.RUNTIME, "cudaDeviceSynchronize", clock + int(begin), int(end - begin))
        for begin, end in ran.waits
    ]
    events = table(rows)
    return graph_of(events, link(events), NO_COST, clock, clock + int(ran.end) + 1)


def graphs_of(programs: Sequence[Sequence[Do]], clocks: Sequence[int] | None = None) -> list[StepGraph]:
    shifts = clocks or [0] * len(programs)
    return [recorded(*one) for one in zip(programs, meeting(programs), shifts, strict=True)]


def meets_of(graphs: Sequence[StepGraph]) -> list[I8]:
    return [collectives(one, price_all(one.events, one.links, None)) for one in graphs]


def together(graphs: Sequence[StepGraph], changed: Sequence[StepGraph] | None = None) -> list[GraphRun]:
    """Run the ranks, all of them or as changed, with the collectives of their traces."""
    meets = meets_of(graphs)
    assert matched(graphs, meets)
    return run_together(changed or graphs, meets)


def ends_of(graph: StepGraph, ran: GraphRun) -> list[float]:
    """The ends of the collectives, from the rank's first event on."""
    return ran.end[meets_of([graph])[0]].tolist()


def same_as(runs: Sequence[GraphRun], expected: Sequence[Ran], programs: Sequence[Sequence[Do]], pace: Sequence[float]):
    """Whether runs are as the second simulator says; a replay begins with the first call."""
    for one, other, program, times in zip(runs, expected, programs, pace, strict=True):
        first = program[0].host * times
        assert one.begin == pytest.approx([begin - first for _, begin, _ in other.kernels], abs=NS)
        assert one.end == pytest.approx([end - first for _, _, end in other.kernels], abs=NS)
        assert one.resumed == pytest.approx([end - first for _, end in other.waits], abs=NS)


US = 1_000
COMPUTE, TRANSFER = 300 * US, 80 * US


def layers(count: int, ns: int, transfer: int = TRANSFER, host: int = 10 * US) -> list[Do]:
    """`count` times a kernel and a collective behind it, on one stream; the host runs ahead."""
    return [Do(host, ns), Do(host, transfer, meets=True)] * count


# -- by hand ------------------------------------------------------------


def test_a_collective_ends_for_all_when_the_last_has_come_and_the_bytes_have_moved():
    """300, 500 and 400 us of computing behind 15 us of launching: all end 80 us after the second rank's."""
    graphs = graphs_of([layers(1, COMPUTE), layers(1, COMPUTE + 200 * US), layers(1, COMPUTE + 100 * US)])
    runs = together(graphs)
    for graph, ran in zip(graphs, runs, strict=True):
        assert ends_of(graph, ran) == pytest.approx([CALL + COMPUTE + 200 * US + TRANSFER], abs=NS)
    waited = [float((ran.end - ran.begin)[1]) for ran in runs]
    assert waited == pytest.approx([TRANSFER + 200 * US, TRANSFER, TRANSFER + 100 * US], abs=NS)


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("by", [1 * US, 70 * US, 5_000 * US])
def test_a_rank_that_gets_slower_delays_the_other_by_as_much(slow: int, by: int):
    graphs = graphs_of([layers(4, COMPUTE), layers(4, COMPUTE)])
    duration = graphs[slow].duration.copy()
    duration[2] += by
    changed = list(graphs)
    changed[slow] = replace(graphs[slow], duration=duration)
    for before, after in zip(together(graphs), together(graphs, changed), strict=True):
        assert after.end[-1] - before.end[-1] == pytest.approx(by, abs=NS)
        assert after.end[1] == pytest.approx(before.end[1], abs=NS)  # the collective in front of it


def test_a_rank_that_gets_faster_helps_only_as_far_as_the_other_was_waiting():
    """Rank 1 computes 300 us more a layer than rank 0: of 400 us that it loses, 300 show."""
    graphs = graphs_of([layers(3, COMPUTE), layers(3, 2 * COMPUTE)])
    duration = graphs[1].duration.copy()
    duration[0::2] -= COMPUTE + 100 * US
    before, after = together(graphs), together(graphs, [graphs[0], replace(graphs[1], duration=duration)])
    for one, other in zip(before, after, strict=True):
        assert one.end[-1] - other.end[-1] == pytest.approx(3 * COMPUTE, abs=NS)


def test_one_ranks_host_moves_both():
    """Bound by the host: 100 us a launch; at twice its pace on one rank nothing is gained, on both half of the time."""
    graphs = graphs_of([layers(5, 5 * US, 1 * US, 95 * US)] * 2)
    quick = [replace(one, left=one.left / 2) for one in graphs]
    before = together(graphs)
    one_quick, both_quick = together(graphs, [quick[0], graphs[1]]), together(graphs, quick)
    last = [float(one.end[-1]) for one in before]
    assert last == pytest.approx([9 * 100 * US + CALL + 1 * US] * 2, abs=NS)
    assert [float(one.end[-1]) for one in one_quick] == pytest.approx(last, abs=NS)
    assert [float(one.end[-1]) for one in both_quick] == pytest.approx([(last[0] - US) / 2 + US] * 2, abs=NS)
    slow = replace(graphs[1], left=graphs[1].left * 3)
    assert [float(one.end[-1]) for one in together(graphs, [graphs[0], slow])] == pytest.approx(
        [3 * (last[0] - US) + US] * 2, abs=NS
    )


def test_shorter_transfers_are_shorter_by_the_shortest_of_them():
    """What is longer than the shortest was waiting, whoever's trace it stands in."""
    graphs = graphs_of([layers(2, COMPUTE), layers(2, 2 * COMPUTE)])
    assert graphs[0].duration[1] > graphs[1].duration[1] == TRANSFER
    half = [replace(one, duration=np.where([False, True] * 2, one.duration / 2, one.duration)) for one in graphs]
    for before, after in zip(together(graphs), together(graphs, half), strict=True):
        assert before.end[-1] - after.end[-1] == pytest.approx(2 * TRANSFER / 2, abs=NS)


# -- where they can't be run together ------------------------------------------------------------


def apart(graphs: Sequence[StepGraph], runs: Sequence[GraphRun]) -> bool:
    """Whether each rank ran as it does alone."""
    return all(np.array_equal(run(one).end, ran.end) for one, ran in zip(graphs, runs, strict=True))


def test_ranks_with_other_collectives_do_not_match():
    one, other = layers(2, COMPUTE), layers(2, 2 * COMPUTE)
    ran = meeting([one, other])
    plain = recorded(one, ran[0])
    for strange in (
        recorded(other, ran[1], name="ncclDevKernel_Broadcast"),
        recorded(other[:2], Ran(ran[1].kernels[:2], [])),
    ):
        graphs = [plain, strange]
        assert not matched(graphs, meets_of(graphs))
    nothing = [recorded(one[:1], Ran(ran[0].kernels[:1], []))] * 2
    assert not matched(nothing, meets_of(nothing))


def test_a_collective_that_one_rank_no_longer_has_leaves_each_to_itself():
    graphs = graphs_of([layers(2, COMPUTE), layers(2, 2 * COMPUTE)])
    changed = [replace(graphs[0], gone=np.arange(4) == 1), graphs[1]]
    assert apart(changed, together(graphs, changed))


def test_a_collective_that_no_rank_has_any_more_is_not_waited_for():
    """The first of two goes on both: rank 0 is no longer held there."""
    graphs = graphs_of([layers(2, COMPUTE), layers(2, 2 * COMPUTE)])
    gone = np.arange(4) == 1
    changed = [replace(one, gone=gone, duration=np.where(gone, 0.0, one.duration)) for one in graphs]
    runs = together(graphs, changed)
    assert runs[0].end[2] == pytest.approx(CALL + 2 * COMPUTE, abs=NS)
    assert [float(ran.end[3]) for ran in runs] == pytest.approx([CALL + 4 * COMPUTE + TRANSFER] * 2, abs=NS)


def test_ranks_that_would_wait_for_each_other_forever_go_on_by_themselves():
    """One issues its collectives the other way round."""
    graphs = graphs_of([layers(2, COMPUTE), layers(2, 2 * COMPUTE)])
    called = graphs[1].called.copy()
    called[[1, 3]] = called[[3, 1]]
    changed = [graphs[0], replace(graphs[1], called=called)]
    assert apart(changed, together(graphs, changed))


# -- laws ------------------------------------------------------------

host_ns, kernel_ns = st.integers(0, 150).map(lambda us: us * US), st.integers(1, 200).map(lambda us: us * US)


@st.composite
def programs(draw: st.DrawFn, ranks: int | None = None) -> list[list[Do]]:
    """Two or three ranks with as many collectives in the same order, and their own work between them."""
    count = ranks or draw(st.integers(2, 3))
    transfers = draw(st.lists(kernel_ns, min_size=1, max_size=4))
    own = st.lists(st.builds(Do, host_ns, kernel_ns, st.just(False), st.booleans()), max_size=3)
    made = []
    for _ in range(count):
        program: list[Do] = []
        for ns in transfers:
            program += [*draw(own), Do(draw(host_ns), ns, meets=True, waits=draw(st.booleans()))]
        made.append(program + draw(own))
    return made


@settings(max_examples=examples(80), deadline=None)
@given(programs())
def test_what_was_recorded_runs_as_it_was(drawn: list[list[Do]]):
    same_as(together(graphs_of(drawn)), meeting(drawn), drawn, [1.0] * len(drawn))


@settings(max_examples=examples(80), deadline=None)
@given(programs(), st.data())
def test_changed_ranks_run_as_the_changed_programs_do(drawn: list[list[Do]], data: st.DataObject):
    """Longer and shorter kernels on each rank, faster and slower hosts, transfers of another length on all."""
    graphs = graphs_of(drawn)
    pace = [data.draw(st.sampled_from([1.0, 0.5, 3.0])) for _ in drawn]
    transfer = data.draw(st.sampled_from([1, 1, 4]))
    factors = [data.draw(st.sampled_from([1, 2, 5])) for _ in drawn]
    changed_programs, changed = [], []
    for program, graph, host, kernel in zip(drawn, graphs, pace, factors, strict=True):
        times = [transfer if one.meets else kernel for one in program]
        changed_programs.append([replace(one, ns=one.ns * by) for one, by in zip(program, times, strict=True)])
        # each program starts with its first call: what the host did before it is in no trace
        changed.append(replace(graph, left=graph.left * host, duration=graph.duration * np.array(times)))
    starts = [program[0].host for program in drawn]
    expected = _meeting_from(changed_programs, pace, starts)
    runs = together(graphs, changed)
    for one, other, start in zip(runs, expected, starts, strict=True):
        assert one.begin == pytest.approx([begin - start for _, begin, _ in other.kernels], abs=NS)
        assert one.end == pytest.approx([end - start for _, _, end in other.kernels], abs=NS)
        assert one.resumed == pytest.approx([end - start for _, end in other.waits], abs=NS)


def _meeting_from(changed: Sequence[Sequence[Do]], pace: Sequence[float], starts: Sequence[int]) -> list[Ran]:
    """The same with first calls that stay when they were, whatever the host's pace."""
    begun = [
        [replace(program[0], host=start / times), *program[1:]]  # type: ignore[arg-type]
        for program, times, start in zip(changed, pace, starts, strict=True)
    ]
    return meeting(begun, pace)


@settings(max_examples=examples(40), deadline=None)
@given(programs(), st.lists(st.integers(-HOUR, HOUR), min_size=3, max_size=3))
def test_clocks_that_differ_do_not_matter(drawn: list[list[Do]], shifts: list[int]):
    plain = together(graphs_of(drawn))
    shifted = together(graphs_of(drawn, [HOUR + one for one in shifts[: len(drawn)]]))
    for one, other in zip(plain, shifted, strict=True):
        assert other.begin == pytest.approx(one.begin, abs=NS)
        assert other.end == pytest.approx(one.end, abs=NS)


@settings(max_examples=examples(40), deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_the_order_of_the_ranks_does_not_matter(drawn: list[list[Do]], random):
    graphs = graphs_of(drawn)
    changed = [replace(one, left=one.left * (1 + number)) for number, one in enumerate(graphs)]
    order = list(range(len(graphs)))
    random.shuffle(order)
    plain = together(graphs, changed)
    shuffled = together([graphs[one] for one in order], [changed[one] for one in order])
    for at, number in enumerate(order):
        assert shuffled[at].end == pytest.approx(plain[number].end, abs=NS)


@settings(max_examples=examples(40), deadline=None)
@given(programs(ranks=2), st.integers(0, 500))
def test_a_slower_rank_delays_nobody_by_more_than_it_is_slower(drawn: list[list[Do]], us: int):
    graphs = graphs_of(drawn)
    duration = graphs[0].duration.copy()
    duration[0] += 0 if drawn[0][0].meets else us * US
    before, after = together(graphs), together(graphs, [replace(graphs[0], duration=duration), graphs[1]])
    for one, other in zip(before, after, strict=True):
        later = other.end - one.end
        assert (later >= -NS).all()
        assert (later <= us * US + NS).all()


# -- the shipped pairs ------------------------------------------------------------

RANKS = [
    [H100_EXTRA / f"{name}.rank{rank}.json.gz" for rank in (0, 1)]
    for name in sorted({path.name.split(".")[0] for path in DDP})
]


@pytest.mark.parametrize("paths", spread(RANKS), ids=lambda paths: paths[0].name.split(".")[0])
def test_the_shipped_ranks_meet_and_end_together(paths):
    evidences = [evidence_of(read_trace(str(path)).ranks[0])[0] for path in paths]
    watch = Stopwatch(*evidences)
    assert watch.joined
    graphs = watch.graphs[watch.middle]
    runs = watch.runs(graphs)
    ends = [ran.end[mine] for ran, mine in zip(runs, watch.meets, strict=True)]
    between = np.diff(np.stack(ends), axis=0)[0]
    # on a common clock: as far apart as the two clocks are, and no more
    assert np.ptp(between) < 1.0
    lasts = [(ran.end - ran.begin)[mine] for ran, mine in zip(runs, watch.meets, strict=True)]
    shortest = np.min([one.duration[mine] for one, mine in zip(graphs, watch.meets, strict=True)], axis=0)
    # the last to come only sends
    assert np.min(lasts, axis=0) == pytest.approx(shortest, abs=1.0)
    # whoever is held longer is held by the other
    held = [replace(one, left=one.left * factor) for one, factor in zip(graphs, (1.0, 1.5), strict=True)]
    assert watch._length(held) >= watch._length(graphs) * (1 - 1e-6)
    quick = [hosted(one, one.at[:1], one.at[-1:], 0.5) for one in graphs]
    assert watch._length(quick) <= watch._length(graphs) * (1 + 1e-6)


def test_the_kernels_of_other_devices_ranks_are_collectives_by_name():
    graph = graphs_of([layers(1, COMPUTE)] * 2)[0]
    priced = price_all(graph.events, graph.links, None)
    assert collectives(graph, priced).tolist() == np.flatnonzero(priced.kind == WorkClass.COMMUNICATION).tolist() == [1]


def test_ranks_without_a_common_collective_take_what_the_slowest_takes():
    """No collectives at all: the step of two is that of the longer one."""
    short, long = [Do(10 * US, COMPUTE)] * 4, [Do(10 * US, 2 * COMPUTE)] * 4
    evidences = []
    for number, program in enumerate((short, long)):
        graph = recorded(program, alone(program, [])[0])
        meta = TraceMeta(source=f"rank{number}", rank=number)
        evidences += evidence_of(RankProfile(meta=meta, events=graph.events, ends=(1.0, 1.0)))
    watch = Stopwatch(*evidences)
    assert not watch.joined
    assert max(watch.lengths) == pytest.approx(Stopwatch(evidences[1]).lengths[0])
