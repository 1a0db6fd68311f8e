"""Where the program's source calls a function: for calls that were made before the watching began."""

from __future__ import annotations

import ast
import linecache
import sys

from gobrrr.observe.installed import is_users
from gobrrr.observe.live.watches.lines import within


def call_in_source(*names: str) -> str | None:
    """The first line in the program's loaded modules that calls a function of one of these names.

    A call with False as its first argument does not count. None where there is no such line.
    """
    for file in [getattr(module, "__file__", None) for module in list(sys.modules.values())]:
        if not file or not is_users(file):
            continue
        text = "".join(linecache.getlines(file))
        if not any(name in text for name in names):
            continue
        try:
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        except SyntaxError:
            continue
        for call in sorted(calls, key=lambda call: call.lineno):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
            off = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value is False
            if name in names and not off:
                return within(file, call.lineno)
    return None
