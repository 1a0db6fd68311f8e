"""The diagnosis: the one record that every renderer reads and the one file on disk (format 1).

Field names are the contract of docs/design.md, section 9: other programs rely on them. Times are nanoseconds of one
step (the mean of the analysed steps) unless the name says total.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gobrrr.model import show
from gobrrr.model.device import DeviceModel, model_of
from gobrrr.model.live import Live, StepTimes, Threads
from gobrrr.model.places import PlaceNode

FORMAT = 1
# History of the format:
# 1  first

Origin = Literal["trace", "live", "static"]
Regime = Literal["compute", "memory", "overhead", "communication", "transfer", "input", "mixed", "unknown"]
Certainty = Literal["high", "medium", "low"]
Line = Literal["compute", "memory", "below_roof", "unpriced", "communication", "transfer", "overhead"]
Verdict = Literal["helped", "no_change", "hurt", "unsafe", "inconclusive"]
Interval = tuple[float, float]


class Wall(msgspec.Struct, frozen=True, kw_only=True):
    """The step's wall time without the profiler, and its interval."""

    value: float | None
    low: float | None
    high: float | None
    how: Literal["measured", "estimated", "unknown"]


class DeviceTotals(msgspec.Struct, frozen=True, kw_only=True):
    """One device over the whole trace; exact, by set arithmetic."""

    rank: int
    device: int
    busy_total_ns: int
    span_total_ns: int
    kernels: int


class BudgetLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the budget. `cause`: why there is overhead; for below_roof, the kernels' bound ("compute" or
    "memory")."""

    line: Line
    cause: str | None
    ns: float
    share: float


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a finding is. `count`: how often in a step; `ns`: the device or host time there in a step."""

    op: str | None
    module: str | None = None
    source: str | None = None
    shapes: str | None = None
    count: float | None = None
    ns: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that holds here. `evidence`: numbers of this trace with which a reader can check the claim.

    `place`: the id of its place in `Diagnosis.places`; None where no place is known.
    """

    code: str
    title: str
    where: list[Place]
    at_stake_ns: Interval
    certainty: Certainty
    treatments: list[str]
    evidence: list[str] = []
    place: int | None = None


class NotChecked(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that could not be checked, and what the check needs. It never counts as healthy."""

    code: str
    needs: str


class Prescription(msgspec.Struct, frozen=True, kw_only=True):
    """A treatment, and what it saves when applied alone: the step replayed with and without it.

    `mends`: the codes of the findings that it answers, largest saving first; `finding` is the first of them.
    `mends_ns`: the expected saving for each of them alone, in the same order. These overlap, so they do not sum to
    `expected_ns`; empty where the step can't be replayed.
    `expected_ns`: the expected saving, within the interval; None where the step can't be replayed. `then`: what bounds
    the step afterwards.
    """

    treatment: str
    finding: str
    predicted_saving_ns: Interval
    how: str
    assumes: str = ""
    expected_ns: float | None = None
    then: str = ""
    mends: list[str] = []
    mends_ns: list[float] = []

    def __post_init__(self) -> None:
        if not self.mends:  # an older file, without the list
            msgspec.structs.force_setattr(self, "mends", [self.finding])


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """An applied treatment and its result. Times are None where it was not timed, `predicted_saving_ns` where nothing
    predicts it; `why` says why there is no gain, or that the numbers differ."""

    treatment: str
    before_ns: float | None
    after_ns: float | None
    spread_ns: float | None
    predicted_saving_ns: Interval | None
    numerics: dict[str, Any]
    verdict: Verdict
    why: str = ""


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The priced share of device time, of launches and of bytes. None: there is nothing to take a share of."""

    device_time: float | None
    calls: float | None
    bytes: float | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over one step; None where nothing of the kind could be counted.

    `flop`: what the device executes ("hardware" FLOPs, recomputation included); `flop_executed` counts each product
    once; `flop_model`: what the maths needs, of which `flop_contraction` is in matrix products, convolutions and
    attention. `bytes_as_run`: each call reads its inputs and writes its outputs; `bytes_fused`: chains that a compiler
    can join do so once, and keep what a backward pass reads; `bytes_compulsory`: inputs and outputs of maximal fusible
    regions alone, with the epilogues of contractions and whole attentions among them. `bytes_dram`: what the DRAM's own
    counters would show on this machine (modelled: operands read again tile by tile, less what the cache keeps).
    """

    flop: float | None
    bytes_as_run: float | None
    bytes_fused: float | None
    launches: float | None
    syncs: float | None
    flop_executed: float | None = None
    flop_model: float | None = None
    flop_contraction: float | None = None
    bytes_compulsory: float | None = None
    bytes_dram: float | None = None


