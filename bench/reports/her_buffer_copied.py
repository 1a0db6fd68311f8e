"""Hindsight replay that copies all of its buffer to draw one batch of it."""

import numpy as np
import torch

from gobrrr import Workload

SOURCE = "https://github.com/TianhongDai/hindsight-experience-replay/issues/1"
MECHANISM = 1
CAUSE = ".copy() of all filled arrays of the buffer for each batch"
REPORTED = "the time of an epoch grows with the buffer"
NAMES = r"numpy|\bcop(?:y|ies)\b"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    kept = {name: draw.random((2_000, 50, 8), dtype=np.float32) for name in ("observations", "goals")}
    actor = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)

    def batch() -> np.ndarray:
        filled = {name: array[:1_500].copy() if sick else array[:1_500] for name, array in kept.items()}  # cause
        episode, at = draw.integers(1_500, size=256), draw.integers(50, size=256)
        return np.concatenate([array[episode, at] for array in filled.values()], axis=1)

    def step() -> torch.Tensor:
        loss = actor(torch.from_numpy(batch()).to(device)).square().mean()
        loss.backward()
        actor.zero_grad()
        return loss.detach()

    return Workload(model=actor, step=step, name="hindsight replay")
