"""The step on another machine: the time of each piece of work changes by the ratio of its floors.

So a kernel is assumed to reach the same share of the roof there. The fixed time of a kernel (`FIXED_NS`) does not
change. A kernel without a floor changes by the ratio of the memory bandwidths, a collective by that of the links
between devices, a copy by that of the links to the host. The host is the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from msgspec import structs

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.price import CallGroup, Priced, WorkClass
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.analysis.replay.graph import F8, StepGraph
from gobrrr.analysis.replay.what_if import Change, scaled
from gobrrr.model.machine import Ceiling, Machine
from gobrrr.model.work import DTYPE_BYTES

OTHER_MACHINE_ERROR = 0.17
"""The error of that assumption as a share of the time: leave-one-GPU-out over nine NVIDIA and three AMD GPUs with one
efficiency each (computed from NeuSight's published measurements, arXiv 2407.13853)."""


def repriced(priced: Priced, machine: Machine) -> Priced:
    """The same work with its floors on `machine`; NaN where it has none."""
    groups = tuple(CallGroup(group.call, group.work, floor(group.work, machine)) for group in priced.groups)
    ratio = np.array([_ratio(old, new) for old, new in zip(priced.groups, groups, strict=True)] or [np.nan])
    return replace(priced, groups=groups, floor_ns=priced.floor_ns * ratio[priced.group])


def _ratio(old: CallGroup, new: CallGroup) -> float:
    if old.floor is None or new.floor is None or not old.floor.ns > 0:
        return float("nan")
    return new.floor.ns / old.floor.ns


def on_machine(evidence: Evidence, machine: Machine, off: float = 0.0, matrix: str | None = None) -> Change:
    """Durations as on `machine`, all of them longer by the share `off` (negative: shorter).

    `matrix`: the type that float32 contractions run in after an earlier treatment ("tf32"); None: float32.
    Raises ValueError where the ceilings of the machine that the step ran on are not known.
    """
    factor = factors(evidence, machine, matrix) * (1.0 + off)
    new = evidence.priced.floor_ns * _ratios(evidence, machine, matrix)
    work = np.arange(len(factor))

    def change(graph: StepGraph) -> StepGraph:
        # an earlier treatment that changed a floor here changes it there by the same factor
        with np.errstate(divide="ignore", invalid="ignore"):
            treated = graph.floor / evidence.priced.floor_ns
        return scaled(graph, work, factor, new * np.where(np.isfinite(treated), treated, 1.0))

    return change


def factors(evidence: Evidence, machine: Machine, matrix: str | None = None) -> F8:
    """For each piece of device work, its time on `machine` over its time here; `matrix` as for `on_machine`."""
    now = evidence.machine
    if now is None:
        raise ValueError("the ceilings of the machine that the step ran on are not known")
    priced = evidence.priced
    memory = _over(now.memory_bytes_per_s, machine.memory_bytes_per_s)
    link = _over(now.link_bytes_per_s, machine.link_bytes_per_s)
    host = _over(now.host_bytes_per_s, machine.host_bytes_per_s)
    ratio = _ratios(evidence, machine, matrix)
    factor = np.where(np.isfinite(ratio), ratio, memory)
    factor = np.where(priced.kind == WorkClass.COMMUNICATION, link, factor)
    result: F8 = np.where(priced.kind == WorkClass.TRANSFER, host, factor)
    return result


def without_floor(evidence: Evidence, machine: Machine) -> float:
    """Share of the device's time in kernels without a floor on one of the two machines."""
    compute = evidence.priced.kind == WorkClass.COMPUTE
    unknown = ~np.isfinite(_ratios(evidence, machine, None)) & compute
    total = float(evidence.graph.duration[compute].sum())
    return float(evidence.graph.duration[unknown].sum()) / total if total > 0 else 0.0


def _ratios(evidence: Evidence, machine: Machine, matrix: str | None) -> F8:
    """For each piece of device work, its floor on `machine` over its floor here; NaN where one is not known."""
    ratios = []
    for group in evidence.priced.groups:
        work = group.work
        if matrix is not None and work.matrix_flop and work.matrix_dtype == "float32":
            work = structs.replace(work, matrix_dtype=matrix)
            group = CallGroup(group.call, work, floor(work, evidence.machine))
        ratios.append(_ratio(group, CallGroup(group.call, work, floor(work, machine))))
    result: F8 = np.array(ratios or [np.nan])[evidence.priced.group]
    return result


def typed_ratios(evidence: Evidence, dtype: str, now: str = "float32") -> F8:
    """For each group, the floor of its contraction in `dtype` over that in `now`, types of the matrix units.

    1 for groups that do not contract in `now`. The bytes shrink with the new type. NaN where a floor is not known.
    """
    ratios = []
    narrower = min(DTYPE_BYTES.get(dtype, 4.0) / 4.0, 1.0)
    for group in evidence.priced.groups:
        work = group.work
        if not work.matrix_flop or work.matrix_dtype != now:
            ratios.append(1.0)
            continue
        read, written = (None if part is None else part * narrower for part in (work.bytes_read, work.bytes_written))
        typed = structs.replace(work, matrix_dtype=dtype, bytes_read=read, bytes_written=written)
        ratios.append(_ratio(group, CallGroup(group.call, typed, floor(typed, evidence.machine))))
    return np.array(ratios or [1.0], dtype=np.float64)


def in_type(evidence: Evidence, dtype: str) -> Change:
    """Float32 contractions get the floors of another type of the matrix units; their times do not change."""
    ratio = typed_ratios(evidence, dtype)[evidence.priced.group]
    touched = np.flatnonzero(np.isfinite(ratio) & (ratio != 1.0))
    factor = ratio[touched]

    def change(graph: StepGraph) -> StepGraph:
        floors = graph.floor.copy()
        floors[touched] = np.fmin(floors[touched] * factor, graph.duration[touched])
        return replace(graph, floor=floors)

    return change


def _over(now: Ceiling | None, then: Ceiling | None) -> float:
    """The factor by which work at a ceiling takes longer at another one; 1 where one of them is not known."""
    return now.value / then.value if now is not None and then is not None and then.value > 0 else 1.0
