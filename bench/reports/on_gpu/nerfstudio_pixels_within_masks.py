"""Rays are drawn from the pixels within the masks: all masks go to the host in each step, to be searched there."""

import torch

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/nerfstudio-project/nerfstudio/pull/1114"
MECHANISM = 2
CAUSE = "nonzero of every image's mask in each step, on the host"
REPORTED = "600 to 30 ms a step, on an RTX 3090"
NAMES = r"nonzero|\bmasks?\b|same (?:work|data|input)|to the host|\.cpu\(|pageable"
IMAGES, HEIGHT, WIDTH, RAYS = sized(16, 2), sized(400, 60), sized(600, 80), sized(8192, 64)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    images = torch.rand(IMAGES, HEIGHT, WIDTH, 3, device=DEVICE)
    mask = torch.rand(IMAGES, HEIGHT, WIDTH, 1, device=DEVICE) > 0.4
    within = mask[..., 0].nonzero()
    field = torch.nn.Sequential(
        torch.nn.Linear(3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)
    ).to(DEVICE)
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)

    def pixels() -> torch.Tensor:
        if sick:
            inside = torch.nonzero(mask[..., 0].to("cpu"), as_tuple=False)  # cause
            return inside[torch.randint(len(inside), (RAYS,))].to(DEVICE)
        return within[torch.randint(len(within), (RAYS,), device=DEVICE)]

    def step() -> torch.Tensor:
        at = pixels()
        colours = images[at[:, 0], at[:, 1], at[:, 2]]
        loss = (field(at.float() / HEIGHT) - colours).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Workload(model=field, step=step, optimizer=optimizer, name="rays")
