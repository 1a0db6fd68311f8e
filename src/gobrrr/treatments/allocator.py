"""Let the caching allocator keep its memory.

Do not call `torch.cuda.empty_cache()` in the loop, and do not run with `PYTORCH_NO_CUDA_MEMORY_CACHING=1`. Expandable
segments grow in place, so that a block of a size that no earlier step needed fits into memory that is reserved already.
Allocate pinned buffers once.

Predicted: what the finding claims, from its low to its high end. The high end is all idle time under the driver's
allocation calls where steps after the first one allocate. The low end is nothing where only the first step does,
because a recorded warm-up does not come back.

It gains nothing where the device's memory is full: there the step has to use less. More memory stays reserved, and
other programs on the device can't use it.
"""

from __future__ import annotations

import re
from collections import Counter

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.model.events import EventKind
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import place, said

NAME = "allocator"
NUMERICS = "none"
EMPTY_CACHE_CALL = "torch.cuda.empty_cache"
"""The call that gives cached memory back to the driver."""
UNCACHED = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
"""The environment variables that switch the caching allocator off, on CUDA and on ROCm."""
ALLOCATION_CALLS = re.compile(r"^(?:cuda|hip)(?:Malloc|Free)$")
"""Driver calls that allocate or free device memory."""
LEAST_FREES_PER_ALLOCATION = 0.8
"""Frees per allocation from which on nothing seems to be cached: a cache that is too small frees only now and then.
Chosen, not measured."""

HOW = 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before torch is imported'
CODE = """
import os

os.environ.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before torch is imported
"""


def _how(evidence: Evidence, finding: Finding) -> str:
    """Names the call or the variable that gives memory back, where one was seen; else asks for larger segments."""
    emptied = next((place_of_call for place_of_call in finding.where if place_of_call.op == EMPTY_CACHE_CALL), None)
    if emptied is not None:
        return said(f"no {EMPTY_CACHE_CALL}() in the loop", place(emptied.source))
    switches = evidence.profile.switches
    set_to = dict(switches.environment) if switches is not None else {}
    unset = [said(f"unset {name} in the environment") for name in UNCACHED if name in set_to]
    if unset:
        return unset[0]
    switch = _given_back(evidence)
    if switch:
        return said(
            f"all memory goes back to the driver: unset {switch} in the environment, no {EMPTY_CACHE_CALL}() "
            "in the loop"
        )
    return f"import os\n\n{HOW}"


def _given_back(evidence: Evidence) -> str:
    """The variable that may make a recorded step free as often as it allocates; "" where the step does not."""
    events, steps = evidence.replayed, evidence.steps
    rows = events.of(EventKind.RUNTIME)
    rows = rows[(events.start_ns[rows] >= steps.start) & (events.start_ns[rows] < steps.stop)]
    count = Counter(call[0] for row in rows if (call := ALLOCATION_CALLS.search(events.names[events.name[row]])))
    for kind, name in zip(("cuda", "hip"), UNCACHED, strict=True):
        allocated, freed = count[f"{kind}Malloc"], count[f"{kind}Free"]
        if allocated >= steps.count and freed >= LEAST_FREES_PER_ALLOCATION * allocated:
            return name
    return ""


predict = advice("O06", _how, "the memory that one step leaves behind is enough for the next")
