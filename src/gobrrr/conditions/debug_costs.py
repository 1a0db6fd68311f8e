"""The cost of each debug feature in a step, measured or bounded (O08)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gobrrr import units
from gobrrr.analysis.budget.idle import DRAINING, LAUNCHING, PYTHON_CAUSE
from gobrrr.analysis.events.ratios import share
from gobrrr.analysis.findings.claims import TimeClaim, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.findings.scopes import frames, spent_under
from gobrrr.model.events import I8, EventKind
from gobrrr.model.frame_names import FROM_LIBRARY
from gobrrr.model.live import Switches

HOST_VARIABLES = {
    "PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONMALLOC", "MALLOC_CHECK_", "MALLOC_PERTURB_", "MKL_VERBOSE",
    "DNNL_VERBOSE", "ONEDNN_VERBOSE", "CUBLAS_LOGINFO_DBG", "CUBLASLT_LOG_LEVEL", "CUDNN_LOGINFO_DBG",
    "CUDNN_LOGLEVEL_DBG", "TORCH_SHOW_DISPATCH_TRACE", "TORCH_CPP_LOG_LEVEL", "CUDA_INJECTION64_PATH",
}  # fmt: skip
"""Variables that make every call on the host longer. The effect of others shows elsewhere, or not in each step."""

SLOW_IF_DETERMINISTIC = {
    "aten::index_put_", "aten::_index_put_impl_", "aten::index_put", "aten::index_add_", "aten::index_add",
    "aten::index_copy_", "aten::index_copy", "aten::scatter", "aten::scatter_", "aten::scatter_add_",
    "aten::scatter_add", "aten::scatter_reduce", "aten::gather", "aten::gather_backward", "aten::put_",
    "aten::cumsum", "aten::repeat_interleave", "aten::embedding_dense_backward", "aten::convolution_backward",
}  # fmt: skip
"""Operations for which `torch.use_deterministic_algorithms` selects another algorithm (its documentation)."""

ANOMALY_CHECKS = {"aten::isnan", "aten::_is_any_true", "aten::any", "aten::item", "aten::is_nonzero", "aten::ne"}
"""The operations by which anomaly detection checks each gradient."""

STACK_TRACE_FRAMES = re.compile(rf"{FROM_LIBRARY}(torch/\S*/)?traceback\.py\(\d+\): (format_stack|extract_stack)$")
WARNING_FRAMES = re.compile(rf"{FROM_LIBRARY}warnings\.py\(\d+\): ")
"""Frames of anomaly detection's stack traces, and of Python's warnings, as the profiler names them."""


@dataclass(frozen=True)
class Cost:
    """One feature that is on: ns of one step at stake, how to switch it off, and the line that switched it on."""

    name: str
    fact: str
    low: float
    high: float
    claim: TimeClaim
    how: str
    source: str | None = None


def costs(evidence: Evidence, switches: Switches) -> list[Cost]:
    """The cost of all features that are on and act in each step."""
    return [cost for part in DEBUG_FEATURES for cost in part(evidence, switches)]


def _anomaly(evidence: Evidence, switches: Switches) -> Iterator[Cost]:
    """The time under its stack traces and its checks."""
    if not switches.anomaly:
        return
    rows = np.concatenate(
        [frames(evidence, lambda name: STACK_TRACE_FRAMES.search(name) is not None), _checks(evidence)]
    )
    spent = spent_under(evidence, rows)
    sure = evidence.profile.frames and not evidence.device.asynchronous
    low = max(spent.ns - path_of(evidence).spread.down, 0.0) if sure else 0.0
    claim = of_gaps(evidence, np.arange(len(spent.gap_ns)), spent.gap_ns, spent.gap_ns * (low > 0))
    claim += of_calls(spent.calls, spent.call_ns * (low > 0), spent.call_ns)
    fact = (
        f"anomaly detection is on: its stack traces and its checks for NaN take {units.duration(spent.ns)} a step"
        + ("" if evidence.profile.frames else "; the stack traces were not recorded")
    )
    yield Cost(
        "anomaly detection", fact, low, spent.ns, claim, "torch.autograd.set_detect_anomaly(False)", switches.anomaly_at
    )


def _checks(evidence: Evidence) -> I8:
    """The checks that the autograd engine makes, not the program's own."""
    events = evidence.replayed
    rows = events.of(EventKind.OP)
    names = [index for index, name in enumerate(events.names) if name in ANOMALY_CHECKS]
    rows = rows[np.isin(events.name[rows], names)]
    rows = rows[(events.start_ns[rows] >= evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    engine = [
        row
        for row in rows.tolist()
        if any(events.name_of(ancestor).startswith("autograd::engine") for ancestor in evidence.ancestors(row))
    ]
    return np.array(engine, dtype=np.int64)


def _watchers(evidence: Evidence, switches: Switches) -> Iterator[Cost]:
    """Tools that run at each Python call or line. They take at most all of Python's time between operations."""
    tools = [
        (switches.tracer, "a trace function", "sys.settrace(None)"),
        (switches.profiler, "a profile function", "sys.setprofile(None)"),
        (switches.debugger, "a debugger", "run without the debugger"),
        *((tool, "a monitoring tool", "run without it") for tool in switches.monitoring),
    ]
    attached = [(f"{what} is attached: {name}", how) for name, what, how in tools if name is not None]
    if attached:
        yield _bounded(evidence, "tracing tools", attached, (PYTHON_CAUSE,))


def _variables(evidence: Evidence, switches: Switches) -> Iterator[Cost]:
    """Variables that make library calls or memory allocation longer. They take at most all of the host's time."""
    variables = [
        (f"{name}={value} is set", f"unset {name}") for name, value in switches.environment if name in HOST_VARIABLES
    ]
    if variables:
        yield _bounded(evidence, "environment variables", variables, (LAUNCHING, PYTHON_CAUSE))


def _bounded(evidence: Evidence, name: str, features: list[tuple[str, str]], causes: tuple[str, ...]) -> Cost:
    """A cost with only an upper bound, the device's idle time of some causes. `features`: (fact, how to switch off)."""
    ns = evidence.budget.gaps.of(*causes).astype(np.float64)
    claim = of_gaps(evidence, np.arange(len(ns)), ns, np.zeros_like(ns), causes=causes)
    high = path_of(evidence).host_saving(0.0, float(ns.sum()) / evidence.steps.count)[1]
    words = " and ".join({PYTHON_CAUSE: "Python", LAUNCHING: "launching"}[cause] for cause in causes)
    fact = (
        f"{'; '.join(fact for fact, _ in features)}: costs at most {units.duration(high)} a step, all the time of "
        f"{words}; its own part of that is not known"
    )
    return Cost(name, fact, 0.0, high, claim, features[0][1])


def _blocking(evidence: Evidence, switches: Switches) -> Iterator[Cost]:
    """Each launch waits, so W = host + device. Without, W is at least the larger, so at most the smaller is saved."""
    if not switches.launch_blocking or not evidence.device.asynchronous:
        return
    path, causes = path_of(evidence), (LAUNCHING, PYTHON_CAUSE, DRAINING)
    ns = evidence.budget.gaps.of(*causes).astype(np.float64)
    high = min(path.busy, path.idle, float(ns.sum()) / evidence.steps.count)
    part = ns * (share(high * evidence.steps.count, float(ns.sum())) or 0.0)
    claim = of_gaps(evidence, np.arange(len(ns)), part, np.zeros_like(part), causes=causes)
    fact = (
        f"CUDA_LAUNCH_BLOCKING is set: the host waits for each kernel, so {units.duration(path.busy)} of device time "
        f"and {units.duration(path.idle)} of host time a step do not overlap"
    )
    yield Cost("blocking launches", fact, 0.0, high, claim, "unset CUDA_LAUNCH_BLOCKING")


def _deterministic(evidence: Evidence, switches: Switches) -> Iterator[Cost]:
    """Filling memory that is written anyway, and the time above their floor of operations with another algorithm."""
    if not switches.deterministic:
        return
    filled, slow = _fills(evidence), _slow(evidence)
    ns, floor = evidence.calls.ns, np.nan_to_num(evidence.calls.floor_ns)
    above = np.maximum(ns[slow] - floor[slow], 0.0)
    most, least = np.concatenate([ns[filled], above]), np.concatenate([ns[filled], np.zeros_like(above)])
    claim = of_calls(np.concatenate([filled, slow]), least, most)
    filling, high = (float(by_call.sum()) / evidence.steps.count for by_call in (least, most))
    if not high:
        return
    fact = (
        f"deterministic algorithms are on: filling new memory takes {units.duration(filling)} a step, and "
        f"{units.a_step(len(slow) / evidence.steps.count, 'call')} may use another algorithm"
    )
    saving = path_of(evidence).device_saving(filling, high)
    how = "; ".join([FILL_SWITCH] * bool(filling) + ["torch.use_deterministic_algorithms(False)"] * bool(above.any()))
    yield Cost("deterministic algorithms", fact, *saving, claim, how, switches.deterministic_at)


FILL_SWITCH = "torch.utils.deterministic.fill_uninitialized_memory = False"
"""Algorithms stay deterministic without the filling, unless the program reads memory that it has not written."""


def _fills(evidence: Evidence) -> I8:
    """Calls that fill memory as it is allocated."""
    events, op = evidence.events, evidence.calls.op
    fills = [
        call
        for call in range(len(op))
        if op[call] >= 0
        and events.name_of(int(op[call])) == "aten::fill_"
        and any(
            events.name_of(ancestor).startswith(("aten::empty", "aten::new_empty"))
            for ancestor in evidence.ancestors(int(op[call]))
        )
    ]
    return np.array(fills, dtype=np.int64)


def _slow(evidence: Evidence) -> I8:
    groups = np.array([group.call.name in SLOW_IF_DETERMINISTIC for group in evidence.priced.groups], dtype=bool)
    return evidence.calls_where(groups)


def _warned(evidence: Evidence, switches: Switches) -> Iterator[Cost]:
    """A warning at each synchronization: the time in Python's warnings."""
    if not switches.sync_debug:
        return
    rows = frames(evidence, lambda name: WARNING_FRAMES.search(name) is not None)
    spent = spent_under(evidence, rows)
    claim = of_gaps(evidence, np.arange(len(spent.gap_ns)), spent.gap_ns, np.zeros_like(spent.gap_ns))
    idle = float(spent.gap_ns.sum()) / evidence.steps.count
    fact = f"torch warns at each synchronization: Python's warnings take {units.duration(idle)} a step"
    yield Cost("synchronization warnings", fact, 0.0, idle, claim, 'torch.cuda.set_sync_debug_mode("default")')


DEBUG_FEATURES = (_anomaly, _watchers, _variables, _blocking, _deterministic, _warned)
"""The features, one function each."""
