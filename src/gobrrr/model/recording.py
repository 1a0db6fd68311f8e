"""What the static door observes: every operation of one step as dispatched, without a device and without times."""

from __future__ import annotations

from typing import Literal

import msgspec

from gobrrr.model.work import OpCall

Phase = Literal["forward", "backward", "optimizer"]
Place = Literal["device", "host"]
Dependence = Literal["no", "sum", "yes", "layers", "unknown"]
"""Whether an iteration of a loop needs an earlier one's result: no; only to add to it (sum); yes; yes, and each
iteration has tensors of its own, as the layers of a model have (layers); not known."""


class RecordedCall(msgspec.Struct, frozen=True, gc=False):
    """One operation. `site` is an index into `Recording.sites`.

    `place`: where its tensors are. `waits`: the host needs the result to continue (`.item()` of a tensor on the
    device). `recomputed`: it repeats, in the backward pass, an operation of the forward pass (activation
    checkpointing). `needed`: the share of its FLOPs that the maths needs: about half under a causal mask.
    `host_copy`: it copies between host and device, in this direction.
    """

    call: OpCall
    phase: Phase
    site: int
    place: Place = "device"
    waits: bool = False
    recomputed: bool = False
    needed: float = 1.0
    host_copy: Literal["", "HtoD", "DtoH"] = ""
    node: str = ""  # in the backward pass: the autograd node that runs it
    new_bytes: int = 0  # of new storages
    counter: bool = False  # of an optimizer's step count: on the host, wherever the parameters are
    replayed: bool = False  # dispatched when a CUDA graph was captured, and run by its replay


class Site(msgspec.Struct, frozen=True, gc=False):
    """Where in the program an operation is: the enclosing nn.Modules, outermost first, and the line that called it.

    `modules`: in the profiler's spelling ("LlamaMLP_3"); `source`: the innermost line outside of torch,
    "path/file.py(12): function"; `user`: the innermost line outside of all installed packages. An operation of the
    backward pass has the site of its forward operation.
    """

    modules: tuple[str, ...] = ()
    source: str | None = None
    user: str | None = None
    paths: tuple[str, ...] = ()  # of the same modules, as in the program: "GPT.blocks.3.attention"

    @property
    def path(self) -> str | None:
        """The path of the innermost module; None outside of every module."""
        return self.paths[-1] if self.paths else None


class CallLine(msgspec.Struct, frozen=True, gc=False):
    """One call by a function of the program, in the observed step.

    `caller`: as the profiler names it, by the function's first line: "path/file.py(12): train"; `callee`: the bare name
    of the called function; `source`: the line of the call, "path/file.py(28): train".
    """

    caller: str
    callee: str
    source: str


class OwnTime(msgspec.Struct, frozen=True, gc=False):
    """A function of the program with much time of its own, in which it calls nothing with a frame in the profile.

    `caller`: as in `CallLine`; `source`: the line with most of that time, None where it is spread over several lines;
    `callee`: the only call on that line that the interpreter does not report, such as one of Cython's; "" for none:
    the line itself is the interpreter's work.
    """

    caller: str
    source: str | None
    callee: str = ""


class RecordedLoop(msgspec.Struct, frozen=True, gc=False):
    """One run of a loop of the program, in the observed step. A turn is one iteration.

    `source`: its line, "path/file.py(12): forward". `turns`: indices into `Recording.calls`: the first call of each
    turn, and the end of the last turn. `carried`: an operation that reads an earlier turn's result; `within`: the kind
    of module that all of these are in, such as "GRUCell", "" where they are not all in one. `reads`: how often the
    program reads values of tensors in the loop, including reads that dispatch nothing (`tolist`). `again_bytes`: bytes
    that an earlier turn has read as well, such as weights: one operation on all turns would read them once.
    `free`: in a loop whose turns need each other, the matrix products (into `Recording.calls`) that do not: each turn
    computes them with the same weight, from inputs that no earlier turn made.
    """

    source: str
    turns: tuple[int, ...]
    depends: Dependence
    carried: str = ""
    within: str = ""
    reads: int = 0
    again_bytes: int = 0
    free: tuple[int, ...] = ()


