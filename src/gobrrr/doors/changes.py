"""A step with treatments, or on another machine, predicted by replaying a trace or a live profile.

If `on` names another machine than the one that the step ran on, the diagnosis is that of the step there: each kernel's
time is scaled as its floor changes, the step is replayed, and the pipeline diagnoses the replayed timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from itertools import combinations
from os import PathLike

import numpy as np
from msgspec.structs import replace

from gobrrr.analysis.answer.machine_rows import machine_row
from gobrrr.analysis.answer.outcome import Outcome, outcome
from gobrrr.analysis.answer.representative import representative
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.places.timeline import roofs
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.savings.elsewhere import on_machine, repriced
from gobrrr.analysis.savings.gains import length
from gobrrr.doors import pipeline
from gobrrr.errors import UsageError
from gobrrr.guarded import GuardedParts
from gobrrr.hardware import find
from gobrrr.model.diagnosis import Diagnosis, MachineRow, Roof, WhatIf
from gobrrr.model.events import I8, EventKind, EventTable
from gobrrr.model.machine import Machine
from gobrrr.model.profile import DeviceProperties, Profile, RankProfile
from gobrrr.report import chrome, terminal
from gobrrr.report.chrome_places import Placed
from gobrrr.treatments.framework.asking import word_of
from gobrrr.treatments.framework.base import catalogue
from gobrrr.treatments.framework.rank_plans import RankPlans
from gobrrr.treatments.framework.seats import seats
from gobrrr.treatments.framework.together import CombinedTreatments, Combiner

Stages = Callable[[str, int, int], None]

MACHINES = ("a100-80gb", "h100", "b200", "mi300x")
"""The other machines that the page's what-if panel offers."""

MOST_TREATMENTS = 4
"""The page offers all combinations of this many treatments: 16. Each is a replay; chosen, not measured."""

FEW_TREATMENTS = 3
"""Up to this many treatments, all their combinations are offered on the other machines as well."""

LEAST_OFFERED_SHARE = 0.01
"""A treatment with an expected saving below this share of the step is not offered; chosen."""

MOST_PANEL_WORK = 20_000
"""A step with more pieces of device work gets no panel: each combination is a whole replay. Chosen."""

AHEAD_TIME_SCALE = 1e-3
"""Work issued before the window is moved to its begin, with its times scaled by this factor to keep the order."""


