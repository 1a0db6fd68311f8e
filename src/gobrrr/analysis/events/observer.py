"""What recording an event costs the host: by how much a profiled step's host times are too long."""

from __future__ import annotations

import msgspec

from gobrrr.model.events import Kind
from gobrrr.model.machine import Machine, RecordingCost
from gobrrr.model.profile import RankProfile

LIVE_SHARE = 0.35
"""Of a stretch of host time at least this share stays in a live run. Its time without the profiler is measured, and the
cost of recording solved for (gobrrr.analysis.budget.anchor): no part of the host's time must vanish on the way."""

CALIBRATED_SHARE = 0.1
"""The same where costs are calibrated and nothing else is known. Between the begins of nested operations nearly all is
recording: a higher share leaves what was not the program's. `python -m bench.fit_observer_cost --here` compares shares
on steps of small models that the calibration has not seen."""

LEFT_FACTOR = 1.27
"""What stays of the host's time is known to within this factor either way: hosts differ in what recording costs them,
and a shared one runs at another pace from run to run. The widest at which no interval of the steps of
bench/fit_observer_cost.py is wider than docs/design.md allows; its results say how many measured times are met."""

REPEATABLE = 0.03
"""A step repeats no better: clocks move with power (bench/results/h100_holdout.json times each step twice)."""


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

    def left(self, factor: float) -> ObserverCost:
        """The same with what it leaves of the host's time times `factor`."""
        return msgspec.structs.replace(self, pace=self.pace * factor)


DEFAULT_COST = ObserverCost(op_ns=36e3, runtime_ns=36e3, annotation_ns=36e3, python_ns=8e3, least_share=0.575)
"""Where nothing was measured. Fitted to the steps of bench/fit_observer_cost.py (an H100 with a slow, shared host),
whose times without the profiler are known; its results say how far each is off. The share that stays is what decides
where events are dense: recording slows down with the host that does it. An event's cost of more than this changes
little, and no recording is known to cost so much."""

STACKS_COST = ObserverCost(op_ns=40e3, runtime_ns=40e3, annotation_ns=40e3, python_ns=8e3, least_share=0.35)
"""With Python stacks recorded, each call and return of a function costs as well, whether or not it is read here."""

NO_COST = ObserverCost(op_ns=0, runtime_ns=0, annotation_ns=0, python_ns=0, least_share=1.0, own_work=False)


def observer_cost(rank: RankProfile, machine: Machine | None = None) -> ObserverCost:
    """What recording cost in this trace: as measured in a live run; else as calibrated on the machine, for what was
    recorded (`gobrrr machine`); else a default, for what was recorded."""
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
            python_ns=_known(measured.python_ns, 0.0),  # without stacks no frames are recorded
            least_share=CALIBRATED_SHARE,
        )
    return STACKS_COST if "with_stack" in rank.meta.recorded else DEFAULT_COST


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _calibrated(rank: RankProfile, machine: Machine | None) -> RecordingCost | None:
    """The machine's costs for what this trace recorded; None where they can't be charged.

    Those of calls of a device's runtime must be among them if there are such calls, and with stacks the frames must
    have been read: what is not in the table can't be charged event by event.
    """
    if machine is None or machine.observer is None:
        return None
    switches = [one for one in ("record_shapes", "with_stack") if one in rank.meta.recorded]
    found = machine.observer.modes.get("+".join(switches) or "plain")
    if found is None:
        return None
    if found.runtime_ns is None and len(rank.events.of(Kind.RUNTIME)):
        return None
    if "with_stack" in switches and (not rank.frames or found.python_ns is None):
        return None
    return found
