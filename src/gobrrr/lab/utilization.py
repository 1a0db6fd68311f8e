"""Experiment 7: what a utilization meter shows for three workloads, beside what each achieves."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gobrrr.hardware.measure.matmul import flop
from gobrrr.lab import article
from gobrrr.lab.judge import exactly, judged
from gobrrr.lab.session import ITEM_BYTES, Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Judgement, LabTable
from gobrrr.model.measured import Quantity

METER_S = 1.2
"""Longer than the driver's sample period (up to 1 s)."""
TINY_OPS = 50
CLOSE = 0.15
BUSY, IDLE = 0.9, 0.8


@dataclass(frozen=True)
class Load:
    """One workload: FLOP and bytes of a call, its wall time, the share of it that the device is busy, and a meter."""

    name: str
    flop: float
    bytes: float
    wall_s: Quantity
    busy: float | None
    meter: float | None


def run(lab: Lab) -> Experiment:
    """A large matmul, a large pointwise operation, and many tiny ones."""
    loads = [_load(lab, *workload) for workload in _workloads(lab)]
    return result(loads, lab.cpu, _peaks(lab), lab.settings(tiny_operations=TINY_OPS))


Workload = tuple[str, Callable[[], object], float, float]


def _workloads(lab: Lab) -> list[Workload]:
    torch, spec, n = lab.torch, lab.device.spec, lab.sized(cpu=1024, gpu=8192)
    dtype = getattr(torch, _matmul_dtype(lab))
    a, b = (torch.randn(n, n, device=spec).to(dtype) for _ in range(2))
    product = torch.empty(n, n, device=spec, dtype=dtype)
    x, tiny = lab.floats(), torch.rand(16, device=spec)
    out = torch.empty_like(x).fill_(0.5)

    def many() -> None:
        for _ in range(TINY_OPS):
            tiny.add_(1.0)

    return [
        (f"matmul of {n}, {_matmul_dtype(lab)}", lambda: torch.mm(a, b, out=product), flop(n, n, n), 3.0 * a.nbytes),
        ("multiply a large tensor", lambda: torch.mul(x, 2.0, out=out), float(x.numel()), 2.0 * x.nbytes),
        (f"{TINY_OPS} tiny additions", many, 16.0 * TINY_OPS, 2.0 * 16 * ITEM_BYTES * TINY_OPS),
    ]


def _matmul_dtype(lab: Lab) -> str:
    return "float32" if lab.cpu else "bfloat16" if lab.torch.cuda.is_bf16_supported() else "float16"


def _load(lab: Lab, name: str, call: Callable[[], object], work: float, moved: float) -> Load:
    wall = lab.bench.wall(call, budget_s=0.5)
    if lab.cpu:
        return Load(name, work, moved, wall, None, _processors(call, lab.torch.get_num_threads()))
    busy_s = lab.bench.graph(call, calls=5)
    busy = min(1.0, busy_s.value / wall.value) if wall.value else None
    return Load(name, work, moved, wall, busy, _smi(lab, call))


def _processors(call: Callable[[], object], threads: int) -> float:
    """What top would show, as a share of the threads that torch uses: processor time over wall time."""
    start, spent = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < METER_S / 2:
        call()
    return (time.process_time() - spent) / (time.perf_counter() - start) / threads


