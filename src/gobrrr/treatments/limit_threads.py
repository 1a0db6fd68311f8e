"""As many threads as there are processors.

`torch.set_num_threads(N)`, or `OMP_NUM_THREADS=N` before torch is imported; one thread in each worker of a data
loader, whose libraries (OpenCV, NumPy) have pools of their own.

Replayed: between nothing and the finding's stake: what the operations that are split take above their floors, and the
waits for input; where other processes have the processors, no more of it than the threads waited for one. How much of
that is the threads' own doing only a run with fewer of them tells.

Reductions that are split into other parts are rounded differently.
"""

from __future__ import annotations

import math

from gobrrr.analysis.claims import Found
from gobrrr.analysis.effects import of_claim
from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.gains import Plan

NAME = "limit-threads"
NUMERICS = "rounding"
CODE = """
torch.set_num_threads(len(os.sched_getaffinity(0)))  # or fewer, by the container's quota


def one_thread(worker):
    torch.set_num_threads(1)


loader = DataLoader(dataset, batch_size, num_workers=2, worker_init_fn=one_thread)
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """What the docstring says, of the finding's stake."""
    finding = found.finding
    threads = evidence.live.threads if evidence.live is not None else None
    if finding.code != "O09" or threads is None:
        return None
    room = max(math.floor(threads.available), 1)
    if threads.intra > room:
        how = f"torch.set_num_threads({room}), or OMP_NUM_THREADS={room}"
    elif threads.waited_ns and not threads.workers:
        had = threads.intra - threads.waited_ns / evidence.wall_ns
        fewer = min(max(math.floor(had), 1), threads.intra - 1)
        how = f"torch.set_num_threads({fewer}), or the processors for this process alone"
    else:
        how = f"fewer workers than {threads.workers}, and torch.set_num_threads(1) in worker_init_fn"
    assumes = "high: with as many threads as processors each operation reaches its floor"
    return of_claim(evidence, found, how, assumes, least=0.0)
