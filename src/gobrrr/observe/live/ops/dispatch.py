"""One step on real tensors, recorded operation by operation: what ran, called from where, and on which values.

The step runs slower than usual, with compiled functions run eagerly. Nothing of it is changed: no value, no random
number, no setting that outlasts the step.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import msgspec
import torch

from gobrrr import units
from gobrrr.guarded import GuardedParts
from gobrrr.model.live import TensorUse
from gobrrr.model.program import Program
from gobrrr.model.recording import (
    CallLine,
    OpTally,
    OwnTime,
    RecordedCall,
    RecordedLoop,
    Recording,
    RepeatedWork,
    SecondStep,
    Site,
)
from gobrrr.observe.live.again.held import HeldWatch, Origins
from gobrrr.observe.live.again.repeats import Repeats
from gobrrr.observe.live.objects.seen import Objects
from gobrrr.observe.live.ops.graphs import GraphBook
from gobrrr.observe.live.ops.mode import DispatchNumberer, DispatchRecorder, following
from gobrrr.observe.live.ops.turns import LoopTurns
from gobrrr.observe.live.ops.uses import Uses
from gobrrr.observe.live.watches.calls import CallWatch, code_of
from gobrrr.observe.static.sites import Sites

__all__ = [
    "DispatchedStep",
    "GraphBook",
    "HeldWatch",
    "OperationWatch",
    "Repeats",
    "SecondStepWatch",
    "looking",
    "watch",
]

_HOOKED = r"Using `torch\.compile\(module\)` when there are global hooks(?#gobrrr)"
"""torch's warning of our hooks. The comment makes the filter differ from any of the program's own."""

LOOPS = "the program's loops"
"""What a note says is missing where they could not be followed."""

_LINE = re.compile(r"(.*)\(\d+\): ")
"""A line, spelled "path/file.py(12): function"."""


@dataclass(frozen=True, kw_only=True)
class DispatchedStep:
    """What one step dispatched.

    `on_cpu`: nothing ran on a GPU, and the CPU's operations count as the device's. `replays`: replays of CUDA graphs
    whose captured operations were recorded in their place; `unseen_replays`: those whose capture was not seen, so that
    their work is missing. `left_out`: how many operations were beyond the limit; `failed`: why others were not
    recorded, "" where none are missing. `compiled`: a compiled module was run eagerly. `autocast`: the type that
    modules ran in under autocast. `unread`: operations whose arguments could not be read for `uses`.
    `program`: the objects of the program that the step used; `unnamed`: why some of them are not known, "" where none
    failed. `again`: work that had been done before; from step to step only where a second step was looked at. `later`:
    what the second step says of growth. `loops`: the program's loops; `unfollowed`: why they are not known, "" where
    that did not fail.
    """

    calls: tuple[RecordedCall, ...]
    sites: tuple[Site, ...]
    uses: tuple[TensorUse, ...]
    module_calls: int
    on_cpu: bool
    replays: int = 0
    unseen_replays: int = 0
    left_out: int = 0
    failed: str = ""
    compiled: bool = False
    seconds: float = 0.0
    autocast: str | None = None
    unread: int = 0
    lines: tuple[CallLine, ...] = ()
    own: tuple[OwnTime, ...] = ()
    loops: tuple[RecordedLoop, ...] | None = None
    streams: dict[str, str] = field(default_factory=dict)
    program: Program | None = None
    unnamed: str = ""
    again: tuple[RepeatedWork, ...] | None = None
    unfollowed: str = ""
    later: SecondStep | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing that ran is known to be missing."""
        return not (self.unseen_replays or self.left_out or self.failed)

    def recording(self, target: str = "") -> Recording:
        """The same as a recording of the static door. Memory was not followed: its levels are 0."""
        notes = []
        if self.unseen_replays:
            replays = units.things(self.unseen_replays, "replay of CUDA graphs")
            notes.append(f"{replays} whose capture was not seen: their work is missing")
        if self.left_out:
            left = units.things(self.left_out, "operation")
            notes.append(f"not recorded: {left}, as the step has more than are kept")
        return Recording(
            target=target,
            calls=self.calls,
            sites=self.sites,
            peak_bytes=0,
            start_bytes=0,
            module_calls=self.module_calls,
            on_cpu=self.on_cpu,
            notes=tuple(notes),
            versions={"torch": str(torch.__version__)},
            seconds=self.seconds,
            lines=self.lines,
            own=self.own,
            again=self.again,
            loops=self.loops,
            later=self.later,
            streams=self.streams,
            code=code_of(self._sources()),
        )

    def _sources(self) -> set[str]:
        """All lines of the program that the recording names."""
        held = (time.source for time in self.own if time.source)
        called, looped = (line.source for line in self.lines), (loop.source for loop in self.loops or ())
        return {*called, *held, *looped, *(site.user for site in self.sites if site.user)}


