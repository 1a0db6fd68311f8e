"""Two ranks on one machine, for cases whose fault needs more than one: a peer process runs the same step for ever."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable

import torch.distributed as dist
import torch.multiprocessing as mp

Step = Callable[[], None]


def joined(build: Callable[[int], Step]) -> Step:
    """This rank's step of `build(rank)`, with a peer beside it until this process ends."""
    folder = tempfile.mkdtemp(prefix="gobrrr-ranks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = os.path.join(folder, "store")
    peer = mp.get_context("spawn").Process(target=_peer, args=(build, store), daemon=True)
    peer.start()
    return _step(build, store, 0)


def _peer(build: Callable[[int], Step], store: str) -> None:
    step, parent = _step(build, store, 1), os.getppid()
    while os.getppid() == parent:  # the first rank may be gone without a word
        step()


def _step(build: Callable[[int], Step], store: str, rank: int) -> Step:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    return build(rank)
