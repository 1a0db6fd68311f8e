"""Channels that are shuffled sample by sample in a Python loop; one index does the batch."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/kornia/kornia/pull/3823"
MECHANISM = 5
CAUSE = "a loop over the batch that permutes the channels of one sample a turn"
REPORTED = "1740 to 137 us on a GPU, 934 to 217 us on a CPU"
NAMES = r"\bloop\b|turns|one batched operation"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=4), torch.nn.Flatten(), torch.nn.Linear(100, 8))
    model = model.to(device)
    images = torch.randn(128, 3, 20, 20, device=device)
    order = torch.stack([torch.randperm(3) for _ in range(128)]).to(device)

    def shuffled() -> torch.Tensor:
        if not sick:
            return images[torch.arange(len(images), device=device).view(-1, 1), order]
        out = torch.empty_like(images)
        for i in range(len(images)):
            out[i] = images[i, order[i]]  # cause
        return out

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(shuffled())

    return Workload(model=model, step=step, name="augmentation")
