"""Profile -> Diagnosis: price, budget, conditions, findings, prescriptions. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from msgspec.structs import replace

from gobrrr.analysis.answer import caveats
from gobrrr.analysis.answer.achieved import achieved
from gobrrr.analysis.answer.across import combine
from gobrrr.analysis.answer.kernels import kernel_rows
from gobrrr.analysis.answer.notes import notes_of
from gobrrr.analysis.answer.representative import representative
from gobrrr.analysis.answer.study import Study, study
from gobrrr.analysis.answer.summary import contradictions, coverage, lower_bounds, op_rows, speed_of_light, totals
from gobrrr.analysis.answer.verdict import Verdict, judge
from gobrrr.analysis.budget.device import budget_lines
from gobrrr.analysis.budget.host import host_budget
from gobrrr.analysis.events.ratios import share
from gobrrr.analysis.findings.claims import ClaimedFinding, lengths
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.places import listed, place_of, with_host
from gobrrr.analysis.places.timeline import modules, roofs, timeline, with_modules
from gobrrr.analysis.pricing.dispatched import counted_live
from gobrrr.conditions import Condition
from gobrrr.conditions import catalogue as conditions
from gobrrr.conditions.common import as_far_as_priced
from gobrrr.conditions.overlap import explained, settle
from gobrrr.errors import UnknownDeviceError
from gobrrr.guarded import GuardedParts
from gobrrr.hardware import find, match_device
from gobrrr.hardware.cache import look_up
from gobrrr.model.diagnosis import (
    BudgetLine,
    Coverage,
    Diagnosis,
    Finding,
    KernelRow,
    ModuleRow,
    NotChecked,
    OpRow,
    Prescription,
    Timeline,
    Totals,
    Wall,
)
from gobrrr.model.events import ABSENT, I8
from gobrrr.model.live import DispatchedCounts
from gobrrr.model.machine import Machine
from gobrrr.model.profile import DeviceProperties, Profile, RankProfile
from gobrrr.model.tree import HOST_KINDS
from gobrrr.treatments.framework.prescribing import prescribe
from gobrrr.treatments.framework.seats import RankFindings

THROUGHPUT = ("larger-batch",)
"""Treatments that raise the throughput and do not shorten a step."""

MOST_TOGETHER = 60_000
"""With more pieces of device work over all ranks, remedies are replayed on the slowest rank alone. Chosen."""

UNCOVERED = Coverage(device_time=None, calls=None, bytes=None)
UNCOUNTED = Totals(flop=None, bytes_as_run=None, bytes_fused=None, launches=None, syncs=None)
UNJUDGED = Verdict("unknown", "low", ())
"""What stands in the answer for a part that failed."""


@dataclass(frozen=True)
class Examined:
    """A diagnosis with what it was made from, for later questions such as what-ifs.

    `ranks`: the ranks that are replayed together, the leading one first, each with its findings and their claims;
    last the findings that save no time of their own. `place`: for each event of the leading device, the place of the
    diagnosis that it lies in (-1 for device work); None if no places are known.
    """

    diagnosis: Diagnosis
    lead: Study
    ranks: tuple[RankFindings, ...]
    machine: Machine | None
    place: I8 | None = None

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of the leading device; None without device work."""
        return self.ranks[0].evidence if self.ranks else None

    @property
    def found(self) -> Sequence[ClaimedFinding]:
        """The findings of the leading device."""
        return self.ranks[0].found if self.ranks else ()


def diagnose(profile: Profile, *, on: str | Machine | None = None) -> Diagnosis:
    """Diagnose a profile. `on` is the machine or its name; by default the profile's own device is looked up.

    Raises UnknownDeviceError if `on` names no known machine. An unknown device in the profile is a note, not an error:
    the diagnosis then has a budget without floors.
    """
    return examine(profile, on=on).diagnosis


