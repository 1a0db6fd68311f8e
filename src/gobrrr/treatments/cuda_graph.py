"""Capture the step once as a CUDA graph and launch it as one.

The host issues one call a step, whatever the number of kernels. The step then takes about the device's busy time
and 1 us from kernel to kernel.

Predicted saving: the idle time that launching and Python cause, less 1 us a launch at the low end; never more than
wall minus busy. Both ends go as far as the interval of the step's estimated time, all of which is overhead: the low end
is for a wall at its low end, the high end for one at its high end.

It needs static shapes and addresses, and no wait, no copy to the host and no branch on device data in the captured
region: a step with such waits gets (0, high), because it has to be cut around them. Outputs are overwritten by the
next replay. Random numbers advance correctly only with a generator that is registered with the graph
(`torch.compile` does that).
"""

from __future__ import annotations

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import KERNEL_GAP_NS, path_of
from gobrrr.analysis.waits import inner_waits
from gobrrr.model.diagnosis import Finding, Prescription
from gobrrr.treatments.base import prescription

NAME = "cuda-graph"
NUMERICS = "none"
CODE = """
step = torch.compile(step, mode="reduce-overhead")

# or by hand, after three warm-up calls on a side stream:
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = model(static_x)
static_x.copy_(x)
graph.replay()
"""


def predict(evidence: Evidence, finding: Finding) -> Prescription | None:
    """The launch-bound idle time without what a graph still needs from kernel to kernel."""
    if finding.code not in ("O01", "O04") or evidence.on_cpu:
        return None
    path = path_of(evidence)
    low, high = finding.at_stake_ns
    high = path.at_most(min(high, max(path.idle - KERNEL_GAP_NS, 0.0)))
    waits = len(inner_waits(evidence)) > 0
    assumes = "static shapes; the whole step is captured"
    if waits:
        low, assumes = 0.0, "the waits inside the step are removed first: a graph can't hold them"
    return prescription(NAME, finding, (low, high), 'torch.compile(step, mode="reduce-overhead")', assumes)
