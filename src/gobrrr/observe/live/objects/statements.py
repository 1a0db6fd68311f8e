"""The statement of the user's source that makes an object. Source is read, never run.

A statement is given only where exactly one call can be the one.
"""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gobrrr.model.program import SourceStatement
from gobrrr.observe.live.watches.lines import function_at, spelled

MOST_FILES = 200
"""Files that are read; chosen."""
LONGEST_SOURCE = 2_000_000
"""Characters of the longest file that is read: a longer one was not written by hand."""

MOST_STATEMENTS = 8
"""Statements from the model's call to the loss that are shown; where there are more, only the call. Chosen."""

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
"""Statements without others in them."""
_DOUBLE = ("torch.float64", "torch.double", "float64", "double")
"""How source spells float64."""


@dataclass(frozen=True)
class _Call:
    """A call. `word`: the last part of what is called; the original name where an import gave it another.

    `statement`: the simple statement that holds the call. `target`: the one name that this assigns; None if not one.
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

    def making(
        self, kind: type, name: str | None = None, given: Mapping[str, Any] | None = None
    ) -> SourceStatement | None:
        """The statement that makes an object of a class; where there are several, the one that assigns it to `name`.

        `given`: the arguments that it was made with, as far as known. A call with others makes another object.
        """
        found = [
            (file, call)
            for file in self._files()
            for call in file.calls
            if call.word == kind.__name__ and not _otherwise(call.node, given or {})
        ]
        return _only(found, name)

    def double(self, model: str | None) -> SourceStatement | None:
        """The statement that converts a model's parameters to float64."""
        found = [(file, call) for file in self._files() for call in file.calls if _doubles(call.node)]
        of_model = [(file, call) for file, call in found if model in (call.target, _receiver(call.node))]
        return _only(of_model if model is not None and len(found) > 1 else found, None)

    def default(self) -> SourceStatement | None:
        """The statement that sets torch's default type."""
        words = ("set_default_dtype", "set_default_tensor_type")
        found = [(file, call) for file in self._files() for call in file.calls if call.word in words]
        return _only(found, None)

    def binding(self, name: str, file: str, function: str | None) -> SourceStatement | None:
        """The only statement of a function that assigns a variable.

        `function`: "<module>" for the file outside functions, None for anywhere in the file.
        """
        source = self._file(file)
        nodes = _body(source.tree, function) if source is not None else ()
        found = [node for node in nodes if isinstance(node, ast.stmt) and _target(node) == name]
        return _written(source, found[0]) if source is not None and len(found) == 1 else None

    def forward(self, file: str, line: int) -> SourceStatement | None:
        """The statements from the one on a line to the last one before a backward pass; without a backward pass that
        one statement."""
        source = self._file(file)
        block = _block(source.tree, line) if source is not None else []
        if source is None or not block:
            return None
        chosen = block[:1]
        if not _calls_backward(block[0]):
            before = next((at for at, node in enumerate(block) if _calls_backward(node)), 1)
            chosen = block[:before] if before <= MOST_STATEMENTS else chosen
        return _several(source, chosen)

    def _file(self, name: str) -> _File | None:
        return next((file for file in self._files() if file.name == name), None)

    def _files(self) -> list[_File]:
        if self._read is None:
            self._read = [file for file in map(_parsed, self._names) if file is not None]
        return self._read


def _parsed(name: str) -> _File | None:
    text = "".join(linecache.getlines(name))
    if not text or len(text) > LONGEST_SOURCE:
        return None
    try:
        file = _File(name, text, ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(_with_statements(file.tree))
    words = _imported(node for node, _ in nodes)
    for node, statement in nodes:
        if isinstance(node, ast.Call) and (word := _last_part(node.func)):
            file.calls.append(_Call(node, words.get(word, word), statement, _target(statement)))
    return file


def _with_statements(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.stmt | None]]:
    """Each node, with the simple statement that holds it."""
    left: deque[tuple[ast.AST, ast.stmt | None]] = deque([(tree, None)])
    while left:
        node, statement = left.popleft()
        yield node, statement
        within = node if isinstance(node, _SIMPLE) else statement
        left.extend((child, within) for child in ast.iter_child_nodes(node))


