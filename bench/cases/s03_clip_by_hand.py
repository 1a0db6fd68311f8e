"""Gradient clipping written with branches on values of the device: three waits on a GPU, none on a CPU."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "S03", "O02", "cuda"


def _made(device: str = "cuda", *, by_hand: bool) -> Workload:
    torch.manual_seed(0)
    width, rows = (2048, 2048) if device == "cuda" else (256, 64)  # on a GPU the device is the bound
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(rows, width, device=device)

    def clip() -> None:
        grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        norm = torch.stack([grad.norm() for grad in grads]).norm()
        if norm.isnan() or norm.isinf():
            return
        if norm > 1.0:
            for grad in grads:
                grad.mul_(1.0 / norm)

    def step() -> None:
        model(x).square().mean().backward()
        if by_hand:
            clip()
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Workload(model=model, step=step, optimizer=optimizer, name="clipping")


faulty = partial(_made, by_hand=True)  # `if norm.isnan() or norm.isinf()`, `if norm > 1`
fixed = partial(_made, by_hand=False)  # `clip_grad_norm_`, which clamps on the device
