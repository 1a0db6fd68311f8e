"""An error rate by words, in Python, for each batch of the training."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/espnet/espnet/pull/1547"
MECHANISM = 1
CAUSE = "the edit distance of each hypothesis, in Python, in each training step"
REPORTED = ""
NAMES = r"Python"


def _distance(first: list[int], other: list[int]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(first, start=1):
        last, row[0] = row[0], i  # cause
        for j, b in enumerate(other, start=1):  # cause
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))  # cause
    return row[-1]


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.GRU(40, 16, batch_first=True).to(device)
    head = torch.nn.Linear(16, 29).to(device)
    sounds = torch.randn(8, 60, 40, device=device)
    texts = torch.randint(1, 29, (8, 30), device=device)
    lengths = torch.full((8,), 60), torch.full((8,), 30)

    def step() -> torch.Tensor:
        scores = head(model(sounds)[0]).log_softmax(-1)
        loss = torch.nn.functional.ctc_loss(scores.transpose(0, 1), texts, *lengths)
        loss.backward()
        model.zero_grad()
        if sick:
            for said, meant in zip(scores.argmax(-1).tolist(), texts.tolist(), strict=True):
                _distance(said, meant)  # cause
        return loss.detach()

    return Workload(model=model, step=step, name="training of a recogniser")
