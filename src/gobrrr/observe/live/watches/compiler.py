"""What torch.compile did: graph breaks, recompilations and their reasons, CUDA graphs that it did not use.

The compiler always keeps its own records: the reason and the stack of each graph break, a record of each compilation,
the guards that failed, counters. They are read here; nothing of the compiler is replaced or switched on. Two warnings
say more: a logging filter that lets everything pass reads them. The compiler is not imported here: that takes seconds,
and a program that does not compile has no use for it.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gobrrr.model.live import Compiled, GraphBreak, Recompile
from gobrrr.observe.live.watches.guards import compiled_again, guard, limit_line, named
from gobrrr.observe.live.watches.lines import of_stack, within

_LIMIT, _SKIP = "torch._dynamo hit config.", "skipping cudagraphs"
"""How the two warnings begin."""
_LOGGERS = (
    "torch._dynamo.convert_frame",
    "torch._inductor.cudagraph_utils.__cudagraphs",
    "torch._inductor.cudagraph_utils.__perf_hints",  # where torch 2.6 says it
)
_GIVEN_UP = ("limit exceeded", "limit reached", "cache_size_limit")
_NOT_BREAKS = ("SkipFrame", "FailOnRecompileLimitHit", "RecompileError", "RecompileLimitExceeded")
_LEFT_ALONE = " (no graph at all is made of this function)"
LONGEST_REASON = 300
"""Characters of a reason that are kept: hints of several lines follow. Chosen."""


@dataclass
class CompilerRecords:
    """The compiler's own records, as far as they were read. Reading starts over after the compiler's `reset`."""

    breaks: int = 0
    last: Any = None  # the record of the last compilation that was read
    counts: dict[str, int] = field(default_factory=dict)

    def new_breaks(self) -> list[Any]:
        """The graph breaks since the last call, each with `reason` and `user_stack`."""
        kept = getattr(_utils(), "graph_break_reasons", [])
        begin = self.breaks if self.breaks <= len(kept) else 0
        self.breaks = len(kept)
        return list(kept[begin:])

    def new_compilations(self) -> list[Any]:
        """The records of compilations since the last call; the compiler keeps the last 64."""
        read = getattr(_utils(), "get_compilation_metrics", None)
        try:
            kept = list(read()) if read is not None else []
        except RuntimeError:  # another thread is compiling; read the records the next time
            return []
        begin = next((at + 1 for at in reversed(range(len(kept))) if kept[at] is self.last), 0)
        if kept:
            self.last = kept[-1]
        return kept[begin:]

    def more(self, group: str, name: str) -> int:
        """By how much a counter has grown since the last call."""
        now = counted(group, name)
        key = f"{group}/{name}"
        before = self.counts.get(key, 0)
        self.counts[key] = now
        return now - before if now >= before else now


def counted(group: str, name: str) -> int:
    """One of the compiler's counters; 0 where it was never imported."""
    counters = getattr(_utils(), "counters", None)
    # not by []: that would create the counter
    return int(counters.get(group, {}).get(name, 0)) if counters is not None else 0


