"""The device model: how work, waiting and launching behave on the device that ran a step.

Analysis, conditions, treatments and reports ask this model; none of them asks through which door a profile came.
`ACCELERATOR` is a GPU, or a device that behaves like one; `PROCESSOR` is the host's own processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """How a kind of device behaves."""

    torch_name: Literal["cpu", "cuda"]
    """The device's type as torch names it; ROCm's is "cuda" as well."""

    asynchronous: bool
    """The host launches work and continues. It may wait for the device, and the device idles until the next launch.
    Otherwise an operation computes within its own event, nothing waits in a queue, and idle time is dispatch or
    Python."""

    on_host: bool
    """The step computes on the host's processors, so that workers, threads and other processes take time from it."""

    own_memory: bool
    """Data is copied from the host's memory to the device's own."""

    captures: bool
    """Launches can be captured once and replayed as a graph."""

    tensor_cores: bool
    """The device has matrix units, which need certain sizes and types, and TF32."""

    narrow_is_faster: bool
    """Memory-bound work on 16-bit numbers takes half the time of the same work on 32-bit numbers."""

    bytes_alone: bool
    """Bytes alone bound a pass over memory. Otherwise arithmetic, threads or caches may bound it, and the share of the
    bandwidth that a fused pass reaches was not measured."""

    adds_rows_in_turn: bool
    """Adding to repeated indices runs row by row on one thread, at a measured rate."""

    onednn: bool
    """oneDNN computes convolutions and products: it generates code for each shape and changes layouts within the call.
    Otherwise a library chooses among kernels, and a kernel's name says which one ran."""

    fused_attention: bool
    """The fused attention supports dropout and inputs in any layout, and reaches the roof."""

    fused_rms_norm: bool
    """A fused kernel for the RMS norm exists."""

    comparable: bool
    """The step's time on another machine can be predicted from the floors of its kernels there."""

    launches: str
    """What the host issues, in words."""

    kernels: str
    """What the device runs, in words."""

    idles_for: str
    """The words before a duration for which the host keeps the device idle."""


ACCELERATOR = DeviceModel(
    torch_name="cuda",
    asynchronous=True,
    on_host=False,
    own_memory=True,
    captures=True,
    tensor_cores=True,
    narrow_is_faster=True,
    bytes_alone=True,
    adds_rows_in_turn=False,
    onednn=False,
    fused_attention=True,
    fused_rms_norm=True,
    comparable=True,
    launches="launches",
    kernels="kernels",
    idles_for="the device idles for",
)

PROCESSOR = DeviceModel(
    torch_name="cpu",
    asynchronous=False,
    on_host=True,
    own_memory=False,
    captures=False,
    tensor_cores=False,
    narrow_is_faster=False,
    bytes_alone=False,
    adds_rows_in_turn=True,
    onednn=True,
    fused_attention=False,
    fused_rms_norm=False,
    comparable=False,
    launches="operations",
    kernels="loops",
    idles_for="dispatch and Python take",
)


def model_of(kind: Literal["cpu", "cuda"] | None) -> DeviceModel:
    """The model of torch's device type `kind`. None: a trace, whose device work is an accelerator's."""
    return PROCESSOR if kind == "cpu" else ACCELERATOR
