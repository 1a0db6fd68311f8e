"""What the user's source says: the one statement that makes an object, read and never run.

Only where exactly one call comes into question is anything said.
"""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gobrrr.model.program import Written
from gobrrr.observe.live.watches.lines import spelled

MOST_FILES = 200
LONGEST = 2_000_000
"""Characters of a file that is still read: no program is written by hand that is longer."""

MOST_STATEMENTS = 8
"""Statements from the model's call to the loss that are shown; of more, the call's alone."""

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
_DOUBLE = ("torch.float64", "torch.double", "float64", "double")


@dataclass(frozen=True)
class _Call:
    """A call. `word`: the last part of what is called, by its own name where it was imported by another.

    `statement`: the simple statement that it is a part of; `target`: the one name that this binds, None of none.
    """

    node: ast.Call
    word: str
    statement: ast.stmt | None
    target: str | None


@dataclass
class _File:
    name: str
    text: str
    tree: ast.Module
    calls: list[_Call] = field(default_factory=list)


class Sources:
    """Some files of the program. Each is read once, when something is first looked for."""

    def __init__(self, files: Iterable[str]) -> None:
        self._names = list(dict.fromkeys(files))[:MOST_FILES]
        self._read: list[_File] | None = None

    def making(self, kind: type, name: str | None = None, given: Mapping[str, Any] | None = None) -> Written | None:
        """The statement that makes an object of a class, called `name` where there are several.

        `given`: what it was made with, as far as known; a call that says otherwise is another's.
        """
        found = [
            (file, call)
            for file in self._files()
            for call in file.calls
            if call.word == kind.__name__ and not _otherwise(call.node, given or {})
        ]
        return _only(found, name)

    def double(self, model: str | None) -> Written | None:
        """The statement that makes float64 of a model's parameters."""
        found = [(file, call) for file in self._files() for call in file.calls if _doubles(call.node)]
        mine = [(file, call) for file, call in found if model in (call.target, _receiver(call.node))]
        return _only(mine if model is not None and len(found) > 1 else found, None)

    def default(self) -> Written | None:
        """The statement that makes float64 torch's default type."""
        words = ("set_default_dtype", "set_default_tensor_type")
        found = [(file, call) for file in self._files() for call in file.calls if call.word in words]
        return _only(found, None)

    def binding(self, name: str, file: str, function: str | None) -> Written | None:
        """The only statement of a function ("<module>": of none, None: of any) that gives a variable its value."""
        found = []
        for one in self._files():
            if one.name == file:
                nodes = (node for node in _body(one.tree, function) if isinstance(node, ast.stmt))
                found += [(one, node) for node in nodes if _target(node) == name]
        return _written(*found[0]) if len(found) == 1 else None

    def forward(self, file: str, line: int) -> Written | None:
        """The statements from the one on a line to the last one before a backward pass; itself alone without that."""
        one = next((one for one in self._files() if one.name == file), None)
        block = _block(one.tree, line) if one is not None else []
        if one is None or not block:
            return None
        chosen = block[:1]
        if not _goes_back(block[0]):
            before = next((at for at, node in enumerate(block) if _goes_back(node)), 1)
            chosen = block[:before] if before <= MOST_STATEMENTS else chosen
        return _several(one, chosen)

    def _files(self) -> list[_File]:
        if self._read is None:
            self._read = [file for file in map(_parsed, self._names) if file is not None]
        return self._read


def _parsed(name: str) -> _File | None:
    text = "".join(linecache.getlines(name))
    if not text or len(text) > LONGEST:
        return None
    try:
        file = _File(name, text, ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(_with_statements(file.tree))
    words = _imported(node for node, _ in nodes)
    for node, statement in nodes:
        if isinstance(node, ast.Call) and (word := _last(node.func)):
            file.calls.append(_Call(node, words.get(word, word), statement, _target(statement)))
    return file


def _with_statements(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.stmt | None]]:
    """Each node, and the simple statement that it is a part of."""
    left: deque[tuple[ast.AST, ast.stmt | None]] = deque([(tree, None)])
    while left:
        node, statement = left.popleft()
        yield node, statement
        within = node if isinstance(node, _SIMPLE) else statement
        left.extend((child, within) for child in ast.iter_child_nodes(node))