class CompilerWatch:
    """Reads the compiler's records at both ends of the window, after each compilation, and after a step with one."""

    def __init__(self) -> None:
        self._books = CompilerRecords()
        self._breaks: Counter[tuple[str, str | None]] = Counter()
        self._skips: Counter[str] = Counter()
        self._all: list[Any] = []
        self._steady: list[Any] = []
        self._limits: dict[str, str] = {}
        self._graphs = 0
        self._skipped = 0
        self._limit_hit = False
        self._in_window = False
        self._seen = 0
        self._open = False
        self._callbacks: Any = None
        self._filtered: list[logging.Logger] = []

    @property
    def compiles(self) -> int:
        """How many functions the compiler has begun to compile since this process began, repeats included."""
        return counted("frames", "total")

    def open(self) -> None:
        """Count from here on: what the compiler did before is left out."""
        if self._open:
            return
        self._open = True
        self._books.new_breaks()
        self._books.new_compilations()
        for group, name in (("stats", "unique_graphs"), ("inductor", "cudagraph_skips")):
            self._books.more(group, name)
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addFilter(self._heard)
            self._filtered.append(logger)
        self._listen()

    def window_begins(self) -> None:
        """Compilations from here on are in steady state."""
        self._listen()
        self._read()
        self._in_window = True
        self._seen = self.compiles

    def step(self, index: int) -> None:
        """Read the records where something was compiled."""
        if self.compiles != self._seen:
            self._seen = self.compiles
            self._read()

    def window_ends(self, steps: int) -> None:
        """Stop: later compilations are caused by the profiler, which changes what the guards check."""
        self._read()
        self._in_window = False
        self.close()

    def close(self) -> None:
        """Remove the filters and the callback."""
        if self._open:
            self._read()
        self._open = False
        for logger in self._filtered:
            logger.removeFilter(self._heard)
        self._filtered.clear()
        if self._callbacks is not None and self._compiled in self._callbacks.end_callbacks:
            self._callbacks.remove_end_callback(self._compiled)
        self._callbacks = None

    def found(self) -> Compiled:
        """Everything since `open`; zeros where the program compiles nothing."""
        frames = [record for record in self._steady if record.is_forward is not False]
        if self._skipped > sum(self._skips.values()) and _gpu():
            self._skips["torch gave no reason"] += self._skipped - sum(self._skips.values())
        breaks = [GraphBreak(reason=why, source=at, count=count) for (why, at), count in self._breaks.most_common()]
        return Compiled(
            graphs=self._graphs,
            breaks=tuple(breaks),
            recompiles=self._recompiles(),
            steady_compiles=len(frames or self._steady),
            limit_hit=self._limit_hit,
            cudagraph_skips=tuple(self._skips.most_common()),
        )

    def _listen(self) -> None:
        """Be called at the end of each compilation, since the compiler keeps the records of only 64."""
        callbacks = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if callbacks is not None and self._compiled not in getattr(callbacks, "end_callbacks", [self._compiled]):
            callbacks.register_end_callback(self._compiled)
            self._callbacks = callbacks

    def _compiled(self, *_: Any) -> None:
        self._read()

    def _read(self) -> None:
        if not self._open:
            return
        for new_break in self._books.new_breaks():
            self._breaks[_first(new_break.reason), of_stack(new_break.user_stack)] += 1
        for new_compilation in self._books.new_compilations():
            self._account(new_compilation)
        self._graphs += self._books.more("stats", "unique_graphs")
        self._skipped += self._books.more("inductor", "cudagraph_skips")

    def _account(self, record: Any) -> None:
        """Count one record: of a function, of its backward pass, or of autotuning at run time."""
        why = record.fail_reason or ""
        if any(words in why for words in _GIVEN_UP):
            self._limit_hit = True
            return
        if getattr(record, "is_runtime", False) or (record.is_forward is not False and not record.co_name):
            return
        self._all.append(record)
        if record.fail_type and record.fail_type not in _NOT_BREAKS:
            line = within(record.fail_user_frame_filename, record.fail_user_frame_lineno)
            self._breaks[f"{_first(why)}{_LEFT_ALONE}", line] += 1
        if self._in_window:
            self._steady.append(record)

    def _recompiles(self) -> tuple[Recompile, ...]:
        """Functions that were recompiled in steady state, or at the limit: these with all compilations since `open`."""
        counts, latest = compiled_again(self._steady, self._all)
        everything, of_all = compiled_again(self._all, self._all)
        for function in everything:
            if limit_line(function) in self._limits:
                counts[function] = everything[function]
                latest[function] = self._limits[limit_line(function)] or of_all[function]
        return tuple(
            Recompile(function=named(code), source=code.line, count=count, reason=guard(latest[code]))
            for code, count in counts.most_common()
        )

    def _heard(self, record: logging.LogRecord) -> bool:
        """A filter that lets everything pass."""
        args = record.args
        if isinstance(record.msg, str):
            if record.msg.startswith(_LIMIT) and isinstance(args, tuple) and len(args) >= 4:
                self._limit_hit = True
                self._limits[str(args[2])] = str(args[3] or "")
            elif record.msg.startswith(_SKIP):
                self._skips[_first(record.getMessage())] += 1
        return True


def _utils() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _gpu() -> bool:
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_available())


def _first(reason: str) -> str:
    """A reason's first line and, where torch gives one, its explanation; not its hints."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    if not lines:
        return "torch gave no reason"
    why = [line.removeprefix("Explanation: ") for line in lines[1:3] if line.startswith("Explanation: ")]
    return ": ".join([lines[0], *why])[:LONGEST_REASON]
