"""A cache of keys and values that grows by torch.cat: each token copies all that was there."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M10", "M10", "cpu"
TOKENS, HEADS, WIDTH, PROMPT = 32, 8, 64, 1024


def _made(device: str = "cpu", *, copied: bool) -> Workload:
    torch.manual_seed(0)
    prompt, new = (torch.randn(1, HEADS, length, WIDTH, device=device) for length in (PROMPT, 1))
    whole = torch.zeros(1, HEADS, PROMPT + TOKENS, WIDTH, device=device)
    whole[:, :, :PROMPT] = prompt

    def step() -> None:
        with torch.inference_mode():
            cache = prompt
            for at in range(PROMPT, PROMPT + TOKENS):
                if copied:
                    cache = torch.cat([cache, new], dim=2)
                    cache.sum()
                else:
                    whole[:, :, at : at + 1] = new
                    whole[:, :, : at + 1].sum()

    return Workload(step=step, name="a cache of keys")


faulty = partial(_made, copied=True)  # `cache = torch.cat([cache, new])` for each token
fixed = partial(_made, copied=False)  # A cache of the whole length from the beginning