def _smi(lab: Lab, call: Callable[[], object]) -> float | None:
    """nvidia-smi's utilization.gpu, asked after METER_S of the workload, which goes on meanwhile; None: no answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    uuid = getattr(lab.torch.cuda.get_device_properties(lab.device.index), "uuid", None)
    which = f"GPU-{uuid}" if uuid else str(lab.device.index)
    command = [program, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-i", which]
    _keep_busy(lab, call, lambda: False, METER_S)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as asked:
        _keep_busy(lab, call, lambda: asked.poll() is not None, 5.0)
        if asked.poll() is None:
            asked.kill()
        answer = asked.communicate()[0].strip()
    return int(answer) / 100 if answer.isdecimal() else None


def _keep_busy(lab: Lab, call: Callable[[], object], stop: Callable[[], bool], limit_s: float) -> None:
    """Call again and again with a few calls queued, never so many that the workload outlives the loop."""
    start = time.perf_counter()
    while time.perf_counter() - start < limit_s and not stop():
        for _ in range(5):
            call()
        lab.device.wait()


def _peaks(lab: Lab) -> tuple[float | None, float | None]:
    """(FLOP/s of the matmul's dtype, bytes/s of DRAM), None where unknown."""
    if lab.machine is None:
        return None, None
    dtype, bandwidth = _matmul_dtype(lab), lab.machine.memory_bytes_per_s
    peak = lab.machine.matrix_flop_per_s.get(dtype) or lab.machine.vector_flop_per_s.get(dtype)
    return peak.value if peak else None, bandwidth.value if bandwidth else None


def result(
    loads: Sequence[Load], cpu: bool, peaks: tuple[float | None, float | None], settings: dict[str, str]
) -> Experiment:
    """The record of the three workloads: pure."""
    return Experiment(
        name="utilization",
        title="What a utilization meter says against what is achieved",
        tables=(_meters(loads, cpu, peaks), _achieved(loads)),
        judgements=(_meter(loads, cpu), _eyeballing(loads, cpu)),
        notes=("processor time over wall time and threads stands for the meter on a CPU",) if cpu else (),
        settings=settings,
    )


def _meters(loads: Sequence[Load], cpu: bool, peaks: tuple[float | None, float | None]) -> LabTable:
    meter = "top" if cpu else "nvidia-smi"
    rows = tuple(
        (
            load.name,
            load.meter,
            load.busy,
            _of(load.wall_s.rate(load.flop), peaks[0]),
            _of(load.wall_s.rate(load.bytes), peaks[1]),
        )
        for load in loads
    )
    heads = columns("workload", f"{meter} [share]", "kernels [share]", "of FLOP/s [share]", "of B/s [share]")
    return LabTable(title="Busy is not fast: what the meter says, and shares of the peaks", columns=heads, rows=rows)


def _achieved(loads: Sequence[Load]) -> LabTable:
    rows = tuple((load.name, load.wall_s, load.wall_s.rate(load.flop), load.wall_s.rate(load.bytes)) for load in loads)
    heads = columns("workload", "time [s]", "compute [FLOP/s]", "bandwidth [B/s]")
    return LabTable(title="What each achieves", columns=heads, rows=rows)


def _of(rate: Quantity, peak: float | None) -> float | None:
    return rate.value / peak if peak else None


def _meter(loads: Sequence[Load], cpu: bool) -> Judgement:
    rule = f"nvidia-smi and the kernels' share of the time differ by at most {100 * CLOSE:.0f} points for each workload"
    pairs = [(load.meter, load.busy) for load in loads if load.meter is not None and load.busy is not None]
    if cpu or len(pairs) < len(loads):
        why = "a CPU has no such meter" if cpu else "nvidia-smi gave no answer"
        return judged(article.UTIL, "can't tell", why, rule)
    off = max(abs(meter - busy) for meter, busy in pairs)
    return judged(article.UTIL, exactly(off <= CLOSE), f"they differ by up to {100 * off:.0f} points", rule)


def _eyeballing(loads: Sequence[Load], cpu: bool) -> Judgement:
    rule = (
        f"the meter reads at least {100 * BUSY:.0f} % for the large workloads and under {100 * IDLE:.0f} % for the tiny"
    )
    meters = [load.meter for load in loads]
    read = ", ".join("?" if meter is None else f"{100 * meter:.0f} %" for meter in meters)
    known = [meter for meter in meters if meter is not None]
    if cpu or len(known) < len(loads):
        return judged(article.UTIL_OVERHEAD, "can't tell", f"the meter here reads {read}", rule)
    verdict = exactly(min(known[:-1]) >= BUSY and known[-1] < IDLE)
    return judged(article.UTIL_OVERHEAD, verdict, f"the meter reads {read}", rule)
