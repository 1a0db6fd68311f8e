"""Take the barrier out of the loop, and give the ranks equal work.

Predicted: from nothing to the time that the ranks spend in the barrier. Where gradients are reduced in the same step,
the ranks wait there instead if the same rank is always the slow one; only what varies from step to step disappears.
"""

from __future__ import annotations

from gobrrr.treatments.framework.advice import advice

NAME = "no-barrier"
NUMERICS = "none"
CODE = """
for step, batch in enumerate(loader):
    train(batch)  # reducing the gradients keeps the ranks together
    if step % 1000 == 0:
        torch.distributed.barrier()  # before a checkpoint, if at all
"""


predict = advice(
    "N03",
    "no torch.distributed.barrier() in the loop; batches of even lengths on all ranks",
    "high: no rank is slower than the others on average",
)
