"""A scripted network whose first calls are slow: they are specialised once, and nothing of that comes back."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/30902"
MECHANISM = 7
NEGATIVE = True
CAUSE = "the first calls of a scripted network, which are not what a step takes"
REPORTED = "the first 10 to 20 calls"
NAMES = r"first use|torch\.jit|scripted"


class _Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = (torch.sigmoid(block(x)) * 0.5 + x).tanh()
        return x


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    plain = _Blocks().to(device)
    model = torch.jit.script(plain) if sick else plain
    x = torch.randn(128, 256, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x)  # cause

    return Workload(model=plain, step=step, name="scripted network")
