"""A mixture of experts as a Python loop over them, against one batched product."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "L10", "O04", "cpu"
EXPERTS, TOKENS, WIDTH = 64, 512, 64


def _made(device: str = "cpu", *, loop: bool) -> Workload:
    torch.manual_seed(0)
    x = torch.randn(TOKENS, WIDTH, device=device)
    weights = torch.randn(EXPERTS, WIDTH, WIDTH, device=device) / WIDTH**0.5
    # as many tokens for each expert, in any order: both forms then do the same
    chosen = torch.arange(EXPERTS, device=device).repeat_interleave(TOKENS // EXPERTS)[torch.randperm(TOKENS)]

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def step() -> torch.Tensor:
        out = torch.zeros_like(x)
        if loop:
            for e in range(EXPERTS):
                mine = chosen == e
                out[mine] = torch.nn.functional.gelu(x[mine] @ weights[e])
            return out
        order = chosen.argsort()
        y = torch.bmm(x[order].view(EXPERTS, -1, WIDTH), weights)
        out[order] = torch.nn.functional.gelu(y).view(TOKENS, WIDTH)
        return out

    return Workload(step=step, name="a mixture of experts")


faulty = partial(_made, loop=True)  # For each expert: find its tokens, take them out, multiply, put them back
fixed = partial(_made, loop=False)  # Sort the tokens by their expert; one batched product
