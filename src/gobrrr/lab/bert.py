"""A BERT of random weights and its training step, with attention written out as the article's table has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

VOCABULARY = 8192
"""Of the toy language: small enough that the output layer does not hide the encoder."""


def training_step(
    torch: Any, spec: str, *, layers: int, width: int, heads: int, batch: int, length: int, dtype: Any = None
) -> Callable[[], Any]:
    """A call that does forward and backward of one batch; `dtype` is autocast's, None: float32 throughout."""
    nn, functional = torch.nn, torch.nn.functional
    base: Any = nn.Module

    class Layer(base):  # type: ignore[misc]
        """Attention and MLP, each with dropout, residual and normalization after it (post-norm, as BERT)."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.n1, self.n2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            x = self.n1(x + self.drop(self.out(self.attend(x))))
            return self.n2(x + self.drop(self.down(functional.gelu(self.up(x)))))

        def attend(self, x: Any) -> Any:
            shape = (*x.shape[:2], heads, width // heads)
            q, k, v = (part.reshape(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
            return (self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(x.shape)

    embed, head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
    model = nn.Sequential(embed, *(Layer() for _ in range(layers)), head).to(spec)
    tokens, targets = (torch.randint(0, VOCABULARY, (batch, length), device=spec) for _ in range(2))

    def step() -> Any:
        model.zero_grad(set_to_none=True)
        with torch.autocast(spec.partition(":")[0], dtype=dtype, enabled=dtype is not None):
            loss = functional.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())
        loss.backward()
        return loss

    return step
