"""Decoding that gives the model all tokens in every turn: the rows before the last one are computed again."""

from functools import partial
from typing import Any

import torch
from torch.nn import functional

from gobrrr import Workload

CASE, CODE, RUNS_ON = "KV01", "R03", "cpu"  # karpathy/minGPT#95
LAYERS, WIDTH, VOCABULARY, PROMPT, TOKENS = 2, 64, 500, 48, 8


class Block(torch.nn.Module):
    """Causal attention of one head with what is kept of earlier calls, and a network for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.wide, self.back = (torch.nn.Linear(WIDTH, size) for size in (3 * WIDTH, 4 * WIDTH, WIDTH))
        self.narrow = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, kept: list[torch.Tensor] | None) -> Any:
        """`kept`: keys and values, which grow."""
        q, k, v = self.mixed(x).chunk(3, -1)
        if kept is not None:
            k, v = (torch.cat([old, new], 1) for old, new in zip(kept, (k, v), strict=True)) if kept else (k, v)
            kept[:] = k, v
        x = x + self.back(functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[1] > 1))
        return x + self.narrow(functional.gelu(self.wide(x)))


def _made(device: str = "cpu", *, cached: bool) -> Workload:
    torch.manual_seed(0)
    blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS)).to(device)
    table, head = torch.nn.Embedding(VOCABULARY, WIDTH).to(device), torch.nn.Linear(WIDTH, VOCABULARY).to(device)
    prompt = torch.randint(VOCABULARY, (1, PROMPT), device=device)

    def step() -> None:
        caches: list[Any] = [[] if cached else None for _ in blocks]
        with torch.inference_mode():
            ids = given = prompt
            for _ in range(TOKENS):
                x = table(given)
                for block, kept in zip(blocks, caches, strict=True):
                    x = block(x, kept)
                new = head(x[:, -1:]).argmax(-1)
                ids = torch.cat([ids, new], 1)
                given = new if cached else ids

    return Workload(step=step, name="decoding")


faulty = partial(_made, cached=False)  # All tokens in every turn
fixed = partial(_made, cached=True)  # The new token alone, beside keys and values that are kept
