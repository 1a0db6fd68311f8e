"""A recording and machines -> a predicted Diagnosis for each. Needs no device and no torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gobrrr import units
from gobrrr.analysis.answer.machine_rows import ceilings_of, machine_row
from gobrrr.analysis.pricing.expected import Expected, expect, expect_copy
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.analysis.pricing.tally import beside
from gobrrr.analysis.pricing.texts import arguments_text
from gobrrr.analysis.replay.forecast import step_ns, table, timed
from gobrrr.analysis.savings.elsewhere import OTHER_MACHINE_ERROR
from gobrrr.cost import price
from gobrrr.doors import pipeline
from gobrrr.errors import UsageError
from gobrrr.hardware import dispatch, efficiency
from gobrrr.hardware.dispatch import Hosts
from gobrrr.hardware.efficiency import Efficiency
from gobrrr.model.diagnosis import ChangedOp, Diagnosis, MachineRow, NotChecked
from gobrrr.model.machine import Machine
from gobrrr.model.profile import DeviceProperties, Profile, RankProfile, TraceMeta
from gobrrr.model.recording import Recording
from gobrrr.model.work import OpCall, Work
from gobrrr.report.text import sanitise

MOST_CHANGED_KEPT = 8
"""Operations with a changed bottleneck, and assumptions, that are listed; chosen."""

LEAST_TIME_SHARE = 0.005
"""Operations below this share of the device time are not mentioned; chosen."""

NOT_PREDICTED = (
    NotChecked(code="D01", needs="a run: what the input pipeline takes is not predicted"),
    NotChecked(code="N01", needs="a trace of several ranks: collectives are not predicted"),
    NotChecked(code="O05", needs="a run: nothing is compiled here"),
    NotChecked(code="O06", needs="a run: the allocator does not run here"),
)
"""Conditions that can't be checked on fake tensors."""


@dataclass(frozen=True)
class Forecast:
    """One machine's times: of each call, and of the step on a fast, a middle and a slow host."""

    machine: Machine
    expected: tuple[Expected, ...]
    device_ns: float
    device_spread: float
    host_ns: float
    step_ns: float
    low_ns: float
    high_ns: float


def predict(
    recording: Recording,
    machines: Sequence[Machine],
    *,
    stored: Efficiency | None = None,
    hosts: Hosts | None = None,
) -> Diagnosis:
    """Predict the step on the first of `machines`; the diagnosis has a row for each of them.

    The interval goes from a fast host with kernels one spread faster to a slow host with kernels one spread slower.
    `stored` and `hosts` default to the shipped ones. Raises UsageError if the step has no device work.
    """
    stored, hosts = stored or efficiency.load(), hosts or dispatch.load()
    works = _priced(recording)
    forecasts = [forecast(recording, works, machine, stored, hosts) for machine in machines]
    if not forecasts[0].device_ns:
        raise UsageError(
            f"{sanitise(recording.target)}: the step has no operations for a device, so there is nothing to predict"
        )
    diagnoses = [_diagnosed(recording, times, hosts) for times in forecasts]
    rows = [
        replace(_row(recording, works, times, diagnosis, forecasts[0]), host=hosts.source)
        for times, diagnosis in zip(forecasts, diagnoses, strict=True)
    ]
    first = diagnoses[0]
    return replace(
        first,
        machines=rows,
        not_checked=[*first.not_checked, *NOT_PREDICTED],
        evidence=[text.replace("achieved", "would reach", 1) for text in first.evidence],
        memory_peak_bytes=float(recording.peak_bytes),
        notes=[*_notes(recording, forecasts[0], rows[0]), *first.notes],
        versions=dict(recording.versions),
    )


def _priced(recording: Recording) -> dict[OpCall, Work]:
    """The work of each kind of call."""
    return {call: price(call) for call in {call.call for call in recording.calls}}


def forecast(
    recording: Recording, works: dict[OpCall, Work], machine: Machine, stored: Efficiency, hosts: Hosts
) -> Forecast:
    """Predict the times of a recorded step on one machine."""
    known = {call: expect(call, work, machine, stored) for call, work in works.items()}
    expected = tuple(
        expect_copy(call.call, call.host_copy, machine) if call.host_copy else known[call.call]
        for call in recording.calls
    )
    spread = _spread(expected, stored, machine)
    steps = timed(recording, expected, hosts.of("middle"))
    low = timed(recording, _scaled(expected, math.exp(-spread)), hosts.of("fast"))
    high = timed(recording, _scaled(expected, math.exp(spread)), hosts.of("slow"))
    return Forecast(
        machine=machine,
        expected=expected,
        device_ns=sum(sum(step.device_ns) for step in steps),
        device_spread=spread,
        host_ns=sum(step.host_ns for step in steps),
        step_ns=step_ns(steps, hosts.of("middle")),
        low_ns=step_ns(low, hosts.of("fast")),
        high_ns=step_ns(high, hosts.of("slow")),
    )