class Assumption(msgspec.Struct, frozen=True, gc=False):
    """A value that the program read and that only real data has: the value that was used instead, and where."""

    what: str
    value: str
    source: str | None


AgainKind = Literal["steps", "turns", "rows"]


class RepeatedWork(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Operations at one place of the step that repeat earlier computing, so that they need not run.

    `kind`: "steps": the step before computed the same, from inputs that no step changes; "turns": this step itself did,
    `times` in all; "rows": earlier turns computed a part of it, with fewer rows: `rows` has (before, now) for each of
    `calls`. `calls`: indices into `Recording.calls`; `op`: the main operation, for "rows" the function unless it is a
    module; `whole`: they are everything that a module's call computes. `of`: what it is computed from: "numbers"
    (shapes and constants of the program), "weights", or "tensors" from outside.
    """

    kind: AgainKind
    source: str | None
    module: str | None
    op: str | None
    calls: tuple[int, ...]
    times: int = 1
    of: str = ""
    whole: bool = False
    rows: tuple[tuple[int, int], ...] = ()


class OpTally(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Operations of one name at one line, in a step: how many, and the elements of their input tensors."""

    op: str
    source: str | None
    count: int
    elements: int


class HeldMemory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the program held after `step` steps.

    `nodes`: of autograd's graphs, reached from the tensors that existed; None: too many to count. `tensors` and
    `bytes`: those that Python knows; `device_bytes`: all that tensors hold on the GPU; `hooks`: on modules and tensors.
    """

    step: int
    nodes: int | None
    tensors: int
    bytes: int
    device_bytes: int | None
    hooks: int


class SurvivingResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A result of a step that still exists at the end of the next step.

    `nodes`: the size of its graph; `chain`: its graph passes through those of earlier steps and grows in each step;
    `bytes`: of its storage.
    """

    op: str
    source: str | None
    nodes: int
    chain: bool
    bytes: int = 0


class SecondStep(msgspec.Struct, frozen=True, kw_only=True):
    """What grows from step to step, from a second recorded step and from the boundaries between steps.

    `first`, `second`: both steps by operation and line; `before`: how many steps ran before the first recorded one,
    None where that is not known.
    """

    first: tuple[OpTally, ...]
    second: tuple[OpTally, ...]
    held: tuple[HeldMemory, ...] = ()
    kept: tuple[SurvivingResult, ...] = ()
    before: int | None = None


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One step as it was dispatched; independent of the machine that it is later predicted on.

    `peak_bytes`: the most that tensors on the device held at once during the step; `start_bytes`: what they held at its
    begin (weights, optimizer state, inputs). `module_calls`: calls of nn.Module.forward.
    """

    target: str
    calls: tuple[RecordedCall, ...]
    sites: tuple[Site, ...]
    peak_bytes: int
    start_bytes: int
    module_calls: int
    lines: tuple[CallLine, ...] = ()  # calls that the program's own functions made, in order; of a live run
    own: tuple[OwnTime, ...] = ()  # functions with much time of their own; of a live run
    code: dict[str, str] = {}  # the text of the program's lines, by their source; of a live run
    again: tuple[RepeatedWork, ...] | None = None  # of a live run: repeated work; None: not looked for
    loops: tuple[RecordedLoop, ...] | None = None  # of a live run; None: not known
    later: SecondStep | None = None  # of a live run: the next step; None: not looked at
    streams: dict[str, str] = {}  # file objects of other processes, by address: "pipe", "socket"; of a live run
    on_cpu: bool  # nothing was on a GPU: the CPU's operations were taken as the device's
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    seconds: float = 0.0
