"""Two ranks on one machine, for cases whose fault needs more than one: a peer process runs the same step for ever."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import import_module

import torch.distributed as dist
import torch.multiprocessing as mp

Step = Callable[[], None]


def joined(module: str, build: str) -> Step:
    """This rank's step of `build(rank)` in a module, with a peer beside it until this process ends."""
    folder = tempfile.mkdtemp(prefix="gobrrr-ranks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = os.path.join(folder, "store")
    peer = mp.get_context("spawn").Process(target=_peer, args=(module, build, store), daemon=True)
    peer.start()
    return _step(module, build, store, 0)


def _peer(module: str, build: str, store: str) -> None:
    step, parent = _step(module, build, store, 1), os.getppid()
    while os.getppid() == parent:  # the first rank may be gone without a word
        step()


def _step(module: str, build: str, store: str, rank: int) -> Step:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    made: Step = getattr(import_module(module), build)(rank)
    return made
