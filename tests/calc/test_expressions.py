"""Expressions: shapes, types, traffic and what shares a kernel."""

from __future__ import annotations

from typing import Any

import pytest

import gobrrr
from gobrrr.envelope import functions, problems
from gobrrr.envelope.graph import Graph
from gobrrr.errors import UsageError
from gobrrr.model.work import Tensor

N = 1000
FLOAT = 4


def calc(text: str, shape: Any = N, dtype: str = "float32") -> gobrrr.Envelope:
    return gobrrr.calc(text, shape=shape, dtype=dtype, on="a100-40gb")


def names(text: str, shape: Any = N) -> tuple[list[str], list[str]]:
    found = calc(text, shape)
    return [one.name for one in found.unfused.kernels], [one.name for one in found.fused.kernels]


@pytest.mark.parametrize("spelling", ["x.cos()", "cos(x)", "torch.cos(x)", "F.cos(x)", "torch.nn.functional.cos(x)"])
def test_spellings(spelling: str) -> None:
    found = calc(spelling)
    assert [one.name for one in found.fused.kernels] == ["cos"]
    assert found.shapes == {"x": (N,)}


def test_operators_are_what_pytorch_runs() -> None:
    assert names("-x")[0] == ["neg"]
    assert names("x ** 2")[0] == ["pow"]
    assert names("2 - x")[0] == ["rsub"]
    assert names("1 / x")[0] == ["reciprocal", "mul"]
    assert names("x // 2 % 3")[0] == ["floor_divide", "remainder"]
    assert names("x >= 0")[0] == ["ge"]
    assert calc("x >= 0").fused.bytes == N * (FLOAT + 1)


def test_numbers_are_folded() -> None:
    assert names("x * (2 * 3 - 1) ** 2")[0] == ["mul"]
    assert names("x * -(1 / 3)")[0] == ["mul"]


def test_the_same_tensor_is_read_once() -> None:
    assert calc("x * x").unfused.bytes == 2 * FLOAT * N
    assert calc("x * y").unfused.bytes == 3 * FLOAT * N


def test_broadcasting() -> None:
    found = calc("x + b", {"x": (100, 50), "b": (50,)})
    assert found.fused.bytes == FLOAT * (2 * 100 * 50 + 50)
    found = calc("x * y", {"x": (100, 1), "y": (1, 50)})
    assert found.fused.bytes == FLOAT * (100 + 50 + 100 * 50)
    assert found.fused.flop == 5000
    assert found.balance is not None
    assert (found.balance.elements, found.balance.operations) == (5000, 1)


def test_a_chain_with_two_uses_of_one_value() -> None:
    """x.exp() is written by nobody: both uses are in the same kernel."""
    found = calc("x.exp() * y + x.sin() * x")
    assert len(found.fused.kernels) == 1
    assert found.fused.bytes == 3 * FLOAT * N
    assert found.unfused.bytes == FLOAT * N * (2 + 3 + 2 + 3 + 3)


def test_along_a_row_all_is_one_kernel() -> None:
    shape = {"x": (100, 64)}
    assert len(names("(x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()", shape)[1]) == 1
    assert names("x.softmax(-1) * 2", shape)[1] == ["softmax, mul"]
    assert names("F.layer_norm(x).gelu()", shape)[1] == ["layer_norm, gelu"]


def test_over_everything_the_rest_must_wait() -> None:
    """One kernel to the mean, one that reads x again."""
    found = calc("x - x.mean()")
    assert [one.name for one in found.fused.kernels] == ["mean", "sub"]
    assert found.fused.bytes == FLOAT * (N + 1) + FLOAT * (2 * N + 1)
    assert names("x.exp().sum()")[1] == ["exp, sum"]
    assert names("x.sum(0) * 2", {"x": (100, 64)})[1] == ["sum", "mul"]
    assert names("x.softmax(0) * 2", {"x": (100, 64)})[1] == ["softmax", "mul"]


def test_reductions_over_one_tensor_share_its_read() -> None:
    found = calc("(x - x.mean()) / x.std()")
    assert [one.name for one in found.fused.kernels] == ["mean, std", "sub, div"]
    assert found.fused.bytes == FLOAT * (N + 2) + FLOAT * (2 * N + 2)


def test_products_stay_kernels_of_their_own() -> None:
    shapes = {"x": (64, 128), "w": (128, 256), "b": (256,)}
    assert names("(x @ w + b).gelu()", shapes) == (["matmul", "add", "gelu"], ["matmul", "add, gelu"])
    del shapes["b"]
    assert names("x.relu() @ w + x.relu() @ w", shapes)[1] == ["relu x2", "matmul", "add"]


def test_a_value_that_a_product_and_an_addition_read_is_written() -> None:
    """y = relu(x) feeds the product: it is written, and read again by the addition."""
    found = calc("x.relu() @ w + x", {"x": (64, 64), "w": (64, 64)})
    assert found.fused.bytes == found.unfused.bytes