@dataclass(frozen=True)
class Prediction:
    """A step with treatments applied, or on another machine, as predicted by replay.

    `what_if`: the numbers; `diagnosis`: of the step as it is, with these numbers among its `what_ifs`. `events`: the
    replayed timeline. If gobrrr failed to replay it, both are None and `diagnosis.not_checked` says why. `place`: for
    each event, the place of the diagnosis that it lies in (-1 for device work); None if no places are known.
    """

    diagnosis: Diagnosis
    what_if: WhatIf | None
    events: EventTable | None
    place: I8 | None = None

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the replayed timeline as a Chrome trace (.json or .json.gz), for Perfetto."""
        if self.what_if is None or self.events is None:
            raise UsageError("there is no predicted timeline to write: replaying the step with the changes failed")
        diagnosis = self.diagnosis
        placed = Placed(diagnosis.places, diagnosis.held_by, self.place) if self.place is not None else None
        device = self.what_if.machine or diagnosis.device
        chrome.save(self.events, path, title=title(self.what_if), device=device, placed=placed)

    def __str__(self) -> str:
        return terminal.for_print(self.diagnosis, self.what_if)


def title(what_if: WhatIf) -> str:
    """A combination in words: "compile + cuda-graph on NVIDIA B200"."""
    return _title(what_if.treatments, what_if.machine)


def _title(treatments: Sequence[str], machine: str | None) -> str:
    return " on ".join(filter(None, (" + ".join(treatments) or "as it is", machine)))


def predict(
    profile: Profile,
    treatments: Sequence[str] = (),
    *,
    on: str | None = None,
    panel: bool = False,
    stages: Stages | None = None,
) -> Prediction:
    """Predict the step of a profile with `treatments` together, on the machine `on` (None: where it ran).

    `panel`: the diagnosis also gets the combinations of `with_panel`.

    Raises UsageError if a treatment is unknown or the step can't be replayed, UnknownDeviceError for `on`.
    """
    machine = find(on) if on is not None else None
    examined = pipeline.examine(profile)
    evidence = _replayable(examined)
    if machine is not None and evidence.machine is None and evidence.device.comparable:
        # the step's machine is not known: assume that it is the one named
        examined, machine = pipeline.examine(profile, on=machine), None
        evidence = _replayable(examined)
    if machine is not None and evidence.device.comparable and not is_other(evidence, machine):
        machine = None
    if machine is not None:
        _comparable(evidence, machine)
    parts = GuardedParts()
    asked_for = _seats(examined, treatments, parts)
    whole = with_panel(examined, stages) if panel else examined.diagnosis
    called = f"what-if {_title(treatments, machine.name if machine else None)}"
    replayed = parts.make(called, lambda: _replayed(examined, asked_for, treatments, machine), None)
    if replayed is None:
        return Prediction(pipeline.without(whole, parts), None, None)
    before, asked, events, shown = replayed
    place = examined.place[shown] if examined.place is not None else None
    with_plan = {name for seat in asked_for for name, _, _ in seat.plans}
    notes = [f"{name} changes nothing that was found in this step" for name in treatments
             if name not in with_plan and not any(part.split(" ")[0] == name for part in parts.failed)]  # fmt: skip
    record = replace(asked, assumes=[*asked.assumes, *notes], asked=True)
    rows = [what_if for what_if in whole.what_ifs or [before] if not _same(what_if, record)]
    if treatments or machine is not None:
        rows.append(record)
    known = {**whole.what_if_roofs, **_roofs([machine] if machine else [])}
    found = pipeline.without(replace(whole, what_ifs=rows, what_if_roofs=known), parts)
    return Prediction(found, record, events.take(shown), place)


def _replayed(
    examined: pipeline.Examined, ranks: Sequence[RankPlans], treatments: Sequence[str], machine: Machine | None
) -> tuple[WhatIf, WhatIf, EventTable, I8]:
    """(the step as it is, the step with the treatments on the machine, its events, its timeline's rows in order)."""
    combiner = Combiner(ranks, examined.diagnosis.unprofiled_wall_ns)
    asked = combiner.combined(treatments, machine)
    record = asked.what_if
    if treatments and machine is not None:
        record = replace(record, there_ns=combiner.combined((), machine).what_if.step_ns)
    return combiner.combined(()).what_if, record, *_timeline(asked, _replayable(examined))


def _same(what_if: WhatIf, other: WhatIf) -> bool:
    """Whether two records are of the same combination; never true of the step as it is, which always stays."""
    same = set(what_if.treatments) == set(other.treatments) and what_if.machine == other.machine
    return same and (len(what_if.treatments) > 0 or what_if.machine is not None)


def diagnose(
    profile: Profile, *, on: str | None = None, panel: bool = False, stages: Stages | None = None
) -> Diagnosis:
    """Diagnose a profile, on the machine `on` if that is not its own; `panel`: with its what-ifs.

    `stages` is called with what is being replayed, how much of it is done and how much there is.

    Raises UnknownDeviceError if `on` names no machine.
    """
    parts = GuardedParts()
    machine = find(on) if on is not None else None
    if machine is not None:
        called = f"the step on {machine.name}"
        there = parts.make(called, lambda: _elsewhere(profile, machine), None)
        if there is not None:
            return with_panel(there, stages) if panel else there.diagnosis
        on = None if parts.failed else on
    examined = pipeline.examine(profile, on=on)
    return pipeline.without(with_panel(examined, stages) if panel else examined.diagnosis, parts)


def _elsewhere(profile: Profile, machine: Machine) -> pipeline.Examined | None:
    """The step on another machine; None if it ran on that machine or on an unknown one, or can't be replayed."""
    profile = representative(profile)
    by_rank = [pipeline.examine(replaced(profile, ranks=(rank,))) for rank in profile.ranks]
    alone = [seat for examined in by_rank for seat in seats(examined.ranks, (), GuardedParts())]
    if len(alone) < len(by_rank) or not all(
        seat.evidence.replayable and is_other(seat.evidence, machine) for seat in alone
    ):
        return None
    here = by_rank[0] if len(by_rank) == 1 else pipeline.examine(profile)
    combiner = Combiner(alone, here.diagnosis.unprofiled_wall_ns)
    there = combiner.combined((), machine).what_if
    step = max(there.step_ns, 1.0)
    ends = there.low_ns / step, there.high_ns / step
    graphs = [on_machine(seat.evidence, machine)(seat.evidence.graph) for seat in alone]
    runs = combiner.watch.runs(graphs) if len(graphs) > 1 else [None]
    moved = []
    for seat, graph, ran, rank in zip(alone, graphs, runs, profile.ranks, strict=True):
        replayed = outcome(seat.evidence, graph, repriced(seat.evidence.priced, machine), step, ran)
        meta = replace(rank.meta, devices=tuple(_renamed(rank, machine)))
        own = step if ran is None else length(seat.evidence, graph, ran) * combiner.watch.scale
        moved.append(replaced(rank, meta=meta, events=_only(replayed, graph, own), ends=ends, live=None))
    then = pipeline.examine(replaced(profile, origin="static", ranks=tuple(moved)), on=machine)
    if then.evidence is None:  # marks that hold no work: there is no step to replay
        return None
    found, rows = then.diagnosis, [_row(here, here.machine), _row(then, machine)]
    notes = [
        f"predicted for {machine.name} from a run on {here.diagnosis.device}; this assumes that every kernel reaches "
        "the same share of its roof there and that the host is the same",
        *found.notes,
    ]
    return replaced(then, diagnosis=replace(found, origin=profile.origin, machines=rows, notes=notes))


def _only(found: Outcome, graph: StepGraph, step_ns: float) -> EventTable:
    """The events of the analysed steps alone, in a window of steps of `step_ns` each; the part of the first step that
    the loop overlaps with earlier work is left out."""
    events, steps, links = found.events, found.steps, graph.links
    if not steps.begins:
        return events
    begin = steps.begins[0]
    opens = steps.stop - round(step_ns * steps.count)
    start, stop = events.start_ns.copy(), events.end_ns.copy()
    called = np.where(links.launch >= 0, start[np.maximum(links.launch, 0)], start[links.device])
    host = np.ones(len(events), dtype=bool)
    host[events.on_device] = False
    kept = host & (stop >= begin)
    kept[links.device] = (called >= begin) & ~graph.ahead & ~graph.gone
    if steps.marked:
        first = host & (start == begin) & (events.kind == EventKind.ANNOTATION)
        for times in (start, stop):  # a host that ran ahead does so from the begin, in the same order
            late = max(begin, opens) + np.rint(np.maximum(times[host] - begin, 0) * AHEAD_TIME_SCALE).astype(np.int64)
            times[host] = np.maximum(times[host], late)
        start[first] = opens
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((start[rows] - stop[rows], start[rows]))]
    shift = min(int(start[rows].min(initial=0)), 0)
    return replaced(events, start_ns=start - shift, duration_ns=stop - start).take(rows)


