"""A repetition penalty that is applied token by token, with a question about each one's sign."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/huggingface/transformers/issues/5345"
MECHANISM = 5
CAUSE = "a double loop on the host, over the sequences and over the tokens of each, which reads a score in each turn"
REPORTED = "2 to 10 times the time of generating without a penalty"
NAMES = r"\bloop|\bturns?\b|reads? |waits? for the device|\.item\(\)|host wait"
BATCH, VOCABULARY, WIDTH = 4, sized(50257, 2000), sized(768, 32)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCABULARY, device=DEVICE)
    hidden = torch.randn(BATCH, WIDTH, device=DEVICE)
    before = torch.randint(VOCABULARY, (BATCH, sized(48, 12)), device=DEVICE)

    def penalize(scores: torch.Tensor, penalty: float) -> None:
        if not sick:
            seen = scores.gather(1, before)
            scores.scatter_(1, before, torch.where(seen < 0, seen * penalty, seen / penalty))
            return
        for row in range(BATCH):
            for token in set(before[row].tolist()):
                if scores[row, token] < 0:  # cause
                    scores[row, token] *= penalty  # cause
                else:
                    scores[row, token] /= penalty  # cause

    def step() -> torch.Tensor:
        with torch.no_grad():
            scores = head(hidden)
            penalize(scores, 1.2)
            return scores.argmax(dim=-1)

    return Workload(model=head, step=step, name="a decoded token")
