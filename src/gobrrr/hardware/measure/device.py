"""The device that is measured: what it is called, and what it is measured with."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gobrrr import units
from gobrrr.errors import UsageError
from gobrrr.model.measured import Environment
from gobrrr.system.memory import available_bytes

NO_TORCH = "measuring needs torch, which is not installed here: pip install torch"


def need_torch() -> Any:
    """The torch module. Raises UsageError, in one line, where there is none."""
    try:
        import torch
    except ImportError as error:
        if getattr(error, "name", None) in (None, "torch"):
            raise UsageError(NO_TORCH) from None
        raise UsageError(f"torch is installed but can't be imported: {error}") from None
    return torch


@dataclass(frozen=True)
class Device:
    """One device and the torch that drives it."""

    torch: Any
    kind: str
    index: int = 0

    @property
    def is_cpu(self) -> bool:
        """Whether the host itself is the device."""
        return self.kind == "cpu"

    @property
    def spec(self) -> str:
        """What torch calls it: "cpu", "cuda:0"."""
        return self.kind if self.is_cpu else f"{self.kind}:{self.index}"

    def wait(self) -> None:
        """Return when the device has done all that was queued."""
        if not self.is_cpu:
            self.torch.cuda.synchronize(self.index)

    def free_bytes(self) -> int:
        """Memory that is free now."""
        if self.is_cpu:
            return _available_bytes()
        return int(self.torch.cuda.mem_get_info(self.index)[0])

    def environment(self) -> Environment:
        """Names and versions, now."""
        torch = self.torch
        common: dict[str, Any] = {
            "kind": self.kind,
            "index": self.index,
            "torch": str(torch.__version__),
            "compiler": code_generator(self),
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            "threads": int(torch.get_num_threads()),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        return Environment(**common, **(_cpu() if self.is_cpu else _cuda(torch, self.index)))


def find_device(name: str | None = None) -> Device:
    """The device called `name` ("cpu", "cuda", "cuda:1"), or the first GPU, else the CPU.

    Raises UsageError where torch or the device is missing.
    """
    torch = need_torch()
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cpu" and not number:
        return Device(torch, "cpu")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise UsageError(f"{name!r} is no device that gobrrr measures; try cpu, cuda or cuda:1")
    index, there = int(number or 0), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= there:
        raise UsageError(f"{name}: torch sees {units.things(there, 'GPU')} here; try cpu")
    return Device(torch, "cuda", index)


def each_device() -> list[str]:
    """The devices that differ: the first GPU of each name, "cpu" where there is none; UsageError without torch."""
    torch = need_torch()
    if not torch.cuda.is_available():
        return ["cpu"]
    names: dict[str, int] = {}
    for index in range(torch.cuda.device_count()):
        names.setdefault(str(torch.cuda.get_device_properties(index).name), index)
    return [f"cuda:{index}" for index in names.values()] or ["cpu"]


def code_generator(device: Device) -> str | None:
    """What torch.compile would generate code with here: Triton for a GPU, a C++ compiler for a CPU; None: nothing."""
    if device.is_cpu:
        named = os.environ.get("CXX", "").split()
        found = next(
            (path for name in (*named[:1], "g++", "c++", "clang++", "cl") if (path := shutil.which(name))), None
        )
        return Path(found).name if found else None
    try:
        import triton
    except ImportError:
        return None
    return f"Triton {triton.__version__}"


def _cuda(torch: Any, index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    return {
        "device_name": str(properties.name),
        "devices": int(torch.cuda.device_count()),
        "driver": gpu_driver(torch),
        "toolkit": torch.version.cuda or torch.version.hip,
        "memory_bytes": int(properties.total_memory),
    }


def gpu_driver(torch: Any) -> str | None:
    """The driver's version ("580.95.05"); the CUDA version that it supports, where it gives no more; None: unknown."""
    for path in ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version"):
        try:
            words = Path(path).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError):
            continue
        version = next((word for word in words if word[:1].isdigit() and "." in word), None)
        if version:
            return version
    asked = getattr(torch._C, "_cuda_getDriverVersion", None)
    return f"CUDA {asked()}" if asked else None


def _cpu() -> dict[str, Any]:
    return {"device_name": cpu_name(), "driver": platform.release() or None, "memory_bytes": _total_bytes()}


def cpu_name() -> str:
    """The processor's name and how many threads this process may use: two machines with other counts are not alike."""
    return f"{_cpu_model()} ({units.things(_usable_threads(), 'thread')})"


def _usable_threads() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), "") or platform.processor() or platform.machine() or "CPU"


def _total_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _available_bytes() -> int:
    """What the system says is available; half of what there is, or 1 GB, where it says nothing."""
    found = available_bytes()
    return (_total_bytes() or 2 * 10**9) // 2 if found is None else found
