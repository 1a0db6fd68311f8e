"""Masks and values that are repeated to the size of the images, where broadcasting needs no copy."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/kornia/kornia/pull/3828"
MECHANISM = 2
CAUSE = "repeat() of the mask and the values to full images in front of torch.where, which broadcasts"
REPORTED = "22.8 to 12.7 ms on a GPU"
NAMES = r"repeat|expand|broadcast"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 3, stride=8).to(device)
    images = torch.rand(32, 3, 128, 128, device=device)
    values = torch.rand(32, device=device)
    boxes = torch.zeros(32, 128, 128, device=device)
    boxes[:, 20:60, 30:70] = 1

    def erased() -> torch.Tensor:
        if sick:
            full = values.view(-1, 1, 1, 1).repeat(1, 3, 128, 128)  # cause
            mask = boxes.unsqueeze(1).repeat(1, 3, 1, 1)  # cause
            return torch.where(mask == 1.0, full, images)
        return torch.where(boxes.unsqueeze(1) == 1.0, values.view(-1, 1, 1, 1), images)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(erased())

    return Workload(model=model, step=step, name="random erasing")
