"""Cleans, shortens and wraps text from a trace, which is not trusted; only this module does."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len, chop_cells

MAX_TEXT_CHARACTERS = 4096
"""Longer names are cut first: some traces hold names of megabytes. Chosen."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# The escape sequences of a terminal: CSI (colour, cursor), OSC (title, links, clipboard), and any other ESC + one.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b.?")
_SPACES = re.compile(r"[\t\n\r\v\f ]+")
# Control, format (right-to-left override, zero width), surrogate, private use, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def sanitise(text: str, *, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """`text` as one line that is safe to print.

    Escape sequences are removed, white space becomes one space, and every control, bidirectional, zero-width or
    surrogate character becomes U+FFFD, so that hidden text is visible. Markup such as "[red]" stays: nothing parses it.
    """
    return _safe(_SPACES.sub(" ", _ESCAPES.sub("", text[:limit])).strip())


def _safe(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(REPLACEMENT if unicodedata.category(sign) in _UNSAFE else sign for sign in text)


LONGEST_NAME = 160
"""Terminal cells of a name; a longer one is cut. Chosen."""


def name_of(text: str) -> str:
    """A name of a file, an operation, a module or a device: safe to print, and cut only if it is absurdly long."""
    return shorten(sanitise(text), LONGEST_NAME)


def clean_lines(text: str) -> list[str]:
    """The lines of `text`, safe to print and with their indents; blank lines at both ends are removed."""
    lines = [_safe(_ESCAPES.sub("", line.expandtabs(4)).rstrip()) for line in text[:MAX_TEXT_CHARACTERS].splitlines()]
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def to_ascii(text: str) -> str:
    """`text` in ASCII; other characters become "?"."""
    return text.encode("ascii", "replace").decode("ascii")


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """`text` cut to `width` cells, with `ellipsis` at the end if it was cut."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - cell_len(ellipsis))
    kept = chop_cells(text, room)[0] if room else ""
    return kept.rstrip() + ellipsis


def wrap(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells, broken at spaces where possible, not between a number and its unit."""
    out: list[str] = []
    rest = text
    while rest:
        head, rest = _break(rest, width)
        out.append(head)
    return out


_MEASURE = re.compile(r"\d (?:%|[num]?s|[kMGTPE]?(?:B|FLOP)(?:/s)?)(?!\w)")
"""Where a number ends and its unit follows."""


def _break(text: str, width: int) -> tuple[str, str]:
    if cell_len(text) <= width:
        return text, ""
    head = chop_cells(text, width)[0] or text[0]
    space = head.rfind(" ") if not text[len(head)].isspace() else len(head)
    cut = space if space > 0 else len(head)
    if cut > 1 and _MEASURE.match(text, cut - 1):
        before = text.rfind(" ", 0, cut)
        cut = before if before > 0 else cut
    return text[:cut].rstrip(), text[cut:].lstrip()


_CPP = re.compile(r"^void |^(?:at|c10|cutlass|cub|thrust)::|[<(].*::|[\w>]\(|\w<")
_NAMESPACES = re.compile(r"^(?:\(anonymous namespace\)::|[A-Za-z_]\w*::)+(?=\w)")
_COMPILED = re.compile(r"(?:CPU )?(?:## )?Call CompiledFxGraph (?P<key>\w+)(?: ##)?")
"""A compiled graph in a trace, with the key of torch's cache."""
GRAPH_CHARACTERS = 7
"""Characters of the key that are shown, as many as of a short git hash."""
_GENERIC = frozenset({"Kernel", "Kernel2", "device_kernel", "kernel", "Kernel3"})
"""Names that say nothing without their template argument."""


def short_name(name: str) -> str:
    """A kernel's or op's name without C++ decoration: return type, namespaces, template and call arguments.

    "void at::native::vectorized_elementwise_kernel<4, ...>(int, ...)" is "vectorized_elementwise_kernel". Names of
    ops ("aten::addmm") and of copies ("Memcpy HtoD (Pageable -> Device)") stay. A compiled graph is named with part of
    its key to tell graphs apart. A name that says nothing without its argument ("cutlass::Kernel2<...>") is replaced by
    the last part of that argument.
    """
    name = sanitise(name)
    if compiled := _COMPILED.fullmatch(name):
        return f"compiled graph {compiled['key'][:GRAPH_CHARACTERS]}"
    if not _CPP.search(name):
        return name
    bare = _without_arguments(name.removeprefix("void "))
    short = _NAMESPACES.sub("", bare).strip() or bare or name
    if short in _GENERIC and (inner := re.search(r"<\s*([\w:]+)", name)):
        return inner.group(1).split("::")[-1] or short
    return short


def _without_arguments(name: str) -> str:
    """`name` without template arguments <...> and call arguments (...); unmatched brackets end the name."""
    out: list[str] = []
    depth = 0
    previous = ""
    for position, sign in enumerate(name):
        if sign == "(" and name.startswith("(anonymous namespace)", position) and depth == 0:
            out.append(sign)
        elif sign in "<(" and (depth or previous != " "):
            depth += 1
        elif sign in ">)" and depth:
            depth -= previous != "-"  # "->" closes nothing
        elif not depth:
            out.append(sign)
        previous = sign
    return "".join(out).strip()
