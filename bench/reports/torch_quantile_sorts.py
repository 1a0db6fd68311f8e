"""A loss that is cut off at a quantile: quantile() sorts all values for one of them."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/pytorch/pytorch/issues/85147"
MECHANISM = 2
CAUSE = "torch.quantile sorts everything to find one value"
REPORTED = "100 ms, a median 13 ms"
NAMES = r"quantile|sort"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Conv2d(1, 1, 3, padding=1).to(device)
    x = torch.randn(8, 1, 96, 96, device=device)

    def limit(values: torch.Tensor) -> torch.Tensor:
        if sick:
            return torch.quantile(values, 0.9)  # cause
        return values.kthvalue(int(0.9 * len(values))).values

    def step() -> torch.Tensor:
        error = (model(x) - x).square()
        loss = error.clamp(max=limit(error.detach().flatten())).mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="a trimmed loss")
