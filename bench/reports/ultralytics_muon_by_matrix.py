"""Muon, which makes each gradient orthogonal by itself: products of small matrices, one matrix after the other."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/ultralytics/ultralytics/pull/25288"
MECHANISM = 5
CAUSE = "Newton-Schulz iterations for each of 126 parameters by itself, which batched products do together"
REPORTED = "62.2 to 7.7 ms for the optimizer's step on a GPU"
NAMES = r"\bloop\b|turns|batched|grouped|\bbmm\b|baddbmm|in one call"


def _orthogonal(grad: torch.Tensor) -> torch.Tensor:
    x = grad / (grad.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16, bias=False) for _ in range(48))).to(device)
    x = torch.randn(16, 16, device=device)

    def update() -> None:
        weights = list(model.parameters())
        if sick:
            for weight in weights:
                weight.sub_(_orthogonal(weight.grad), alpha=1e-3)  # cause
            return
        found = _orthogonal(torch.stack([weight.grad for weight in weights]))
        torch._foreach_sub_(weights, list(found.unbind()), alpha=1e-3)

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            update()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="training with Muon")
