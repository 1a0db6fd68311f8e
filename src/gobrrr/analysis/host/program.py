"""What is known of the user's own objects in a step, by either door: a live run saw them, a trace names some."""

from __future__ import annotations

import re
from collections import Counter

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.optimizers import optimizer_spans
from gobrrr.model.program import Made, Program

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step$")


def program_of(evidence: Evidence) -> Program:
    """What a live run saw; empty where there was none."""
    program = evidence.profile.program
    return program if program is not None else Program()


def device_of(evidence: Evidence) -> str:
    """The device as torch names it: ROCm's is "cuda" as well."""
    return evidence.device.torch_name


def optimizer_of(evidence: Evidence) -> Made | None:
    """The optimizer whose steps take the most time, by torch's own annotations; None where there are none.

    Of a trace its class's name is all that is known: it is taken for torch's class of that name.
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
    return seen[0] if seen else Made(kind=name, base=name)