class OperationWatch:
    """Records what runs on this thread from `open()` to `close()`; `seen` holds it afterwards.

    `book`: CUDA graphs whose capture was followed before. `close()` restores everything, also after an exception of the
    step.
    """

    def __init__(self, book: GraphBook | None = None, repeats: Repeats | None = None) -> None:
        self.seen: DispatchedStep | None = None
        self._repeats = repeats if repeats is not None else Repeats()
        self._book = book if book is not None else GraphBook()
        self._sites = Sites()
        self._uses = Uses(self._sites)
        self._objects = Objects()
        self._parts = GuardedParts()
        self._calls = CallWatch()
        turns = LoopTurns(self._calls)
        capturing = lambda: self._book.capturing  # noqa: E731
        self._mode = DispatchRecorder(self._sites, self._uses, capturing, self._objects, self._repeats, turns)
        self._on: ExitStack | None = None
        self._replays = self._unseen = 0
        self._began = 0.0

    def open(self) -> None:
        """Begin to record."""
        if self._on is not None or self.seen is not None:
            return
        self._began = time.perf_counter()
        self._repeats.begin()
        with ExitStack() as stack:
            stack.enter_context(_uncompiled())
            if not self._book.opened:
                self._book.open()
                stack.callback(self._book.close)
            self._book.listener = self._replayed
            stack.callback(self._unlisten)
            stack.enter_context(following(self._mode))
            self._calls.functions = self._repeats.function
            self._calls.open()
            stack.callback(self._calls.close)
            self._on = stack.pop_all()

    def close(self) -> DispatchedStep | None:
        """Stop, and return what was recorded; None where it was never opened."""
        on, self._on = self._on, None
        if on is None:
            return self.seen
        on.close()
        calls = self._mode.finished()
        on_cpu = not any(call.place == "device" for call in calls)
        self.seen = DispatchedStep(
            calls=tuple(msgspec.structs.replace(call, place="device") for call in calls) if on_cpu else calls,
            sites=tuple(self._sites.found),
            autocast=self._uses.autocast,
            unread=self._uses.unread,
            uses=self._uses.found(training=any(call.phase == "backward" for call in calls)),
            module_calls=self._sites.module_calls,
            on_cpu=on_cpu,
            replays=self._replays,
            unseen_replays=self._unseen,
            left_out=self._mode.left_out,
            failed=self._mode.failed,
            compiled=self._sites.compiled,
            seconds=time.perf_counter() - self._began,
            lines=self._calls.found(),
            own=self._calls.own(),
            loops=self._parts.make(LOOPS, lambda: self._mode.loops(calls), None),
            streams=self._calls.streams,
            program=self._objects.found(_files(self._sites.found)),
            unnamed=self._objects.failed,
            again=self._repeats.found(calls, self._sites.found),
            unfollowed=self._parts.failed.get(LOOPS, ""),
        )
        self._calls = CallWatch()
        self._uses, self._mode = Uses(self._sites), DispatchRecorder(self._sites)  # the old ones hold the parameters
        return self.seen

    def again(self, second: tuple[OpTally, ...] = ()) -> None:
        """Take in the second look: more work that is done again, and what the next step did (`second`)."""
        if self.seen is not None:
            again = self._repeats.found(self.seen.calls, self.seen.sites)
            later = SecondStep(first=_tallied(self.seen), second=second)
            self.seen = replace(self.seen, again=again, later=later)

    def holds(self, watch: HeldWatch) -> None:
        """Take in what was held between steps."""
        if self.seen is not None and self.seen.later is not None:
            held = () if watch.failed else tuple(watch.found)
            later = msgspec.structs.replace(self.seen.later, held=held, kept=watch.kept, before=watch.before)
            self.seen = replace(self.seen, later=later)

    def made(self) -> Origins:
        """The operation and the line of what this step made that is still alive."""
        if self.seen is None:
            return {}
        calls, sites = self.seen.calls, self.seen.sites
        return {key: (calls[at].call.name, _line(sites[calls[at].site])) for key, at in self._repeats.made().items()}

    def found(self) -> Recording | None:
        """What was recorded; None before `close()`."""
        return self.seen.recording() if self.seen is not None else None

    def _unlisten(self) -> None:
        self._book.listener = None

    def _replayed(self, graph: Any) -> None:
        captured = self._book.of(graph)
        if captured is None:
            self._unseen += 1
            return
        self._replays += 1
        sites = [self._sites.adopt(site) for site in captured.sites]
        calls = (msgspec.structs.replace(call, site=sites[call.site], replayed=True) for call in captured.calls)
        self._mode.adopt(tuple(calls))


