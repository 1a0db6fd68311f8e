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
from collections import Counter, defaultdict

import numpy as np

from gobrrr import units
from gobrrr.analysis.findings.claims import ClaimedFinding, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.findings.scopes import TimeUnderEvents, of_every_step, spans_of, spent_under
from gobrrr.analysis.host.reports import outside_of, reporting
from gobrrr.conditions.common import PLACES_SHOWN, finding, needs_frames, of_step, place_of_row
from gobrrr.model.diagnosis import NotChecked, Place
from gobrrr.model.events import I8

CODE = "O12"
TITLE = "printing, logging or writing files in the step"

REPORTS_KEPT = 0.5
"""Share of the reports' time that may stay, because some reports are wanted; chosen, not measured."""


def check(evidence: Evidence) -> ClaimedFinding | NotChecked | None:
    """Time of the step under frames that report."""
    if not evidence.profile.frames:
        return needs_frames(CODE)
    rows = reporting(evidence)
    if not len(rows):
        return None
    count, spent = evidence.steps.count, _usual(evidence, rows)
    idle = float(spent.gap_ns.sum()) / count
    total = idle if evidence.device.asynchronous else spent.ns
    if total <= 0:
        return None
    low, high = path_of(evidence).host_saving((1 - REPORTS_KEPT) * idle, idle)
    claim = of_gaps(evidence, np.arange(len(spent.gap_ns)), spent.gap_ns, (1 - REPORTS_KEPT) * spent.gap_ns)
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
            f"reports take {of_step(evidence, total)}",
            _kinds(evidence, rows),
        ],
    )


def _usual(evidence: Evidence, rows: I8) -> TimeUnderEvents:
    """The time of reports in a typical step, without reports that only some steps make."""
    spent, gaps, calls = spent_under(evidence, rows), evidence.budget.gaps, evidence.calls
    instants = np.concatenate((gaps.stop - 1, calls.start_ns[spent.calls]))
    share = of_every_step(evidence, instants, np.concatenate((spent.gap_ns, spent.call_ns)))
    return TimeUnderEvents(spent.gap_ns * share, spent.calls, spent.call_ns * share, spent.ns * share)


def _outermost(evidence: Evidence, rows: I8) -> list[int]:
    """The frames that are inside no other of them."""
    mask = np.zeros(len(evidence.events), dtype=bool)
    mask[rows] = True
    outermost: list[int] = outside_of(evidence, rows, mask).tolist()
    return outermost


def _what(name: str) -> str:
    """The library or the function that reports."""
    library = re.search(
        r"(?:^|/)(logging|tqdm|loguru|wandb|mlflow|tensorboardX?|neptune|comet_ml|clearml|aim|rich|json)/", name
    )
    if library is not None:
        return library[1]
    return "print" if "print" in name else "writing a file"


def _kinds(evidence: Evidence, rows: I8) -> str:
    counts = Counter(_what(evidence.events.name_of(row)) for row in _outermost(evidence, rows))
    steps = evidence.steps.count
    ranked = (f"{units.count(number / steps)} {name}" for name, number in counts.most_common(PLACES_SHOWN))
    return f"calls a step: {', '.join(ranked)}"


def _places(evidence: Evidence, rows: I8) -> list[Place]:
    """The places by the program's line, most time first."""
    lines: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for row in _outermost(evidence, rows):
        lines[_what(evidence.events.name_of(row)), evidence.source(row)].append(row)
    count = evidence.steps.count
    reports = [
        place_of_row(
            evidence, calls[0], len(calls) / count, spans_of(evidence, np.array(calls, dtype=np.int64)).length / count,
            what,
        )
        for (what, _), calls in lines.items()
    ]  # fmt: skip
    return sorted(reports, key=lambda place: -(place.ns or 0.0))[:PLACES_SHOWN]
