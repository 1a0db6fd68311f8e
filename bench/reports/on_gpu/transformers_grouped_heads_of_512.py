"""Grouped-query attention with heads of 512: no fused kernel takes it, and the scores are written out."""

from functools import partial

import torch

from bench.reports.on_gpu import DEVICE, REDUCED, sized
from gobrrr import Workload

SOURCE = "https://github.com/huggingface/transformers/pull/46960"
MECHANISM = 2
CAUSE = "enable_gqa=True with heads of 512: scaled_dot_product_attention falls back to its math kernel without a word"
REPORTED = "memory that grows with the square of the length; out of memory at 8,192"
NAMES = r"attention|sdpa"
HEADS, GROUPS, LENGTH, HEAD = sized(16, 4), sized(4, 2), sized(4096, 128), sized(512, 64)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    width = sized(1024, 128)
    make = partial(torch.nn.Linear, bias=False, device=DEVICE, dtype=REDUCED)
    model = torch.nn.ModuleDict({
        "q": make(width, HEADS * HEAD), "k": make(width, GROUPS * HEAD), "v": make(width, GROUPS * HEAD),
        "o": make(HEADS * HEAD, width),
    })  # fmt: skip
    x = torch.randn(1, LENGTH, width, device=DEVICE, dtype=REDUCED)

    def heads(name: str, number: int) -> torch.Tensor:
        return model[name](x).view(1, LENGTH, number, HEAD).transpose(1, 2)

    def attend() -> torch.Tensor:
        q, k, v = heads("q", HEADS), heads("k", GROUPS), heads("v", GROUPS)
        if sick:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # cause
        k, v = (part.repeat_interleave(HEADS // GROUPS, dim=1) for part in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def step() -> torch.Tensor:
        y = model["o"](attend().transpose(1, 2).reshape(1, LENGTH, HEADS * HEAD))
        loss = y.float().square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="an attention layer")
