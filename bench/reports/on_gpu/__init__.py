"""Public reports of slow steps on a GPU, in the form of bench/reports; on a CPU the same code at sizes of a moment.

`python -m bench.gpu.reports OUT` tries them. A module with GPU = True says nothing on a CPU: what it is about is not
done there.
"""

from __future__ import annotations

from typing import TypeVar

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REDUCED = torch.bfloat16 if DEVICE == "cuda" else torch.float32
"""The type that a model is trained in on a GPU."""

T = TypeVar("T")


def sized(gpu: T, cpu: T) -> T:
    """What a size is on the device at hand."""
    return gpu if DEVICE == "cuda" else cpu