def examine(profile: Profile, *, on: str | Machine | None = None) -> Examined:
    """`diagnose`, with what the diagnosis was made from."""
    parts, profile = GuardedParts(), representative(profile)
    notes = list(profile.notes)
    machine, device = _machine(profile, on, notes)
    studies = _studied(profile, machine, parts)
    lead = max(studies, key=_own_length)
    events, priced, steps = lead.rank.events, lead.priced, lead.steps
    front = lead.evidence[0] if lead.evidence else None
    (budget, wall), recorded_ns = _budget(studies), _recorded(profile, studies)
    covered = parts.make("coverage", lambda: coverage(events, priced, steps, budget if front else []), UNCOVERED)
    sums = parts.make(
        "totals", lambda: totals(events, priced, steps, _spared(lead), _spared_at_most(lead), machine), UNCOUNTED
    )
    beaten = parts.make("kernels against their floors", lambda: contradictions(events, priced), (0.0, ""))
    bounds = parts.make("floors on lower bounds", lambda: lower_bounds(events, priced, steps), (0.0, list[str]()))
    seen = (covered.device_time, beaten[0], bounds[0], recorded_ns)
    verdict = parts.make("verdict", lambda: _judged(lead, machine, budget, wall, *seen), UNJUDGED)
    row_of_group, tables = _tables(lead, parts)
    checked = _checked(lead, sum(line.ns for line in budget), parts)
    ranks = _looked(lead, studies, checked, row_of_group, parts)
    findings, places, place = _placed(front, budget, checked.told, tables, parts)
    if lead.doubt:
        notes.append(f"the step without the profiler can't be estimated: {lead.doubt}")
    prescriptions = _prescribed(ranks, checked, wall, notes, parts)
    notes += parts.make("notes", lambda: notes_of(studies, lead, beaten) + caveats.later(lead.once, recorded_ns), [])
    diagnosis = Diagnosis(
        target=profile.target,
        origin=profile.origin,
        device=device,
        ranks=len(studies),
        steps=steps.count,
        wall_ns=recorded_ns,
        unprofiled_wall_ns=wall,
        devices=[device_totals for rank in studies for device_totals in rank.devices],
        regime=verdict.regime,
        certainty=verdict.certainty,
        budget=budget,
        speed_of_light_ns=parts.make("speed of light", lambda: speed_of_light(front, machine) if front else None, None),
        coverage=covered,
        totals=sums,
        findings=_ranked(findings, prescriptions),
        prescriptions=prescriptions,
        notes=notes,
        caveats=caveats.of(profile.ranks, lead.rank, wall, recorded_ns, machine, bounds[1], lead.once),
        lower_bounds=bounds[1],
        machine=machine.name if machine else None,
        steps_from=steps.how,
        evidence=list(verdict.evidence),
        roofs=roofs(machine),
        versions=dict(lead.rank.meta.versions),
        live=lead.rank.run_record(
            parts.make("counts of the step as it was dispatched", lambda: _counted(lead.rank), None)
        ),
        memory_peak_bytes=lead.rank.memory.peak_bytes if lead.rank.memory is not None else None,
        version=_version(),
        not_checked=checked.unchecked,
        **{**tables, **places},
    )
    return Examined(without(diagnosis, parts), lead, ranks, machine, place)


def _judged(
    lead: Study,
    machine: Machine | None,
    budget: list[BudgetLine],
    wall: Wall,
    covered: float | None,
    contradicted: float,
    bounds: float,
    recorded_ns: float | None,
) -> Verdict:
    return judge(
        budget,
        wall,
        covered,
        achieved(lead.rank.events, lead.priced, lead.steps, machine),
        lead.ahead,
        contradicted,
        on_device=len(lead.evidence) > 0,
        scaling=lead.rank.scaling,
        bounds=bounds,
        lost=caveats.lost(lead.rank.threads),
        unmatched=caveats.unmatched(wall, recorded_ns),
        on_host=lead.rank.device.on_host,
    )


