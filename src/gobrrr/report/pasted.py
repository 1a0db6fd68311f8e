"""Code to paste, wrapped to a width: broken only where Python allows a line to continue."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator

from rich.cells import cell_len

from gobrrr.report.text import wrap

CONTINUATION_INDENT = " " * 4
"""The indent of a continued line."""


def folded(line: str, width: int) -> list[str]:
    """`line` in lines of at most `width` cells with the same meaning; unchanged if it can't be broken.

    A long comment becomes several; one behind code moves above it.
    """
    if cell_len(line) <= width:
        return [line]
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    if text.startswith("#"):
        return [f"{indent}# {part}" for part in wrap(text.lstrip("# "), max(8, width - len(indent) - 2))]
    tokens = _tokens(text)
    if tokens and tokens[-1].type == tokenize.COMMENT:
        at = tokens[-1].start[1]
        return [*folded(indent + text[at:], width), *folded(indent + text[:at].rstrip(), width)]
    for opened in (False, True):
        parts = _filled(list(_pieces(text, tokens, opened=opened)), indent, width)
        if all(cell_len(part) <= width for part in parts):
            return parts
    return [line]


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    """The tokens of a line; [] if it is not a complete line of Python."""
    blank = (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)
    try:
        return [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in blank]
    except (tokenize.TokenError, SyntaxError):
        return []


def _pieces(text: str, tokens: list[tokenize.TokenInfo], *, opened: bool) -> Iterator[str]:
    """`text` cut after each comma within brackets; `opened`: also after each opening bracket."""
    depth, begin = 0, 0
    for token in tokens:
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        if depth and token.type == tokenize.OP and (token.string == "," or (opened and token.string in "([{")):
            yield text[begin : token.end[1]]
            begin = token.end[1]
    yield text[begin:]


def _filled(pieces: list[str], indent: str, width: int) -> list[str]:
    lines = [indent + pieces[0]]
    for piece in pieces[1:]:
        if cell_len(lines[-1]) + cell_len(piece) <= width:
            lines[-1] += piece
        else:
            lines.append(indent + CONTINUATION_INDENT + piece.strip())
    return lines
