"""Real calls, recorded below autograd: FLOP against closed forms by hand, on the CPU and without data (meta).

The cases are those where torch's FlopCounterMode 2.13 is wrong or silent, and some where it is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gobrrr.cost import price
from tests.cost.dispatch import matrix_flop, record, works

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F: Any = torch.nn.functional


class Case(NamedTuple):
    """`make(device)` gives the step; `flop` of its contractions, forward; `training`: with the backward pass."""

    make: Callable[[str], Callable[[], Any]]
    flop: float
    training: float | None = None
    meta: bool = True


def draw(device: str, *shape: int, grad: bool = True, dtype: Any = None) -> Any:
    return torch.randn(*shape, device=device, dtype=dtype or torch.float32).requires_grad_(grad)


def with_backward(step: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> None:
        result = step()
        result.backward(torch.ones_like(result))

    return run


def plain(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[str], Callable[[], Any]]:
    def make(device: str) -> Callable[[], Any]:
        given = [draw(device, *shape) for shape in shapes]
        return lambda: function(*given)

    return make


def layer(module: Callable[[], Any], *shape: int, grad: bool = True) -> Callable[[str], Callable[[], Any]]:
    """A module's first output for one input."""

    def make(device: str) -> Callable[[], Any]:
        made, given = module().to(device), draw(device, *shape, grad=grad)

        def step() -> Any:
            result = made(given)
            return result[0] if isinstance(result, tuple) else result

        return step

    return make


def inference(module: Callable[[], Any], run: Callable[[Any, Any], Any], *shape: int) -> Any:
    """Evaluation without gradients: where nn.MultiheadAttention and the encoder layer take their fused path."""

    def make(device: str) -> Callable[[], Any]:
        made, given = module().to(device).eval(), draw(device, *shape, grad=False)

        def step() -> Any:
            with torch.no_grad():
                return run(made, given)

        return step

    return make


def sdpa(query: tuple[int, ...], keys: tuple[int, ...], **settings: Any) -> Callable[[str], Callable[[], Any]]:
    return plain(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **settings), query, keys, keys)


B, S, E, H = 2, 10, 32, 4
PROJECTIONS = 4 * 2 * B * S * E * E
SCORES = 4 * B * S * S * E
T, N, IN, HIDDEN = 5, 3, 7, 11
GATES = 2 * T * N * (IN + HIDDEN) * HIDDEN

