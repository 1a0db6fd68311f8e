"""Apply a remedy's text to a program's source as its reader would: by the places that its lines name."""

from __future__ import annotations

import ast
import re
import textwrap

PLACE = re.compile(r"#.*?(?P<way>after |before |)(?P<file>[\w./-]+\.py):(?P<first>\d+)(?:-(?P<last>\d+))?")
HERE = "# paste here"
"""Where a program puts what names no place of its own: behind its objects and before its first step."""


def pasted(source: str, how: str, file: str) -> str:
    """The source of `file` with the remedy in it."""
    lines = source.splitlines()
    edits: list[tuple[int, int, list[str]]] = []  # from the first line that goes to the one behind the last
    for text in statements(how):
        match = PLACE.search(text.splitlines()[0])
        if match is None or match["file"].rpartition("/")[2] != file:
            at = lines.index(HERE)
            edits.append((at, at, text.splitlines()))
            continue
        first, last = int(match["first"]) - 1, int(match["last"] or match["first"])
        indented = textwrap.indent(text, re.match(r" *", lines[first])[0]).splitlines()  # type: ignore[index]
        begin, stop = {"after ": (last, last), "before ": (first, first), "": (first, last)}[match["way"]]
        edits.append((begin, stop, indented))
    together: dict[tuple[int, int], list[str]] = {}
    for begin, stop, texts in edits:
        together.setdefault((begin, stop), []).extend(texts)
    for begin, stop in sorted(together, reverse=True):
        lines[begin:stop] = together[begin, stop]
    return "\n".join(lines) + "\n"


def statements(how: str) -> list[str]:
    """The statements of a remedy's text, each with the comment on its first line."""
    lines = how.splitlines()
    return ["\n".join(lines[one.lineno - 1 : one.end_lineno]) for one in ast.parse(how).body]


def is_advice(how: str) -> bool:
    """Whether a remedy's text holds no code."""
    return not ast.parse(how).body
