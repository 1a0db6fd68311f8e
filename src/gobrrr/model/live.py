"""What only a live run can observe: the step's time without the profiler, and the program's settings and actions.

None: not observed. An empty tuple: looked for, and none found. Times are nanoseconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gobrrr.model.contention import Contention
from gobrrr.model.program import Program


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that ran without the profiler.

    `ns`: each step, from its begin to the next one's, by the device's clock where there is a device, else by the
    host's; empty where the time is estimated from a recorded step. `wall_ns`: their median, to which the budget sums.
    `low_ns`, `high_ns`: the quartiles; for fewer than four steps the extremes, for fewer than three a wider interval.
    `drift`: how much longer the last third's median is than the first third's, as a share of the first; None for fewer
    than six steps.
    """

    wall_ns: float
    low_ns: float
    high_ns: float
    ns: tuple[float, ...]
    median_ns: float
    mean_ns: float
    drift: float | None = None
    clock: Literal["host", "device"] = "host"


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """One graph break of the compiler. `source`: the user's line, "path/file.py(12): function"."""

    reason: str
    source: str | None = None
    count: int = 1


class Recompile(msgspec.Struct, frozen=True, kw_only=True):
    """A function that was compiled again `count` times in steady state, and the guard that failed last.

    Where the compiler gave the function up, `count` includes the warm-up, in which that may have happened.
    """

    function: str
    source: str | None = None
    count: int = 1
    reason: str = ""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """What the compiler did: all `graphs` that it made, graph breaks and recompilations.

    `steady_compiles`: compilations in the steps after warm-up. `limit_hit`: it gave a function up after too many
    compilations. `cudagraph_skips`: (why a CUDA graph was not used, how often).
    """

    graphs: int
    breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    steady_compiles: int = 0
    limit_hit: bool = False
    cudagraph_skips: tuple[tuple[str, int], ...] = ()


class HostSync(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program that makes the host wait for the device, and how often in a step."""

    source: str
    count: float
    what: str = ""


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """One run of Python's garbage collector: in which step, how long, and of which generation."""

    step: int
    ns: float
    generation: int


class Collector(msgspec.Struct, frozen=True, kw_only=True):
    """Python's garbage collector over `steps` steps without the profiler. `tracked`: objects that it must visit."""

    steps: int
    enabled: bool
    runs: tuple[Collection, ...] = ()
    tracked: int | None = None
    frozen: int | None = None

    @property
    def ns_per_step(self) -> float:
        """Mean time in the collector per step."""
        return sum(run.ns for run in self.runs) / self.steps if self.steps else 0.0


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that cost or save time. `tracer`, `profiler`: the functions set with sys.settrace and sys.setprofile.

    `monitoring`: tools registered with sys.monitoring. `matmul_precision`: "highest", "high" or "medium"; `autocast`:
    the dtype that autocast used in the step, None where it was off.
    """

    anomaly: bool = False
    anomaly_at: str | None = None  # the program's line that switched it on
    anomaly_checks_nan: bool = False
    launch_blocking: bool = False
    deterministic: bool = False
    deterministic_at: str | None = None
    sync_debug: bool = False
    tracer: str | None = None
    profiler: str | None = None
    monitoring: tuple[str, ...] = ()
    debugger: str | None = None
    cudnn_benchmark: bool = False
    cudnn_deterministic: bool = False
    matmul_precision: str | None = None
    matmul_tf32: bool | None = None
    conv_tf32: bool | None = None
    autocast: str | None = None
    environment: tuple[tuple[str, str], ...] = ()  # variables that slow a program down, as they are set


class Threads(msgspec.Struct, frozen=True, kw_only=True):
    """The threads that torch uses within an operation (`intra`) and across them, and this process's processors.

    `usable`: processors in the affinity mask; `quota`: processors' worth of time that the control group allows, None:
    unlimited or not known. `workers`: processes that a data loader started; `worker_threads`: the operating system's
    threads of the median worker. `load`: the load average before the first step. `waited_ns`: how long all threads of
    this process together were ready to run without a processor.
    """

    intra: int
    inter: int
    usable: int
    quota: float | None = None
    processors: int | None = None
    workers: int | None = None
    worker_threads: float | None = None
    load: float | None = None
    involuntary_switches: float | None = None  # per step
    waited_ns: float | None = None  # per step
    contention: Contention | None = None  # with other processes, while the step was timed

    @property
    def available(self) -> float:
        """Processors that this process can really use."""
        return min(float(self.usable), self.quota) if self.quota else float(self.usable)


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The device's memory over the window: peaks in bytes, and the allocator's calls to the driver per step.

    `capacity_bytes`: the device's memory; `peak_bytes`: the most that tensors held; `reserved_bytes`: what the
    allocator took. On a CPU `peak_bytes` is the process's growth, and `mallocs`, `frees`, `retries` are None.
    """

    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    capacity_bytes: int | None = None
    mallocs: float | None = None
    frees: float | None = None
    retries: float | None = None


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """The step with larger batches: (factor, wall ns, FLOP or None) for each size, from factor 1 on.

    `bytes`: what each size moves, parallel to `points`; empty where it was not counted.
    """

    points: tuple[tuple[float, float, float | None], ...]
    note: str = ""
    bytes: tuple[float | None, ...] = ()


class TensorUse(msgspec.Struct, frozen=True, kw_only=True):
    """A finding about one call of a step, from the values or the identity of its arguments as it was dispatched.

    `kind` says what was seen. "weight_cast": a parameter was converted; `share` of its `bytes` was not needed.
    "padding": `share` of `total` ids, mask or target entries are padding. "flagged_mask": a mask tensor hides the same
    as a flag; `share` of `total` scores are visible. "duplicates": `share` of `total` indices repeat an earlier index.
    "rows": `share` of `total` rows of a table are used. "cat_growth": a tensor was appended to by copying all of it.
    gobrrr.observe.live.ops.uses defines each kind exactly.
    """

    kind: str
    op: str
    source: str | None
    module: str | None
    shapes: str
    count: int = 1
    bytes: float | None = None
    share: float | None = None
    total: int | None = None


class DispatchedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs and bytes of one step, from its operations as dispatched eagerly. None: not all are known."""

    flop: float | None
    bytes: float | None
    calls: int
    unknown_calls: int = 0
    how: str = ""


class ProfilerCost(msgspec.Struct, frozen=True, kw_only=True):
    """Host time that recording adds to an operation and to a Python call, measured in this run."""

    op_ns: float
    python_ns: float


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """All that a live run observed beside the profiler's events. None: not looked at.

    `ended_after`: the number of steps after which the loop ended, where that was before all was measured. One of its
    first steps was recorded then, and `times` may have few steps or none.
    """

    kind: Literal["cpu", "cuda"]
    times: StepTimes
    warmup_steps: int
    profiled_steps: int
    steps_from: str = ""
    ended_after: int | None = None
    compiled: Compiled | None = None
    syncs: tuple[HostSync, ...] | None = None
    collector: Collector | None = None
    switches: Switches | None = None
    threads: Threads | None = None
    memory: DeviceMemory | None = None
    scaling: Scaling | None = None
    uses: tuple[TensorUse, ...] | None = None
    counted: DispatchedCounts | None = None
    dispatch_ns: float | None = None  # what an operation on one element takes on this host without the profiler
    issue_ns: float | None = None  # how long issuing a step to an idle device takes; None on a CPU
    observer: ProfilerCost | None = None
    program: Program | None = None
    seconds: float = 0.0