def _tables(lead: Study, parts: GuardedParts) -> tuple[I8, dict[str, Any]]:
    """(for each kind of call its row in `Diagnosis.ops`, the fields of the diagnosis for tables and charts)."""
    events, priced, steps = lead.rank.events, lead.priced, lead.steps
    front = lead.evidence[0] if lead.evidence else None
    none = list[OpRow](), np.full(len(priced.groups), ABSENT, dtype=np.int64)
    rows, row_of_group = parts.make("table of operations", lambda: op_rows(events, priced, steps), none)
    kernels = parts.make(
        "table of kernels", lambda: kernel_rows(events, priced, steps, row_of_group), list[KernelRow]()
    )
    if front is None:
        return row_of_group, {"ops": rows, "kernels": kernels}
    return row_of_group, {
        "ops": parts.make("modules of operations", lambda: with_modules(rows, front, row_of_group), rows),
        "kernels": kernels,
        "timeline": parts.make("timeline", lambda: timeline(front, row_of_group), None),
        "modules": parts.make("modules", lambda: modules(front, row_of_group), list[ModuleRow]()),
    }


def _placed(
    front: Evidence | None,
    budget: list[BudgetLine],
    told: list[ClaimedFinding],
    tables: dict[str, Any],
    parts: GuardedParts,
) -> tuple[list[Finding], dict[str, Any], I8 | None]:
    """(the findings with places; the fields of the diagnosis about places, with the timeline; each event's place)."""
    findings = [found.finding for found in told]
    where = parts.make("places", lambda: front.where if front is not None else None, None)
    if front is None or where is None:
        return findings, {}, None
    tree = parts.make("places", lambda: listed(front, where, sum(line.ns for line in budget)), None)
    if tree is None:
        return findings, {}, None
    located = parts.make(
        "places of the findings",
        lambda: [
            replace(found.finding, place=place_of(front, where, tree, found.finding, found.claim)) for found in told
        ],
        findings,
    )
    line: Timeline | None = tables.get("timeline")
    if line is not None:
        line = parts.make("the host on the timeline", partial(with_host, line, front, where, tree), line)
    fields = {"places": tree.nodes, "held_by": tree.held_by, "places_from": tree.built_from, "timeline": line}
    place = tree.id_of[where.node_of]
    place[~np.isin(front.events.kind, [int(kind) for kind in HOST_KINDS])] = ABSENT
    return located, fields, place


def without(diagnosis: Diagnosis, parts: GuardedParts) -> Diagnosis:
    """The diagnosis with an entry in `not_checked` for each part that failed."""
    lines = [NotChecked(code=part, needs=error) for part, error in parts.failed.items()]
    return replace(diagnosis, not_checked=[*diagnosis.not_checked, *lines]) if lines else diagnosis


def _studied(profile: Profile, machine: Machine | None, parts: GuardedParts) -> list[Study]:
    """The ranks, analysed. A rank that fails is left out, unless all fail: then the first one's error is raised."""
    if len(profile.ranks) == 1:
        return [study(profile.ranks[0], machine)]
    tried = [parts.make(f"rank {rank.rank}", partial(study, rank, machine), None) for rank in profile.ranks]
    return [result for result in tried if result is not None] or [study(profile.ranks[0], machine)]


def _recorded(profile: Profile, studies: list[Study]) -> float | None:
    """The step's time under the profiler, the mean over the ranks of the budget; None if there was no profiler."""
    unprofiled = profile.origin == "static" or any("replayed" in rank.meta.recorded for rank in profile.ranks)
    ranks = _budgeted(studies)
    return None if unprofiled else sum(rank.recorded_ns for rank in ranks) / len(ranks)


def evidence_of(rank: RankProfile, *, on: str | None = None) -> list[Evidence]:
    """The evidence of one rank that conditions check, one entry per device."""
    machine, _ = _machine(Profile(target=rank.meta.source, origin="trace", ranks=(rank,)), on, [])
    return list(study(rank, machine).evidence)


