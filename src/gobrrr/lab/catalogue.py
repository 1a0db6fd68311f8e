"""The experiments by name, and running some of them: each on its own, with torch's settings restored after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module

import msgspec

from gobrrr.errors import UsageError
from gobrrr.hardware.cache import look_up
from gobrrr.hardware.ceilings import datasheet_of
from gobrrr.hardware.measure import CallTimer, find_device
from gobrrr.hardware.measure.compiler import NoCompilerError, first_line
from gobrrr.hardware.measure.settings import preserved
from gobrrr.lab.session import CPU_BUDGET_S, GPU_BUDGET_S, Lab
from gobrrr.model.experiment import Experiment, LabReport

EXPERIMENTS = {
    "intensity": "Runtime, FLOP/s and bandwidth against compute intensity",
    "fusion": "What fusing pointwise operations saves",
    "activations": "Activation functions cost the same",
    "operators": "Where FLOP and runtime go, by operator class",
    "overhead": "What Python and the framework cost, and running ahead",
    "scaling": "Step time against batch size, and the footnote's trap",
    "utilization": "What a utilization meter says against what is achieved",
    "remat": "Recomputing against storing in the backward pass",
    "tensorcores": "The same matmul by dtype and by dimension",
}
"""Title by name, in the article's order."""

Progress = Callable[[str, int, int], None]


def check(names: Sequence[str]) -> None:
    """Raise UsageError for a name that is no experiment's."""
    for name in names:
        if name not in EXPERIMENTS:
            raise UsageError(f"{name!r} is no experiment; there are {', '.join(EXPERIMENTS)}")


def run(
    names: Sequence[str],
    *,
    device: str | None = None,
    step: Callable[[], object] | None = None,
    progress: Progress | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> LabReport:
    """Run experiments on one device and judge the article's claims there.

    `step` is a training or inference step for `operators` to look at instead of BERT's. Raises UsageError for an
    unknown name, or where torch or the device is missing.
    """
    check(names)
    found = find_device(device)
    bench = CallTimer(found, now)
    environment = found.environment()
    machine = look_up(environment.device_name).machine or datasheet_of(
        environment.device_name, environment.memory_bytes
    )
    budget_s = CPU_BUDGET_S if found.is_cpu else GPU_BUDGET_S
    done = []
    with nullcontext() if found.is_cpu else found.torch.cuda.device(found.index):
        for at, name in enumerate(names):
            if progress:
                progress(name, at, len(names))
            lab = Lab(bench, environment, machine, step, started_s=now(), budget_s=budget_s)
            done.append(run_one(name, lab))
    if progress:
        progress("done", len(names), len(names))
    return LabReport(environment=environment, experiments=tuple(done))


def run_one(name: str, lab: Lab, experiment: Callable[[Lab], Experiment] | None = None) -> Experiment:
    """One experiment; what stops it becomes the reason for which it was skipped."""
    call = experiment or import_module(f"gobrrr.lab.{name}").run
    started = lab.bench.now()
    try:
        with preserved(lab.torch):
            result: Experiment = call(lab)
    except NoCompilerError as error:
        result = _skipped(name, str(error))
    except (RuntimeError, MemoryError) as error:
        result = _skipped(name, first_line(error))
    return msgspec.structs.replace(result, duration_s=lab.bench.now() - started)


def _skipped(name: str, why: str) -> Experiment:
    return Experiment(name=name, title=EXPERIMENTS.get(name, name), status="skipped", why=why)
