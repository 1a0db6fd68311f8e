"""Causal attention that makes its mask in each layer of each forward pass."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/rasbt/LLMs-from-scratch/issues/279"
MECHANISM = 3
CAUSE = "the triangular mask is made in each call instead of once"
REPORTED = "about 30 % of the attention"
NAMES = r"\bagain\b|same (?:work|data|values|result)|every step|each step|unchanged|constant|triu|\bmask"


class _Attention(torch.nn.Module):
    def __init__(self, length: int, *, sick: bool) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(32, 96)
        self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1).bool())
        self.sick = sick

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.qkv(x).chunk(3, dim=-1)
        scores = queries @ keys.transpose(1, 2)
        if self.sick:
            mask = torch.triu(torch.ones(x.shape[1], x.shape[1], device=x.device), diagonal=1).bool()  # cause
        else:
            mask = self.mask
        return x + (scores.masked_fill(mask, -torch.inf) / 32**0.5).softmax(dim=-1) @ values


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(_Attention(512, sick=sick) for _ in range(4))).to(device)
    x = torch.randn(1, 512, 32, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    return Workload(model=model, step=step, name="causal attention")
