"""What `gobrrr treat --example` prints: a file that runs as it is, on a GPU or on a CPU."""

from __future__ import annotations

EXAMPLE = '''"""A training step for `gobrrr treat workload.py:workload`. It runs as it is, on a GPU or a CPU."""

import torch
from torch import nn

import gobrrr


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def workload():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, blocks, words, batch, length = (1024, 12, 32000, 8, 1024) if device == "cuda" else (128, 4, 1000, 2, 64)
    layers = [nn.Embedding(words, width), *(Block(width, 8) for _ in range(blocks)), nn.Linear(width, words)]
    model = nn.Sequential(*layers).to(device)
    tokens = torch.randint(0, words, (batch, length), device=device)
    return gobrrr.Workload(
        model=model,
        inputs=(tokens,),
        loss=lambda scores, target: nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten()),
        targets=(tokens.roll(-1, 1),),
        optimizer=torch.optim.AdamW(model.parameters(), foreach=False),
    )
    # a step of your own instead of loss and targets: step=lambda tokens: ..., which returns the loss;
    # no step, loss and optimizer: the forward pass alone
'''
