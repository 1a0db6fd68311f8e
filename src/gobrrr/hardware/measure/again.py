"""What was measured on a busy machine is measured again, by itself, when the machine is quiet."""

from __future__ import annotations

from pathlib import Path

from gobrrr.hardware import cache
from gobrrr.hardware.bounds import doubtful, unsettled
from gobrrr.hardware.measure.device import find_device
from gobrrr.hardware.measure.plan import Progress, measure
from gobrrr.hardware.measure.watch import MachineWatch
from gobrrr.model.measured import Measurement


def measure_again(
    device: str,
    *,
    limit_s: float,
    progress: Progress | None = None,
    watch: MachineWatch | None = None,
    where: Path | None = None,
) -> Measurement | None:
    """Run the stages of the kept measurement again whose figures are only bounds; what is kept then.

    None where nothing was in doubt, or the machine is busy now: nothing was measured.
    """
    found = find_device(device)
    kept = cache.like(found.environment(), where)
    if kept is None:
        return None
    names = unsettled(kept)
    if not names and (kept.stages or not doubtful(kept)):
        return None
    watch = watch or MachineWatch(found)
    if not watch.is_quiet():
        return None
    only = names or None  # a file from before there were stages is measured as a whole
    return cache.keep(measure(device, only=only, limit_s=limit_s, progress=progress, watch=watch), where)
