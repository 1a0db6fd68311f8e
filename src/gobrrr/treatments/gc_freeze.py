"""Take Python's garbage collector out of the step: freeze what lives, and collect when it suits.

`gc.freeze()` after everything is built moves all objects out of the collector's sight; `gc.disable()` stops it from
running on its own. A collection of the young objects every N steps finds the cycles of the steps since; with several
ranks all do it in the same step, so that none waits for another.

Replayed: between the finding's low end and all of its stake, the measured time in the collector. A collection every N
steps gives a part of it back: that of the objects made since.

Memory grows by the cycles that are not yet collected; what holds tensors in cycles holds their memory too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework.way import SETTINGS, Unfit, Way
from gobrrr.treatments.framework.wording import place, said

NAME = "gc-freeze"
NUMERICS = "none"
HOW = """
import gc

gc.collect(), gc.freeze(), gc.disable()  # before the loop; in it gc.collect(1) every 1000 steps, on all ranks
""".strip()
CODE = """
import gc

gc.collect()
gc.freeze()
gc.disable()
for number, batch in enumerate(loader):
    step(batch)
    if number % 1000 == 0:  # on all ranks in the same step
        gc.collect(1)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    if finding.code != "O07":
        return None
    own = next((one for one in finding.where if one.op == "gc.collect"), None)
    how = HOW if own is None else f"{said('no gc.collect() in each step', place(own.source))}\n{HOW}"
    return of_claim(evidence, found, how, "collecting every N steps takes next to nothing")


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """What lives is frozen, and nothing is collected while the steps run."""
    if not gc.isenabled():
        yield Unfit(NAME, "the collector is off already")
        return
    yield Way(
        name=NAME, treatment=NAME, apply=_apply, code=CODE.strip(), numerics="none", rank=SETTINGS, as_if=(NAME,)
    )  # fmt: skip


@contextmanager
def _apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    frozen = gc.get_freeze_count() > 0
    if "collected" not in kept:
        kept["collected"] = gc.collect()
    if not frozen:
        gc.freeze()
    gc.disable()
    try:
        yield workload
    finally:
        gc.enable()
        if not frozen:
            gc.unfreeze()
