"""Sixteen threads on the processors of a small machine."""

import os
from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "D08", "O09", "cpu"


def _made(device: str = "cpu", *, threads: int) -> Workload:
    """Sets torch's threads and leaves them so: whoever runs this case puts `torch.get_num_threads()` back."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(4)]
    model = torch.nn.Sequential(*layers).to(device)
    x = torch.randn(256, 256, device=device)

    def step() -> None:
        model(x).square().mean().backward()
        model.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, name="too many threads")


faulty = partial(_made, threads=8 * (os.cpu_count() or 1))  # Eight times as many threads as processors
fixed = partial(_made, threads=1)  # One thread
