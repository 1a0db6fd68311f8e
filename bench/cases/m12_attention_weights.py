"""nn.MultiheadAttention that returns its weights, as it does by default."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "M12", "M02", "cpu"
BATCH, LENGTH, WIDTH, HEADS = 2, 512, 128, 8


def _made(device: str = "cpu", *, weights: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(device)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=device)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        y, _ = model(x, x, x, need_weights=weights)
        y.square().mean().backward()

    return Workload(model=model, step=step, name="attention")


faulty = partial(_made, weights=True)  # The weights are asked for and not used
fixed = partial(_made, weights=False)  # No weights: a fused attention
