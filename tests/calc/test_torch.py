"""The same expressions run by PyTorch on meta tensors: the same operations, shapes and types."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.envelope import functions
from gobrrr.envelope.graph import Graph, Value
from gobrrr.envelope.parse import Call, Constant, Expression, Name, parse

torch = pytest.importorskip("torch")

SHAPES = {"x": (8, 16), "y": (8, 16), "w": (16, 32), "row": (16,), "column": (8, 1), "a": (2, 3, 4), "b": (2, 4, 5)}
UNARY = """
    cos sin tan acos asin atan cosh sinh tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid erf erfc
    reciprocal abs neg sign ceil floor round trunc square relu isnan isinf logical_not
"""
FUNCTIONAL = "gelu silu mish softplus elu selu relu6 hardtanh hardswish hardsigmoid leaky_relu logsigmoid"
TEXTS = [
    *(f"x.{name}()" for name in UNARY.split()),
    *(f"F.{name}(x)" for name in FUNCTIONAL.split()),
    "x + y", "x - row", "x * column", "x / y", "x ** 2", "2 ** x", "2 - x", "x - 2", "1 / x", "x % 2", "x // 2", "-x",
    "x > 0", "x == y", "torch.maximum(x, y)", "torch.where(x > 0, x, y)", "x.clamp(0, 1)", "x.lerp(y, 0.5)",
    "torch.addcmul(x, y, y)", "x.masked_fill(x > 0, 0.0)", "x.float()", "x.half() * y", "x.bfloat16()",
    "x.sum()", "x.sum(-1)", "x.sum(0, True)", "x.mean((0, 1))", "x.mean(-1, keepdim=True)", "x.amax(-1)", "x.max()",
    "x.var(-1)", "x.std()", "x.prod()", "x.argmax(-1)", "x.logsumexp(-1)", "x.softmax(-1)", "F.log_softmax(x, 0)",
    "F.layer_norm(x, (16,), row, row)", "(x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()",
    "x @ w", "a @ b", "x @ row", "torch.mm(x, w)", "torch.bmm(a, b)", "F.linear(x, w.t())", "x.t() @ y",
    "F.gelu(x @ w) * 2", "x.transpose(0, 1).cos()", "x.unsqueeze(1) + a.sum()",
]  # fmt: skip
RENAMED = {"mm": "matmul", "bmm": "matmul", "mv": "matmul", "native_layer_norm": "layer_norm", "_to_copy": "cast",
           "square": "pow", "_softmax": "softmax", "_log_softmax": "log_softmax", "amax": "amax", "linear": "matmul",
           "log_sigmoid_forward": "log_sigmoid", "relu6": "hardtanh", "selu": "elu", "float": "cast", "half": "cast",
           "bfloat16": "cast"}  # fmt: skip
VIEWS = {
    "t",
    "transpose",
    "unsqueeze",
    "expand",
    "view",
    "_unsafe_view",
    "squeeze",
    "detach",
    "alias",
    "_reshape_alias",
}


def ours(text: str, dtype: str) -> tuple[Value, list[str]]:
    graph = Graph()
    inputs = {name: graph.tensor(shape, dtype) for name, shape in SHAPES.items()}

    def run(tree: Expression) -> Any:
        if isinstance(tree, Name):
            return inputs[tree.name]
        if isinstance(tree, Constant):
            return tree.value
        assert isinstance(tree, Call)
        function = functions.find(tree.function)
        keywords = {name: run(one) for name, one in tree.keywords}
        return function.build(graph, functions.bind(function, [run(one) for one in tree.arguments], keywords))

    result = run(parse(text))
    return result, [RENAMED.get(node.name, node.name) for node in graph.nodes]


def theirs(text: str, dtype: str) -> tuple[Any, list[str]]:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Record(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = function.overloadpacket.__name__
            if name not in VIEWS:
                seen.append(RENAMED.get(name, name))
            return function(*args, **(kwargs or {}))

    inputs = {name: torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for name, shape in SHAPES.items()}
    scope = {"torch": torch, "F": torch.nn.functional, **inputs}
    with Record():
        result = eval(text, {}, scope)
    return result, seen


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", TEXTS)
def test_as_pytorch_runs_it(text: str, dtype: str) -> None:
    result, names = ours(text, dtype)
    expected, seen = theirs(text, dtype)
    assert result.shape == tuple(expected.shape)
    assert result.tensor.dtype == str(expected.dtype).removeprefix("torch.")
    assert names == seen
