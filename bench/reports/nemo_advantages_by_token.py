"""Advantages token by token, from the last to the first: each turn needs the one before, no batch mends that."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/NVIDIA-NeMo/RL/pull/4156"
MECHANISM = 5
CAUSE = "a recurrence over the tokens in Python; with both discounts at 1 it is a cumulative sum"
REPORTED = ""
NAMES = r"^(?!.*one batched operation).*(?:cumsum|cumulative|\bscan\b|depend|\bloop\b|turns)"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    critic = torch.nn.Linear(32, 1).to(device)
    hidden = torch.randn(16, 256, 32, device=device)
    rewards = torch.randn(16, 256, device=device)

    def advantages(values: torch.Tensor) -> torch.Tensor:
        if not sick:
            return rewards.flip(1).cumsum(1).flip(1) - values
        found, last = torch.zeros_like(values), torch.zeros(len(values), device=device)
        for at in reversed(range(values.shape[1])):
            after = values[:, at + 1] if at + 1 < values.shape[1] else torch.zeros_like(last)
            last = rewards[:, at] + after - values[:, at] + last  # cause
            found[:, at] = last
        return found

    def step() -> torch.Tensor:
        with torch.no_grad():
            return advantages(critic(hidden).squeeze(-1))

    return Workload(model=critic, step=step, name="advantages")
