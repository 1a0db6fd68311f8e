"""A multi-similarity loss that goes through its batch row by row, with masks of each row."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/msight-tech/research-ms-loss/issues/22"
MECHANISM = 5
CAUSE = "a loop over the samples with a mask for each, where the matrix of similarities can be reduced at once"
REPORTED = "a little bit slow"
NAMES = r"\bloop\b|turns|one batched operation"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 32).to(device)
    x = torch.randn(48, 64, device=device)
    labels = torch.arange(48, device=device) % 12
    same = labels[:, None] == labels[None]

    def loss_of(similar: torch.Tensor) -> torch.Tensor:
        if not sick:
            near = torch.log1p((torch.exp(-2 * (similar - 0.5)) * same).sum(1)) / 2
            far = torch.log1p((torch.exp(10 * (similar - 0.5)) * ~same).sum(1)) / 10
            return (near + far).mean()
        losses = []
        for i in range(len(similar)):
            near, far = similar[i][same[i]], similar[i][~same[i]]  # cause
            if len(near) < 1 or len(far) < 1:
                continue
            near = torch.log(1 + torch.sum(torch.exp(-2 * (near - 0.5)))) / 2  # cause
            far = torch.log(1 + torch.sum(torch.exp(10 * (far - 0.5)))) / 10  # cause
            losses.append(near + far)  # cause
        return sum(losses) / len(similar)

    def step() -> torch.Tensor:
        found = torch.nn.functional.normalize(model(x))
        loss = loss_of(found @ found.T)
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="metric learning")
