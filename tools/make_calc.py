"""Write the outputs in docs/calc.md, and docs/generations.svg; `--check` says if they are current.

A line `<!-- calc: ARGUMENTS -->` is followed by what `gobrrr calc ARGUMENTS` prints at 80 columns.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import pages
from gobrrr import cli, envelope
from gobrrr.model.envelope import Generation

PAGE, PICTURE = pages.DOCS / "calc.md", pages.DOCS / "generations.svg"
MARK = re.compile(r"<!-- calc: (.*?) -->\n(?:\n```\n\$ gobrrr calc .*?\n```\n)?", re.DOTALL)

WIDTH, LEFT, BAR, ROW, TOP = 720, 190, 380, 26, 44
COLOURS = {"NVIDIA": "#4c8a00", "AMD": "#b3282d"}


class _Terminal(io.StringIO):
    encoding = "utf-8"


def printed(arguments: str) -> str:
    """What the command prints. Raises ValueError when it fails."""
    out = _Terminal()
    with contextlib.redirect_stdout(out):
        status = cli.main(["calc", *shlex.split(arguments)])
    if status:
        raise ValueError(f"gobrrr calc {arguments}: exit status {status}")
    return out.getvalue().rstrip("\n")


def page(text: str) -> str:
    """`text` with every output filled in."""

    def block(match: re.Match[str]) -> str:
        arguments = match.group(1)
        return f"<!-- calc: {arguments} -->\n\n```\n$ gobrrr calc {arguments}\n{printed(arguments)}\n```\n"

    return MARK.sub(block, text)


def picture(many: Sequence[Generation]) -> str:
    """Bars of FLOP a byte, one a GPU."""
    height = TOP + ROW * len(many) + 16
    most = max(generation.matrix_ratio for generation in many)
    style = 'font-family="sans-serif" font-size="13" fill="#333"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="16" y="26" {style} font-weight="bold">Dense 16-bit FLOP a byte of memory bandwidth</text>',
    ]
    for index, generation in enumerate(many):
        y = TOP + ROW * index
        length = generation.matrix_ratio / most * BAR
        lines += [
            f'<text x="16" y="{y + 15}" {style}>{generation.year}</text>',
            f'<text x="60" y="{y + 15}" {style}>{generation.name}</text>',
            f'<rect x="{LEFT}" y="{y + 3}" width="{length:.1f}" height="16" fill="{COLOURS[generation.vendor]}"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{y + 15}" {style}>{generation.matrix_ratio:.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    def files() -> dict[Path, str]:
        return {PAGE: page(PAGE.read_text(encoding="utf-8")), PICTURE: picture(envelope.generations())}

    return pages.main(__doc__, files, "python -m tools.make_calc")


if __name__ == "__main__":
    sys.exit(main())
