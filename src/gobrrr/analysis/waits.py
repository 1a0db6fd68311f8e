"""Where the host waits for the device, which operation made it wait, and whether work of the same step follows."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.calls import Call, classify
from gobrrr.analysis.evidence import Evidence
from gobrrr.model.events import I8, Kind

LOOP = 8
"""This many waits a step with a matmul between one and the next are a loop over experts."""

CAUSES = (
    "item", "is_nonzero", "nonzero", "equal", "allclose", "masked_select", "_unique", "_unique2",
    "unique_consecutive", "unique_dim", "repeat_interleave", "bincount", "_local_scalar_dense",
)  # fmt: skip
"""Operations whose result the host needs."""


def waits_of(evidence: Evidence) -> I8:
    """Rows of the calls in the recorded steps that block the host until the device is done, by start.

    Synchronizations, and copies from the device to pageable memory, which return when the data is there.
    """
    events, links, steps = evidence.events, evidence.priced.links, evidence.recorded_steps
    call = classify(events.names)
    waits = (events.kind == Kind.RUNTIME) & (call[events.name] == Call.WAIT)
    pageable = np.array(["Device -> Pageable" in name for name in events.names], dtype=bool)
    copies = (links.launch >= 0) & pageable[events.name[links.device]]
    waits[links.launch[copies]] = True
    return np.flatnonzero(waits & (events.start_ns >= steps.start) & (events.start_ns < steps.stop))


def inner_waits(evidence: Evidence) -> I8:
    """Waits with work of the same step behind them, or caused by an operation with a later step behind them.

    The others are a step's end: a benchmark or the profiler synchronizes there.
    """
    waits = waits_of(evidence)
    events, links, steps = evidence.events, evidence.priced.links, evidence.recorded_steps
    launches = np.sort(events.start_ns[links.launch[links.launch >= 0]])
    if not len(waits) or not len(launches):
        return waits[:0]
    edges = np.array([*(steps.begins or (steps.start,)), steps.stop])
    step = np.searchsorted(edges[:-1], events.start_ns[waits], side="right")
    following = np.searchsorted(launches, events.end_ns[waits])
    more = following < len(launches)
    same_step = more & (launches[np.minimum(following, len(launches) - 1)] < edges[step])
    asked = np.array([cause_of(evidence, row) is not None for row in waits.tolist()], dtype=bool)
    inner: I8 = waits[same_step | (more & asked)]
    return inner


def cause_of(evidence: Evidence, wait: int) -> int | None:
    """The operation to name for a wait: the outermost of `CAUSES` around it, else the outermost aten operation."""
    found, known = None, False
    for row in evidence.ancestors(wait):
        name = evidence.events.name_of(row)
        if not name.startswith("aten::"):
            continue
        cause = name.removeprefix("aten::") in CAUSES
        if cause or not known:
            found, known = row, known or cause
    return found


def expert_loop(evidence: Evidence, waits: I8) -> float | None:
    """Waits a step that have a matmul between them and the next one; None if there are fewer than `LOOP`."""
    events, links = evidence.events, evidence.priced.links
    matmul = np.array([group.work.family == "matmul" for group in evidence.priced.groups] or [False])
    launched = matmul[evidence.priced.group] & (links.launch >= 0)
    matmuls = np.sort(events.start_ns[links.launch[launched]])
    between = np.diff(np.searchsorted(matmuls, np.sort(events.start_ns[waits]))) > 0
    looped = float(between.sum()) / evidence.recorded_steps.count
    return looped if looped >= LOOP else None
