"""A loss that is summed over the timesteps in a Python loop."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/IBM/pytorch-seq2seq/issues/27"
MECHANISM = 5
CAUSE = "the criterion is called row by row of the output instead of once for the flat output"
REPORTED = "one of the changes that made 10 times the speed"
NAMES = r"\bloop\b|turns|batched|in one call"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    decoder = torch.nn.GRU(16, 16).to(device)
    out = torch.nn.Linear(16, 40).to(device)
    inputs = torch.randn(50, 4, 16, device=device)
    targets = torch.randint(40, (50, 4), device=device)
    criterion = torch.nn.NLLLoss()

    def loss(scores: torch.Tensor) -> torch.Tensor:
        if not sick:
            return criterion(scores.flatten(0, 1), targets.flatten())
        total = torch.zeros((), device=device)
        for row, target in zip(scores, targets, strict=True):
            total = total + criterion(row, target)  # cause
        return total / len(targets)

    def step() -> torch.Tensor:
        found = loss(out(decoder(inputs)[0]).log_softmax(dim=-1))
        found.backward()
        decoder.zero_grad()
        out.zero_grad()
        return found.detach()

    return Workload(model=decoder, step=step, name="sequence to sequence")
