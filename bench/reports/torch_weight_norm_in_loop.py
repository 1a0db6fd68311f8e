"""A recurrent cell with weight norm: the weight, the same in every timestep, is normalised again in each."""

from contextlib import nullcontext

import torch
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/2176"
MECHANISM = 3
CAUSE = "weight_norm makes the weight again in each call of forward, in a loop over time"
REPORTED = "ran out of memory; no time given"
NAMES = r"\bagain\b|same (?:work|data|values|result)|unchanged|weight.?norm|parametri[sz]"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    cell = weight_norm(torch.nn.Linear(192, 128)).to(device)
    x = torch.randn(40, 8, 64, device=device)

    def step() -> torch.Tensor:
        with nullcontext() if sick else parametrize.cached():
            hidden = torch.zeros(8, 128, device=device)
            for now in x:
                hidden = cell(torch.cat([now, hidden], dim=1)).tanh()  # cause
            hidden.square().mean().backward()
        cell.zero_grad()
        return hidden.detach()

    return Workload(model=cell, step=step, name="recurrent cell with weight norm")
