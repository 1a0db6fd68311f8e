"""What a reader of the answer is to know of the trace: what it lacks, what contradicts itself, how steps differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gobrrr import units
from gobrrr.analysis.answer.study import Study

DIFFERENT = 0.05
"""A measured step that the profiled one can't be brought closer to than this is worth a note."""

PACED = 0.25
"""A host whose pace differs by more than this beyond what recording explains is worth a note."""

TELLING = 0.005
"""Less of the device time than this in kernels faster than their floor is not worth a note."""


def notes_of(studies: Sequence[Study], lead: Study, beaten: tuple[float, str]) -> list[str]:
    """What limits the answer. `beaten`: the share of the device time in kernels that beat their floor, and the most."""
    notes = []
    if not any(study.evidence for study in studies):
        here = any(len(study.links.device) for study in studies)
        what = "no device work of any length in the steps" if here else "no GPU events in this trace"
        what = "no operation computed in the steps" if lead.rank.times is not None else what
        notes.append(f"{what}: the host is all that was observed")
    graph = _share(lead, lead.links.in_graph & np.isnan(lead.priced.floor_ns))
    if graph > 0.01:
        notes.append(
            f"{units.percent(graph)} of the device time is replayed from a CUDA or HIP graph: such kernels carry no "
            "operations or shapes, so the least time for them is not known"
        )
    unlaunched = _share(lead, lead.links.launch < 0)
    if unlaunched > 0.05:
        notes.append(f"{units.percent(unlaunched)} of the device time was launched before the recording began")
    if len(lead.links.device) and (lead.links.op >= 0).any() and not (lead.rank.events.dims >= 0).any():
        notes.append("no shapes in this trace: record it with record_shapes=True to count FLOPs and bytes")
    return [*notes, *_contradictions(*beaten), *_differing(lead)]


def _differing(lead: Study) -> list[str]:
    """Steps that took another time under the profiler than without it, beyond what recording explains."""
    pace = lead.evidence[0].unprofiled.cost.pace if lead.evidence else 1.0
    if abs(pace - 1.0) > PACED:
        how = "slower" if pace < 1 else "faster"
        return [
            f"the host was {how} in the profiled steps than recording explains: its lines are brought to the measured "
            "step in proportion"
        ]
    if abs(lead.scale - 1.0) <= DIFFERENT:
        return []
    longer = "longer" if lead.scale > 1 else "shorter"
    by = units.percent(abs(lead.scale - 1.0))
    return [
        f"the measured step is {by} {longer} than the profiled one explains: the device itself ran at another speed "
        "then; the lines of the budget are in proportion"
    ]


def _share(lead: Study, mask) -> float:  # type: ignore[no-untyped-def]
    duration = lead.rank.events.duration_ns[lead.links.device]
    total = float(duration.sum())
    return float(duration[mask].sum()) / total if total > 0 else 0.0


def _contradictions(share: float, most: str) -> list[str]:
    """Kernels faster than their floor: the count, the ceiling or the cache assumption is wrong."""
    if share < TELLING:
        return []
    return [
        f"{units.percent(share)} of the device time is in kernels faster than their floor (most: {most}): "
        "its count, the ceiling or the cache assumption is wrong there; counted as at the roof"
    ]
