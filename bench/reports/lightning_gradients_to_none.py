"""Gradients that are filled with zeros instead of dropped: the report gained a hundredth by that."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/Lightning-AI/pytorch-lightning/issues/6534"
MECHANISM = 8
NEGATIVE = True
CAUSE = "zero_grad(set_to_none=False)"
REPORTED = "41.42 to 41.05 s an epoch"
NAMES = r"set_to_none|zero_grad"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(16 * 28 * 28, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.randn(32, 3, 32, 32, device=device), torch.randint(10, (32,), device=device)

    def step() -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not sick)  # cause
        return loss.detach()

    return Workload(model=model, step=step, optimizer=optimizer, name="images")
