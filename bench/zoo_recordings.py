"""The zoo's steps on fake tensors, each beside what an H100 measured of it (bench/results/h100_models.json)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gobrrr.model.recording import Recording

LABELS = Path(__file__).parent / "results" / "h100_models.json"


@dataclass(frozen=True)
class Labelled:
    """One step: recorded here, measured there. `wall_ns` without a synchronize after each step."""

    model: str
    mode: str
    recording: Recording
    busy_ns: float
    wall_ns: float
    sync_ns: float
    peak_bytes: int
    kernels: int


@cache
def labelled(labels: Path = LABELS) -> tuple[Labelled, ...]:
    """Every measured step of the zoo; needs torch and, for some, transformers."""
    return tuple(_each(json.loads(labels.read_text())["workloads"]))


def _each(workloads: dict[str, Any]) -> Iterable[Labelled]:
    for model, modes in workloads.items():
        for mode, found in modes.items():
            if isinstance(found, dict):
                if sys.stderr.isatty():
                    print(f"\r{model} {mode:<40}", end="", file=sys.stderr)
                yield _one(model, mode, found)


def _one(model: str, mode: str, found: dict[str, Any]) -> Labelled:
    return Labelled(
        model=model, mode=mode, recording=recording(model, mode), busy_ns=found["busy_ms"] * 1e6,
        wall_ns=found["pipelined_ms"]["median"] * 1e6, sync_ns=found["sync_ms"]["median"] * 1e6,
        peak_bytes=found["peak_bytes"], kernels=found["kernels"],
    )  # fmt: skip


def recording(model: str, mode: str) -> Recording:
    """One step of the zoo on fake tensors."""
    import gobrrr
    from bench.models import ZOO
    from gobrrr import api

    def workload() -> Any:
        made: Any = ZOO[model]("cuda")
        return gobrrr.Workload(step=made.step(mode), name=f"{model}.{mode}")

    return api.record(workload)
