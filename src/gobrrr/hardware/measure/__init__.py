"""Measuring this machine: torch is imported inside the functions, never when the module is.

`measure` is the door. `CallTimer` times a call on a device; the files beside it say what is timed.
"""

from __future__ import annotations

from gobrrr.hardware.measure.again import measure_again
from gobrrr.hardware.measure.device import Device, each_device, find_device, need_torch
from gobrrr.hardware.measure.plan import Stage, measure
from gobrrr.hardware.measure.timing import CallTimer

__all__ = ["CallTimer", "Device", "Stage", "each_device", "find_device", "measure", "measure_again", "need_torch"]
