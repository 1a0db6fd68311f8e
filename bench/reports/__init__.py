"""Public reports of slow steps, found after gobrrr was made and reproduced here: does it name what the report blames?

One file a report, `<project>_<words>.py`. The facts are the report's, the code is our own:

    SOURCE = "https://github.com/..."     # the report
    MECHANISM = 5                         # one of MECHANISMS, below
    CAUSE = "..."                         # what the report says is wrong
    REPORTED = "..."                      # the effect that the report gives; "" where it gives none
    NAMES = r"sort|top-?k"                # a finding has named the cause if its own words match this
    NEGATIVE = True                       # only where the obvious change gave nothing
    def made(*, sick: bool) -> Workload   # the step with its fault, or without it

The line that is to blame has the comment `# cause` (every such line, where there are several). `NAMES` was written
before the report was tried for the first time: it asks for the operation, the call or the mechanism, not for a code.
(One was mended after it: torch_tensor_of_array_like asked for `torch.tensor`, and was told `tensor()`.)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from gobrrr import Workload

FORMS = ("faulty", "fixed")

MECHANISMS = {
    1: "Python, the program's or a library's, holds the host", 2: "one operation holds the step",
    3: "the same work again", 4: "work that grows", 5: "a loop on the host", 6: "reading the device", 7: "first uses",
    8: "casts, conversions, small operations",
}  # fmt: skip

MARK = re.compile(r"#\s*cause\s*$")


def form_of(report: ModuleType, form: str) -> Callable[[], Workload]:
    """What makes a report's workload in one of FORMS."""
    return partial(report.made, sick=form == "faulty")


def functions_to_blame(module: ModuleType) -> set[int]:
    """The first lines of the functions that hold a line which the report blames; the step as a whole is none."""
    blamed = lines_to_blame(module)
    functions = (
        (min([function.lineno, *(each.lineno for each in function.decorator_list)]), function)
        for function in ast.walk(ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name not in WHOLE
    )
    return {
        first
        for first, function in functions
        if any(function.lineno <= at <= (function.end_lineno or 0) for at in blamed)
    }


WHOLE = ("step", "made")


def lines_to_blame(module: ModuleType) -> set[int]:
    """The numbers of the lines that the report blames."""
    text = Path(module.__file__ or "").read_text(encoding="utf-8")
    return {number for number, line in enumerate(text.splitlines(), start=1) if MARK.search(line)}
