"""A model that asks for its own type in each forward pass: the property goes through all parameters for the first."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/huggingface/diffusers/issues/9520"
MECHANISM = 1
CAUSE = "the property dtype makes a tuple of all parameters to look at the first one"
REPORTED = "6 to 10 ms each time"
NAMES = r"parameters\(\)|named_parameters|walks? (?:all|the) (?:modules|parameters)|dtype\b.*(?:property|python)"


class _Net(torch.nn.Module):
    def __init__(self, *, sick: bool) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Linear(16, 16)) for _ in "abcd"))
            for _ in range(40)
        )
        self.sick = sick

    @property
    def dtype(self) -> torch.dtype:
        if not self.sick:
            return next(self.parameters()).dtype
        parameters = tuple(self.parameters())  # cause
        return parameters[0].dtype

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        x = x + time.to(dtype=self.dtype)
        for block in list(self.blocks)[:10]:
            x = block(x)
        return x


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = _Net(sick=sick).to(device)
    x, time = torch.randn(32, 16, device=device), torch.randn(32, 1, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x, time)

    return Workload(model=model, step=step, name="denoiser")
