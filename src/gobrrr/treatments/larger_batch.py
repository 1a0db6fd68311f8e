"""Give the device more work for each launch.

The host issues the same launches whatever the batch. Until the device's time reaches the host's, a larger batch
costs no time: the time for today's amount of work falls by the factor of the batch.

Replayed, for the work of one of today's steps: the device's work takes as many times as long as the batch is larger,
but for launch and ramp of each kernel, and the updates stay. At the least the host's time grows as well. That is
throughput: the step itself gets no shorter. Where the host's time is enough for less than 1.2 times the batch, it is
no remedy.

It changes the optimisation: learning rate, schedule and generalisation. Gradient accumulation with fewer, larger
micro-batches keeps them.
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.path import path_of
from gobrrr.analysis.regions import larger

NAME = "larger-batch"
NUMERICS = "statistics"
LEAST = 1.2
"""A smaller factor of the batch is within what the step's time varies by."""

MOST = 16
"""A larger factor is not told: the batch runs into the memory or into its statistics before."""
CODE = """
loader = DataLoader(dataset, batch_size=4 * batch_size)  # and scale the learning rate with it
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """The host's time for a step that does the work of several."""
    if found.finding.code != "O01":
        return None
    path = path_of(evidence)
    factor = path.wall / path.busy if path.busy else 0.0
    if factor < LEAST:
        return None
    times = min(factor, float(MOST))
    if evidence.on_cpu:
        times = float(MOST)  # dispatch and Python are paid once for so many times the work, and computing follows it
        how = "throughput: dispatch and Python take as long for a larger batch"
        assumes = f"high: {MOST} times the batch; the saving is for today's amount of work; memory allows it"
    else:
        told = f"about {factor:.1f}" if factor <= MOST else f"more than {MOST}"
        how = f"throughput: the host's time is enough for {told} times the batch"
        assumes = "the saving is for today's amount of work, the step gets no shorter; memory allows it"
    return Plan(how, assumes, larger(evidence, times), work=times, once=True)
