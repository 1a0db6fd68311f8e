"""What the host needs to issue an operation: the dispatch model of a step that runs without a device.

Measured beside the kernels (bench/gpu/host_costs.py) on hosts as they come: the spread between hosts is large, so the
model carries a fast and a slow host beside the middle one.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from statistics import median
from typing import Literal

import msgspec

from gobrrr.hardware.bounds import at_most, doubt
from gobrrr.model.measured import Measurement
from gobrrr.model.recording import RecordedCall

DISPATCH_FILE = "data/dispatch.json"
"""The stored model: bench/fit_dispatch.py makes it."""
Host = Literal["fast", "middle", "slow"]


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """Host time in ns: of an operation that launches, by phase (`forward_ns` with its Python, `backward_ns` with the
    engine's node, `optimizer_ns`), its first launch within; of each further launch (`launch_ns`); of a view; of an
    nn.Module's call; of a tensor in an optimizer's list, in a foreach call and in a fused one. `latency_ns`: from a
    launch to the kernel's start on an idle device.
    """

    forward_ns: float
    view_ns: float
    backward_ns: float
    backward_view_ns: float
    optimizer_ns: float
    tensor_ns: float
    fused_tensor_ns: float
    module_ns: float
    launch_ns: float
    latency_ns: float

    def host_ns(self, recorded: RecordedCall, kernels: int, modules: float) -> float:
        """Host time of one call that makes `kernels` pieces of device work; `modules`: module calls a forward call."""
        if recorded.waits and not kernels:
            return self.view_ns
        own = self._issue_ns(recorded, kernels) + self.launch_ns * max(kernels - 1, 0)
        if recorded.phase == "optimizer":
            fused = recorded.call.name.startswith("aten::_fused")
            own += (self.fused_tensor_ns if fused else self.tensor_ns) * listed(recorded)
        return own + (self.module_ns * modules if recorded.phase == "forward" else 0.0)

    def _issue_ns(self, recorded: RecordedCall, kernels: int) -> float:
        if not kernels and recorded.place == "device":
            return self.backward_view_ns if recorded.phase == "backward" else self.view_ns
        return {"forward": self.forward_ns, "backward": self.backward_ns, "optimizer": self.optimizer_ns}[
            recorded.phase
        ]

    def scaled(self, factor: float) -> Dispatch:
        """A host that is slower by `factor`; the device's latency stays."""
        return Dispatch(
            forward_ns=self.forward_ns * factor,
            view_ns=self.view_ns * factor,
            backward_ns=self.backward_ns * factor,
            backward_view_ns=self.backward_view_ns * factor,
            optimizer_ns=self.optimizer_ns * factor,
            tensor_ns=self.tensor_ns * factor,
            fused_tensor_ns=self.fused_tensor_ns * factor,
            module_ns=self.module_ns * factor,
            launch_ns=self.launch_ns * factor,
            latency_ns=self.latency_ns,
        )


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored model: the middle host, and how much faster and slower others are.

    `reference_s`: seconds of the same host's dispatch by kind of operation, as `gobrrr machine` measures them.
    """

    middle: Dispatch
    fast_factor: float
    slow_factor: float
    source: str
    reference_s: dict[str, float] = {}

    def times(self, factor: float) -> Hosts:
        """The model of a host that is known to be slower by `factor`: it repeats no better than the measured one."""
        return Hosts(
            middle=self.middle.scaled(factor),
            fast_factor=1.0 / self.slow_factor,
            slow_factor=self.slow_factor,
            source=f"{factor:g} times the costs of the {self.source}",
            reference_s={name: seconds * factor for name, seconds in self.reference_s.items()},
        )

    def like(self, measured: Measurement) -> Hosts:
        """The model of a host whose dispatch was measured: faster or slower by the median ratio to the reference.

        Of a time that others disturbed the least repeat counts. How far one host's times spread is kept: the same step
        repeats no better. Unchanged where nothing compares.
        """
        timed = (entry for entry in measured.entries if entry.group == "dispatch")
        here = {entry.name: at_most(entry.amount) if doubt(measured, entry) else entry.amount.value for entry in timed}
        ratios = [here[name] / seconds for name, seconds in self.reference_s.items() if name in here]
        if not ratios:
            return self
        return Hosts(
            middle=self.middle.scaled(median(ratios)),
            fast_factor=1.0 / self.slow_factor,
            slow_factor=self.slow_factor,
            source=f"dispatch measured on {measured.environment.device_name}, {measured.environment.date[:10]}",
            reference_s=here,
        )

    def of(self, host: Host) -> Dispatch:
        """The model of a fast, a middle or a slow host."""
        return self.middle.scaled({"fast": self.fast_factor, "middle": 1.0, "slow": self.slow_factor}[host])


def listed(recorded: RecordedCall) -> int:
    """Tensors in the longest list that a call is given."""
    return max((len(getattr(argument, "items", ())) for argument in recorded.call.inputs), default=0)


@cache
def load() -> Hosts:
    """The model that is shipped."""
    return msgspec.json.decode(files("gobrrr.hardware").joinpath(DISPATCH_FILE).read_bytes(), type=Hosts)