def is_other(evidence: Evidence, machine: Machine) -> bool:
    """Whether a step on a GPU was priced with the ceilings of another machine than this one."""
    own = evidence.machine
    return own is not None and evidence.device.comparable and machine.name not in (own.name, own.device_name)


def _renamed(rank: RankProfile, machine: Machine) -> list[DeviceProperties]:
    """The devices of a rank under another machine's name."""
    return [DeviceProperties(id=device.id, name=machine.name) for device in rank.meta.devices]


def _row(examined: pipeline.Examined, machine: Machine | None) -> MachineRow:
    found, evidence = examined.diagnosis, examined.evidence
    assert machine is not None
    assert evidence is not None
    path, wall = path_of(evidence), found.unprofiled_wall_ns
    return machine_row(
        found,
        machine,
        device_ns=path.busy,
        host_ns=path.host,
        peak_bytes=found.memory_peak_bytes,
        changed=[],
        times=(wall.value or 0.0, wall.low or 0.0, wall.high or 0.0),
    )


def with_panel(examined: pipeline.Examined, stages: Stages | None = None) -> Diagnosis:
    """The diagnosis with what-ifs: combinations of the most promising treatments, here and on other machines."""
    evidence, diagnosis = examined.evidence, examined.diagnosis
    if evidence is None or not evidence.replayable or len(evidence.priced.links.device) > MOST_PANEL_WORK:
        return diagnosis
    parts = GuardedParts()
    made = parts.make("panel of what-ifs", lambda: _panel(examined, evidence, stages), diagnosis)
    return pipeline.without(made, parts)


