"""From text to a small tree: names, numbers, tuples of numbers, calls and operators. Nothing else of Python.

Python's own parser reads the text; nothing is compiled or run. What is not on the list is refused with its name.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field

from gobrrr.errors import UsageError

MAX_CHARACTERS = 2000
MAX_DEPTH = 64
PREFIXES = ("torch", "F", "torch.nn.functional", "torch.special")
"""What may stand before a function's name, as in `F.gelu(x)`."""

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.Mod: "remainder", ast.FloorDiv: "floor_divide",
}  # fmt: skip
UNARY: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.UAdd: "positive"}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip

REFUSED = {
    "Attribute": "an attribute that is not called",
    "Subscript": "indexing",
    "Lambda": "a lambda",
    "ListComp": "a comprehension",
    "SetComp": "a comprehension",
    "DictComp": "a comprehension",
    "GeneratorExp": "a comprehension",
    "IfExp": "a condition",
    "NamedExpr": "an assignment",
    "BoolOp": "and/or",
    "JoinedStr": "a string",
    "Await": "await",
    "Yield": "yield",
    "YieldFrom": "yield",
    "Starred": "a starred argument",
    "Dict": "a dictionary",
    "Set": "a set",
}


@dataclass(frozen=True)
class Name:
    """An input tensor."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A number, a flag, None, or a tuple of integers."""

    value: int | float | bool | tuple[int, ...] | None


@dataclass(frozen=True)
class Call:
    """A function or a method by its name, the object of a method first; operators are calls as well."""

    function: str
    arguments: tuple[Expression, ...]
    keywords: tuple[tuple[str, Expression], ...] = field(default=())


Expression = Name | Constant | Call


def parse(text: str) -> Expression:
    """The tree of an expression such as "(x @ w).gelu() + b". Raises UsageError for anything that is not one."""
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"the expression has {len(text):,} characters; at most {MAX_CHARACTERS:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise UsageError(f"not an expression: {error.msg} ({text[:60]!r})") from None
    except (ValueError, RecursionError, MemoryError):
        raise UsageError(f"not an expression that can be read: {text[:60]!r}") from None
    return _expression(tree.body, 1)


def names(tree: Expression) -> tuple[str, ...]:
    """The input tensors, in order of their first use."""
    if isinstance(tree, Name):
        return (tree.name,)
    if isinstance(tree, Constant):
        return ()
    parts = (*tree.arguments, *(value for _, value in tree.keywords))
    return tuple(dict.fromkeys(name for part in parts for name in names(part)))


def _expression(node: ast.expr, depth: int) -> Expression:
    if depth > MAX_DEPTH:
        raise UsageError(f"nested deeper than {MAX_DEPTH}; for long chains: gobrrr calc pointwise --ops N")
    if isinstance(node, ast.Name):
        return _name(node.id)
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.Tuple | ast.List):
        return Constant(_integers(node, depth))
    if isinstance(node, ast.Call):
        return _call(node, depth)
    return _operator(node, depth)


def _operator(node: ast.expr, depth: int) -> Expression:
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        sides = (_expression(node.left, depth + 1), _expression(node.right, depth + 1))
        return _folded(Call(BINARY[type(node.op)], sides))
    if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
        return _folded(Call(UNARY[type(node.op)], (_expression(node.operand, depth + 1),)))
    if isinstance(node, ast.Compare):
        return _comparison(node, depth)
    raise UsageError(f"{_what(node)} is not part of calc's expressions: tensors, numbers, operators and functions are")


def _comparison(node: ast.Compare, depth: int) -> Expression:
    if len(node.ops) != 1 or type(node.ops[0]) not in COMPARE:
        raise UsageError("compare two things with one of == != < <= > >=")
    sides = (_expression(node.left, depth + 1), _expression(node.comparators[0], depth + 1))
    return Call(COMPARE[type(node.ops[0])], sides)


def _what(node: ast.AST) -> str:
    if isinstance(node, ast.BinOp):
        return f"the operator {type(node.op).__name__}"
    if isinstance(node, ast.UnaryOp):
        return f"the operator {type(node.op).__name__}"
    if isinstance(node, ast.Attribute):
        return f"an attribute that is not called (.{node.attr[:40]})"
    return REFUSED.get(type(node).__name__, type(node).__name__)


def _name(name: str) -> Name:
    if name.startswith("_") or name in PREFIXES:
        raise UsageError(f"{name[:40]!r} can't be the name of a tensor")
    return Name(name)


def _constant(value: object) -> Constant:
    if value is None or isinstance(value, bool | int | float):
        if not isinstance(value, bool) and isinstance(value, int) and abs(value) > 2**63:
            raise UsageError("a number beyond 64 bits")
        return Constant(value)
    raise UsageError(f"{type(value).__name__} is not a number: {str(value)[:40]!r}")


def _integers(node: ast.Tuple | ast.List, depth: int) -> tuple[int, ...]:
    items = [_expression(element, depth + 1) for element in node.elts]
    values = [item.value for item in items if isinstance(item, Constant)]
    whole = tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool))
    if len(whole) != len(node.elts):
        raise UsageError("a list holds whole numbers only (dimensions or a shape)")
    return whole


def _call(node: ast.Call, depth: int) -> Expression:
    function, owner = _callee(node.func)
    given = ([] if owner is None else [owner]) + list(node.args)
    arguments = tuple(_expression(expr, depth + 1) for expr in given)
    keywords = []
    for keyword in node.keywords:
        if keyword.arg is None:
            raise UsageError("** is not part of calc's expressions")
        keywords.append((keyword.arg, _expression(keyword.value, depth + 1)))
    return Call(function, arguments, tuple(keywords))


def _callee(node: ast.expr) -> tuple[str, ast.expr | None]:
    """The function's name, and the object where it is called as a method."""
    if isinstance(node, ast.Name):
        return _public(node.id), None
    if not isinstance(node, ast.Attribute):
        raise UsageError(f"{_what(node)} can't be called")
    _public(node.attr)
    if _dotted(node.value) in PREFIXES:
        return node.attr, None
    return node.attr, node.value


def _public(name: str) -> str:
    if name.startswith("_"):
        raise UsageError(f"unknown function {name[:40]!r}: no function of calc begins with an underscore")
    return name


def _dotted(node: ast.expr) -> str:
    """ "torch.nn.functional" for such a chain of names; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 3:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _folded(call: Call) -> Expression:
    """Arithmetic of numbers alone is done here; everything else stays a call."""
    values = [argument.value for argument in call.arguments if isinstance(argument, Constant)]
    numbers = [value for value in values if isinstance(value, int | float)]
    if not numbers or len(numbers) != len(call.arguments):
        return call
    try:
        result = _arithmetic(call.function, numbers)
    except (ArithmeticError, ValueError):
        raise UsageError(f"the arithmetic of its numbers has no result ({call.function})") from None
    return _constant(result)


def _arithmetic(function: str, numbers: list[int | float]) -> int | float:
    if function in ("neg", "positive"):
        return -numbers[0] if function == "neg" else +numbers[0]
    left, right = numbers
    if function == "add":
        return left + right
    if function == "sub":
        return left - right
    if function == "mul":
        return left * right
    if function == "div":
        return left / right
    if function == "pow":
        power = float(left) ** float(right)
        if isinstance(power, complex):
            raise ValueError("complex")
        whole = isinstance(left, int) and isinstance(right, int) and right >= 0 and abs(power) < 2**53
        return int(power) if whole else power
    raise UsageError(f"{function} of two numbers is not part of calc's expressions")
