"""Profile the step once without the graph.

The same kernels then carry their operations and shapes. Read the device's side of that trace only: its host is slower
than the replay.

Replayed: none of the step's time. It lets the conditions that price calls be looked at.
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