def _version() -> str:
    try:
        return version("gobrrr")
    except PackageNotFoundError:
        return ""


def _machine(profile: Profile, on: str | Machine | None, notes: list[str]) -> tuple[Machine | None, str | None]:
    """(the machine with its ceilings, the device's name in the profile)."""
    if isinstance(on, Machine):
        return on, on.name
    properties = _properties(profile)
    name = properties.name if properties else None
    if on is not None:
        machine = find(on)
        notes += [f"{machine.name}: {note}" for note in machine.notes[:1]]
        if name and name not in machine.name:
            notes.append(f"floors are for {machine.name} (--on {on}), but the trace was recorded on {name}")
        return machine, name or machine.name
    if properties is None:
        if any(len(rank.events.on_device) for rank in profile.ranks):
            notes.append("the trace does not name its device, so there are no floors; name the device with --on")
        return None, None
    try:
        match = match_device(properties.name, properties.memory_bytes, properties.compute, properties.processors)
    except UnknownDeviceError as error:
        measured = look_up(properties.name)
        notes += measured.notes
        if measured.machine is not None:
            return measured.machine, name
        notes.append(f"no floors: {_brief(error)}; name a machine with --on (gobrrr machine --list)")
        return None, name
    if match.note:
        notes.append(match.note)
    measured = look_up(properties.name)
    notes += measured.notes
    return measured.machine or match.machine, name or match.machine.name


def _brief(error: UnknownDeviceError) -> str:
    return str(error).split("; known")[0]


def _properties(profile: Profile) -> DeviceProperties | None:
    """The first listed device that has work, else the listed device if all ranks list the same one."""
    for rank in profile.ranks:
        events = rank.events
        rows = events.on_device
        used = set(events.device[rows].tolist())
        for properties in rank.meta.devices:
            if properties.id in used:
                return properties
    listed = [properties for rank in profile.ranks for properties in rank.meta.devices]
    kinds = {(properties.name, properties.memory_bytes) for properties in listed}
    return listed[0] if len(kinds) == 1 else None


def _budget(studies: list[Study]) -> tuple[list[BudgetLine], Wall]:
    """The budget of all ranks and devices; its lines sum to the wall time."""
    ranks = _budgeted(studies)
    if not ranks[0].evidence:
        lines, wall = host_budget(studies[0].rank.events, studies[0].steps), studies[0].wall
        whole = studies[0].steps.wall_ns
        scale = wall.value / whole if wall.value and whole else 1.0
        return budget_lines({key: ns * scale for key, ns in lines.items()}, whole * scale), wall
    sums, wall = combine(ranks)
    if wall.how == "measured" and wall.value:
        # closes the difference between the profiled steps and the measured ones
        scale = share(wall.value, sum(sums.values())) or 1.0
        sums = {key: ns * scale for key, ns in sums.items()}
    return budget_lines(sums, wall.value or sum(sums.values())), wall


def _budgeted(studies: list[Study]) -> list[Study]:
    """The ranks of the budget: those with device work, else the first."""
    return [rank for rank in studies if rank.evidence] or studies[:1]


def _spared(lead: Study) -> float | None:
    """Bytes that fusing pointwise chains would save in one step."""
    front = lead.evidence[0] if lead.evidence else None
    return front.fusion.spared(kept=front.training) / front.steps.count if front is not None else None


def _spared_at_most(lead: Study) -> float | None:
    """Bytes that one kernel per fusible region would save in one step."""
    return lead.evidence[0].fusion.spared_at_most() / lead.evidence[0].steps.count if lead.evidence else None


def _own_length(rank: Study) -> tuple[bool, float]:
    """A sort key for ranks: the one that the others wait for has the longest step without exposed communication."""
    exposed = sum(evidence.line("communication") for evidence in rank.evidence) / max(len(rank.evidence), 1)
    return len(rank.evidence) > 0, (rank.wall.value or rank.steps.wall_ns) - exposed


