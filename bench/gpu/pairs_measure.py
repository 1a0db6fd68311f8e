"""How the two forms of a pair are timed without the profiler, in turns, and then traced."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.gpu.pairs_form import Setting, Step
from bench.gpu.timed import pipelined_ms, synced_ms, trace_steps, wait

FORMS = ("faulty", "fixed")
WARMUP, COMPILED_WARMUP = 5, 8
TURNS = 2
"""Timings of each form in a round, in turns: the host's speed drifts."""

TURN_S, FEWEST, MOST = 0.2, 10, 40
"""Steps of a timing: as many as this time holds, within bounds."""


@dataclass(frozen=True)
class Timed:
    """What one form took in a round."""

    synced_ms: list[float] = field(default_factory=list)
    pipelined_ms: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        """The round in figures, as bench/results/h100_holdout.json has them."""
        low, middle, high = statistics.quantiles(self.synced_ms, n=4)
        return {
            "sync_ms": middle, "sync_low_ms": low, "sync_high_ms": high,
            "pipelined_ms": statistics.mean(self.pipelined_ms),
        }  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """The two forms of a pair and what is between their turns."""

    setting: Setting
    steps: Mapping[str, Step]
    held_bytes: Mapping[str, int]
    """Device memory that a form keeps between its steps."""

    lead: int
    many: int
    """Steps in a timing."""

    meet: Callable[[], None]
    """Before each turn: ranks wait for each other."""


def allocated(setting: Setting) -> int:
    """Bytes in tensors on the device."""
    wait()
    return torch.cuda.memory_allocated() if setting.device == "cuda" else 0


def made(setting: Setting, makers: Mapping[str, Callable[[Setting], Step]], *, warmup: int, lead: int,
         meet: Callable[[], None] = lambda: None, many: int | None = None) -> Bench:  # fmt: skip
    """Build and warm up both forms; `many`: steps in a timing, where it may not depend on how fast they are here."""
    steps, held, slowest_s = {}, {}, 0.0
    for form, make in makers.items():
        before = allocated(setting)
        torch.manual_seed(0)
        step = make(setting)
        for _ in range(warmup):
            step()
        held[form] = allocated(setting) - before
        slowest_s = max(slowest_s, pipelined_ms(step, 3) / 1e3)
        steps[form] = step
    fewest, most = (3, 3) if setting.tiny else (FEWEST, MOST)
    many = many or min(max(int(TURN_S / max(slowest_s, 1e-9)), fewest), most)
    return Bench(setting, steps, held, lead, many, meet)


def turn(bench: Bench, form: str, into: Timed) -> int:
    """Time one form once; returns the most bytes of device memory that were in use meanwhile, its own."""
    step, setting = bench.steps[form], bench.setting
    bench.meet()
    if setting.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(bench.lead):
        step()
    wait()
    into.synced_ms.extend(synced_ms(step, bench.many))
    into.pipelined_ms.append(pipelined_ms(step, bench.many))
    others = sum(amount for other, amount in bench.held_bytes.items() if other != form)
    return torch.cuda.max_memory_allocated() - others if setting.device == "cuda" else 0


def round_of(bench: Bench, peaks: dict[str, int]) -> dict[str, dict[str, float]]:
    """One round: the forms in turns, A B A B. `peaks` is raised where more memory was in use than before."""
    rounds = {form: Timed() for form in bench.steps}
    for _ in range(TURNS):
        for form, timed in rounds.items():
            peaks[form] = max(peaks.get(form, 0), turn(bench, form, timed))
    return {form: timed.row() for form, timed in rounds.items()}


def traced(bench: Bench, form: str, path: Path) -> None:
    """A profiler trace of three steps of a form."""
    step = bench.steps[form]
    bench.meet()
    for _ in range(bench.lead):
        step()
    wait()
    trace_steps(step, path)


def measured(bench: Bench, trace_of: Callable[[str], Path]) -> dict[str, dict[str, Any]]:
    """By form: times before and after its trace, its peak of memory, and the trace's name and size."""
    peaks: dict[str, int] = {}
    first = round_of(bench, peaks)
    for form in bench.steps:
        traced(bench, form, trace_of(form))
    again = round_of(bench, peaks)
    return {
        form: {
            **first[form],
            "again": again[form],
            "peak_bytes": peaks[form] or None,
            "trace": trace_of(form).name,
            "trace_bytes": trace_of(form).stat().st_size,
        }
        for form in bench.steps
    }
