"""A batch of indices by np.random.choice without replacement: it permutes all of the buffer."""

import numpy as np
import torch

from gobrrr import Workload

SOURCE = "https://github.com/keiohta/tf2rl/issues/126"
MECHANISM = 1
CAUSE = "np.random.choice(replace=False), which shuffles all positions of the buffer for a few"
REPORTED = "slow to the point of unusable with 1e6 samples; about 1000 times faster with repetition"
NAMES = r"choice|random number|permut"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    size = 200_000
    buffer = torch.randn(24, device=device).repeat(size, 1)
    policy = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)
    draw = np.random.default_rng(0)

    def step() -> torch.Tensor:
        choice = np.random.choice if sick else draw.choice
        chosen = choice(size, 100, replace=False)  # cause
        loss = policy(buffer[torch.from_numpy(chosen).to(device)]).square().mean()
        loss.backward()
        policy.zero_grad()
        return loss.detach()

    return Workload(model=policy, step=step, name="imitation")
