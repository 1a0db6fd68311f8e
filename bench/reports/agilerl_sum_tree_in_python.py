"""Prioritised replay whose tree of sums is walked in Python for each index."""

import random

import numpy as np
import torch

from gobrrr import Workload

SOURCE = "https://github.com/AgileRL/AgileRL/pull/541"
MECHANISM = 1
CAUSE = "a tree of sums in Python lists, walked once for each of the batch's indices"
REPORTED = "sampling 644 to 42 us with 10,000 samples"
NAMES = r"Python"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    size, batch = 8_192, 256
    priorities = np.random.default_rng(0).random(size)
    sums = np.concatenate([np.zeros(size), priorities])
    for at in range(size - 1, 0, -1):
        sums[at] = sums[2 * at] + sums[2 * at + 1]
    tree, edges = sums.tolist(), priorities.cumsum()
    states = torch.randn(16, device=device).repeat(size, 1)
    critic = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)

    def found(wanted: float) -> int:
        at = 1
        while at < size:  # cause
            at *= 2  # cause
            if tree[at] <= wanted:  # cause
                wanted, at = wanted - tree[at], at + 1  # cause
        return at - size

    def drawn() -> np.ndarray:
        if sick:
            return np.array([found(random.random() * tree[1]) for _ in range(batch)])  # cause
        return np.asarray(edges.searchsorted(np.random.random(batch) * edges[-1]))

    def step() -> torch.Tensor:
        loss = critic(states[torch.from_numpy(drawn()).to(device)]).square().mean()
        loss.backward()
        critic.zero_grad()
        return loss.detach()

    return Workload(model=critic, step=step, name="prioritised replay")
