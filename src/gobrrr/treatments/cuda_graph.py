"""Capture the step once as a CUDA graph and launch it as one.

The host issues one call a step, whatever the number of kernels. The step then takes about the device's busy time
and 1 us from kernel to kernel.

Replayed: what the host does in a step, but for loading input, is one launch, and the device goes from kernel to
kernel in 0.3 to 1 us. At the least the optimizer stays outside. Where the host waits within the step, a graph alone
changes nothing: the waits go first.

It needs static shapes and addresses, and no wait, no copy to the host and no branch on device data in the captured
region: a step with such waits gets (0, high), because it has to be cut around them. Outputs are overwritten by the
next replay. Random numbers advance correctly only with a generator that is registered with the graph
(`torch.compile` does that).
"""

from __future__ import annotations

from gobrrr.analysis.claims import Found
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan
from gobrrr.analysis.regions import as_graph
from gobrrr.analysis.waits import inner_waits

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


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """The host's part of a step is one launch; the device goes from kernel to kernel."""
    if found.finding.code not in ("O01", "O04") or evidence.on_cpu:
        return None
    how = 'torch.compile(step, mode="reduce-overhead")'
    assumes = "static shapes; the whole step is captured (low: all but the optimizer)"
    waits = len(inner_waits(evidence)) > 0
    if waits:
        assumes = "a graph can't hold the waits inside the step: nothing is gained until they are removed (remove-sync)"
    return Plan(how, assumes, as_graph(evidence), once=True)
