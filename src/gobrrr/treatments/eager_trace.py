"""Profile the step once without the graph.

The same kernels then carry their operations and shapes. Read only the device's side of that trace: its host is slower
than the replay of the graph.

Predicted: nothing. The new trace lets gobrrr price the operations and check the conditions that need prices.
"""

from __future__ import annotations

from gobrrr.treatments.framework.advice import another_trace

NAME = "eager-trace"
NUMERICS = "none"
HOW = """
with torch.profiler.profile(record_shapes=True) as prof:  # the step that was captured, without its graph
    step()
""".strip()
CODE = """
with torch.profiler.profile(record_shapes=True) as prof:
    model(static_x)  # the step that the graph was captured from
"""


predict = another_trace("Q03", HOW)
