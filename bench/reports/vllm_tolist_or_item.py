"""Sampled tokens read one by one or as one list: the maintainers measured the same performance."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/vllm-project/vllm/pull/1621"
MECHANISM = 6
NEGATIVE = True
CAUSE = "an .item() for each sequence, beside a large decode step"
REPORTED = "about 1 % of an iteration, basically the same"
NAMES = r"\breads?\b|\bitem\b|tolist|_local_scalar_dense|value of a tensor"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2_048), torch.nn.ReLU(), torch.nn.Linear(2_048, 8_000)).to(device)
    hidden = torch.randn(64, 512, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            tokens = model(hidden).argmax(dim=-1).cpu()
            read = [token.item() for token in tokens] if sick else tokens.tolist()  # cause
            return torch.tensor(read)

    return Workload(model=model, step=step, name="decode step")