def _imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """By the name in the file, the own name of what was imported."""
    names = (name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names)
    return {name.asname: name.name for name in names if name.asname}


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _target(node: ast.AST | None) -> str | None:
    """The one name or attribute that a statement binds."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
    else:
        return None
    return ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute) else None


def _otherwise(call: ast.Call, given: Mapping[str, Any]) -> bool:
    """Whether a call names a value that its object was not made with."""
    return any(
        isinstance(keyword.value, ast.Constant)
        and keyword.arg in given
        and keyword.value.value != given.get(keyword.arg or "")
        for keyword in call.keywords
    )


def _doubles(call: ast.Call) -> bool:
    """Whether a call is `x.double()`, or `x.to(...)` with float64 among its arguments."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "double":
        return not call.args and not call.keywords
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return call.func.attr == "to" and any(ast.unparse(expr) in _DOUBLE for expr in given)


def _receiver(call: ast.Call) -> str | None:
    """What a method is called of, at the beginning of the chain: "model" of `model.eval().double()`."""
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None


def _goes_back(node: ast.stmt) -> bool:
    return any(isinstance(one, ast.Call) and _last(one.func) == "backward" for one in ast.walk(node))


def _body(tree: ast.Module, function: str | None) -> Iterator[ast.AST]:
    """What is in the functions of a name; in the file outside functions and classes; or in all of it."""
    if function is None:
        yield from ast.walk(tree)
        return
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = (*functions, ast.ClassDef, ast.Lambda)
    roots: list[ast.AST] = [one for one in ast.walk(tree) if isinstance(one, functions) and one.name == function]
    left = [part for one in ([tree] if function == "<module>" else roots) for part in ast.iter_child_nodes(one)]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, inner):
            left += ast.iter_child_nodes(node)


def _block(tree: ast.Module, line: int) -> list[ast.stmt]:
    """The simple statement on a line, and those that follow it in its block; none where it is of another kind."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)  # a lambda's body is no list
            block: list[ast.stmt] = found if isinstance(found, list) else []
            for at, one in enumerate(block):
                if isinstance(one, _SIMPLE) and one.lineno <= line <= (one.end_lineno or one.lineno):
                    return block[at:]
    return []


def _only(found: Sequence[tuple[_File, _Call]], name: str | None) -> Written | None:
    """The only one of some calls; where there are several, the only one that binds `name`."""
    if len(found) > 1 and name is not None:
        found = [(file, call) for file, call in found if call.target == name]
    if len(found) != 1:
        return None
    file, call = found[0]
    return _written(file, call.statement or call.node, call.node)


def _written(file: _File, node: ast.stmt | ast.expr, call: ast.Call | None = None) -> Written:
    """A statement with its text, unless that names a file."""
    line, last = node.lineno, node.end_lineno or node.lineno
    if line != last:  # on one line, for it is shown and changed as a whole
        said, part = ast.unparse(node), ast.unparse(call) if call is not None else None
    else:
        said, part = _text(file, node) or "", _text(file, call) if call is not None else None
    if _names_a_file(node) or (part or "") not in said:
        return Written(source=spelled(file.name, line, _function(file.tree, line)), last=last)
    return Written(source=spelled(file.name, line, _function(file.tree, line)), last=last, text=said, call=part)


def _several(file: _File, nodes: Sequence[ast.stmt]) -> Written:
    """Some statements in a row, with all else that stands on their lines."""
    first, last = nodes[0].lineno, nodes[-1].end_lineno or nodes[-1].lineno
    text: str | None = textwrap.dedent("\n".join(file.text.splitlines()[first - 1 : last]))
    if any(_names_a_file(node) for node in nodes) or not _parses(text or ""):
        text = None
    return Written(source=spelled(file.name, first, _function(file.tree, first)), last=last, text=text)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:  # the end of something that begins further up: "else: y = model(x)"
        return False
    return True


def _text(file: _File, node: ast.AST) -> str | None:
    return ast.get_source_segment(file.text, node)


def _names_a_file(node: ast.AST) -> bool:
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return any("/" in text or "\\" in text or text.startswith("~") for text in texts)


def _function(tree: ast.Module, line: int) -> str:
    name = "<module>"
    for node in ast.walk(tree):  # outer functions before those within them
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            name = node.name
    return name
