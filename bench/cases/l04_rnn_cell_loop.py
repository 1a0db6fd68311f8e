"""A recurrent cell called for each timestep, against the library's own layer."""

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L04", "O04", "cpu"
STEPS, BATCH, WIDTH = 100, 8, 64


def faulty(device: str = "cpu") -> Workload:
    """100 turns of an LSTMCell."""
    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(WIDTH, WIDTH).to(device)
    x = torch.randn(STEPS, BATCH, WIDTH, device=device)

    def step() -> None:
        h, c = torch.zeros(BATCH, WIDTH, device=device), torch.zeros(BATCH, WIDTH, device=device)
        kept = []
        for t in range(STEPS):
            h, c = cell(x[t], (h, c))
            kept.append(h)
        torch.stack(kept).square().mean().backward()
        cell.zero_grad(set_to_none=True)

    return Workload(model=cell, step=step, name="LSTM cells")


def fixed(device: str = "cpu") -> Workload:
    """All timesteps in one call."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(WIDTH, WIDTH).to(device)
    x = torch.randn(STEPS, BATCH, WIDTH, device=device)

    def step() -> None:
        layer(x)[0].square().mean().backward()
        layer.zero_grad(set_to_none=True)

    return Workload(model=layer, step=step, name="LSTM layer")