def test_views_are_free() -> None:
    shapes = {"q": (8, 16, 32), "k": (8, 24, 32)}
    found = calc("q @ k.transpose(-2, -1)", shapes)
    assert [one.name for one in found.unfused.kernels] == ["matmul"]
    assert found.fused.flop == 2 * 8 * 16 * 24 * 32
    assert calc("x @ x.t()", {"x": (16, 32)}).fused.bytes == FLOAT * (16 * 32 + 16 * 16)
    assert calc("x.unsqueeze(0) * y", {"x": (5,), "y": (7, 5)}).fused.flop == 35


def test_attention_as_a_function() -> None:
    shapes = dict.fromkeys("qkv", (2, 4, 128, 64))
    found = calc("F.scaled_dot_product_attention(q, k, v, is_causal=True)", shapes, "bf16")
    assert found.fused == gobrrr.calc("attention", 2, 4, 128, 64, causal=True, dtype="bf16", on="a100-40gb").fused


def test_halves_are_computed_in_float32() -> None:
    found = calc("x.cos()", dtype="bf16")
    assert found.fused.bytes == 4 * N
    assert found.roofs[0].name == "float32 vector"
    assert calc("x.cos()", dtype="float64").roofs[0].name == "float64 vector"


def test_casts() -> None:
    assert calc("x.float().cos().bfloat16()", dtype="bf16").fused.bytes == 4 * N
    assert calc("x.float().cos().bfloat16()", dtype="bf16").unfused.bytes == N * (6 + 8 + 6)
    assert names("x.float().cos()")[0] == ["cos"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64", "bool"])
@pytest.mark.parametrize("name", sorted(functions.known()))
def test_the_result_has_the_bytes_that_the_registry_counts(name: str, dtype: str) -> None:
    """A result's shape and type are derived here and its bytes in gobrrr.cost: the two agree for every function."""
    function = functions.find(name)
    graph = Graph()
    given = {}
    for one in function.parameters.split():
        parameter, has_default, _ = one.partition("=")
        if parameter in ("dim0", "dim1", "dim"):
            given[parameter] = {"dim0": 0, "dim1": 1, "dim": -1}[parameter]
        elif not has_default:
            shape = (2, 3, 4, 4) if "dot_product" in name else (3, 4, 4) if name == "bmm" else (4, 4)
            given[parameter] = graph.tensor(shape, dtype)
    try:
        result = function.build(graph, functions.bind(function, [], given))
    except UsageError:
        assert dtype in ("int64", "bool")  # norms and softmax of integers
        return
    for node in graph.nodes:
        written = node.work.bytes_written
        statistics = {"layer_norm": 2 * 4 * 4, "rms_norm": 4 * 4, "attention": 2 * 3 * 4 * 4}.get(node.name, 0)
        out = node.output.tensor
        size = Graph().tensor(out.shape, out.dtype)
        assert written == pytest.approx(_bytes(size.tensor) + statistics)
    assert isinstance(result.tensor, Tensor)


def _bytes(one: Tensor) -> float:
    from gobrrr.cost.shapes import write_bytes

    return write_bytes(one.shape, one.dtype)


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("x.coss()", 3, "unknown function 'coss'; did you mean cos"),
        ("zzzzzz(x)", 3, "unknown function 'zzzzzz'; known: "),
        ("x @ w", {"x": (3, 4), "w": (5, 6)}, "inner sizes 4 and 5"),
        ("x + y", {"x": (3, 4), "y": (5,)}, "(3, 4) and (5,) don't broadcast"),
        ("x.sum(2)", (3, 4), "among the 2 dimensions"),
        ("x.softmax()", (3, 4), "one dimension"),
        ("x.cos(3, 4)", 3, "cos(x) takes 1 arguments, not 3"),
        ("x.sum(depth=3)", 3, "no free parameter 'depth'"),
        ("x.clamp(x=3)", 3, "no free parameter 'x'"),
        ("x.mul()", 3, "mul(x, y) needs y"),
        ("cos(3)", 3, "no tensor in it"),
        ("x + cos(3)", 3, "x must be a tensor"),
        ("x", 3, "no operation in it"),
        ("x.t()", 3, "no operation in it"),
        ("2 * 3", 3, "no tensor in it"),
        ("x / (1 / 0)", 3, "no result"),
        ("x * 9 ** 9 ** 9", 3, "no result"),
        ("x * (-8) ** 0.5", 3, "no result"),
        ("x + (1, 2)", 3, "not a list"),
        ("x.t()", (2, 3, 4), "takes a matrix"),
        ("layer_norm(x, 5)", (2, 3), "not the end of"),
        ("mm(x, y)", {"x": (2, 3, 4), "y": (4, 5)}, "two tensors of 2 dimensions"),
        ("x.half() @ y", (4, 4), "operands of different types"),
        ("x + y", {"x": 3}, "no shape for y"),
        ("x + y", {"x": 3, "y": 3, "z": 3}, "--shape names z"),
        ("x.max(-1)", (3, 4), "takes 1 arguments"),
        ("x.cos()", 0, "sizes are at least 1"),
    ],
)
def test_mistakes(text: str, shape: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        calc(text, shape)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_and_functions_do_not_clash_with_tensors() -> None:
    assert calc("mm * 2").shapes == {"mm": (N,)}
    assert set(problems.WORDS) >= {"mm", "attention", "pointwise"}
