"""Keep Python's garbage collector out of the step: freeze live objects, and collect at a time of your choice.

`gc.freeze()` after everything is built hides all objects from the collector; `gc.disable()` stops automatic collection.
A collection of the young objects every N steps finds the cycles of the steps since. With several ranks, collect in the
same step on all of them, so that none waits for another.

Predicted: from the finding's low end to its whole stake, the measured time in the collector. A collection every N steps
costs a part of it again: that for the objects made since.

Memory grows by the cycles that are not collected yet; cycles that hold tensors hold their memory too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework.way import SETTINGS, TreatmentWay, UnfitWay
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


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The finding's stake."""
    finding = found.finding
    if finding.code != "O07":
        return None
    own = next((spot for spot in finding.where if spot.op == "gc.collect"), None)
    how = HOW if own is None else f"{said('no gc.collect() in each step', place(own.source))}\n{HOW}"
    return of_claim(evidence, found, how, "collecting every N steps takes next to nothing")


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Freezes live objects, and collects nothing while the steps run."""
    if not gc.isenabled():
        yield UnfitWay(NAME, "the collector is off already")
        return
    yield TreatmentWay(
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
