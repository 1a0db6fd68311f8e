"""Steps timed and recorded without gobrrr: what the scripts of bench/gpu that run on a bare machine share."""

from __future__ import annotations

import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

Step = Callable[[], Any]


@cache
def on_gpu() -> bool:
    """Whether there is a GPU. Asking initialises CUDA, after which a process can't be forked."""
    return bool(torch.cuda.is_available())


def wait() -> None:
    """Until the device has done everything."""
    if on_gpu():
        torch.cuda.synchronize()


def synced_ms(step: Step, steps: int) -> list[float]:
    """Milliseconds of single steps with a wait after each."""
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        wait()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def pipelined_ms(step: Step, steps: int) -> float:
    """Milliseconds of a step among several, with one wait after all."""
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - begin) * 1e3 / steps


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the quartiles, rounded, and how many values there are."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4), "runs": len(values)}


def profiler(**options: Any) -> torch.profiler.profile:
    """torch's profiler of the host and, where there is one, the GPU."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if on_gpu():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=kinds, **options)


def trace_steps(step: Step, path: Path, steps: int = 3) -> None:
    """A profiler trace of some steps, after one that warms the profiler up."""
    with profiler(
        record_shapes=True,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=steps),
        on_trace_ready=lambda recording: recording.export_chrome_trace(str(path)),
    ) as recording:
        for _ in range(1 + steps):
            step()
            recording.step()


def about(command: str, **more: Any) -> dict[str, Any]:
    """How a record begins: its command, when and where it was made."""
    device = torch.cuda.get_device_name() if on_gpu() else "cpu"
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return {"command": command, "date": date, "device": device, "torch": torch.__version__, **more}


def attempted(measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What `measure` gives, or the error that it ended with: one workload must not end the run."""
    try:
        return measure(*arguments)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500], "trace": traceback.format_exc()[-3000:]}
    finally:
        gc.collect()
        if on_gpu():
            torch.cuda.empty_cache()


def keep(path: Path, record: dict[str, Any]) -> None:
    """The record as it stands, so that a run that is cut short has what came before."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
