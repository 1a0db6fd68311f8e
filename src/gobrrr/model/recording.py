"""What the static door observes: every operation of one step as it was dispatched, with no device and no time."""

from __future__ import annotations

from typing import Literal

import msgspec

from gobrrr.model.work import OpCall

Phase = Literal["forward", "backward", "optimizer"]
Place = Literal["device", "host"]
Dependence = Literal["no", "sum", "yes", "layers", "unknown"]
"""Whether a turn of a loop needs what an earlier one made: no; only by adding to it (sum); yes; yes, and each turn has
tensors of its own, as the layers of a model have; not known."""


class RecordedCall(msgspec.Struct, frozen=True, gc=False):
    """One operation. `site` is an index into `Recording.sites`.

    `place`: where its tensors live. `waits`: the host needs the result before it can go on (`.item()` of a tensor on
    the device). `recomputed`: it repeats, in the backward pass, what the forward pass did (activation checkpointing).
    `needed` is the share of its FLOPs that the maths needs: about half where a causal mask leaves half of the result.
    `host_copy`: its tensors cross the link between host and device, in this direction.
    """

    call: OpCall
    phase: Phase
    site: int
    place: Place = "device"
    waits: bool = False
    recomputed: bool = False
    needed: float = 1.0
    host_copy: Literal["", "HtoD", "DtoH"] = ""
    node: str = ""  # of the backward pass: the autograd node that runs it
    new_bytes: int = 0  # of storages that it made
    counter: bool = False  # of an optimizer's step count: on the host, wherever the parameters are
    replayed: bool = False  # dispatched when a CUDA graph was captured, and run by a replay of it


class Site(msgspec.Struct, frozen=True, gc=False):
    """Where in the program an operation is: the nn.Modules around it, outermost first, and the line that called it.

    `modules` in the profiler's spelling ("LlamaMLP_3"); `source` as "path/file.py(12): function", the innermost line
    outside torch; `user` the innermost outside any installed package. Operations of the backward pass carry the site of
    the forward operation that they differentiate.
    """

    modules: tuple[str, ...] = ()
    source: str | None = None
    user: str | None = None
    paths: tuple[str, ...] = ()  # of the same modules, as the program would write them: "GPT.blocks.3.attention"

    @property
    def path(self) -> str | None:
        """That of the innermost module; None outside of every module."""
        return self.paths[-1] if self.paths else None


class CallLine(msgspec.Struct, frozen=True, gc=False):
    """One call that a function of the program made, in the step that was looked at.

    `caller` as the profiler names it, by the line that the function begins at: "path/file.py(12): train"; `callee`: the
    bare name of what it called; `source`: the line of the call, "path/file.py(28): train".
    """

    caller: str
    callee: str
    source: str


class OwnTime(msgspec.Struct, frozen=True, gc=False):
    """A function of the program with much time of its own, in which it calls nothing that a profiler has a frame for.

    `caller` as in `CallLine`; `source`: the line with most of that time, None where it is spread over several;
    `callee`: the only call on that line which the interpreter did not tell of, such as one of Cython's; "" for none,
    where the line is the interpreter's own work.
    """

    caller: str
    source: str | None
    callee: str = ""


class HostLoop(msgspec.Struct, frozen=True, gc=False):
    """A loop of the program, as the step that was looked at went through it once.

    `source`: its line, "path/file.py(12): forward". `turns`: indices into `Recording.calls`, of the first call of each
    turn and of what follows the last one. `carried`: an operation that reads what an earlier turn made; `within`: the
    kind of module that all of these are in, such as "GRUCell", "" where they are not all in one. `reads`: how often the
    program reads values of tensors in it, those reads included that dispatch nothing (`tolist`). `again_bytes`: what
    its turns read after an earlier one has read the same, such as weights: one operation on all turns reads it once.
    `free`: of a loop whose turns need each other, the products (into `Recording.calls`) that do not: each turn makes
    them with the same weight, out of nothing that an earlier turn made.
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
    """A value that the program asked for and that only real data could give: what was put in its place, and where."""

    what: str
    value: str
    source: str | None


AgainKind = Literal["steps", "turns", "rows"]


class Again(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Operations of the step that need not run, at one place: what they compute had been computed before.

    `kind`: "steps": the step before computed it as well, of what no step changes; "turns": this step itself had,
    `times` in all; "rows": some of it, in earlier turns with fewer rows: `rows` has (before, now) for each of `calls`.
    `calls`: positions in `Recording.calls`; `op`: the main one, of "rows" the function, if it is no module; `whole`:
    they are all that a module's call computes. `of`: "numbers" (shapes and constants of the program), "weights", or
    "tensors" from outside.
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


class Tally(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Operations of one name at one line, in a step: how many, and the elements of the tensors that they were given."""

    op: str
    source: str | None
    count: int
    elements: int


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the program held when `step` steps had run.

    `nodes`: of autograd's graphs, reached from the results that were there; None: too many to count. `tensors` and
    `bytes`: those that Python knows; `device_bytes`: all that tensors hold on the GPU; `hooks`: on modules and tensors.
    """

    step: int
    nodes: int | None
    tensors: int
    bytes: int
    device_bytes: int | None
    hooks: int


class Kept(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A result that is there when the next step has ended.

    `nodes`: that its graph has; `chain`: its graph goes through those of earlier steps, and is longer in each;
    `bytes`: of its storage.
    """

    op: str
    source: str | None
    nodes: int
    chain: bool
    bytes: int = 0


class Later(msgspec.Struct, frozen=True, kw_only=True):
    """What a second look, at the step behind the first one, and the boundaries between steps tell of growth.

    `first`, `second`: both steps by operation and line; `before`: steps that the loop had made before the first
    recorded one, None where that is not known.
    """

    first: tuple[Tally, ...]
    second: tuple[Tally, ...]
    held: tuple[Held, ...] = ()
    kept: tuple[Kept, ...] = ()
    before: int | None = None


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One step as it was dispatched. Independent of the machine that it is later predicted on.

    `peak_bytes` is the most that tensors on the device held at once during the step, `start_bytes` what they held when
    it began (weights, optimizer state, inputs). `modules`: calls of nn.Module.forward.
    """

    target: str
    calls: tuple[RecordedCall, ...]
    sites: tuple[Site, ...]
    peak_bytes: int
    start_bytes: int
    module_calls: int
    lines: tuple[CallLine, ...] = ()  # calls that the program's own functions made, in order; of a live run
    own: tuple[OwnTime, ...] = ()  # functions that hold the host by themselves; of a live run
    code: dict[str, str] = {}  # what stands on the program's lines, by their source; of a live run
    again: tuple[Again, ...] | None = None  # of a live run: work that had been done before; None: not looked for
    loops: tuple[HostLoop, ...] | None = None  # of a live run; None: not known
    later: Later | None = None  # of a live run: the step behind it; None: not looked at
    streams: dict[str, str] = {}  # file objects of other processes, by address: "pipe", "socket"; of a live run
    on_cpu: bool  # nothing was on a GPU: the CPU's operations were taken as the device's
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    seconds: float = 0.0
