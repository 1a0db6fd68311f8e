"""Markdown for a pipe or a file: wrapped to a width, and still the same Markdown."""

from __future__ import annotations

import re

from gobrrr.report.pasted import folded
from gobrrr.report.text import wrap

FENCE = "```"
_BLOCK = re.compile(r"    |#|\||" + FENCE)
"""The begin of a line outside paragraphs: code, a heading, a table, a fence."""
_ITEM = re.compile(r"(?P<lead>\s*(?:[-*]|\d+\.) )")
_TERM = re.compile(r" {4}.*?(?: = | {2,}(?=\S))")
"""The first column of a line in an indented block, as far as its "=" or its spaces."""


def fitted(text: str, width: int) -> str:
    """The text in lines of at most `width` columns: paragraphs refilled, code broken where Python allows it."""
    out: list[str] = []
    paragraph: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        special = fenced or not line.strip() or _BLOCK.match(line)
        if paragraph and (special or _ITEM.match(line)):
            out += _filled(" ".join(paragraph), width)
            paragraph = []
        if fenced and not line.startswith(FENCE):
            out += folded(line, width)
        elif special:
            out += _hanging(line, width)
        else:
            paragraph.append(line.strip() if paragraph else line.rstrip())
        fenced ^= line.startswith(FENCE)
    return "\n".join(out[:-1])


def _filled(paragraph: str, width: int) -> list[str]:
    item = _ITEM.match(paragraph)
    lead = item["lead"] if item else ""
    parts = wrap(paragraph[len(lead) :], width - len(lead))
    return [f"{lead if at == 0 else ' ' * len(lead)}{part}" for at, part in enumerate(parts)]


def _hanging(line: str, width: int) -> list[str]:
    """A line outside paragraphs; an indented one is wrapped under its last column."""
    if len(line) <= width or not line.startswith("    "):
        return [line]
    term = _TERM.match(line)
    lead = term[0] if term and len(term[0]) < width // 2 else line[: len(line) - len(line.lstrip())]
    parts = wrap(line[len(lead) :], width - len(lead))
    return [f"{lead if at == 0 else ' ' * len(lead)}{part}" for at, part in enumerate(parts)]
