"""What a pair is made of: a faulty and a fixed step of the same work, and what turns the one into the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Step = Callable[[], Any]
"""One training or inference step."""


@dataclass(frozen=True)
class Setting:
    """Where the steps run, and whether at sizes that a CPU does in a moment."""

    device: str = "cuda"
    tiny: bool = False

    def size(self, full: int, tiny: int) -> int:
        """The full size, or the tiny one."""
        return tiny if self.tiny else full

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Random numbers on the device."""
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def tokens(self, most: int, *shape: int) -> torch.Tensor:
        """Random token numbers below `most` on the device."""
        return torch.randint(0, most, shape, device=self.device)

    def autocast(self, enabled: bool = True) -> torch.autocast:
        """Bfloat16 under autocast."""
        return torch.autocast(self.device, torch.bfloat16, enabled=enabled)

    def compiled(self, function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
        """The function through torch.compile; on a CPU without generated code, which would take a minute."""
        if self.device == "cpu":
            return torch.compile(function, backend="aot_eager")
        return torch.compile(function, mode=mode)


Make = Callable[[Setting], Step]


@dataclass(frozen=True)
class Recipe:
    """A pair. The faulty and the fixed step differ in nothing but the treatments."""

    name: str
    what: str
    regime: str
    """Of the faulty step, as it is expected before anything is measured."""

    codes: tuple[str, ...]
    """The conditions (docs/conditions.md) that the faulty step stands for; a negative pair may have none."""

    treatments: tuple[str, ...]
    faulty: Make
    fixed: Make
    negative: bool = False
    """The treatment suggests itself and gives (nearly) nothing."""

    fixed_work: float = 1.0
    """What a fixed step does, in faulty steps: a batch four times as large is 4."""

    needs_gpu: bool = False
    compiles: bool = False
    ranks: int = 1
    lead: int = 3
    """Steps before each timing and each trace, so that what one form left behind does not count for the other."""


def training(setting: Setting, loss_of: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, *,
             amp: bool = True) -> Step:  # fmt: skip
    """A training step; returns its loss, which stays on the device."""

    def step() -> torch.Tensor:
        with setting.autocast(amp):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def inference(forward: Step) -> Step:
    """The forward pass in inference mode."""

    def step() -> Any:
        with torch.inference_mode():
            return forward()

    return step


def with_precision(precision: str, step: Step) -> Step:
    """The step with its own setting of float32 matmuls: both forms of a pair live in one process."""

    def run() -> Any:
        torch.set_float32_matmul_precision(precision)
        return step()

    return run


def captured(step: Step, warmup: int = 3) -> Step:
    """The step as a CUDA graph, captured by hand."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmup):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
