"""Which functions the compiler compiled again, and the guard that made it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from gobrrr.observe.installed import is_users
from gobrrr.observe.live.watches.lines import function, spelled


class Code(NamedTuple):
    """A function that was compiled, as the compiler's records name it."""

    name: str
    file: str
    first: int

    @property
    def line(self) -> str | None:
        """Its line, where it is the user's own."""
        return spelled(self.file, self.first, self.name) if is_users(self.file) else None


def compiled_again(some: Iterable[Any], everything: Iterable[Any]) -> tuple[Counter[Code], dict[Code, str]]:
    """For each function that `some` records compile again: how often, and the failed guard of the last time.

    The record of a compilation that was given up names no function: the records of `everything` with its number do.
    """
    frames: dict[str, Code] = {}
    for one in everything:
        if one.co_name and one.co_filename:
            frames[_frame(one)] = Code(one.co_name, one.co_filename, one.co_firstlineno or 0)
    counts: Counter[Code] = Counter()
    latest: dict[Code, str] = {}
    for one in some:
        code = frames.get(_frame(one))
        if code is None or one.is_forward is False or not _again(one):
            continue
        counts[code] += 1
        latest[code] = getattr(one, "recompile_reason", None) or _failed(code)
    return counts, latest


def named(code: Code) -> str:
    """The function's name as the program has it."""
    return function(code.name)


def limit_line(code: Code) -> str:
    """How the compiler's warning spells a function that it gives up."""
    return f"'{code.name}' ({code.file}:{code.first})"


def guard(reason: str) -> str:
    """The condition that failed, on one line, without the compilation's number and torch's advice."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    told = re.sub(r"^\S+/\d+: ", "", lines[0])
    return re.sub(r"\s+", " ", told.split(" (HINT:")[0]).strip()


def _frame(one: Any) -> str:
    """A record's number without that of the attempt: "3/1" is the second compilation of the fourth function."""
    return str(one.compile_id).rpartition("/")[0]


def _again(one: Any) -> bool:
    attempt = str(one.compile_id).rpartition("/")[2].partition("_")[0]
    return bool(getattr(one, "recompile_reason", None)) or (attempt.isdigit() and int(attempt) > 0)


def _failed(code: Code) -> str:
    """The guard that failed last, from the compiler's own list: records hold none before torch 2.7."""
    failures = getattr(sys.modules.get("torch._dynamo.utils"), "guard_failures", {})
    for one, reasons in list(failures.items()):
        if reasons and (one.co_name, one.co_filename, one.co_firstlineno) == tuple(code):
            return str(reasons[-1])
    return ""
