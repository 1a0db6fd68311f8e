"""What recording an event costs the host: by how much a profiled step's host times are too long."""

from __future__ import annotations

import msgspec

from gobrrr.model.profile import RankProfile


class ObserverCost(msgspec.Struct, frozen=True, kw_only=True):
    """What recording one event costs the host, in ns, and the least share of a stretch of host time that stays.

    The costs are per event of the kind: half at its begin, half at its end.
    """

    op_ns: float
    runtime_ns: float
    annotation_ns: float
    python_ns: float
    least_share: float
    own_work: bool = True  # what the profiler recorded as its own work is taken out as well
    pace: float = 1.0  # what is left of the host's time is multiplied by this: the host itself was slower or faster

    def scaled(self, factor: float) -> ObserverCost:
        """The same with all costs times `factor`."""
        return ObserverCost(
            op_ns=self.op_ns * factor,
            runtime_ns=self.runtime_ns * factor,
            annotation_ns=self.annotation_ns * factor,
            python_ns=self.python_ns * factor,
            pace=self.pace,
            own_work=self.own_work,
            least_share=max(0.0, 1.0 - (1.0 - self.least_share) * factor),
        )


DEFAULT_COST = ObserverCost(op_ns=36e3, runtime_ns=36e3, annotation_ns=36e3, python_ns=8e3, least_share=0.55)
"""Fitted to the steps of bench/fit_observer_cost.py, whose times without the profiler are known; its results say how
far each is off. The share that stays is what decides where events are dense."""

STACKS_COST = ObserverCost(op_ns=40e3, runtime_ns=40e3, annotation_ns=40e3, python_ns=8e3, least_share=0.35)
"""With Python stacks recorded, each call and return of a function costs as well, whether or not it is read here."""

NO_COST = ObserverCost(op_ns=0, runtime_ns=0, annotation_ns=0, python_ns=0, least_share=1.0, own_work=False)


def observer_cost(rank: RankProfile) -> ObserverCost:
    """What recording cost in this trace: as measured in a live run, else by what was recorded."""
    if rank.live is not None and rank.live.observer is not None:
        one = rank.live.observer
        return ObserverCost(
            op_ns=one.op_ns, runtime_ns=one.op_ns, annotation_ns=one.op_ns, python_ns=one.python_ns, least_share=0.35
        )
    return STACKS_COST if "with_stack" in rank.meta.recorded else DEFAULT_COST
