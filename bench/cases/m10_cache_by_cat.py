"""A cache of keys and values that grows by torch.cat: each token copies all that was there."""

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M10", "M10", "cpu"
TOKENS, HEADS, WIDTH, PROMPT = 32, 8, 64, 1024


def faulty(device: str = "cpu") -> Workload:
    """`cache = torch.cat([cache, new])` for each token."""
    torch.manual_seed(0)
    prompt, new = (torch.randn(1, HEADS, length, WIDTH, device=device) for length in (PROMPT, 1))

    def step() -> None:
        with torch.inference_mode():
            cache = prompt
            for _ in range(TOKENS):
                cache = torch.cat([cache, new], dim=2)
                cache.sum()

    return Workload(step=step, name="cache by cat")


def fixed(device: str = "cpu") -> Workload:
    """A cache of the whole length from the beginning."""
    torch.manual_seed(0)
    prompt, new = (torch.randn(1, HEADS, length, WIDTH, device=device) for length in (PROMPT, 1))
    cache = torch.zeros(1, HEADS, PROMPT + TOKENS, WIDTH, device=device)
    cache[:, :, :PROMPT] = prompt

    def step() -> None:
        with torch.inference_mode():
            for at in range(PROMPT, PROMPT + TOKENS):
                cache[:, :, at : at + 1] = new
                cache[:, :, : at + 1].sum()

    return Workload(step=step, name="preallocated cache")
