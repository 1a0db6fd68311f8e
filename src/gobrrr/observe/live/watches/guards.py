"""Which functions the compiler recompiled, and the guard that failed."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from gobrrr.observe.installed import is_users
from gobrrr.observe.live.watches.lines import function, spelled


class Code(NamedTuple):
    """A compiled function, as the compiler's records name it; `first` is its first line."""

    name: str
    file: str
    first: int

    @property
    def line(self) -> str | None:
        """Its first line, where the function is the user's own; else None."""
        return spelled(self.file, self.first, self.name) if is_users(self.file) else None


def compiled_again(some: Iterable[Any], everything: Iterable[Any]) -> tuple[Counter[Code], dict[Code, str]]:
    """For each function that the records `some` compile again: how often, and the guard that failed last.

    The record of a compilation that was given up names no function. The records of `everything` with the same number
    name it.
    """
    frames: dict[str, Code] = {}
    for record in everything:
        if record.co_name and record.co_filename:
            frames[_frame(record)] = Code(record.co_name, record.co_filename, record.co_firstlineno or 0)
    counts: Counter[Code] = Counter()
    latest: dict[Code, str] = {}
    for record in some:
        code = frames.get(_frame(record))
        if code is None or record.is_forward is False or not _again(record):
            continue
        counts[code] += 1
        latest[code] = getattr(record, "recompile_reason", None) or _failed(code)
    return counts, latest


def named(code: Code) -> str:
    """The function's name in the program's source."""
    return function(code.name)


def limit_line(code: Code) -> str:
    """How the compiler's warning of its recompile limit spells a function."""
    return f"'{code.name}' ({code.file}:{code.first})"


def guard(reason: str) -> str:
    """The condition that failed, on one line, without the compilation's number and torch's advice."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    condition = re.sub(r"^\S+/\d+: ", "", lines[0])
    return re.sub(r"\s+", " ", condition.split(" (HINT:")[0]).strip()


def _frame(record: Any) -> str:
    """A record's number without that of the attempt: "3/1" is the second compilation of the fourth function."""
    return str(record.compile_id).rpartition("/")[0]


def _again(record: Any) -> bool:
    attempt = str(record.compile_id).rpartition("/")[2].partition("_")[0]
    return bool(getattr(record, "recompile_reason", None)) or (attempt.isdigit() and int(attempt) > 0)


def _failed(code: Code) -> str:
    """The guard that failed last, from the compiler's own list: before torch 2.7 the records have none."""
    failures = getattr(sys.modules.get("torch._dynamo.utils"), "guard_failures", {})
    for failed, reasons in list(failures.items()):
        if reasons and (failed.co_name, failed.co_filename, failed.co_firstlineno) == tuple(code):
            return str(reasons[-1])
    return ""
