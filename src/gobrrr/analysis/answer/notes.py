"""Notes on the trace: what it lacks, where it contradicts the floors, how the recorded steps differ from others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gobrrr import units
from gobrrr.analysis.answer.study import Study

LEAST_NOTED_DIFFERENCE = 0.05
"""A note says so where the profiled step differs from the measured one by more than this share, after all corrections.
Chosen, not measured."""

LEAST_NOTED_PACE = 0.25
"""A note says so where the host's pace differs by more than this share beyond what recording explains. Chosen, not
measured."""

LEAST_NOTED_CONTRADICTION = 0.005
"""A note says so where kernels faster than their floor take this share of the device time. Chosen, not measured."""


def notes_of(studies: Sequence[Study], lead: Study, beaten: tuple[float, str]) -> list[str]:
    """What limits the answer.

    `beaten`: the share of the device time in kernels faster than their floor, and the call with most of that time.
    """
    notes = []
    if not any(study.evidence for study in studies):
        recorded = any(len(study.links.device) for study in studies)
        what = "no device work of any length in the steps" if recorded else "no GPU events in this trace"
        what = "no operation computed in the steps" if lead.rank.times is not None else what
        notes.append(f"{what}: only the host was observed")
    graph = _share(lead, lead.links.in_graph & np.isnan(lead.priced.floor_ns))
    if graph > 0.01:
        notes.append(
            f"{units.percent(graph)} of the device time is replayed from a CUDA or HIP graph: the trace does not name "
            "the operations and shapes of such kernels, so their least time is not known"
        )
    unlaunched = _share(lead, lead.links.launch < 0)
    if unlaunched > 0.05:
        notes.append(f"{units.percent(unlaunched)} of the device time was launched before the recording began")
    if len(lead.links.device) and (lead.links.op >= 0).any() and not (lead.rank.events.dims >= 0).any():
        notes.append("no shapes in this trace: record it with record_shapes=True to count FLOPs and bytes")
    return [*notes, *_contradictions(*beaten), *_differing(lead)]


def _differing(lead: Study) -> list[str]:
    """Recorded steps whose time differs from that of other steps by more than recording explains."""
    pace = lead.evidence[0].unprofiled.cost.pace if lead.evidence else 1.0
    if abs(pace - 1.0) > LEAST_NOTED_PACE:
        how = "slower" if pace < 1 else "faster"
        return [
            f"the host was {how} in the profiled steps than recording explains: its lines are scaled in proportion to "
            "match the measured step"
        ]
    if abs(lead.scale - 1.0) <= LEAST_NOTED_DIFFERENCE:
        return []
    longer = "longer" if lead.scale > 1 else "shorter"
    by = units.percent(abs(lead.scale - 1.0))
    return [
        f"the measured step is {by} {longer} than the profiled one explains: the device itself ran at another speed "
        "then; all lines of the budget are scaled in proportion"
    ]


def _share(lead: Study, mask: NDArray[np.bool_]) -> float:
    """The marked work's share of the device time."""
    duration = lead.rank.events.duration_ns[lead.links.device]
    total = float(duration.sum())
    return float(duration[mask].sum()) / total if total > 0 else 0.0


def _contradictions(share: float, most: str) -> list[str]:
    """Kernels faster than their floor: the count, the ceiling or the assumption about the cache is wrong."""
    if share < LEAST_NOTED_CONTRADICTION:
        return []
    return [
        f"{units.percent(share)} of the device time is in kernels faster than their floor (most: {most}): "
        "its count, the ceiling or the assumption about the cache is wrong there; these kernels count as at their roof"
    ]