def _imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """For each name that an import gave to something else, the original name."""
    names = (name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names)
    return {name.asname: name.name for name in names if name.asname}


def _last_part(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _target(node: ast.AST | None) -> str | None:
    """The one name or attribute that a statement assigns."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
    else:
        return None
    return ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute) else None


def _otherwise(call: ast.Call, given: Mapping[str, Any]) -> bool:
    """Whether a call has a constant argument that the object was not made with."""
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
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return call.func.attr == "to" and any(ast.unparse(argument) in _DOUBLE for argument in arguments)


def _receiver(call: ast.Call) -> str | None:
    """What the first method of a chain is called on: "model" in `model.eval().double()`."""
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None


def _calls_backward(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Call) and _last_part(part.func) == "backward" for part in ast.walk(node))


def _body(tree: ast.Module, function: str | None) -> Iterator[ast.AST]:
    """The nodes in the functions of a name; for "<module>" outside functions and classes; for None in all the file."""
    if function is None:
        yield from ast.walk(tree)
        return
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = (*functions, ast.ClassDef, ast.Lambda)
    named = (node for node in ast.walk(tree) if isinstance(node, functions) and node.name == function)
    roots: Iterable[ast.AST] = [tree] if function == "<module>" else named
    left = [child for root in roots for child in ast.iter_child_nodes(root)]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, inner):
            left += ast.iter_child_nodes(node)


def _block(tree: ast.Module, line: int) -> list[ast.stmt]:
    """The simple statement on a line, and those that follow it in its block; empty where it is of another kind."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)  # a lambda's body is no list
            block: list[ast.stmt] = found if isinstance(found, list) else []
            for at, stmt in enumerate(block):
                if isinstance(stmt, _SIMPLE) and stmt.lineno <= line <= (stmt.end_lineno or stmt.lineno):
                    return block[at:]
    return []


def _only(found: Sequence[tuple[_File, _Call]], name: str | None) -> SourceStatement | None:
    """The only one of some calls; where there are several, the only one that is assigned to `name`."""
    if len(found) > 1 and name is not None:
        found = [(file, call) for file, call in found if call.target == name]
    if len(found) != 1:
        return None
    file, call = found[0]
    return _written(file, call.statement or call.node, call.node)


def _written(file: _File, node: ast.stmt | ast.expr, call: ast.Call | None = None) -> SourceStatement:
    """The record of a statement, with its text unless that names a file."""
    line, last = node.lineno, node.end_lineno or node.lineno
    if line != last:  # on one line: it is shown and changed as a whole
        text, part = ast.unparse(node), ast.unparse(call) if call is not None else None
    else:
        text, part = _text(file, node) or "", _text(file, call) if call is not None else None
    source = spelled(file.name, line, function_at(file.tree, line))
    if _names_a_file(node) or (part or "") not in text:
        return SourceStatement(source=source, last=last)
    return SourceStatement(source=source, last=last, text=text, call=part)


def _several(file: _File, nodes: Sequence[ast.stmt]) -> SourceStatement:
    """The record of some statements in a row, with everything on their lines."""
    first, last = nodes[0].lineno, nodes[-1].end_lineno or nodes[-1].lineno
    text: str | None = textwrap.dedent("\n".join(file.text.splitlines()[first - 1 : last]))
    if any(_names_a_file(node) for node in nodes) or not _parses(text or ""):
        text = None
    return SourceStatement(source=spelled(file.name, first, function_at(file.tree, first)), last=last, text=text)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:  # the end of something that begins further up: "else: y = model(x)"
        return False
    return True


def _text(file: _File, node: ast.AST) -> str | None:
    return ast.get_source_segment(file.text, node)


def _names_a_file(node: ast.AST) -> bool:
    constants = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    texts = (value for value in constants if isinstance(value, str))
    return any("/" in text or "\\" in text or text.startswith("~") for text in texts)
