"""The step prints, logs, draws a progress bar or writes a file each time.

A line on the terminal takes microseconds to milliseconds, a logger that flushes to a network disk more. In a step of a
few milliseconds that is a considerable part. The value that is logged often has to be waited for as well (O02).

## How it is recognised

Time in Python frames that report, in the analysed steps: `print`, `logging`, tqdm, TensorBoard, Weights & Biases,
MLflow, writing JSON, flushing and writing files. A live run looks at where a file leads: a pipe or a socket that
another process reads is no report.

## What it costs

    cost (high) = idle time of the device under these frames; on a CPU that computes, all time under them
    cost (low)  = half of the idle time: a report every N steps still costs something

Both ends count what a typical step has: a report once in many steps does not count.

## What helps

- Report every N steps.
- Accumulate on the device (`total += loss.detach()`), and read the sum when it is reported.
- `tqdm(mininterval=1)`, and `set_postfix` only when the bar is drawn.
- Write in a separate thread (a `QueueHandler`, the writer's queue).

## Sick

```python
for batch in loader:
    loss = step(batch)
    logger.info("loss %s", loss.item())
```

## Healthy

```python
for number, batch in enumerate(loader):
    total += step(batch).detach()
    if number % 100 == 0:
        logger.info("loss %s", total.item() / 100)
```
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from gobrrr import units
from gobrrr.analysis.findings.claims import Found, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.findings.scopes import Spent, of_every_step, spans_of, spent_under
from gobrrr.analysis.host.reports import outside_of, reporting
from gobrrr.conditions.common import MOST_PLACES, finding
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O12"
TITLE = "the step reports on itself"

KEPT = 0.5
"""Share of the reports' time that the low end keeps: some of them are wanted."""


def check(evidence: Evidence) -> Found | NotChecked | None:
    """Time of the step under frames that report."""
    if not evidence.profile.frames:
        return NotChecked(code=CODE, needs="needs Python frames: record with_stack=True, diagnose with --stacks")
    rows = reporting(evidence)
    if not len(rows):
        return None
    count, spent = evidence.steps.count, _usual(evidence, rows)
    idle = float(spent.gap_ns.sum()) / count
    total = idle if evidence.device.asynchronous else spent.ns
    if total <= 0:
        return None
    low, high = path_of(evidence).host_saving((1 - KEPT) * idle, idle)
    claim = of_gaps(evidence, np.arange(len(spent.gap_ns)), spent.gap_ns, (1 - KEPT) * spent.gap_ns)
    if not evidence.device.asynchronous:
        claim += of_calls(spent.calls, np.zeros_like(spent.call_ns), spent.call_ns)
    return finding(
        evidence,
        CODE,
        TITLE,
        where=_places(evidence, rows),
        at_stake=(low, high + total - idle),
        claim=claim,
        certainty="high",
        treatments=["log-less"],
        facts=[
            f"{units.duration(total)} of {units.duration(evidence.wall_ns)} a step under frames that report",
            _kinds(evidence, rows),
        ],
    )


def _usual(evidence: Evidence, rows: I8) -> Spent:
    """What reports take of the usual step: what is reported once in many steps is none of each."""
    spent, gaps, calls = spent_under(evidence, rows), evidence.budget.gaps, evidence.calls
    at = np.concatenate((gaps.stop - 1, calls.start_ns[spent.calls]))
    share = of_every_step(evidence, at, np.concatenate((spent.gap_ns, spent.call_ns)))
    return Spent(spent.gap_ns * share, spent.calls, spent.call_ns * share, spent.ns * share)


def _outermost(evidence: Evidence, rows: I8) -> list[int]:
    """Those that no other of them is around."""
    mine = np.zeros(len(evidence.events), dtype=bool)
    mine[rows] = True
    found: list[int] = outside_of(evidence, rows, mine).tolist()
    return found


def _what(name: str) -> str:
    """The library or the function that reports."""
    found = re.search(
        r"(?:^|/)(logging|tqdm|loguru|wandb|mlflow|tensorboardX?|neptune|comet_ml|clearml|aim|rich|json)/", name
    )
    if found is not None:
        return found[1]
    return "print" if "print" in name else "writing a file"


def _kinds(evidence: Evidence, rows: I8) -> str:
    names: dict[str, int] = defaultdict(int)
    for row in _outermost(evidence, rows):
        names[_what(evidence.events.name_of(row))] += 1
    ranked = sorted(names.items(), key=lambda item: -item[1])[:MOST_PLACES]
    return "calls a step: " + ", ".join(f"{units.count(one / evidence.steps.count)} {name}" for name, one in ranked)


def _places(evidence: Evidence, rows: I8) -> list[Place]:
    """By the program's line, most time first."""
    lines: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for row in _outermost(evidence, rows):
        lines[_what(evidence.events.name_of(row)), evidence.source(row)].append(row)
    count = evidence.steps.count
    found = [
        Place(
            op=what,
            module=evidence.module(mine[0]),
            source=source,
            count=len(mine) / count,
            ns=spans_of(evidence, np.array(mine, dtype=np.int64)).length / count,
        )
        for (what, source), mine in lines.items()
    ]
    return sorted(found, key=lambda place: -(place.ns or 0.0))[:MOST_PLACES]