def _panel(examined: pipeline.Examined, evidence: Evidence, stages: Stages | None) -> Diagnosis:
    diagnosis = examined.diagnosis
    names = _promising(diagnosis)
    machines = _others(evidence)
    ranks = seats(examined.ranks, names, GuardedParts())  # plans that fail are reported already
    combiner = Combiner(ranks, diagnosis.unprofiled_wall_ns)
    sets = [combination for size in range(len(names) + 1) for combination in combinations(names, size)]
    few = sets if len(names) <= FEW_TREATMENTS else [chosen for chosen in sets if len(chosen) in (0, 1, len(names))]
    asked = [(chosen, None) for chosen in sets] + [(chosen, machine) for machine in machines for chosen in few]
    rows: list[WhatIf] = []
    there: dict[str, float] = {}
    for at, (chosen, machine) in enumerate(asked):
        if stages is not None:
            stages("replaying what-ifs", at, len(asked))
        row = combiner.combined(chosen, machine).what_if
        if machine is not None and not chosen:  # the first of each machine
            there[machine.name] = row.step_ns
        rows.append(row if machine is None or not chosen else replace(row, there_ns=there[machine.name]))
    return replace(diagnosis, what_ifs=rows, what_if_roofs=_roofs(machines))


def _promising(diagnosis: Diagnosis) -> list[str]:
    """The names of the treatments with the largest expected savings, without those that only raise throughput."""
    wall = diagnosis.unprofiled_wall_ns.value or diagnosis.wall_ns or 0.0
    names = [
        prescription.treatment
        for prescription in diagnosis.prescriptions
        if (prescription.expected_ns or 0.0) >= LEAST_OFFERED_SHARE * wall and prescription.treatment != "larger-batch"
    ]
    return names[:MOST_TREATMENTS]


def _others(evidence: Evidence) -> list[Machine]:
    """The machines of `MACHINES` other than the step's own; none if its own is not known or is a CPU."""
    if evidence.machine is None or not evidence.device.comparable:
        return []
    found = [find(name) for name in MACHINES]
    return [machine for machine in found if machine.name not in (evidence.machine.name, evidence.machine.device_name)]


def _seats(examined: pipeline.Examined, treatments: Sequence[str], parts: GuardedParts) -> list[RankPlans]:
    """The ranks with the plans of the treatments that are asked for."""
    known = {treatment.name for treatment in catalogue()}
    for name in treatments:
        if word_of(name) not in known:
            raise UsageError(f"no treatment is called {word_of(name)}; those for this step: {_offered(examined)}")
    return seats(examined.ranks, treatments, parts)


def _replayable(examined: pipeline.Examined) -> Evidence:
    evidence = examined.evidence
    if evidence is None:
        raise UsageError(f"{examined.diagnosis.target}: no device work to replay")
    if not evidence.replayable:
        raise UsageError(f"{examined.diagnosis.target}: the step can't be replayed: {examined.lead.doubt}")
    return evidence


def _comparable(evidence: Evidence, machine: Machine) -> None:
    if not evidence.device.comparable:
        raise UsageError(
            f"the step ran on a CPU and can't be replayed on {machine.name}; predict it there with: gobrrr predict"
        )


def _offered(examined: pipeline.Examined) -> str:
    names = [prescription.treatment for prescription in examined.diagnosis.prescriptions]
    return ", ".join(names) or "none (gobrrr explain lists them all)"


def _roofs(machines: Sequence[Machine]) -> dict[str, list[Roof]]:
    return {machine.name: roofs(machine) for machine in machines}


def _timeline(asked: CombinedTreatments, evidence: Evidence) -> tuple[EventTable, I8]:
    """(the replayed events, the rows in order without work that no longer runs and its launches). Work that was moved
    beside its own stream's work gets a stream of its own."""
    graph, links, events = asked.graph, asked.graph.links, asked.outcome.events
    known = evidence.graph.stream.max(initial=0)
    beside = np.flatnonzero(graph.stream > known)
    stream = events.stream.copy()
    stream[links.device[beside]] = stream.max(initial=0) + graph.stream[beside] - known
    launches = np.setdiff1d(links.launch[graph.gone], links.launch[~graph.gone])
    gone = np.concatenate([links.device[graph.gone], launches[launches >= 0]])
    return replaced(events, stream=stream), chrome.kept(events, gone)
