"""A replay memory in a deque: each access by position walks through it."""

from collections import deque

import numpy as np
import torch

from gobrrr import Workload

SOURCE = "https://github.com/ageron/handson-ml/pull/203"
MECHANISM = 1
CAUSE = "random access to a collections.deque, which takes time in proportion to its length"
REPORTED = "training slowed considerably as the memory of 1 million filled"
NAMES = r"Python|deque"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    seen = torch.randn(64, 8, device=device)
    memory = deque(range(1_000_000)) if sick else list(range(1_000_000))
    network = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)

    def batch() -> list[int]:
        return [memory[at] for at in draw.integers(len(memory), size=128).tolist()]  # cause

    def step() -> torch.Tensor:
        chosen = batch()
        at = torch.tensor(chosen, device=device)
        loss = torch.nn.functional.cross_entropy(network(seen[at % 64]), at % 4)
        loss.backward()
        network.zero_grad()
        return loss.detach()

    return Workload(model=network, step=step, name="deep Q learning")
