"""A detector's anchors from Python numbers that each forward pass puts on the device: a wait each on a GPU."""

from functools import partial

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "S07", "O02", "cuda"
LEVELS = (64, 32, 16, 8)


class Detector(torch.nn.Module):
    """Convolutions and a grid of anchors for each level; `kept`: the strides are a buffer."""

    def __init__(self, channels: int, kept: bool) -> None:
        super().__init__()
        self.kept = kept
        self.body = torch.nn.Sequential(*[torch.nn.Conv2d(channels, channels, 3, padding=1) for _ in range(4)])
        self.head = torch.nn.Conv2d(channels, 4, 1)
        self.register_buffer("strides", torch.tensor([512 // size for size in LEVELS]), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [N, C, 64, 64] -> boxes, [N, 4, anchors]."""
        x = self.body(x)
        boxes = []
        for level, size in enumerate(LEVELS):
            stride = self.strides[level] if self.kept else torch.tensor(512 // size, device=x.device)
            at = torch.arange(size, device=x.device) * stride
            grid = torch.stack(torch.meshgrid(at, at, indexing="ij")).repeat(2, 1, 1)
            boxes.append((self.head(torch.nn.functional.adaptive_avg_pool2d(x, size)) + grid).flatten(2))
        return torch.cat(boxes, 2)


def _made(device: str = "cuda", *, kept: bool) -> Workload:
    torch.manual_seed(0)
    channels, images = (128, 32) if device == "cuda" else (4, 1)  # on a GPU the device is the bound
    model = Detector(channels, kept).to(device)
    x = torch.randn(images, channels, 64, 64, device=device)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = model(x)
            return found

    return Workload(model=model, step=step, name="anchors")


faulty = partial(_made, kept=False)  # `torch.tensor(stride, device=x.device)` for each level
fixed = partial(_made, kept=True)  # The strides are a buffer
