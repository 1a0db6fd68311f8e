"""Who else uses the machine while it is measured: the processors during each stage, the GPU before and after all."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gobrrr.hardware.measure.device import Device
from gobrrr.model.contention import DISTURBED, Contention
from gobrrr.system.reading import ProcessorReading, System

LOOK_S = 0.3
"""How long the processors are looked at before something is measured again."""
SETTLE_S = 1.0
"""A GPU's utilization covers up to the last second (nvidia-smi's manual): nothing of ours may run for so long."""
ASK_S = 5.0
"""How long the driver's tool may take to answer."""
PCI = Path("/sys/bus/pci/devices")
"""Where Linux lists the cards."""


def _asked(command: list[str]) -> str:
    """What a tool prints; "" where there is none or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout


@dataclass(frozen=True)
class MachineWatch:
    """Readings of one device's machine; a test gives its own system, tool and sleep."""

    device: Device
    system: System = field(default_factory=System)
    ask: Callable[[list[str]], str] = _asked
    sleep: Callable[[float], None] = time.sleep
    pci: Path = PCI

    def begin(self) -> ProcessorReading:
        """Before a stage."""
        return self.system.reading()

    def end(self, before: ProcessorReading) -> Contention:
        """How much others used since."""
        return self.system.since(before)

    def is_quiet(self) -> bool:
        """Whether as many processors are free now as the measuring uses; where the system does not say, it may be."""
        before = self.begin()
        self.sleep(LOOK_S)
        now = self.end(before)
        if now.others is None:
            return True
        used = min(int(self.device.torch.get_num_threads()), now.processors) if self.device.is_cpu else 1
        return now.others <= now.processors - used + DISTURBED

    def device_share(self, after: bool = False) -> float | None:
        """The share of the time for which others use the GPU; None for a CPU, or where the driver does not say."""
        if self.device.is_cpu:
            return None
        if after:
            self.device.wait()
            self.sleep(SETTLE_S)
        properties = self.device.torch.cuda.get_device_properties(self.device.index)
        return _share(self._utilization(properties))

    def _utilization(self, properties: Any) -> str:
        """Percent, as the driver says it: AMD's in a file of the card, NVIDIA's by its tool."""
        if self.device.torch.version.hip is not None:
            card = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
            where = [column for column in card if isinstance(column, int)]
            if len(where) < 3:
                return ""
            folder = self.pci / "{:04x}:{:02x}:{:02x}.0".format(*where)
            try:
                return (folder / "gpu_busy_percent").read_text(encoding="ascii")
            except OSError:
                return ""
        uuid = str(getattr(properties, "uuid", ""))
        if not uuid:
            return ""
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"--id={name}"]
        return self.ask(query)


def _share(percent: str) -> float | None:
    text = percent.strip()
    return min(int(text) / 100, 1.0) if text.isdecimal() else None
