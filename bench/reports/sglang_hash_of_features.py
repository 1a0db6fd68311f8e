"""A request whose processed image is hashed as a whole to know it again."""

import hashlib

import torch

from gobrrr import Workload

SOURCE = "https://github.com/sgl-project/sglang-jax/issues/1029"
MECHANISM = 1
CAUSE = "the processed features of an image are hashed in each request, where its bytes were known before"
REPORTED = "3.3 ms a request"
NAMES = r"hash|sha256"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Linear(588, 64).to(device)
    features = torch.randn(1_024, 588)
    known = hashlib.sha256(bytes(features.numpy().data)).hexdigest()
    kept: dict[str, int] = {}

    def padding() -> int:
        name = hashlib.sha256(features.numpy().tobytes()).hexdigest() if sick else known  # cause
        return kept.setdefault(name, len(kept))

    def step() -> torch.Tensor:
        padding()
        with torch.no_grad():
            return model(features.to(device))

    return Workload(model=model, step=step, name="a request with an image")
