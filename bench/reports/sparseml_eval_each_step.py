"""Distillation that puts its teacher into evaluation mode again in each forward pass."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/neuralmagic/sparseml/pull/2191"
MECHANISM = 1
CAUSE = "teacher.eval() in each step goes through all modules of the teacher"
REPORTED = "1.6 to 1.5 s a batch"
NAMES = r"\beval|train\(\)|modules"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    teacher = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Identity(), torch.nn.Dropout()) for _ in range(40))
    )
    teacher = teacher.to(device).eval().requires_grad_(requires_grad=False)
    student = torch.nn.Linear(16, 16).to(device)
    x = torch.randn(8, 16, device=device)

    def step() -> torch.Tensor:
        if sick:
            teacher.eval()  # cause
        loss = (student(x) - teacher(x)).square().mean()
        loss.backward()
        student.zero_grad()
        return loss.detach()

    return Workload(model=student, step=step, name="distillation")
