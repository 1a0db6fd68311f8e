"""Deterministic algorithms: every tensor that is made is filled before its first write."""

import torch
from torch.utils import deterministic

from bench.reports.on_gpu import DEVICE, sized
from gobrrr import Workload

SOURCE = "https://github.com/ultralytics/ultralytics/issues/26181"
MECHANISM = 8
CAUSE = "use_deterministic_algorithms(True) switches fill_uninitialized_memory on"
REPORTED = "206 to 181 ms a step on a B200"
NAMES = r"determinis|uninitiali[sz]ed"


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    width = sized(64, 8)
    layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, width, 3, stride=2, padding=1)]
    for _ in range(sized(12, 3)):
        layers += [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.SiLU()]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    images = torch.randn(sized(16, 2), 3, sized(320, 48), sized(320, 48), device=DEVICE)

    def step() -> torch.Tensor:
        torch.use_deterministic_algorithms(True, warn_only=True)  # cause
        deterministic.fill_uninitialized_memory = sick
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            loss = model(images).float().square().mean()  # cause
        loss.backward()  # cause
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="a detector")
