"""What an experiment works with: the bench, sizes that fit the device, and how long it may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.hardware.measure import CallTimer, Device
from gobrrr.hardware.measure.compiler import NoCompilerError, fused
from gobrrr.hardware.measure.settings import SEED
from gobrrr.model.machine import Machine
from gobrrr.model.measured import Environment, Quantity

CPU_BUDGET_S, GPU_BUDGET_S = 17.0, 45.0
ITEM_BYTES = 4
"""Of the float32 that the pointwise experiments use."""


@dataclass
class Lab:
    """One experiment's surroundings. `machine` holds what is known of the device's ceilings, None: nothing."""

    bench: CallTimer
    environment: Environment
    machine: Machine | None = None
    step: Callable[[], object] | None = None
    started_s: float = 0.0
    budget_s: float = CPU_BUDGET_S

    @property
    def device(self) -> Device:
        """What is measured."""
        return self.bench.device

    @property
    def torch(self) -> Any:
        """The torch module."""
        return self.device.torch

    @property
    def cpu(self) -> bool:
        """Whether the device is the CPU: the experiments are smaller there."""
        return self.device.is_cpu

    def sized(self, *, cpu: int, gpu: int) -> int:
        """The size for this device."""
        return cpu if self.cpu else gpu

    @property
    def left_s(self) -> float:
        """Seconds that this experiment still has."""
        return self.budget_s - (self.bench.now() - self.started_s)

    def floats(self) -> Any:
        """The pointwise experiments' tensor: larger than any cache, random, between 1 and 2."""
        count = self.sized(cpu=2**24, gpu=2**26)
        return self.torch.rand(count, device=self.device.spec).add_(1.0)

    def fused(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """`function` as the fusing compiler makes it. Raises NoCompilerError where none works."""
        return fused(self.device, function, *examples)

    def try_fused(self, function: Callable[..., Any], *examples: Any) -> tuple[Callable[..., Any] | None, str]:
        """The compiled function, or None and why there is none."""
        try:
            return self.fused(function, *examples), ""
        except NoCompilerError as error:
            return None, str(error)

    def time(self, call: Callable[[], object], share: float = 0.05) -> Quantity:
        """Seconds of a call on the device, measured for `share` of the budget."""
        return self.bench.time(call, budget_s=min(0.5, share * self.budget_s))

    def vector_peak(self, dtype: str = "float32") -> float | None:
        """FLOP/s of the vector units, a fused multiply-add being 2; None: not known."""
        found = self.machine.vector_flop_per_s.get(dtype) if self.machine else None
        return found.value if found else None

    def settings(self, **more: object) -> dict[str, str]:
        """What must be known to repeat the experiment."""
        return {"seed": str(SEED), "device": self.device.spec, **{name: str(value) for name, value in more.items()}}
