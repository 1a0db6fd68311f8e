"""A page is lines of styled spans: laid out once, then printed plain or in colour."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len

from gobrrr.report.text import shorten, wrap

Span = tuple[str, str]
"""Text and its style, in rich's words; "" is the terminal's own."""
Line = list[Span]

MIN_WIDTH, MAX_WIDTH, DEFAULT_WIDTH = 60, 120, 80


@dataclass(frozen=True)
class Glyphs:
    """The signs beyond letters; `eighths` are the ends of a bar, from one eighth of a cell to seven."""

    dot: str
    ellipsis: str
    block: str
    eighths: str
    arrow: str


UNICODE = Glyphs("·", "…", "█", "▏▎▍▌▋▊▉", "→")
ASCII = Glyphs("-", "...", "#", "", "->")


@dataclass(frozen=True)
class Page:
    """What every section needs to lay itself out."""

    width: int = DEFAULT_WIDTH
    glyphs: Glyphs = UNICODE

    @property
    def joint(self) -> str:
        """What stands between the parts of a line."""
        return f" {self.glyphs.dot} "

    def cut(self, text: str, width: int) -> str:
        """`text`, shortened to `width` cells."""
        return shorten(text, width, self.glyphs.ellipsis)

    def wrapped(
        self, text: str, *, first: str, rest: str = "", lines: int | None = None, style: str = ""
    ) -> list[Line]:
        """`text` under a hanging indent: `first` before the first line, `rest` (or as many spaces) before others."""
        rest = rest or " " * cell_len(first)
        room = max(8, self.width - cell_len(first))
        parts = wrap(text, room, lines=lines, ellipsis=self.glyphs.ellipsis)
        return [[(first if at == 0 else rest, ""), (part, style)] for at, part in enumerate(parts)]

    def bar(self, share: float, cells: int) -> str:
        """A bar of `share` (0 to 1) of `cells`; what is above nothing shows at least the smallest sign there is."""
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
    """`left` and `right` at the two ends of a line of `width` cells, at least two spaces apart."""
    gap = max(2, width - length(left) - length(right))
    return [*left, (" " * gap, ""), *right]


def fits(left: Line, right: Line, width: int) -> bool:
    """Whether the two stand on one line with a gap of two."""
    return length(left) + length(right) + 2 <= width


def crop(line: Line, width: int, ellipsis: str) -> Line:
    """The line, cut where it would be longer than `width` cells."""
    if length(line) <= width:
        return line
    out: Line = []
    room = width
    for text, style in line:
        part = shorten(text, room, ellipsis)
        out.append((part, style))
        room -= cell_len(part)
        if part != text or room <= 0:
            break
    return out


def plain(lines: Iterable[Line]) -> str:
    """The lines as text without a style; no space at a line's end."""
    return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)
