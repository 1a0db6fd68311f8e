"""The demonstration's step: a small language model trained on this CPU, with faults that people really have."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from gobrrr.model.workload import Workload

WIDTH, HEADS, LENGTH, BATCH, WORDS = 128, 8, 512, 1, 2_000


class Block(nn.Module):
    """Attention that writes its scores out, and a two-layer perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) -> the same shape."""
        batch, length, _ = x.shape
        q, k, v = (
            one.view(batch, length, HEADS, -1).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def workload() -> Workload:
    """Three blocks, trained by an optimizer that goes from parameter to parameter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(3)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)
        )
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step(given: torch.Tensor) -> None:
        loss = F.cross_entropy(model(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, inputs=(tokens,), optimizer=optimizer, name="a small language model")
