"""How remedies are written: Python in the words of the user's own program.

A line that takes the place of one of the program's ends in a comment with that place, "# train.py:14"; a line to be put
in behind one in "# after train.py:14". What is to be done, and is no code, is a comment.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Mapping

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import program_of
from gobrrr.model.diagnosis import Finding
from gobrrr.model.program import Made, Written

_SOURCE = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.*)", re.DOTALL)


def place(source: str | None, last: int | None = None) -> str:
    """Where a line is, as an editor takes it: "train.py:14 in main"; of several lines "train.py:14-16". "" for none."""
    match = _SOURCE.fullmatch(source or "")
    if match is None:
        return source or ""
    file = os.path.basename(match["file"]) if os.path.isabs(match["file"]) else match["file"]
    lines = match["line"] if last is None or last == int(match["line"]) else f"{match['line']}-{last}"
    function = "" if match["function"] in ("<module>", "<lambda>") else f" in {match['function']}"
    return f"{file}:{lines}{function}"


def where(finding: Finding) -> str:
    """The first place of a finding that has a line; "" where none has."""
    return place(next((one.source for one in finding.where if one.source), None))


def written_at(written: Written | None) -> str:
    """Where a statement is."""
    return place(written.source, written.last) if written is not None else ""


def line(code: str, *notes: str) -> str:
    """A line of code, and behind it what is to be said of it."""
    told = "; ".join(filter(None, notes))
    return f"{code}  # {told}" if told else code


def after(at: str) -> str:
    """The note of a line that is put in behind another; "" where that is not known."""
    return f"after {at}" if at else ""


def said(text: str, at: str = "") -> str:
    """What is to be done, as a comment."""
    return f"# {at}: {text}" if at else f"# {text}"


def model_of(evidence: Evidence) -> str:
    """What the program calls its model; "model" where that is not known."""
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
    """The same for the floating-point tensors that the model is called with, or for those with so many dimensions."""
    program = program_of(evidence)
    if not program.inputs:
        return [line(f"x = {change.format('x')}", "what the model is called with")]
    found = []
    for one in program.inputs:
        if dimensions in (None, one.dimensions) and "float" in one.dtype:
            first = place(program.forward.source) if program.forward is not None else ""
            at = f"before {first}" if one.local and first else after(written_at(one.written))
            found.append(line(f"{one.name} = {change.format(one.name)}", at))
    return found


OTHERS = "its other arguments stay as they are"
BATCH_SIZE = "batch_size"
"""The second argument of a DataLoader."""


def loader_of(made: Made | None) -> str:
    """The beginning of the line that makes the loader."""
    name = made.name if made is not None else None
    return f"{name or 'loader'} = {made.kind if made is not None else 'torch.utils.data.DataLoader'}"


def listed(given: Mapping[str, str]) -> str:
    """Arguments by keyword."""
    return ", ".join(f"{name}={value}" for name, value in given.items())


def made_with(made: Made | None, given: Mapping[str, str], without: Collection[str] = (), note: str = "") -> str | None:
    """The statement that makes an object, with other arguments by keyword; None where it can't be written down."""
    written = made.written if made is not None else None
    if written is None or written.text is None or written.call is None:
        return None
    call = called_with(written.call, given, without, BATCH_SIZE)
    return None if call is None else line(written.text.replace(written.call, call, 1), written_at(written), note)


def called_with(call: str, given: Mapping[str, str], without: Collection[str] = (), second: str = "") -> str | None:
    """The text of a call with some arguments set by keyword and others left out; all else as it stands there.

    `second`: what the second argument by position is called. None where the call unpacks a mapping, which may hold
    those very arguments.
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
    """(what is called, the arguments in their order with their names), all as they stand there."""
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        return None
    data = call.encode()
    parts: list[tuple[ast.expr | ast.keyword, str]] = [
        (expr, second if at == 1 else "") for at, expr in enumerate(node.args)
    ]
    parts += [(keyword, keyword.arg or "") for keyword in node.keywords]
    parts.sort(key=lambda part: (part[0].lineno, part[0].col_offset))
    texts = [(name, data[one.col_offset : one.end_col_offset].decode()) for one, name in parts]
    return data[: node.func.end_col_offset].decode(), texts
