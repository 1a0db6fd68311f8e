"""The compiler splits the function into several graphs, and Python runs between them.

`torch.compile` compiles a function up to what it cannot trace, returns to Python, and begins a new graph after it.
Nothing is fused across the break, each graph has its own guards and its own call, and what lies between runs eagerly.
Typical causes: `.item()`, an `if` or a loop on a tensor's value, `print` and logging.

## How it is recognised

The compiler's own record in a live run: the reason of each graph break and the program's line. Breaks that the compiler
makes by design do not count: at `loss.backward()`, at an optimizer, at `torch._dynamo.graph_break()`.

## What it costs

    cost (high) = idle time of the device that launching and Python cause in the functions that break, outside of
                      compiled code
                    + what fusing the pointwise chains there would save (M01)
    cost (low)  = 0: how much of it a single graph would still need is not known

The functions' time is found by their Python frames. If none was recorded, it is the time between a step's first and
last call of compiled code; if nothing was compiled, the whole step.

## What helps

- `torch.where(condition, a, b)` or `torch.cond` for an `if` on a tensor; a tensor instead of `.item()`.
- `if not torch.compiler.is_compiling(): print(...)`, or the function in
  `torch._dynamo.config.reorderable_logging_functions`.
- `torch.compile(f, fullgraph=True)` while developing: the first break is an error.

`TORCH_LOGS=graph_breaks` prints the same reasons with their stacks.

## Sick

```python
@torch.compile
def f(x):
    y = x * 2
    if y.sum().item() > 0:  # a value that only the device knows
        y = y + 1
    return torch.relu(y)
```

## Healthy

```python
@torch.compile(fullgraph=True)
def f(x):
    y = x * 2
    y = torch.where(y.sum() > 0, y + 1, y)
    return torch.relu(y)
```
"""

from __future__ import annotations

import re
from collections import Counter

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.conditions.common import PLACES_SHOWN, finding, needs_live
from gobrrr.conditions.in_pieces import pieces_of
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.live import GraphBreak

CODE = "O10"
TITLE = "graph breaks"

BY_DESIGN = re.compile(r"\.backward\(\)|torch\._dynamo\.graph_break\(\)|\bOptimizer\.|torch\.compiler\.disable")
"""Reasons of breaks that the compiler makes by design, or the program asks for."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """What graph breaks may cost: Python in the functions that break, and chains that are not fused."""
    compiled = evidence.profile.compiled
    if compiled is None:
        return needs_live(CODE)
    breaks = [
        graph_break
        for graph_break in compiled.breaks
        if graph_break.source is not None and not BY_DESIGN.search(graph_break.reason)
    ]
    if not breaks:
        return None
    lines = Counter[str]()
    for graph_break in breaks:
        lines[str(graph_break.source)] += graph_break.count
    pieces = pieces_of(evidence, lines)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=[Place(op="torch.compile", source=line, count=None) for line, _ in lines.most_common(PLACES_SHOWN)],
        at_stake=(0.0, pieces.saving),
        claim=pieces.claim,
        certainty="medium" if pieces.known else "low",
        treatments=["whole-graph"],
        facts=[
            f"{units.things(sum(lines.values()), 'graph break')} at {units.things(len(lines), 'line')}; "
            f"the compiler made {units.things(compiled.graphs, 'graph')}",
            *_reasons(breaks),
            *pieces.facts,
        ],
    )


def _reasons(breaks: list[GraphBreak]) -> list[str]:
    ranked = sorted(breaks, key=lambda graph_break: -graph_break.count)[:PLACES_SHOWN]
    return [f"{graph_break.source}: {graph_break.reason}" for graph_break in ranked]
