"""A loop over four samples that looks slow in a large step: taken out, the epoch took as long as before."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/wandb/senpai/pull/1555"
MECHANISM = 5
NEGATIVE = True
CAUSE = "a loop over the samples of a batch, a small part of the step"
REPORTED = "no speedup: 28 s an epoch before, about 30 s after"
NAMES = r"\bloop\b|turns|batched|in one call"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 512), torch.nn.GELU(), torch.nn.Linear(512, 3)).to(device)
    x, y = torch.randn(4, 800, 24, device=device), torch.randn(4, 800, 3, device=device)
    mask = torch.rand(4, 800, device=device) > 0.1

    def spread() -> torch.Tensor:
        if sick:
            return torch.stack([y[at][mask[at]].std(dim=0) for at in range(4)])[:, None]  # cause
        kept, count = mask[..., None].float(), mask.sum(dim=1)[:, None, None]
        mean = (y * kept).sum(dim=1, keepdim=True) / count
        return (((y - mean).square() * kept).sum(dim=1, keepdim=True) / (count - 1)).sqrt()

    def step() -> torch.Tensor:
        loss = (model(x) - y / spread()).square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="surrogate of a flow")
