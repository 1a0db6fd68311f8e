"""Let the allocator keep its memory.

No `torch.cuda.empty_cache()` in the loop, no `PYTORCH_NO_CUDA_MEMORY_CACHING=1` around it. Expandable segments grow in
place, so that blocks of another size than the step before needed come out of memory that is there already. Pinned
buffers are made once.

Replayed: what the finding claims, from its low to its high end: all of the idle time under the driver's calls, where
later steps than the first one allocate; nothing at the low end where only the first does, because a warm-up that was
recorded does not come back.

It gives nothing where memory is full: then the step needs less of it. More memory stays reserved, which other programs
on the device can't use.
"""

from __future__ import annotations

import re
from collections import Counter

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.model.events import Kind
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import place, said

NAME = "allocator"
NUMERICS = "none"
EMPTY = "torch.cuda.empty_cache"
UNCACHED = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
CALLS = re.compile(r"^(?:cuda|hip)(?:Malloc|Free)$")
AS_MANY = 0.8
"""Frees for each allocation, from which on nothing is kept: a cache that is too small frees now and then."""

HOW = 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before torch is imported'
CODE = """
import os

os.environ.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before torch is imported
"""


def _how(evidence: Evidence, finding: Finding) -> str:
    """What is to go: the call or the variable that gives memory back, where one was seen; else larger segments."""
    emptied = next((one for one in finding.where if one.op == EMPTY), None)
    if emptied is not None:
        return said(f"no {EMPTY}() in the loop", place(emptied.source))
    switches = evidence.profile.switches
    set_to = dict(switches.environment) if switches is not None else {}
    unset = [said(f"unset {name} in the environment") for name in UNCACHED if name in set_to]
    if unset:
        return unset[0]
    switch = _given_back(evidence)
    if switch:
        return said(f"all memory goes back to the driver: unset {switch} in the environment, no {EMPTY}() in the loop")
    return f"import os\n\n{HOW}"


def _given_back(evidence: Evidence) -> str:
    """The variable that may be why a recorded step frees as often as it allocates; "" where it does not."""
    events, steps = evidence.replayed, evidence.steps
    rows = events.of(Kind.RUNTIME)
    rows = rows[(events.start_ns[rows] >= steps.start) & (events.start_ns[rows] < steps.stop)]
    count = Counter(call[0] for row in rows if (call := CALLS.search(events.names[events.name[row]])))
    for kind, name in zip(("cuda", "hip"), UNCACHED, strict=True):
        made, freed = count[f"{kind}Malloc"], count[f"{kind}Free"]
        if made >= steps.count and freed >= AS_MANY * made:
            return name
    return ""


predict = advice("O06", _how, "the memory that one step leaves behind is enough for the next")