CASES: dict[str, Case] = {
    "mm": Case(plain(torch.mm, (3, 5), (5, 4)), 2 * 3 * 5 * 4, 3 * 2 * 3 * 5 * 4),
    "addmm": Case(plain(torch.addmm, (4,), (3, 5), (5, 4)), 2 * 3 * 5 * 4, 3 * 2 * 3 * 5 * 4),
    "bmm": Case(plain(torch.bmm, (2, 3, 5), (2, 5, 4)), 2 * 2 * 3 * 5 * 4, 3 * 2 * 2 * 3 * 5 * 4),
    "baddbmm": Case(plain(torch.baddbmm, (2, 3, 4), (2, 3, 5), (2, 5, 4)), 240, 720),
    "addbmm": Case(plain(torch.addbmm, (3, 4), (2, 3, 5), (2, 5, 4)), 240, 720),
    "matmul of four dimensions": Case(plain(torch.matmul, (2, 6, 3, 5), (2, 6, 5, 4)), 12 * 120, 3 * 12 * 120),
    # The vector's gradient is another mv; the matrix's is an outer product by broadcasting, pointwise.
    "mv": Case(plain(torch.mv, (3, 5), (5,)), 2 * 3 * 5, 2 * 2 * 3 * 5),
    "addmv": Case(plain(torch.addmv, (3,), (3, 5), (5,)), 2 * 3 * 5, 2 * 2 * 3 * 5),
    "dot": Case(plain(torch.dot, (7,), (7,)), 2 * 7, 2 * 7),
    "vdot": Case(plain(torch.vdot, (7,), (7,)), 2 * 7),
    "linear": Case(plain(F.linear, (2, 3, 5), (4, 5), (4,)), 2 * 6 * 5 * 4, 3 * 2 * 6 * 5 * 4),
    # For each of 4 outputs a product 6 x 5 x 3, then 6 x 3 products and sums.
    "bilinear": Case(plain(F.bilinear, (6, 5), (6, 3), (4, 5, 3)), 4 * (2 * 6 * 5 * 3 + 2 * 6 * 3)),
    "einsum": Case(plain(lambda a, b: torch.einsum("bij,bkj->bik", a, b), (2, 3, 5), (2, 4, 5)), 240, 720),
    "chain_matmul": Case(
        plain(lambda *m: torch.linalg.multi_dot(m), (10, 2), (2, 30), (30, 3)), 2 * (2 * 30 * 3 + 10 * 2 * 3)
    ),
    "conv2d": Case(
        layer(lambda: torch.nn.Conv2d(4, 6, 3, padding=1), 2, 4, 8, 8),
        2 * 2 * 6 * 8 * 8 * 4 * 9,
        3 * 2 * 2 * 6 * 8 * 8 * 4 * 9,
    ),
    "strided conv2d": Case(
        layer(lambda: torch.nn.Conv2d(4, 6, 3, stride=2, dilation=2), 2, 4, 9, 9),
        2 * 2 * 6 * 3 * 3 * 4 * 9,
        3 * 2 * 2 * 6 * 3 * 3 * 4 * 9,
    ),
    "depthwise conv2d": Case(
        layer(lambda: torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), 2, 8, 6, 6),
        2 * 2 * 8 * 36 * 9,
        3 * 2 * 2 * 8 * 36 * 9,
    ),
    "grouped conv2d": Case(
        layer(lambda: torch.nn.Conv2d(8, 12, 3, padding=1, groups=4), 2, 8, 6, 6),
        2 * 2 * 12 * 36 * 2 * 9,
        3 * 2 * 2 * 12 * 36 * 2 * 9,
    ),
    "a convolution whose input needs no gradient": Case(
        layer(lambda: torch.nn.Conv2d(4, 6, 3, padding=1), 2, 4, 8, 8, grad=False),
        2 * 2 * 6 * 8 * 8 * 4 * 9,
        2 * 2 * 2 * 6 * 8 * 8 * 4 * 9,
    ),
    "transposed conv2d": Case(
        layer(lambda: torch.nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1), 2, 6, 5, 5),
        2 * (2 * 6 * 25) * (4 * 9),
        3 * 2 * (2 * 6 * 25) * (4 * 9),
    ),
    "grouped transposed conv2d": Case(
        layer(lambda: torch.nn.ConvTranspose2d(6, 4, 3, groups=2), 2, 6, 5, 5),
        2 * (2 * 6 * 25) * (2 * 9),
        3 * 2 * (2 * 6 * 25) * (2 * 9),
    ),
    "conv1d": Case(layer(lambda: torch.nn.Conv1d(4, 6, 3), 2, 4, 8), 2 * 2 * 6 * 6 * 12, 3 * 2 * 2 * 6 * 6 * 12),
    "conv3d": Case(layer(lambda: torch.nn.Conv3d(2, 3, 3), 1, 2, 5, 5, 5), 2 * 3 * 27 * 54, 3 * 2 * 3 * 27 * 54),
    "attention": Case(sdpa((2, 3, 16, 8), (2, 3, 16, 8)), 4 * 6 * 256 * 8, 3 * 4 * 6 * 256 * 8),
    "cross attention": Case(sdpa((2, 3, 16, 8), (2, 3, 20, 8)), 4 * 6 * 320 * 8, 3 * 4 * 6 * 320 * 8),
    "grouped-query attention": Case(sdpa((2, 6, 16, 8), (2, 2, 16, 8), enable_gqa=True), 4 * 12 * 256 * 8),
    # Without data the composite form is dispatched, whose square is a plain bmm below autograd.
    "causal attention": Case(
        sdpa((2, 3, 16, 8), (2, 3, 16, 8), is_causal=True), 4 * 6 * (16 * 17 // 2) * 8, 3 * 4 * 6 * 136 * 8, meta=False
    ),
    "nn.MultiheadAttention": Case(
        inference(lambda: torch.nn.MultiheadAttention(E, H, batch_first=True), lambda m, x: m(x, x, x)[0], B, S, E),
        PROJECTIONS + SCORES,
    ),
    "nn.TransformerEncoderLayer": Case(
        inference(
            lambda: torch.nn.TransformerEncoderLayer(E, H, dim_feedforward=48, batch_first=True),
            lambda m, x: m(x),
            B,
            S,
            E,
        ),
        PROJECTIONS + SCORES + 2 * 2 * B * S * E * 48,
    ),
    "LSTM": Case(layer(lambda: torch.nn.LSTM(IN, HIDDEN), T, N, IN), 4 * GATES),
    "a bidirectional LSTM of two layers": Case(
        layer(lambda: torch.nn.LSTM(IN, HIDDEN, num_layers=2, bidirectional=True), T, N, IN),
        2 * 4 * GATES + 2 * 4 * 2 * T * N * (2 * HIDDEN + HIDDEN) * HIDDEN,
    ),
    "GRU": Case(layer(lambda: torch.nn.GRU(IN, HIDDEN), T, N, IN), 3 * GATES),
    "RNN": Case(layer(lambda: torch.nn.RNN(IN, HIDDEN), T, N, IN), GATES),
    "LSTMCell": Case(layer(lambda: torch.nn.LSTMCell(IN, HIDDEN), N, IN), 4 * GATES // T),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_forward(name: str, device: str) -> None:
    case = CASES[name]
    if device == "meta" and not case.meta:
        pytest.skip("another op is dispatched without data")
    assert matrix_flop(case.make(device)) == case.flop


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.training is not None])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_forward_and_backward(name: str, device: str) -> None:
    case = CASES[name]
    if device == "meta" and not case.meta:
        pytest.skip("another op is dispatched without data")
    assert matrix_flop(with_backward(case.make(device))) == case.training


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "conv2d", "strided conv2d", "transposed conv2d", "conv3d"])
def test_where_torchs_own_counter_is_right_it_agrees(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    step = CASES[name].make("cpu")
    counter = FlopCounterMode(display=False)
    with counter:
        step()
    assert matrix_flop(step) == counter.get_total_flops()


def test_an_lstm_trains_at_three_times_its_forward() -> None:
    step = layer(lambda: torch.nn.LSTM(IN, HIDDEN), T, N, IN)("cpu")
    assert matrix_flop(with_backward(step)) == 3 * 4 * GATES


def test_attention_backward_three_ways() -> None:
    step = sdpa((2, 3, 16, 8), (2, 3, 16, 8))("cpu")
    found = works(with_backward(step))
    (forward,) = found["aten::_scaled_dot_product_flash_attention_for_cpu"]
    (backward,) = found["aten::_scaled_dot_product_flash_attention_for_cpu_backward"]
    assert forward.flop == forward.executed_flop == forward.needed_flop == 4 * 6 * 256 * 8
    assert backward.flop == 2.5 * 4 * 6 * 256 * 8
    assert backward.executed_flop == backward.needed_flop == 2 * 4 * 6 * 256 * 8


def test_integer_products() -> None:
    left = torch.randint(-9, 9, (32, 16), dtype=torch.int8)
    right = torch.randint(-9, 9, (16, 8), dtype=torch.int8)
    assert matrix_flop(lambda: torch._int_mm(left, right)) == 2 * 32 * 16 * 8
    given, scales = torch.randn(4, 32, dtype=torch.bfloat16), torch.ones(8, dtype=torch.bfloat16)
    weight = torch.randint(-9, 9, (8, 32), dtype=torch.int8)
    assert matrix_flop(lambda: torch._weight_int8pack_mm(given, weight, scales)) == 2 * 4 * 32 * 8


def test_experts() -> None:
    """Six tokens on three experts of 16 x 8: each token meets one of them, on the CPU and without data."""
    for device in ("cpu", "meta"):
        tokens = torch.randn(6, 16, device=device, dtype=torch.bfloat16)
        experts = torch.randn(3, 16, 8, device=device, dtype=torch.bfloat16)
        ends = torch.tensor([2, 4, 6], device=device, dtype=torch.int32)
        assert matrix_flop(lambda given=(tokens, experts, ends): torch._grouped_mm(*given[:2], offs=given[2])) == 1536


def test_float8_without_data() -> None:
    left = torch.empty(32, 64, device="meta", dtype=torch.float8_e4m3fn)
    right = torch.empty(16, 64, device="meta", dtype=torch.float8_e4m3fn).t()
    scale = torch.ones((), device="meta")
    flop = matrix_flop(lambda: torch._scaled_mm(left, right, scale, scale, out_dtype=torch.bfloat16))
    assert flop == 2 * 32 * 64 * 16


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_a_dynamically_quantized_linear() -> None:
    weight = torch._empty_affine_quantized([8, 16], scale=0.1, zero_point=0, dtype=torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, torch.zeros(8))
    given = torch.randn(5, 16)
    (seen,) = record(lambda: torch.ops.quantized.linear_dynamic(given, packed))
    assert price(seen.with_outputs()).matrix_flop == 2 * 5 * 16 * 8
    assert "packed" in price(seen.call).note  # a trace has no outputs: unknown, not zero
    assert not price(seen.call).known


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_products_count_what_is_stored() -> None:
    dense = torch.zeros(64, 64)
    dense[0, :10] = 1.0  # 10 of 4,096
    other = torch.randn(64, 32)
    for sparse in (dense.to_sparse(), dense.to_sparse_csr()):
        assert matrix_flop(lambda left=sparse: torch.mm(left, other)) == 2 * 10 * 32
        assert matrix_flop(lambda left=sparse: torch.mv(left, other[:, 0])) == 2 * 10
    assert matrix_flop(lambda: torch.mm(dense, other)) == 2 * 64 * 64 * 32


def vector_flop(step: Callable[[], Any], op: str) -> float:
    (work,) = works(step)[op]
    assert work.known
    return work.vector_flop or 0.0


def test_what_torchs_counter_does_not_see() -> None:
    given = torch.randn(6, 32)
    assert vector_flop(lambda: torch.softmax(given, 1), "aten::_softmax") == 5 * 192
    assert vector_flop(lambda: F.layer_norm(given, (32,)), "aten::native_layer_norm") == 8 * 192
    assert vector_flop(lambda: torch.cumsum(given, 1), "aten::cumsum") == 192
    assert vector_flop(lambda: torch.logcumsumexp(given, 1), "aten::logcumsumexp") == 4 * 192
    # 6 complex transforms of 32 points: 5 * 32 * log2(32); a real one is half of it
    assert vector_flop(lambda: torch.fft.fft(given.to(torch.complex64)), "aten::_fft_c2c") == 6 * 5 * 32 * 5
    assert vector_flop(lambda: torch.fft.rfft(given), "aten::_fft_r2c") == 6 * 2.5 * 32 * 5
    # 6 x 4 pairs of 32 coordinates: a difference, its power, the sum
    assert vector_flop(lambda: torch.cdist(given, given[:4], p=1.0), "aten::_cdist_forward") == 3 * 6 * 4 * 32


def test_embedding_bags_and_their_gradient() -> None:
    table = torch.randn(100, 16, requires_grad=True)
    indices, offsets = torch.tensor([1, 5, 5, 7, 9]), torch.tensor([0, 2])
    found = works(with_backward(lambda: F.embedding_bag(indices, table, offsets, mode="sum")))
    (forward,) = found["aten::_embedding_bag"]
    assert forward.vector_flop == 5 * 16
    assert forward.bytes_read == 5 * 64 + 5 * 8 + 2 * 8
    backward = found["aten::_embedding_bag_backward"][0]
    assert backward.bytes_written == 100 * 64 + 5 * 64  # zeros of the table's size, then the five rows


def test_an_embeddings_gradient_writes_its_zeros_only_where_no_other_op_does() -> None:
    table, indices = torch.randn(100, 16, requires_grad=True), torch.tensor([1, 5, 7])
    calls = record(with_backward(lambda: F.embedding(indices, table)))
    (seen,) = (one for one in calls if one.call.name == "aten::embedding_dense_backward")
    assert price(seen.with_outputs()).bytes_written == 100 * 64 + 3 * 64
    assert price(seen.call).bytes_written == 3 * 64  # in a trace aten::zero_ is an op of its own


def test_a_custom_op_is_unknown_until_it_has_a_rule() -> None:
    from gobrrr import cost

    @torch.library.custom_op("gobrrr_tests::product", mutates_args=())
    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right

    left, right = torch.randn(3, 5), torch.randn(5, 4)
    (seen,) = record(lambda: product(left, right))
    assert price(seen.call).count == "unknown"

    @cost.rule("gobrrr_tests::product", family="matmul")
    def _count(call: cost.OpCall) -> cost.Work:
        a, b = cost.tensor(call, 0), cost.tensor(call, 1)
        flop = 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return cost.contraction(call, flop=flop, dtype=a.dtype, read=cost.read_bytes(a, b), written=48)

    try:
        assert price(seen.call).matrix_flop == 2 * 3 * 5 * 4
    finally:
        cost.unregister("gobrrr_tests::product")


OPTIMIZERS = {
    "SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {"amsgrad": True}, "Adagrad": {}, "RMSprop": {}, "NAdam": {},
    "Adamax": {}, "ASGD": {}, "Adadelta": {}, "RAdam": {}, "Rprop": {}, "Adafactor": {},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["foreach", "fused", "single"])
def test_every_call_of_an_optimizer_is_counted(name: str, kind: str) -> None:
    if kind == "fused" and name not in ("SGD", "Adam", "AdamW", "Adagrad"):
        pytest.skip("no fused form")
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in (8, 24)]
    settings = {} if kind == "single" else {kind: True}
    optimizer = getattr(torch.optim, name)(parameters, **OPTIMIZERS[name], **settings)

    def step() -> None:
        for one in parameters:
            one.grad = torch.ones_like(one)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    step()
    assert {op for op, group in works(step).items() if not all(work.known for work in group)} == set()


def test_a_fused_optimizer_moves_its_states_once() -> None:
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in (8, 24)]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    for one in parameters:
        one.grad = torch.ones_like(one)
    (work,) = works(optimizer.step)["aten::_fused_adamw_"]
    # parameter, gradient and two moments of 32 float32 elements in; all but the gradient out
    assert (work.bytes_read, work.bytes_written) == (4 * 32 * 4, 3 * 32 * 4)
