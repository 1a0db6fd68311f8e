"""Large matmuls: nothing that a compiler fuses is worth anything."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "C08", "M01", "cpu"
NEGATIVE = True
TEMPTING = ("compile", "cuda-graph", "larger-batch")


def _made(device: str = "cpu", *, size: int) -> Workload:
    torch.manual_seed(0)
    a = torch.randn(size, size, device=device)
    weights = [torch.randn(size, size, device=device) / size**0.5 for _ in range(3)]

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def step() -> torch.Tensor:
        x = a
        for weight in weights:
            x = torch.relu(x @ weight)
        return x

    return Workload(step=step, name="large matmuls")


faulty = partial(_made, size=1024)  # Three products of 1,024 x 1,024 with a ReLU behind each
fixed = partial(_made, size=1280)  # The same, larger
