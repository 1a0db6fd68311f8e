"""What every diagnosis fulfils beyond the types of its fields: no number below 0, sums, intervals, valid indices.

A file may be damaged, or edited by hand, and the renderers rely on these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import msgspec

from gobrrr.model.diagnosis import BudgetLine, Diagnosis, Interval, Timeline, WhatIf

DIFFERENCES = frozenset({"expected_ns", "saving_ns", "predicted_saving_ns", "drift", "numerics", "device", "rank"})
"""Fields whose numbers may be below 0; `_intervals` and `_what_if` check them."""

LARGEST = 1e60
"""No time, count or size is larger. The product of the largest shapes in a damaged trace stays below it."""

SUM_TOLERANCE = 1e-6
SUM_TOLERANCE_NS = 2.0
"""How far a sum may be off: this share of it, and this much more. Chosen, not measured."""


def fault(diagnosis: Diagnosis) -> str | None:
    """The first fault of a diagnosis, in words; None where it is sound."""
    return next(_faults(diagnosis), None)


def _faults(diagnosis: Diagnosis) -> Iterator[str]:
    yield from _numbers(diagnosis, "")
    yield from _counts(diagnosis)
    yield from _intervals(diagnosis)
    wall = diagnosis.unprofiled_wall_ns.value if diagnosis.unprofiled_wall_ns.how != "unknown" else diagnosis.wall_ns
    yield from _sums("budget", diagnosis.budget, wall)
    for at, what_if in enumerate(diagnosis.what_ifs):
        yield from _what_if(f"what_ifs[{at}]", what_if, len(diagnosis.ops))
    yield from _places(diagnosis)
    yield from _tree(diagnosis)
    if diagnosis.timeline is not None:
        yield from _columns(diagnosis.timeline, len(diagnosis.ops))
        yield from _host(diagnosis.timeline, len(diagnosis.places))


def _numbers(value: Any, at: str) -> Iterator[str]:
    """Numbers that are not finite, or below 0 where they may not be."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name not in DIFFERENCES:
                yield from _numbers(getattr(value, name), f"{at}.{name}" if at else name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{at}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        yield from _of_list(value, at)
    elif isinstance(value, (int, float)) and not 0 <= value <= LARGEST:
        yield f"{at} is {value:g}"


def _of_list(values: Sequence[Any], at: str) -> Iterator[str]:
    if values and all(type(item) is int for item in values):  # a column, which may be long
        least = -1 if at == "timeline.op" or at == "timeline.streams" else 0
        if min(values) < least or max(values) > LARGEST:
            yield f"{at} has {min(values) if min(values) < least else max(values):g} in it"
        return
    for index, item in enumerate(values):
        yield from _numbers(item, f"{at}[{index}]")


def _counts(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.ranks < 1 or diagnosis.steps < 1:
        yield f"{diagnosis.steps} steps of {diagnosis.ranks} ranks"
    for at, device in enumerate(diagnosis.devices):
        if device.busy_total_ns > device.span_total_ns:
            yield f"devices[{at}] is busy for longer than its span"


def _intervals(diagnosis: Diagnosis) -> Iterator[str]:
    wall = diagnosis.unprofiled_wall_ns
    numbers = [number for number in (wall.low, wall.value, wall.high) if number is not None]
    if numbers != sorted(numbers) or (wall.value is None) != (wall.how == "unknown"):
        yield "unprofiled_wall_ns is no interval around its value"
    for name in ("device_time", "calls", "bytes"):
        if (getattr(diagnosis.coverage, name) or 0.0) > 1 + SUM_TOLERANCE:
            yield f"coverage.{name} is above 1"
    intervals = {
        **{f"findings[{at}].at_stake_ns": finding.at_stake_ns for at, finding in enumerate(diagnosis.findings)},
        **{f"prescriptions[{at}].predicted_saving_ns": prescription.predicted_saving_ns
           for at, prescription in enumerate(diagnosis.prescriptions)},
    }  # fmt: skip
    most = max((number for number in (wall.value, diagnosis.wall_ns) if number is not None), default=LARGEST)
    for name, (low, high) in intervals.items():
        if not 0 <= low <= high <= most * (1 + SUM_TOLERANCE) + SUM_TOLERANCE_NS:
            yield f"{name} is from {low:g} to {high:g}"
    for at, row in enumerate(diagnosis.machines):
        if not row.low_ns <= row.step_ns <= row.high_ns:
            yield f"machines[{at}] is no interval around its step"


def _sums(name: str, lines: Sequence[BudgetLine], wall_ns: float | None) -> Iterator[str]:
    """The lines sum to the wall time, their shares to one."""
    total = sum(line.ns for line in lines)
    if lines and wall_ns is not None and abs(total - wall_ns) > SUM_TOLERANCE * wall_ns + SUM_TOLERANCE_NS:
        yield f"{name} sums to {total:g} ns of {wall_ns:g}"
    if lines and abs(sum(line.share for line in lines) - 1.0) > SUM_TOLERANCE and total > SUM_TOLERANCE_NS:
        yield f"the shares of {name} sum to {sum(line.share for line in lines):g}"


def _what_if(name: str, what_if: WhatIf, ops: int) -> Iterator[str]:
    yield from _sums(f"{name}.lines", what_if.lines, what_if.step_ns)
    if not what_if.low_ns <= what_if.step_ns <= what_if.high_ns or not _ordered(what_if.saving_ns):
        yield f"{name} is no interval around its step"
    if not abs(what_if.expected_ns) <= LARGEST:
        yield f"{name}.expected_ns is {what_if.expected_ns:g}"
    if any(moved.op >= ops for moved in what_if.ops):
        yield f"{name}.ops names a row that ops does not have"


def _ordered(interval: Interval) -> bool:
    low, high = interval
    return isfinite(low) and isfinite(high) and low <= high


def _places(diagnosis: Diagnosis) -> Iterator[str]:
    """Rows that refer to other rows."""
    named = {
        **{f"kernels[{at}]": row.ops for at, row in enumerate(diagnosis.kernels)},
        **{f"modules[{at}]": row.ops for at, row in enumerate(diagnosis.modules)},
    }
    for name, ops in named.items():
        if any(index >= len(diagnosis.ops) for index in ops):
            yield f"{name}.ops names a row that ops does not have"
    for at, prescription in enumerate(diagnosis.prescriptions):
        lengths = (0, len(prescription.mends))
        if prescription.finding != prescription.mends[0] or len(prescription.mends_ns) not in lengths:
            yield f"prescriptions[{at}].mends does not begin with its finding, or mends_ns has another length"
    paths = {tuple(row.path) for row in diagnosis.modules}
    for at, row in enumerate(diagnosis.modules):
        if len(row.path) > 1 and tuple(row.path[:-1]) not in paths:
            yield f"modules[{at}] lies in a module that is not listed"


def _tree(diagnosis: Diagnosis) -> Iterator[str]:
    """The places of the step: a tree, each parent before its children, and all references to a place."""
    for at, place in enumerate(diagnosis.places):
        if place.id != at:
            yield f"places[{at}].id is {place.id}"
        if (place.parent is None) != (at == 0) or (place.parent is not None and place.parent >= at):
            yield f"places[{at}] does not come after the place around it"
    named = {
        "held_by": diagnosis.held_by,
        **{f"findings[{at}].place": finding.place for at, finding in enumerate(diagnosis.findings)},
    }
    for name, index in named.items():
        if index is not None and index >= len(diagnosis.places):
            yield f"{name} names number {index} of {len(diagnosis.places)} places"


def _columns(line: Timeline, ops: int) -> Iterator[str]:
    """Columns have one length, valid indices, and times within the step."""
    work = {"start_ns": line.start_ns, "duration_ns": line.duration_ns, "stream": line.stream, "op": line.op,
            "kind": line.kind}  # fmt: skip
    gaps = {"gap_start_ns": line.gap_start_ns, "gap_duration_ns": line.gap_duration_ns, "gap_cause": line.gap_cause}
    for columns in (work, gaps):
        if len({len(values) for values in columns.values()}) > 1:
            yield f"the columns {', '.join(columns)} of timeline are not of one length"
    lists = (("stream", line.stream, len(line.streams)), ("op", line.op, ops), ("kind", line.kind, len(line.kinds)),
             ("gap_cause", line.gap_cause, len(line.causes)))  # fmt: skip
    for name, values, count in lists:
        if max(values, default=-1) >= count:
            yield f"timeline.{name} names number {max(values)} of {count}"
    for begin, length in ((line.start_ns, line.duration_ns), (line.gap_start_ns, line.gap_duration_ns)):
        if any(at + lasts > line.length_ns for at, lasts in zip(begin, length, strict=False)):
            yield "timeline has work after the end of the step"


def _host(line: Timeline, places: int) -> Iterator[str]:
    """The same for the host's threads."""
    for at, track in enumerate(line.host):
        name, columns = f"timeline.host[{at}]", (track.start_ns, track.duration_ns, track.place, track.depth)
        if len({len(values) for values in columns}) > 1:
            yield f"the columns of {name} are not of one length"
        if max(track.place, default=-1) >= places:
            yield f"{name}.place names number {max(track.place)} of {places} places"
        if any(begin + lasts > line.length_ns for begin, lasts in zip(*columns[:2], strict=False)):
            yield f"{name} has an entry after the end of the step"
