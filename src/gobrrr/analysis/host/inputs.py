"""Input on the critical path of a step: loaders, operations that compute on the host, copies from the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import HOST_OP_NS, INPUT_CAUSE, Gap
from gobrrr.analysis.budget.idle import loads as loading
from gobrrr.analysis.events.calls import classify
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.events import ABSENT, I8, EventKind

INPUT_BYTES = 1 << 20
"""A copy from the host of at least this many bytes brings input; smaller ones are scalars, indices and shapes. Chosen,
not measured."""


def inward_copies(evidence: Evidence) -> I8:
    """Copies of at least `INPUT_BYTES` from the host to the budget's device, as indices into `links.device`."""
    events, device = evidence.events, evidence.priced.links.device
    inward = np.array(["HtoD" in name or "Host -> Device" in name for name in events.names], dtype=bool)
    large = events.bytes[device] >= INPUT_BYTES
    on_device = events.device[device] == evidence.budget.device
    return np.flatnonzero(on_device & large & (events.kind[device] == EventKind.MEMCPY) & inward[events.name[device]])


def pageable_copies(evidence: Evidence) -> I8:
    """Copies of at least `INPUT_BYTES` between pageable memory and the budget's device (into `links.device`)."""
    events, device = evidence.events, evidence.priced.links.device
    pageable = np.array(["pageable" in name.lower() for name in events.names], dtype=bool)
    on_device = (events.device[device] == evidence.budget.device) & (events.kind[device] == EventKind.MEMCPY)
    return np.flatnonzero(on_device & (events.bytes[device] >= INPUT_BYTES) & pageable[events.name[device]])


def input_stretches(evidence: Evidence) -> I8:
    """Idle stretches in which a loader ran, or that end with a copy of input, as indices into the budget's gaps."""
    gaps = evidence.budget.gaps
    copies = evidence.priced.links.device[inward_copies(evidence)]
    return np.flatnonzero(np.isin(gaps.next_work, copies) | (gaps.of(INPUT_CAUSE) > 0))


def input_gaps(evidence: Evidence) -> tuple[Gap, ...]:
    """The same stretches, each with its causes."""
    mask = np.zeros(len(evidence.budget.gaps), dtype=bool)
    mask[input_stretches(evidence)] = True
    return tuple(evidence.budget.gaps.take(mask))


def host_rows(evidence: Evidence) -> I8:
    """Loaders, and outermost operations of at least `HOST_OP_NS` that launch nothing: they compute on the host."""
    events = evidence.replayed
    loads = loading(events, classify(events.names))
    loads &= np.isin(events.kind, (EventKind.OP, EventKind.ANNOTATION, EventKind.PYTHON))
    computes = (events.kind == EventKind.OP) & ~_launching(evidence) & (events.duration_ns >= HOST_OP_NS)
    parent = evidence.priced.links.op_parent
    inner = (parent >= 0) & computes[np.maximum(parent, 0)]
    return np.flatnonzero(loads | (computes & ~inner))


def _launching(evidence: Evidence) -> NDArray[np.bool_]:
    """For each row, whether it or an operation within it calls the driver or launches device work."""
    events, parent = evidence.events, evidence.priced.links.op_parent
    result = np.zeros(len(events), dtype=bool)
    current = parent[events.of(EventKind.RUNTIME)]
    links = evidence.priced.links
    current = np.unique(np.concatenate([current, links.op]))
    current = current[current >= 0]
    while len(current):
        result[current] = True
        current = parent[current]
        current = np.unique(current[current != ABSENT])
        current = current[~result[current]]
    return result
