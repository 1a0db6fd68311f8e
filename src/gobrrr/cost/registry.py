"""Which rule counts which op. Adding one is three lines:

    @rule("mylib::swiglu", family="pointwise")
    def swiglu(call: OpCall) -> Work:
        return elementwise(call, ...)

A rule raises `Uncounted` (or returns a Work with count "unknown") when the arguments don't say enough.
"""

from __future__ import annotations

from collections.abc import Callable

from gobrrr.errors import CountingError
from gobrrr.model.work import OpCall, Work

Rule = Callable[[OpCall], Work]


class Uncounted(Exception):
    """The arguments don't say enough to count: `str(error)` is the reason, which becomes the Work's note."""


_RULES: dict[str, tuple[Rule, str]] = {}
_PREFIXES: dict[str, tuple[Rule, str]] = {}
"""The rule and the family of each name, and of each beginning of a name."""


def register(name: str, function: Rule, *, family: str = "") -> None:
    """Let `function` count the op called `name` ("aten::mm"); a name that ends in "*" is a prefix.

    Raises CountingError when the name has a rule already.
    """
    table, key = (_PREFIXES, name[:-1]) if name.endswith("*") else (_RULES, name)
    if key in table:
        raise CountingError(f"a rule for {name!r} is registered already ({table[key][0].__name__})")
    table[key] = (function, family)


def rule(*names: str, family: str) -> Callable[[Rule], Rule]:
    """Register the decorated function for every one of `names`."""

    def decorate(function: Rule) -> Rule:
        for name in names:
            register(name, function, family=family)
        return function

    return decorate


def unregister(name: str) -> None:
    """Forget the rule of `name`, for instance to replace it. Raises CountingError when there is none."""
    table, key = (_PREFIXES, name[:-1]) if name.endswith("*") else (_RULES, name)
    if table.pop(key, None) is None:
        raise CountingError(f"no rule for {name!r} is registered")


def find(name: str) -> tuple[Rule, str] | None:
    """The rule and the family for an op's name: exact, without its overload, then the longest prefix."""
    found = _RULES.get(name) or _RULES.get(plain(name))
    if found is not None:
        return found
    matches = [prefix for prefix in _PREFIXES if name.startswith(prefix)]
    return _PREFIXES[max(matches, key=len)] if matches else None


def canonical(name: str) -> str:
    """The spelling that the op's rule is registered under: "aten.mm.default" -> "aten::mm"; unchanged without one."""
    return plain(name) if name not in _RULES and plain(name) in _RULES else name


def plain(name: str) -> str:
    """The op's name without its overload, in the profiler's spelling: "aten.mm.default" -> "aten::mm"."""
    if "::" not in name:
        namespace, _, rest = name.partition(".")
        return f"{namespace}::{rest.partition('.')[0]}" if rest else name
    namespace, _, rest = name.partition("::")
    return f"{namespace}::{rest.partition('.')[0]}"


def names() -> tuple[str, ...]:
    """Every registered name, prefixes with their "*", sorted."""
    return tuple(sorted([*_RULES, *(f"{prefix}*" for prefix in _PREFIXES)]))
