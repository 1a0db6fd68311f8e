"""Keep the activations: no checkpointing, or less of it.

Off where all fits; else for every other block, or selective: the results of matmuls and attention are kept, what is
pointwise is computed again. With `torch.compile` the activation memory budget says how much may be kept. The numbers
stay what they are, but for random numbers that are drawn in another order.

Replayed: what the finding claims, from its low to its high end: the device time of what is computed again and the
time to issue it, from nothing where the peak of the memory is not known.

Measure the peak afterwards (`torch.cuda.max_memory_allocated`): the budget is one of saved activations, not of the
peak.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "no-checkpoint"
NUMERICS = "none"
HOW = "call the blocks without torch.utils.checkpoint (transformers: gradient_checkpointing_disable()), or selectively"
CODE = """
x = block(x)  # instead of torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
model.gradient_checkpointing_disable()  # transformers
torch._functorch.config.activation_memory_budget = 0.5  # with torch.compile: sweep it
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "R01":
        return None
    return of_claim(evidence, found, HOW, "the activations that are kept then fit into memory")