class OpRow(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of call (same op, arguments and kernels) in a step: a row of the tables, a point of the roofline."""

    op: str
    shapes: str
    family: str
    calls: float
    ns: float
    floor_ns: float | None
    bound: str | None
    flop: float | None
    bytes: float | None
    roof: str | None
    kernel: str
    note: str = ""
    module: str | None = None  # innermost nn.Module around most of its device time; None where frames were not read


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """All device work of one name in a step. `ops`: the rows of `Diagnosis.ops` that launch it, where known."""

    name: str
    calls: float
    ns: float
    ops: list[int] = []


class HostTrack(msgspec.Struct, frozen=True, kw_only=True):
    """What one host thread does in the step of a timeline: columns, in ns from the step's begin.

    An entry is one visit of a place: `place` is its index in `Diagnosis.places`, `depth` the number of entries that
    enclose it.
    """

    thread: str
    start_ns: list[int]
    duration_ns: list[int]
    place: list[int]
    depth: list[int]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One step as the device ran it, on the timeline of the budget: columns, in ns from the step's begin.

    Work: `start_ns`, `duration_ns`, `stream` (index into `streams`), `op` (index into `Diagnosis.ops`, -1 for none),
    `kind` ("compute", "communication", "transfer": index into `kinds`). Gaps: `gap_start_ns`, `gap_duration_ns` and
    `gap_cause`, the cause of the largest part of the gap (index into `causes`). `left_out`: pieces of work beyond
    `MOST_WORK`, which are not in the columns. `host`: the host's threads, the program's own first; `host_left_out`: how
    many of their entries, the shortest, are not in the columns.
    """

    device: int
    length_ns: int
    streams: list[int]
    kinds: list[str]
    causes: list[str]
    start_ns: list[int]
    duration_ns: list[int]
    stream: list[int]
    op: list[int]
    kind: list[int]
    gap_start_ns: list[int]
    gap_duration_ns: list[int]
    gap_cause: list[int]
    left_out: int = 0
    host: list[HostTrack] = []
    host_left_out: int = 0


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """The device's computing in one nn.Module in a step: forward and backward pass, children included.

    `path`: the enclosing modules, outermost first, and the module itself, named as in `OpRow.module`. The row with an
    empty path has the computing outside of every known module. It and the rows without a parent sum to the device's
    computing time; copies and communication are in no row. `ops`: the rows of `Diagnosis.ops` that run under the module
    (they may run elsewhere too).
    """

    path: list[str]
    calls: float
    ns: float
    compute_ns: float
    memory_ns: float
    other_ns: float
    ops: list[int] = []


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling as the page draws it: FLOP/s of a unit ("compute"), bytes/s of a level ("memory").

    `at_least`: why the value is only a lower bound; "" where it is the ceiling.
    """

    name: str
    kind: Literal["compute", "memory"]
    value: float
    provenance: str
    source: str = ""
    at_least: str = ""


class ChangedOp(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of call with a different bound on another machine; `ns` is its time in a step there."""

    op: str
    shapes: str
    bound: str
    ns: float


class MachineRow(msgspec.Struct, frozen=True, kw_only=True):
    """The step as predicted on one machine. `fits`: the memory peak is within the machine's memory; None: not known.

    `changed`: the calls whose bound differs from that on the first machine, longest first. `ridge_flop_per_byte`: the
    dense 16-bit peak over the memory bandwidth; `step_flop_per_byte`: the step's own arithmetic intensity.
    """

    machine: str
    step_ns: float
    low_ns: float
    high_ns: float
    device_ns: float
    host_ns: float
    regime: Regime
    compute_share: float
    memory_share: float
    overhead_share: float
    speed_of_light_ns: float | None
    fits: bool | None
    ridge_flop_per_byte: float | None = None
    step_flop_per_byte: float | None = None
    ceilings: str = "datasheet"
    host: str = ""  # which host the dispatch costs are of
    changed: list[ChangedOp] = []


class MovedOp(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `Diagnosis.ops` after a change: its time and floor in a step, and its bytes as run. Calls that became
    part of another kernel have no time of their own."""

    op: int
    ns: float
    floor_ns: float | None
    bytes: float | None


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The step with treatments applied together, on this machine or another: its graph, changed and replayed.

    `machine` None: the machine that the step ran on. `step_ns`: the expected time, `low_ns` to `high_ns` its interval;
    `expected_ns`: the saving against the step as it is, `saving_ns` its interval (negative: the step takes longer).
    `lines`: the budget, which sums to `step_ns`; `regime` follows from it. `then`: what bounds the step, in words.
    `ops`: the rows of `Diagnosis.ops` whose time changes. `work`: the work of such a step, in steps of today.
    `there_ns`: for treatments on another machine, the step there without them. `asked`: the user asked for it
    (`--what-if`); the others belong to the page's panel.
    """

    treatments: list[str]
    machine: str | None
    step_ns: float
    low_ns: float
    high_ns: float
    expected_ns: float
    saving_ns: Interval
    regime: Regime
    lines: list[BudgetLine]
    then: str
    assumes: list[str] = []
    ops: list[MovedOp] = []
    work: float = 1.0
    there_ns: float | None = None
    asked: bool = False


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a step. Printing it prints the answer that a terminal shows."""

    format: int = FORMAT
    target: str
    origin: Origin
    device: str | None
    ranks: int
    steps: int
    wall_ns: float | None
    unprofiled_wall_ns: Wall
    devices: list[DeviceTotals]
    regime: Regime
    certainty: Certainty
    budget: list[BudgetLine]
    speed_of_light_ns: float | None
    coverage: Coverage
    totals: Totals
    findings: list[Finding]
    not_checked: list[NotChecked]
    prescriptions: list[Prescription]
    trials: list[Trial] = []
    notes: list[str] = []
    caveats: list[str] = []  # what a reader must know before the numbers: shown in the first lines
    lower_bounds: list[str] = []  # ceilings that floors rest on here and of which only a lower bound is known
    machine: str | None = None  # the datasheet row or measured machine that the floors rest on
    steps_from: str = ""  # how the steps were found
    ops: list[OpRow] = []
    kernels: list[KernelRow] = []
    evidence: list[str] = []  # the checks behind the regime, agreeing or not
    timeline: Timeline | None = None
    modules: list[ModuleRow] = []  # empty where no module is known: Python frames were not read
    roofs: list[Roof] = []
    memory_peak_bytes: float | None = None  # the most that tensors on the device held at once during the step
    machines: list[MachineRow] = []  # of a prediction: the requested machines
    what_ifs: list[WhatIf] = []  # treatments and machines together; the first one is the step as it is
    what_if_roofs: dict[str, list[Roof]] = {}  # the ceilings of each other machine among them
    versions: dict[str, str] = {}  # the software that the trace was recorded with
    live: Live | None = None  # of a live run: what it measured beside the profiler's events
    version: str = ""
    places: list[PlaceNode] = []  # the tree of places, the program first; empty where it is not known
    # the id of the deepest place, kernels aside, with more than half of the step; where no function is known and no
    # operation has that much, the operation with the largest part; without a clear largest, the program
    held_by: int | None = None
    places_from: str = ""  # where the places are known from

    @property
    def device_model(self) -> DeviceModel:
        """How the device that ran the step behaves."""
        return model_of(self.live.kind if self.live is not None else None)

    @property
    def times(self) -> StepTimes | None:
        """Each step's time without the profiler; None where no step was timed."""
        return self.live.times if self.live is not None else None

    @property
    def threads(self) -> Threads | None:
        """The program's threads and processors; None where they were not observed."""
        return self.live.threads if self.live is not None else None

    @property
    def run_by(self) -> str | None:
        """How the steps were run; None where nothing was run here."""
        return self.live.steps_from if self.live is not None else None

    def __str__(self) -> str:
        return show.as_text(self) or f"{self.target}: {self.regime} ({self.certainty} certainty)"

    def _repr_html_(self) -> str | None:
        return show.as_html(self)
