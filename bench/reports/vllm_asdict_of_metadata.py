"""The metadata of a batch as a dictionary by dataclasses.asdict, which copies each tensor deeply."""

from dataclasses import asdict, dataclass, fields

import torch

from gobrrr import Workload

SOURCE = "https://github.com/vllm-project/vllm/pull/3475"
MECHANISM = 1
CAUSE = "dataclasses.asdict() copies all fields deeply, tensors too"
REPORTED = ""
NAMES = r"asdict|deep|copies Python objects"


@dataclass
class _Batch:
    tables: list[torch.Tensor]
    lengths: list[int]
    slots: torch.Tensor
    prompt: bool


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).to(device)
    hidden = torch.randn(16, 64, device=device)
    tables = [torch.arange(64, device=device) + at for at in range(16)]
    batch = _Batch(tables, list(range(256)), torch.arange(16, device=device), prompt=False)

    def step() -> torch.Tensor:
        said = asdict(batch) if sick else {field.name: getattr(batch, field.name) for field in fields(batch)}  # cause
        with torch.no_grad():
            return model(hidden)[said["slots"]]

    return Workload(model=model, step=step, name="decoding")
