"""How remedies are written: Python with the names of the user's own program.

A line that replaces a line of the program ends in a comment with its place, "# train.py:14"; a line to be added after
one ends in "# after train.py:14". Advice that is not code is a comment.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Mapping

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import program_of
from gobrrr.model.diagnosis import Finding
from gobrrr.model.program import ProgramObject, SourceStatement

_SOURCE = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.*)", re.DOTALL)


def place(source: str | None, last: int | None = None) -> str:
    """A line's place in the form that editors open: "train.py:14 in main"; several lines: "train.py:14-16"; "" for
    none."""
    match = _SOURCE.fullmatch(source or "")
    if match is None:
        return source or ""
    file = os.path.basename(match["file"]) if os.path.isabs(match["file"]) else match["file"]
    lines = match["line"] if last is None or last == int(match["line"]) else f"{match['line']}-{last}"
    function = "" if match["function"] in ("<module>", "<lambda>") else f" in {match['function']}"
    return f"{file}:{lines}{function}"


def where(finding: Finding) -> str:
    """The first place of a finding that has a source line; "" where none has."""
    return place(next((spot.source for spot in finding.where if spot.source), None))


def written_at(written: SourceStatement | None) -> str:
    """The place of a statement; "" for None."""
    return place(written.source, written.last) if written is not None else ""


def line(code: str, *notes: str) -> str:
    """A line of code with notes as its comment."""
    comment = "; ".join(filter(None, notes))
    return f"{code}  # {comment}" if comment else code


def after(at: str) -> str:
    """The note "after PLACE" of a line to be added; "" where the place is not known."""
    return f"after {at}" if at else ""


def said(text: str, at: str = "") -> str:
    """Advice as a comment."""
    return f"# {at}: {text}" if at else f"# {text}"


def model_of(evidence: Evidence) -> str:
    """The model's name in the program; "model" where that is not known."""
    model = program_of(evidence).model
    return (model.name if model is not None else None) or "model"


def changed_model(evidence: Evidence, change: str, note: str = "") -> str:
    """A line that changes the model as `change` says: "torch.compile({})"; without a model, the step's function."""
    program = program_of(evidence)
    if program.model is None and program.step is not None:
        return line(f"{program.step} = {change.format(program.step)}", note)
    name = model_of(evidence)
    at = after(written_at(program.model.written)) if program.model is not None else ""
    return line(f"{name} = {change.format(name)}", at, note)


def changed_inputs(evidence: Evidence, change: str, *, dimensions: int | None = None) -> list[str]:
    """Lines that change the model's floating-point inputs as `change` says, or only those with `dimensions`
    dimensions."""
    program = program_of(evidence)
    if not program.inputs:
        return [line(f"x = {change.format('x')}", "what the model is called with")]
    found = []
    for tensor in program.inputs:
        if dimensions in (None, tensor.dimensions) and "float" in tensor.dtype:
            first = place(program.forward.source) if program.forward is not None else ""
            at = f"before {first}" if tensor.local and first else after(written_at(tensor.written))
            found.append(line(f"{tensor.name} = {change.format(tensor.name)}", at))
    return found


OTHER_ARGUMENTS_NOTE = "its other arguments stay as they are"
"""The note of a changed call."""
BATCH_SIZE = "batch_size"
"""The name of a DataLoader's second argument."""


def changed_loader(evidence: Evidence, given: Mapping[str, str]) -> str:
    """The statement that makes the program's loader, with changed arguments; where it is not known, a new one."""
    made = program_of(evidence).loader
    name, kind = (made.name, made.kind) if made is not None else (None, "torch.utils.data.DataLoader")
    arguments = ", ".join(f"{argument}={value}" for argument, value in given.items())
    return made_with(made, given) or line(f"{name or 'loader'} = {kind}(..., {arguments})", OTHER_ARGUMENTS_NOTE)


def made_with(
    made: ProgramObject | None, given: Mapping[str, str], without: Collection[str] = (), note: str = ""
) -> str | None:
    """The statement that makes an object, with changed keyword arguments; None where the statement is not known."""
    written = made.written if made is not None else None
    if written is None or written.text is None or written.call is None:
        return None
    call = called_with(written.call, given, without, BATCH_SIZE)
    return None if call is None else line(written.text.replace(written.call, call, 1), written_at(written), note)


def called_with(call: str, given: Mapping[str, str], without: Collection[str] = (), second: str = "") -> str | None:
    """The text of a call with some arguments set by keyword and others left out; the rest stays as it is written.

    `second`: the name of the second positional argument. None where the call unpacks a mapping, which may hold the same
    arguments.
    """
    parts = _arguments(call, second)
    if parts is None:
        return None
    function, arguments = parts
    texts = [_with_value(name, text, given.get(name)) for name, text in arguments if name not in without]
    named = {name for name, _ in arguments}
    texts += [f"{name}={value}" for name, value in given.items() if name not in named]
    return f"{function}({', '.join(texts)})"


def argument(call: str, name: str, second: str = "") -> str | None:
    """The text of an argument's value; None where the call does not name it."""
    parts = _arguments(call, second)
    found = dict(parts[1]).get(name) if parts is not None else None
    return found.removeprefix(f"{name}=") if found is not None else None


def _with_value(name: str, text: str, value: str | None) -> str:
    if value is None:
        return text
    return f"{name}={value}" if text.startswith(f"{name}=") else value


def _arguments(call: str, second: str) -> tuple[str, list[tuple[str, str]]] | None:
    """(the called function, the arguments in order with their names), all as written; None where the call unpacks a
    mapping."""
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        return None
    data = call.encode()
    parts: list[tuple[ast.expr | ast.keyword, str]] = [
        (expr, second if at == 1 else "") for at, expr in enumerate(node.args)
    ]
    parts += [(keyword, keyword.arg or "") for keyword in node.keywords]
    parts.sort(key=lambda part: (part[0].lineno, part[0].col_offset))
    texts = [(name, data[part.col_offset : part.end_col_offset].decode()) for part, name in parts]
    return data[: node.func.end_col_offset].decode(), texts
