"""Diagnose a step on this CPU against ceilings that are written here, so that no test has to measure them."""

from __future__ import annotations

from typing import Any

from gobrrr.doors import pipeline
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.observe.live.options import WatchOptions
from gobrrr.observe.live.pull import pull
from gobrrr.observe.live.watcher import Watcher


def _ceiling(value: float) -> Ceiling:
    return Ceiling(value=value, provenance="measured", source="written in a test")


CPU = Machine(
    # above what the machines reach that these tests run on: where a kernel beats its ceiling there is nothing to say
    name="a fast CPU",
    matrix_flop_per_s={"float32": _ceiling(5e11), "bfloat16": _ceiling(1e12), "float64": _ceiling(2.5e11)},
    vector_flop_per_s={"float32": _ceiling(5e11), "float64": _ceiling(2.5e11)},
    memory_bytes_per_s=_ceiling(5e10),
    cache_bytes=_ceiling(32 * 2.0**20),
    cache_bytes_per_s=_ceiling(1.5e11),
    inner_cache_bytes_per_s=_ceiling(5e11),
    memory_bytes=_ceiling(16e9),
)


def diagnosed(step: Any, *, machine: Machine = CPU, **options: Any) -> Diagnosis:
    """The diagnosis of a step or a Workload; `options` are the watcher's."""
    watcher = Watcher(options=WatchOptions(**options))
    pull(watcher, step, (), {})
    return pipeline.diagnose(watcher.profile("step", "a CPU"), on=machine)


def codes(diagnosis: Diagnosis) -> set[str]:
    """The codes of its findings."""
    return {one.code for one in diagnosis.findings}
