"""Hooks on all gradients that make a histogram of each in every step."""

from functools import partial

import torch

from gobrrr import Workload

SOURCE = "https://github.com/wandb/wandb/issues/2268"
MECHANISM = 6
CAUSE = "a hook on each parameter that makes a histogram of its gradient and reads it, in each step"
REPORTED = "a big performance impact with log_freq=10 in place of 1000"
NAMES = r"hook|report|histogram|histc|every N steps|loop that reads"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(16))).to(device)
    x = torch.randn(32, 32, device=device)
    watched: dict[int, list[float]] = {}

    def watch(at: int, grad: torch.Tensor) -> None:
        low, high = grad.min().item(), grad.max().item()  # cause
        watched[at] = grad.histc(64, low, high).tolist()  # cause

    if sick:
        for number, parameter in enumerate(model.parameters()):
            parameter.register_hook(partial(watch, number))

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="watched training")
