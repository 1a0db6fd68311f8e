"""Let the compiler keep one graph: nothing in the function that only Python can do.

Use `torch.where` in place of an `if` on a tensor's value, a tensor in place of `.item()`, and no `print` or logging
while it compiles (`torch.compiler.is_compiling()`, or `torch._dynamo.config.reorderable_logging_functions`).
`torch.compile(f, fullgraph=True)` makes the first graph break an error.

Predicted: from nothing to the finding's stake, which is the host's time in the functions that break and what fusing
their pointwise chains would save. A single graph still costs part of both: its own call, its guards, its kernels.
"""

from __future__ import annotations

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.diagnosis import Finding
from gobrrr.treatments.framework.advice import advice
from gobrrr.treatments.framework.wording import said, where

NAME = "whole-graph"
NUMERICS = "rounding"
CODE = """
@torch.compile(fullgraph=True)  # a break is an error
def f(x):
    y = torch.where(x.sum() > 0, x * 2, x)  # in place of: if x.sum().item() > 0
    if not torch.compiler.is_compiling():
        print(y.shape)
    return y
"""


def _how(_: Evidence, finding: Finding) -> str:
    reasons = " ".join(finding.evidence).lower()
    at = where(finding)
    if "print" in reasons or "logg" in reasons:
        return said("no print or logging while compiling: behind if not torch.compiler.is_compiling()", at)
    if "item" in reasons or "data-dependent" in reasons or "branching" in reasons:
        return said("torch.where in place of the value that Python asks for", at)
    return said("take what breaks the graph out of the function; torch.compile(f, fullgraph=True) names it", at)


predict = advice("O10", _how, "high: one graph leaves nothing to Python, and fuses every chain", least=0.0)
