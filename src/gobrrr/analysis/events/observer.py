"""What recording an event costs the host, and so by how much a profiled step's host times are too long."""

from __future__ import annotations

import msgspec

from gobrrr.model.events import EventKind
from gobrrr.model.machine import Machine, RecordingCost
from gobrrr.model.profile import RankProfile

LIVE_SHARE = 0.35
"""The least share of a stretch of host time that stays in a live run. The time without the profiler is measured there,
and the cost of recording is solved for (gobrrr.analysis.budget.anchor); meanwhile no part of the host's time may
vanish. Chosen, not measured."""

CALIBRATED_SHARE = 0.1
"""The same for calibrated costs, where nothing else is known. Between the begins of nested operations nearly all time
is recording, and a higher share would leave time that is not the program's. `python -m bench.fit_observer_cost --here`
compares shares on steps of small models that the calibration has not seen."""

LEFT_FACTOR = 1.27
"""The remaining host time is known to within this factor either way: hosts differ in the cost of recording, and a
shared host changes its speed from run to run. It is the largest factor at which no interval of the steps of
bench/fit_observer_cost.py is wider than docs/design.md allows; its results say how many measured times are covered."""

REPEATABLE = 0.03
"""The share by which equal steps differ: clocks move with power (bench/results/h100_holdout.json times each step
twice)."""


class ObserverCost(msgspec.Struct, frozen=True, kw_only=True):
    """The host's cost of recording an event of each kind, in ns, and the least share of a stretch that stays.

    Half of an event's cost falls at its begin, half at its end.
    """

    op_ns: float
    runtime_ns: float
    annotation_ns: float
    python_ns: float
    least_share: float
    own_work: bool = True  # the profiler's own recorded work is taken out as well
    pace: float = 1.0  # the remaining host time is multiplied by this: the host itself was slower or faster

    def scaled(self, factor: float) -> ObserverCost:
        """All costs multiplied by `factor`."""
        return ObserverCost(
            op_ns=self.op_ns * factor,
            runtime_ns=self.runtime_ns * factor,
            annotation_ns=self.annotation_ns * factor,
            python_ns=self.python_ns * factor,
            pace=self.pace,
            own_work=self.own_work,
            least_share=max(0.0, 1.0 - (1.0 - self.least_share) * factor),
        )

    def left(self, factor: float) -> ObserverCost:
        """The same costs, with the remaining host time multiplied by `factor`."""
        return msgspec.structs.replace(self, pace=self.pace * factor)


DEFAULT_COST = ObserverCost(op_ns=36e3, runtime_ns=36e3, annotation_ns=36e3, python_ns=8e3, least_share=0.575)
"""The cost where nothing was measured. Fitted to the steps of bench/fit_observer_cost.py (an H100 with a slow, shared
host), whose times without the profiler are known; its results say how far each is off. Where events are dense,
`least_share` decides: recording is slower on a slower host. A larger cost per event changes little, and no recording is
known to cost so much."""

STACKS_COST = ObserverCost(op_ns=40e3, runtime_ns=40e3, annotation_ns=40e3, python_ns=8e3, least_share=0.35)
"""The cost with Python stacks: each call and return of a function costs as well, whether or not it is read here."""

NO_COST = ObserverCost(op_ns=0, runtime_ns=0, annotation_ns=0, python_ns=0, least_share=1.0, own_work=False)
"""The cost where nothing is recorded: all of the host's time stays."""


def observer_cost(rank: RankProfile, machine: Machine | None = None) -> ObserverCost:
    """The cost of recording in this trace: as measured in a live run; else as calibrated on the machine (`gobrrr
    machine`); else a default. The last two depend on what was recorded."""
    if (cost := rank.observer) is not None:
        return ObserverCost(
            op_ns=cost.op_ns,
            runtime_ns=cost.op_ns,
            annotation_ns=cost.op_ns,
            python_ns=cost.python_ns,
            least_share=LIVE_SHARE,
        )
    measured = _calibrated(rank, machine)
    if measured is not None:
        return ObserverCost(
            op_ns=measured.op_ns,
            runtime_ns=_known(measured.runtime_ns, measured.op_ns),
            annotation_ns=_known(measured.annotation_ns, measured.op_ns),
            python_ns=_known(measured.python_ns, 0.0),  # without stacks there are no frames
            least_share=CALIBRATED_SHARE,
        )
    return STACKS_COST if "with_stack" in rank.meta.recorded else DEFAULT_COST


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _calibrated(rank: RankProfile, machine: Machine | None) -> RecordingCost | None:
    """The machine's costs for what this trace recorded; None where they can't be charged event by event.

    Where the trace has calls of a device's runtime, their cost must be known; with stacks, the frames must have been
    read and their cost be known.
    """
    if machine is None or machine.observer is None:
        return None
    switches = [switch for switch in ("record_shapes", "with_stack") if switch in rank.meta.recorded]
    costs = machine.observer.modes.get("+".join(switches) or "plain")
    if costs is None:
        return None
    if costs.runtime_ns is None and len(rank.events.of(EventKind.RUNTIME)):
        return None
    if "with_stack" in switches and (not rank.frames or costs.python_ns is None):
        return None
    return costs