def _scaled(expected: Sequence[Expected], factor: float) -> list[Expected]:
    return [Expected(call.ns * factor, call.kernels, call.spread, call.kind, call.guessed) for call in expected]


def _spread(expected: Sequence[Expected], stored: Efficiency, machine: Machine) -> float:
    """Standard deviation of ln(device time), with errors equal within a kind of call and independent between kinds."""
    total = sum(call.ns for call in expected)
    if total <= 0:
        return stored.step_spread
    sums: dict[str, float] = defaultdict(float)
    for call in expected:
        sums[call.kind] += call.ns * call.spread
    own = math.sqrt(sum(value**2 for value in sums.values())) / total
    elsewhere = 0.0 if machine.name == stored.datasheet else OTHER_MACHINE_ERROR
    return math.sqrt(max(own, stored.step_spread) ** 2 + elsewhere**2)


def _diagnosed(recording: Recording, times: Forecast, hosts: Hosts) -> Diagnosis:
    """The pipeline's answer for the predicted timeline."""
    middle = hosts.of("middle")
    events = table(recording, timed(recording, times.expected, middle), middle)
    ends = (times.low_ns / times.step_ns, times.high_ns / times.step_ns) if times.step_ns else (1.0, 1.0)
    meta = TraceMeta(
        source=recording.target,
        devices=(DeviceProperties(id=0, name=times.machine.name),),
        recorded=frozenset(("record_shapes", "with_modules")),
        versions=dict(recording.versions),
    )
    rank = RankProfile(meta=meta, events=events, frames=True, ends=ends)
    profile = Profile(target=recording.target, origin="static", ranks=(rank,))
    return pipeline.diagnose(profile, on=times.machine)


def _row(
    recording: Recording, works: dict[OpCall, Work], times: Forecast, diagnosis: Diagnosis, first: Forecast
) -> MachineRow:
    return machine_row(
        diagnosis,
        times.machine,
        device_ns=times.device_ns,
        host_ns=times.host_ns,
        peak_bytes=float(recording.peak_bytes),
        changed=_changed(recording, works, times, first) if times is not first else [],
        times=(times.step_ns, times.low_ns, times.high_ns),
    )


def _changed(recording: Recording, works: dict[OpCall, Work], times: Forecast, first: Forecast) -> list[ChangedOp]:
    """Kinds of calls whose bottleneck is another times than on the first machine, most time first."""
    ns: dict[OpCall, float] = defaultdict(float)
    for recorded, expected in zip(recording.calls, times.expected, strict=True):
        ns[recorded.call] += expected.ns
    sums: dict[tuple[str, str, str], float] = defaultdict(float)
    for call, time in ns.items():
        there, here = floor(works[call], times.machine), floor(works[call], first.machine)
        if there is not None and here is not None and there.bound != here.bound and there.ns and here.ns:
            sums[call.name, arguments_text(call) or "", there.bound] += time
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    least = LEAST_TIME_SHARE * times.device_ns
    return [
        ChangedOp(op=op, shapes=shapes, bound=bound, ns=time)
        for (op, shapes, bound), time in ranked[:MOST_CHANGED_KEPT]
        if time >= least
    ]


def _notes(recording: Recording, times: Forecast, row: MachineRow) -> list[str]:
    """What the prediction is based on, and what it assumes."""
    notes = [f"predicted, not measured: {_rests_on(times)}"]
    if recording.on_cpu:
        notes.append("no operation of the step is on a GPU: its CPU operations are predicted as GPU operations")
    if row.fits is False:
        held = units.bytes_(float(recording.peak_bytes))
        notes.append(f"does not fit: tensors hold {held} at their peak, more than {times.machine.name} has")
    guessed = sum(item.ns for item in times.expected if item.guessed)
    if guessed > LEAST_TIME_SHARE * times.device_ns:
        share = units.percent(guessed / times.device_ns)
        notes.append(
            f"{share} of the device time is in operations without a cost rule: assumed to move their data once"
        )
    for item in recording.assumptions[:MOST_CHANGED_KEPT]:
        notes.append(f"{item.what}{_at(item.source)} is assumed to be {item.value}: it depends on real data")
    return [*notes, *beside(recording), *recording.notes]


def _rests_on(times: Forecast) -> str:
    spread = units.percent(times.device_spread)
    ceilings = f"{ceilings_of(times.machine)} ceilings of {times.machine.name}"
    return f"{ceilings}, of which kernels reach stored shares; the device time is uncertain by {spread}"


def _at(source: str | None) -> str:
    return f" at {source.rpartition('/')[2]}" if source else ""
