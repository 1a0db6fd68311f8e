"""A toy regression under autocast on a CPU: small layers that are converted and computed in bfloat16."""

from contextlib import nullcontext

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/118499"
MECHANISM = 8
CAUSE = "torch.autocast around small layers on a CPU"
REPORTED = "2.5 to 231 s an epoch"
NAMES = r"autocast|bfloat16|bf16"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.rand(32, 1, device=device)
    y = x.cos()

    def step() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16) if sick else nullcontext():
            loss = (model(x).float() - y).square().mean()  # cause
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, optimizer=optimizer, name="toy regression")
