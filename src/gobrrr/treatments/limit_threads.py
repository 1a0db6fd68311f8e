"""Use as many threads as there are processors.

Call `torch.set_num_threads(N)`, or set `OMP_NUM_THREADS=N` before torch is imported; use one thread in each worker of a
data loader, whose libraries (OpenCV, NumPy) have thread pools of their own.

Predicted: from nothing to the finding's stake: the time of parallel operations above their floors, and the waits for
input. Where other processes use the processors, it is the time of all operations above their floors, as far as the
threads waited for a processor. Only a run with fewer threads shows how much of that the threads cause themselves.

Reductions that are split differently are rounded differently.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.savings.effects import of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import SETTINGS, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import said

NAME = "limit-threads"
NUMERICS = "rounding"
CODE = """
torch.set_num_threads(len(os.sched_getaffinity(0)))  # or fewer, by the container's quota


def one_thread(worker):
    torch.set_num_threads(1)


loader = DataLoader(..., num_workers=2, worker_init_fn=one_thread)
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """From nothing to the finding's stake."""
    finding = found.finding
    threads = evidence.profile.threads
    if finding.code != "O09" or threads is None:
        return None
    room = max(math.floor(threads.available), 1)
    if threads.intra > room:
        how = f"torch.set_num_threads({room})  # or OMP_NUM_THREADS={room} in the environment"
    elif threads.waited_ns and not threads.workers:
        had = threads.intra - threads.waited_ns / evidence.wall_ns
        fewer = min(max(math.floor(had), 1), threads.intra - 1)
        how = f"torch.set_num_threads({fewer})  # or stop the other processes"
    else:
        how = said(f"fewer workers than {threads.workers}, and torch.set_num_threads(1) in the loader's worker_init_fn")
    assumes = "high: with as many threads as processors each operation reaches its floor"
    return of_claim(evidence, found, how, assumes, least=0.0)


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """As many threads as processors; where there are no more than that, half of them."""
    import torch

    threads, room = torch.get_num_threads(), _processors()
    if threads == 1:
        yield UnfitWay(NAME, "operations run on one thread already")
        return
    fewer = room if threads > room else max(threads // 2, 1)
    yield TreatmentWay(
        name=NAME,
        treatment=NAME,
        apply=applying.entered(lambda _: _limited(fewer)),
        code=f"torch.set_num_threads({fewer})",
        numerics="rounding",
        rank=SETTINGS,
        as_if=(NAME,),
    )


def _processors() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _limited(threads: int) -> Any:
    import torch

    stack = ExitStack()
    stack.callback(torch.set_num_threads, torch.get_num_threads())
    torch.set_num_threads(threads)
    return stack
