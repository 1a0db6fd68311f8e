"""A data set that copies the metadata of each sample deeply before it transforms it."""

import copy
from typing import Any

import torch

from gobrrr import Workload

SOURCE = "https://github.com/ivadomed/ivadomed/issues/972"
MECHANISM = 1
CAUSE = "copy.deepcopy of the sample's metadata in each __getitem__"
REPORTED = "46 of 62 s of loading are copy.deepcopy"
NAMES = r"deepcopy|deep copy|deep copies|copies deeply"


def _metadata(index: int) -> dict[str, Any]:
    boxes = {f"box{number}": [number, number + 1, number + 2, number + 3] for number in range(30)}
    return {"index": index, "zooms": [[0.1, 0.2, 0.3]] * 20, "boxes": boxes, "contrast": {"T1": 1, "T2": 2}}


class _Slices:
    def __init__(self, *, sick: bool) -> None:
        self.sick = sick
        self.images = torch.randn(64, 1, 32, 32)
        self.metadata = [_metadata(number) for number in range(64)]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, Any]]:
        metadata = self.metadata[index]
        known = copy.deepcopy(metadata) if self.sick else dict(metadata)  # cause
        known["crop"] = [2, 30]
        return self.images[index], known


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    slices = _Slices(sick=sick)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 1, 3)).to(device)

    def step() -> torch.Tensor:
        samples = [slices[number] for number in range(16)]
        images = torch.stack([image for image, _ in samples]).to(device)
        with torch.no_grad():
            return model(images)

    return Workload(model=model, step=step, name="segmentation of slices")
