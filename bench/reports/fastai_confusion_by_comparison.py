"""A confusion matrix by comparing every sample with every pair of classes."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/fastai/fastai/pull/2516"
MECHANISM = 2
CAUSE = "comparisons of all samples with all pairs of classes, summed, where each sample has one pair"
REPORTED = "validation tremendously slow with 10,000 classes"
NAMES = r"broadcast|compar|bincount|index_add|one.?hot|outer"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    classes = 96
    model = torch.nn.Linear(32, classes).to(device)
    x = torch.randn(256, 32, device=device)
    targets = torch.randint(classes, (256,), device=device)
    every = torch.arange(classes, device=device)

    def confusion(predicted: torch.Tensor) -> torch.Tensor:
        if sick:
            return ((predicted == every[:, None]) & (targets == every[:, None, None])).sum(dim=2)  # cause
        return torch.bincount(targets * classes + predicted, minlength=classes**2).view(classes, classes)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return confusion(model(x).argmax(1))

    return Workload(model=model, step=step, name="evaluation")
