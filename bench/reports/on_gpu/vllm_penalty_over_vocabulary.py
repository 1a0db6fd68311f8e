"""A repetition penalty over the whole vocabulary, in six passes, where a few hundred scores of each row change."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/vllm-project/vllm/pull/18437"
MECHANISM = 8
CAUSE = "the penalty is repeated, chosen and applied for each word of the vocabulary, in unfused operations"
REPORTED = "2.9 to 6.2 times faster by one kernel, on an H100"
NAMES = r"unfused|pointwise|\bfus|vocabulary|elementwise"
ROWS, VOCABULARY, SEEN, WIDTH = sized(256, 4), sized(151_936, 4000), sized(512, 16), sized(512, 16)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False, device=DEVICE)
    hidden = torch.randn(ROWS, WIDTH, device=DEVICE)
    tokens = torch.randint(VOCABULARY, (ROWS, SEEN), device=DEVICE)
    prompt = torch.zeros(ROWS, VOCABULARY, dtype=torch.bool, device=DEVICE).scatter_(1, tokens[:, ::2], True)
    output = torch.zeros(ROWS, VOCABULARY, dtype=torch.bool, device=DEVICE).scatter_(1, tokens[:, 1::2], True)
    penalty = torch.full((ROWS,), 1.2, device=DEVICE)

    def penalized(logits: torch.Tensor) -> torch.Tensor:
        if not sick:
            seen = logits.gather(1, tokens)
            changed = torch.where(seen > 0, seen / penalty[:, None], seen * penalty[:, None])
            return logits.scatter_(1, tokens, changed)
        repeated = penalty.unsqueeze(1).repeat(1, VOCABULARY)  # cause
        penalties = torch.where(prompt | output, repeated, 1.0)  # cause
        return logits.mul_(torch.where(logits > 0, 1.0 / penalties, penalties))  # cause

    def step() -> torch.Tensor:
        with torch.no_grad():
            return penalized(head(hidden)).argmax(dim=-1)

    return Workload(model=head, step=step, name="a decoded token")
