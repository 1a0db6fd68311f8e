"""Several ranks' graphs run together: a collective ends on all ranks after the last rank arrives and the transfer is
done.

The n-th collective of one rank is taken to be the n-th of every other. The shortest of its recorded durations is the
transfer; the rest of the longer ones is waiting. Each rank's trace has a clock of its own: the clocks are aligned by
the ends of the collectives, which all ranks see at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gobrrr.analysis.pricing.price import Priced, WorkClass
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.simulator import GraphRun, run, walk
from gobrrr.model.events import I8


def collectives(graph: StepGraph, priced: Priced) -> I8:
    """The communication kernels of a rank's window, in the order in which they were launched (into `links.device`)."""
    begin = graph.events.start_ns[graph.links.device]
    inside = (begin >= graph.start) & (begin < graph.stop) & (priced.kind == WorkClass.COMMUNICATION)
    work = np.flatnonzero(inside)
    return work[np.argsort(graph.called[work], kind="stable")]


def matched(graphs: Sequence[StepGraph], meets: Sequence[I8]) -> bool:
    """Whether all ranks ran collectives of the same names in the same order, at least one."""
    names = [
        [graph.events.name_of(int(row)) for row in graph.links.device[work]]
        for graph, work in zip(graphs, meets, strict=True)
    ]
    return len(names[0]) > 0 and all(other == names[0] for other in names[1:])


def run_together(graphs: Sequence[StepGraph], meets: Sequence[I8]) -> list[GraphRun]:
    """Run all ranks. `meets`: each rank's collectives (`collectives`), which are `matched`.

    A collective that a change removes from one rank (`gone`) stays on the others. Where the ranks then wait for each
    other in a circle, or have different numbers of collectives, each rank runs alone.
    """
    kept = [work[~graph.gone[work]] for graph, work in zip(graphs, meets, strict=True)]
    if len({len(work) for work in kept}) != 1 or not len(kept[0]):
        return [run(graph) for graph in graphs]
    transfer = np.min([graph.duration[work] for graph, work in zip(graphs, kept, strict=True)], axis=0)
    bases = _bases(graphs, meets)
    place = [{int(index): at for at, index in enumerate(work)} for work in kept]
    walks = [walk(graph, frozenset(work.tolist())) for graph, work in zip(graphs, kept, strict=True)]
    done: list[GraphRun | None] = [None] * len(graphs)
    begun: list[dict[int, float]] = [{} for _ in graphs]  # by the collective's number, on the common clock
    waiting: list[int | None] = [None] * len(graphs)
    sent: list[float | None] = [None] * len(graphs)
    while any(result is None for result in done):
        progressed = False
        for rank, steps in enumerate(walks):
            number = waiting[rank]
            if done[rank] is not None:
                continue
            if number is not None:
                arrivals = [times.get(number) for times in begun]
                if any(time is None for time in arrivals):
                    continue
                sent[rank] = max(time for time in arrivals if time is not None) + float(transfer[number]) - bases[rank]
            progressed = True
            try:
                index, at = next(steps) if number is None else steps.send(sent[rank] or 0.0)
            except StopIteration as ended:
                done[rank] = ended.value
                continue
            waiting[rank] = place[rank][index]
            begun[rank][place[rank][index]] = at + bases[rank]
        if not progressed:
            return [run(graph) for graph in graphs]
    return [result for result in done if result is not None]


def _bases(graphs: Sequence[StepGraph], meets: Sequence[I8]) -> list[float]:
    """The offset in ns from each rank's replayed time to the common clock."""
    ends = [graph.events.end_ns[graph.links.device[work]] for graph, work in zip(graphs, meets, strict=True)]
    first = [float(graph.at[0]) if len(graph.at) else 0.0 for graph in graphs]
    return [begin - float(np.median(end - ends[0])) for begin, end in zip(first, ends, strict=True)]
