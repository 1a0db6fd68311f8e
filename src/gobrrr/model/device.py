"""The device model: how work, waiting and launching behave on the device that ran a step.

Analysis, conditions, treatments and reports ask it what they need to know; none of them asks by which door a profile
came. `ACCELERATOR` is a GPU, or what behaves like one; `PROCESSOR` is the host's own processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """One way in which devices behave."""

    torch_name: Literal["cpu", "cuda"]
    """The device's type as torch names it; ROCm's is "cuda" as well."""

    asynchronous: bool
    """The host launches work and goes on; it may wait for the device, which idles until the next launch comes. Where
    not, an operation computes within its own event, nothing waits in a queue, and idle time is dispatch or Python."""

    on_host: bool
    """The step computes on the host's processors: workers, more threads and other processes take time from it."""

    own_memory: bool
    """Data is copied to the device's memory from the host's."""

    captures: bool
    """Launches can be captured once and replayed as a graph."""

    tensor_cores: bool
    """It has matrix units, which ask for sizes and types of their own, and TF32."""

    narrow_is_faster: bool
    """Work on 16-bit numbers takes half the time of work on 32-bit numbers wherever memory bounds it."""

    bytes_alone: bool
    """A pass over memory is bounded by its bytes. Where not, arithmetic, threads or caches may bound it, and what share
    of the bandwidth a fused pass reaches was not measured."""

    adds_rows_in_turn: bool
    """Adding to repeated indices goes row by row on one thread, at a rate that was measured."""

    onednn: bool
    """Convolutions and products are oneDNN's: one library, which makes code for each shape and changes layouts within
    the call. Where not, the library chooses among kernels, whose names tell which one ran."""

    fused_attention: bool
    """The fused attention takes a dropout and inputs in any layout, and reaches the roof."""

    fused_rms_norm: bool
    """There is a fused kernel for an RMS norm."""

    comparable: bool
    """The step's time on another machine follows from the floors of its kernels there."""

    launches: str
    """What the host issues, in words."""

    kernels: str
    """What the device runs, in words."""

    idles_for: str
    """The words in front of a duration that the host keeps the device from its work."""


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
    """The model of a device of a type of torch's; None: a trace's, which has work of an accelerator or none."""
    return PROCESSOR if kind == "cpu" else ACCELERATOR
