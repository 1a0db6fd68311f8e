"""The user's own objects in a step: a live run observes them, a trace names some."""

from __future__ import annotations

import re
from collections import Counter

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.optimizers import optimizer_spans
from gobrrr.model.program import Program, ProgramObject

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step$")
"""torch's annotation of an optimizer's step, with the name of its class."""


def program_of(evidence: Evidence) -> Program:
    """The objects that a live run saw; empty where there was no live run."""
    program = evidence.profile.program
    return program if program is not None else Program()


def device_of(evidence: Evidence) -> str:
    """The device as torch names it: ROCm's is "cuda" as well."""
    return evidence.device.torch_name


def optimizer_of(evidence: Evidence) -> ProgramObject | None:
    """The optimizer whose steps take the most time, by torch's own annotations; None where there are none.

    A trace has only the name of its class, which is taken for torch's class of that name.
    """
    events = evidence.events
    taken: Counter[str] = Counter()
    for row in optimizer_spans(events).tolist():
        if match := _STEP.match(events.name_of(row)):
            taken[match[1]] += int(events.duration_ns[row])
    if not taken:
        return None
    name = taken.most_common(1)[0][0]
    seen = [optimizer for optimizer in program_of(evidence).optimizers if optimizer.kind.rpartition(".")[2] == name]
    return seen[0] if seen else ProgramObject(kind=name, base=name)
