"""A recommendation model that is called for each point of a time series, although the points are independent."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/facebookresearch/tbsm/pull/1"
MECHANISM = 5
CAUSE = "a loop over the time series around a model whose calls don't depend on each other"
REPORTED = "2.2 times end to end, over 10 times in the loop"
NAMES = r"\bloop\b|turns|batched|in one call"


class _Ranker(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = torch.nn.EmbeddingBag(5_000, 16, mode="sum")
        self.dense = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
        self.top = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU())

    def forward(self, dense: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.top(torch.cat([self.dense(dense), self.items(items)], dim=1))


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model, head = _Ranker().to(device), torch.nn.Linear(16, 1).to(device)
    dense = torch.randn(20, 32, 8, device=device)
    items = torch.randint(5_000, (20, 32, 3), device=device)

    def step() -> torch.Tensor:
        if sick:
            series = torch.stack([model(dense[at], items[at]) for at in range(20)])  # cause
        else:
            series = model(dense.flatten(0, 1), items.flatten(0, 1)).unflatten(0, (20, 32))
        score = head(series.mean(dim=0))
        score.square().mean().backward()
        model.zero_grad()
        head.zero_grad()
        return score.detach()

    return Workload(model=model, step=step, name="ranking of a time series")