class SecondStepWatch:
    """Looks at the next step, for what both steps compute."""

    def __init__(self, first: OperationWatch, repeats: Repeats, book: GraphBook) -> None:
        self._first, self._repeats = first, repeats
        self._mode = DispatchNumberer(repeats, lambda: book.capturing)
        self._places: list[tuple[str, str | None]] = []
        self._on: ExitStack | None = None

    def open(self) -> None:
        """Begin to record."""
        self._repeats.begin()
        with ExitStack() as stack:
            stack.enter_context(_uncompiled())
            stack.enter_context(following(self._mode))
            self._on = stack.pop_all()

    def close(self) -> None:
        """Stop, and give the first look what was found."""
        on, self._on = self._on, None
        if on is not None:
            on.close()
            places = [(name, _line(self._mode.sites.found[at])) for name, at in self._mode.places]
            self._places = places
            self._first.again(_tallies(zip(places, self._mode.elements, strict=True)))

    def holds(self, watch: HeldWatch, step: int) -> None:
        """The last boundary, after `step` steps; gives the first look what was held at all of them."""
        watch.boundary(step, self.made)
        self._first.holds(watch)

    def made(self) -> Origins:
        """The operation and the line of what this step made that is still alive."""
        return {key: self._places[at] for key, at in self._repeats.made().items()}


def _line(site: Site) -> str | None:
    return site.user or site.source


def _tallied(seen: DispatchedStep) -> tuple[OpTally, ...]:
    return _tallies(
        ((call.call.name, _line(seen.sites[call.site])), sum(prod(tensor.shape) for tensor in call.call.tensors))
        for call in seen.calls
    )


def _tallies(calls: Iterable[tuple[tuple[str, str | None], int]]) -> tuple[OpTally, ...]:
    found: dict[tuple[str, str | None], list[int]] = {}
    for place, elements in calls:
        sums = found.setdefault(place, [0, 0])
        sums[0] += 1
        sums[1] += elements
    return tuple(OpTally(op=op, source=at, count=count, elements=size) for (op, at), (count, size) in found.items())


def _files(sites: Sequence[Site]) -> list[str]:
    """The files of the user's lines."""
    found = (_LINE.match(site.user) for site in sites if site.user)
    return list(dict.fromkeys(match[1] for match in found if match))


@contextmanager
def looking(book: GraphBook | None = None, repeats: Repeats | None = None) -> Iterator[OperationWatch]:
    """Record what runs in the block; the yielded object has `seen` afterwards, also after an exception."""
    look = OperationWatch(book, repeats)
    look.open()
    try:
        yield look
    finally:
        look.close()


def watch(
    step: Callable[..., Any], inputs: Sequence[Any] = (), *, book: GraphBook | None = None, twice: bool = False
) -> DispatchedStep:
    """Run `step(*inputs)` once and return what it dispatched. The step's exceptions pass through.

    `twice`: run it once more, for what both runs compute.
    """
    repeats, held = Repeats(), HeldWatch()
    if twice:
        held.boundary(0)
    with looking(book, repeats) as first:
        step(*inputs)
    if twice:
        held.boundary(1, first.made)
        second = SecondStepWatch(first, repeats, book if book is not None else GraphBook())
        second.open()
        try:
            step(*inputs)
        finally:
            second.close()
        second.holds(held, 2)
    assert first.seen is not None
    return first.seen


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Within the block compiled functions run eagerly, and torch does not warn of our hooks."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        warnings.filterwarnings("ignore", message=_HOOKED)
        stack.callback(_forget_filter, warnings.filters[0])
        yield


def _forget_filter(entry: Any) -> None:
    """Remove our filter. Not by catch_warnings: it would also remove filters that the program sets meanwhile."""
    warnings.filters[:] = [other for other in warnings.filters if other is not entry]  # type: ignore[index]
    getattr(warnings, "_filters_mutated", lambda: None)()