@dataclass(frozen=True)
class _Checked:
    """A device after all conditions: the findings to report, all findings, and the conditions not checked."""

    told: list[ClaimedFinding]
    every: list[ClaimedFinding]
    unchecked: list[NotChecked]
    step_ns: float = 0.0


def _checked(rank: Study, wall_ns: float, parts: GuardedParts) -> _Checked:
    """Run every condition on a rank's device; divide the time at stake, of a step of `wall_ns`, among the findings."""
    if not rank.evidence:
        needs = "a trace with device work (a step of a CPU is diagnosed as it runs: gobrrr diagnose file.py:step)"
        return _Checked([], [], [NotChecked(code=condition.code, needs=needs) for condition in conditions()])
    evidence = rank.evidence[0]
    results = [parts.make(known.code, partial(_looked_for, known, evidence), None) for known in conditions()]
    found = [result for result in results if isinstance(result, ClaimedFinding) and not result.hidden]
    hidden = [result for result in results if isinstance(result, ClaimedFinding) and result.hidden]
    # all ranks together may take less than the leading rank alone
    step = min(evidence.wall_ns, wall_ns)
    settled = parts.make(
        "what findings have in common",
        lambda: explained(evidence, settle(found, lengths(evidence), evidence.steps.count, step)),
        [result.finding for result in found],
    )
    by_code = {result.finding.code: result for result in found}
    told = [changed(by_code.pop(finding.code), finding=finding) for finding in settled]
    rest = [changed(result, told=False) for result in (*by_code.values(), *hidden)]
    return _Checked(told, [*told, *rest], [result for result in results if isinstance(result, NotChecked)], step)


def _looked_for(condition: Condition, evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    return as_far_as_priced(condition.code, evidence, condition.check(evidence))


def _looked(
    lead: Study, studies: Sequence[Study], checked: _Checked, row_of_group: I8, parts: GuardedParts
) -> tuple[RankFindings, ...]:
    """The ranks with device work, the leading one first; that one alone if another can't be replayed."""
    if not lead.evidence:
        return ()
    others = [rank for rank in studies if rank is not lead and rank.evidence]
    if not all(other.evidence[0].replayable for other in others):
        others = []
    none = np.empty(0, dtype=np.int64)
    return (
        RankFindings(lead.evidence[0], checked.every, row_of_group),
        *(
            RankFindings(other.evidence[0], _checked(other, other.wall.value or other.steps.wall_ns, parts).every, none)
            for other in others
        ),
    )


def _prescribed(
    ranks: Sequence[RankFindings], checked: _Checked, wall: Wall, notes: list[str], parts: GuardedParts
) -> list[Prescription]:
    """The treatments for the reported findings, replayed on all ranks or, if that is too much, on the leading one."""
    if sum(len(rank.evidence.priced.links.device) for rank in ranks) > MOST_TOGETHER and len(ranks) > 1:
        notes.append("predicted savings are those of the slowest rank alone; --what-if NAME replays all ranks")
        ranks = ranks[:1]
    return prescribe(ranks, checked.told, wall, checked.step_ns, parts) if ranks else []


def _ranked(findings: list[Finding], prescriptions: list[Prescription]) -> list[Finding]:
    """The findings by what their best remedy is expected to save, then by the time at stake."""
    best: dict[str, float] = {}
    for prescription in prescriptions:
        if prescription.treatment not in THROUGHPUT:
            for code, ns in zip(prescription.mends, prescription.mends_ns, strict=False):
                best[code] = max(best.get(code, 0.0), ns)
    return sorted(
        findings, key=lambda finding: -best.get(finding.code, 0.0)
    )  # stable: equals stay sorted by the time at stake


def _counted(rank: RankProfile) -> DispatchedCounts | None:
    """The FLOPs and bytes of the dispatched operations, if they were recorded."""
    return counted_live(rank.seen) if rank.seen is not None else None
