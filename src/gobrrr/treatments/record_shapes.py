"""Record the operations' shapes, so that their work can be counted.

Predicted: nothing. The new trace lets gobrrr price the operations and check the conditions that need prices.
"""

from __future__ import annotations

from gobrrr.treatments.framework.advice import another_trace

NAME = "record-shapes"
NUMERICS = "none"
HOW = """
with torch.profiler.profile(record_shapes=True) as prof:  # around your own step
    step()
""".strip()
CODE = """
with torch.profiler.profile(record_shapes=True) as prof:
    step()
"""


predict = another_trace("Q02", HOW)
