"""The logits of a whole vocabulary are converted to float32 before the loss, which computes in float32 anyway."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/linkedin/Liger-Kernel/issues/241"
MECHANISM = 8
CAUSE = "the logits are converted to float32 outside the kernel of the loss, which converts what it reads"
REPORTED = ""
NAMES = r"convert|conversion|\bcasts?\b|float32|\.float\(\)|cross.entropy"
TOKENS, WIDTH, VOCABULARY = sized(4096, 64), sized(1024, 32), sized(128_256, 2000)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False, device=DEVICE, dtype=torch.bfloat16)
    hidden = torch.randn(TOKENS, WIDTH, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(VOCABULARY, (TOKENS,), device=DEVICE)

    def loss_of(logits: torch.Tensor) -> torch.Tensor:
        if sick:
            logits = logits.float()  # cause
        return torch.nn.functional.cross_entropy(logits, labels)

    def step() -> torch.Tensor:
        loss = loss_of(head(hidden))
        loss.backward()
        head.zero_grad()
        hidden.grad = None
        return loss.detach()

    return Workload(model=head, step=step, name="a language model's head")
