"""A page as lines of styled spans: laid out once, then printed plain or in colour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len

from gobrrr.report.text import shorten, wrap

Span = tuple[str, str]
"""Text and its style, as rich names it; "" is the terminal's default."""
Line = list[Span]

CODE = "cyan"
"""The style of code to paste: the layout never breaks a line with it."""

MIN_WIDTH, MAX_WIDTH, DEFAULT_WIDTH = 60, 120, 80
"""Columns of a page: what can be laid out, and the width of plain text."""


@dataclass(frozen=True)
class Glyphs:
    """The special characters; `eighths` are the ends of a bar, from one eighth of a cell to seven."""

    dot: str
    ellipsis: str
    block: str
    eighths: str
    arrow: str


UNICODE = Glyphs("·", "…", "█", "▏▎▍▌▋▊▉", "→")
ASCII = Glyphs("-", "...", "#", "", "->")


@dataclass(frozen=True)
class Page:
    """The width and the characters that a section is laid out with."""

    width: int = DEFAULT_WIDTH
    glyphs: Glyphs = UNICODE

    @property
    def joint(self) -> str:
        """The separator between the parts of a line."""
        return f" {self.glyphs.dot} "

    def cut(self, text: str, width: int) -> str:
        """A name in a table, shortened to `width` cells. Text that a reader must act on is wrapped instead."""
        return shorten(text, width, self.glyphs.ellipsis)

    def wrapped(self, text: str, *, first: str, rest: str = "", style: str = "") -> list[Line]:
        """`text` under a hanging indent: `first` before the first line, `rest` (or as many spaces) before others."""
        rest = rest or " " * cell_len(first)
        parts = wrap(text, max(8, self.width - max(cell_len(first), cell_len(rest))))
        return [[(first if at == 0 else rest, ""), (part, style)] for at, part in enumerate(parts)]

    def bar(self, share: float, cells: int) -> str:
        """A bar of `share` (0 to 1) of `cells`; a positive share shows at least the smallest character."""
        share = min(1.0, max(0.0, share))
        if not self.glyphs.eighths:
            return self.glyphs.block * max(int(share * cells + 0.5), share > 0)
        eighths = max(round(share * cells * 8), int(share > 0))
        whole, part = divmod(eighths, 8)
        return self.glyphs.block * whole + (self.glyphs.eighths[part - 1] if part else "")


def length(line: Iterable[Span]) -> int:
    """Cells that a line takes on the screen."""
    return sum(cell_len(text) for text, _ in line)


def spread(left: Line, right: Line, width: int) -> Line:
    """`left` and `right` at the ends of a line of `width` cells, at least two spaces apart."""
    gap = max(2, width - length(left) - length(right))
    return [*left, (" " * gap, ""), *right]


def row(name: str, cells: int, rest: str, *, lead: str = " ", styles: tuple[str, str] = ("", "")) -> list[Line]:
    """A table's row; a name that is too long for its column stands on a line of its own, above the figures.

    `styles`: of the name and of the figures.
    """
    if cell_len(name) <= cells:
        return [[(f"{lead}{name}{' ' * (cells - cell_len(name))}", styles[0]), (rest, styles[1])]]
    return [[(f"{lead}{name}", styles[0])], [(" " * (cell_len(lead) + cells) + rest, styles[1])]]


def fits(left: Line, right: Line, width: int) -> bool:
    """Whether both fit on one line with a gap of two."""
    return length(left) + length(right) + 2 <= width


def fold(lines: Iterable[Line], width: int) -> list[Line]:
    """The lines, wrapped to `width` cells; code stays as it is, since it is pasted."""
    return [part for line in lines for part in _folded(line, width)]


def _folded(line: Line, width: int) -> list[Line]:
    if length(line) <= width or any(style == CODE for _, style in line):
        return [line]
    text = "".join(part for part, _ in line)
    styles = [style for part, style in line for _ in part]
    indent = len(text) - len(text.lstrip(" "))
    out: list[Line] = []
    at = 0
    for part in _hanging(text, indent, width):
        at = text.index(part, at)
        lead: Line = [(" " * min(indent + 2, width // 2), "")] if out else []
        out.append([*lead, *_spans(part, styles[at : at + len(part)])])
        at += len(part)
    return out


def _hanging(text: str, indent: int, width: int) -> list[str]:
    """The parts of a line: the first with its indent, the others short enough for two more spaces."""
    room = max(8, width - min(indent + 2, width // 2))
    first, *_ = wrap(text.strip(), width - indent)
    return [" " * indent + first, *wrap(text[indent + len(first) :].strip(), room)]


def _spans(text: str, styles: list[str]) -> Line:
    """`text` as spans; neighbouring characters of one style are merged."""
    out: Line = []
    for character, style in zip(text, styles, strict=True):
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + character, style)
        else:
            out.append((character, style))
    return out


def plain(lines: Iterable[Line]) -> str:
    """The lines as text without styles and trailing spaces."""
    return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)
