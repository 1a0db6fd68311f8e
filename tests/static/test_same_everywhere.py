"""The same model counts the same on the CPU, on meta and on a GPU that isn't here, whichever kernel is dispatched.

Expected FLOPs are worked out by hand: 2 a multiply-add, the backward pass of a product two products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

import gobrrr  # noqa: E402
from gobrrr import api, cost  # noqa: E402
from tests.spread import spread  # noqa: E402

pytestmark = pytest.mark.torch
F: Any = torch.nn.functional
nn: Any = torch.nn

Step = Callable[[], Any]
DEVICES = ("cpu", "meta", "cuda")
REAL = "real"
"""The step made of real tensors on the CPU, before anything is counted."""


class Case(NamedTuple):
    """`make(device)` gives a step; `flop` of its contractions."""

    make: Callable[[str], Step]
    flop: float
    where: tuple[str, ...] = (*DEVICES, REAL)


def count(make: Callable[[str], Step], device: str) -> Any:
    """What gobrrr counts of the step that `make` builds there."""
    if device == REAL:
        return gobrrr.count(make("cpu"))
    return gobrrr.count(lambda: gobrrr.Workload(step=make(device)))


def draw(device: str, *shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, device=device, dtype=dtype).requires_grad_()


def plain(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = torch.float32) -> Callable[[str], Step]:
    """A function of tensors of these shapes, without gradients."""

    def make(device: str) -> Step:
        given = [draw(device, *shape, dtype=dtype) for shape in shapes]

        def step() -> None:
            with torch.no_grad():
                function(*given)

        return step

    return make


def trained(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = torch.float32) -> Any:
    """The same with its backward pass, for the gradients of all of them."""

    def make(device: str) -> Step:
        given = [draw(device, *shape, dtype=dtype) for shape in shapes]

        def step() -> None:
            function(*given).float().sum().backward()

        return step

    return make


def layer(build: Callable[[], Any], *shape: int, call: Any = None, training: bool = False, dtype: Any = None) -> Any:
    """A module on one input that needs a gradient: in evaluation without gradients, or trained."""

    def make(device: str) -> Step:
        with torch.device(device):
            made = build().to(dtype or torch.float32).train(training)
        x = draw(device, *shape, dtype=dtype or torch.float32)

        def step() -> None:
            with torch.set_grad_enabled(training):
                found = call(made, x) if call else made(x)
                found = found[0] if isinstance(found, tuple) else found
            if training:
                found.float().sum().backward()

        return step

    return make


def both(name: str, function: Any, shapes: Any, flop: float, backward: float = 2.0, **how: Any) -> dict[str, Case]:
    """Forward, and forward with a backward pass of `backward` times the work."""
    return {
        name: Case(plain(function, *shapes, **how), flop),
        f"{name}, trained": Case(trained(function, *shapes, **how), flop * (1 + backward)),
    }


def both_of(name: str, build: Any, shape: tuple[int, ...], flop: float, **how: Any) -> dict[str, Case]:
    """A module forward, and forward with the two products of its backward pass."""
    return {
        name: Case(layer(build, *shape, **how), flop),
        f"{name}, trained": Case(layer(build, *shape, training=True, **how), 3 * flop),
    }


def begun(*shape: int, pair: bool = False) -> Callable[[Any, Any], Any]:
    """A recurrent layer called with a first state that needs its gradient too, so that every product has two."""

    def call(made: Any, x: Any) -> Any:
        states = tuple(torch.zeros(*shape, device=x.device).requires_grad_() for _ in range(1 + pair))
        return made(x, states if pair else states[0])

    return call


def sdpa(**settings: Any) -> Callable[..., Any]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **settings)


def masked(q: Any, k: Any, v: Any) -> Any:
    """A mask of values counts the whole square: what it leaves is not in its shape."""
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


B, S, E, H, INNER = 2, 16, 32, 4, 48
PROJECTIONS = 4 * 2 * B * S * E * E
SCORES = 4 * B * S * S * E
T, N, IN, HIDDEN = 5, 3, 7, 11
GATE = 2 * T * N * (IN + HIDDEN) * HIDDEN
PER_PAIR = 4 * 6 * 8  # two products, 2 x 3 heads of 8
SELF, CROSS, CAUSAL = 16 * 16, 16 * 20, 16 * 17 // 2
Q, K = (2, 3, 16, 8), (2, 3, 20, 8)
BF16 = torch.bfloat16

CASES: dict[str, Case] = {
    **both("attention", sdpa(), (Q, Q, Q), PER_PAIR * SELF),
    **both("attention in bfloat16", sdpa(), (Q, Q, Q), PER_PAIR * SELF, dtype=BF16),
    **both("causal attention", sdpa(is_causal=True), (Q, Q, Q), PER_PAIR * CAUSAL),
    **both("causal attention in bfloat16", sdpa(is_causal=True), (Q, Q, Q), PER_PAIR * CAUSAL, dtype=BF16),
    **both("cross attention", sdpa(), (Q, K, K), PER_PAIR * CROSS),
    **both("masked attention", masked, (Q, Q, Q), PER_PAIR * SELF),
    **both("masked attention in bfloat16", masked, (Q, Q, Q), PER_PAIR * SELF, dtype=BF16),
    **both("grouped-query attention", sdpa(enable_gqa=True), ((2, 6, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8)),
           2 * PER_PAIR * SELF),
    **both("causal grouped-query attention in bfloat16", sdpa(enable_gqa=True, is_causal=True),
           ((2, 6, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8)), 2 * PER_PAIR * CAUSAL, dtype=BF16),
    **both_of("nn.MultiheadAttention", lambda: nn.MultiheadAttention(E, H, batch_first=True), (B, S, E),
              PROJECTIONS + SCORES, call=lambda m, x: m(x, x, x, need_weights=False)),
    **both_of("nn.MultiheadAttention with its weights", lambda: nn.MultiheadAttention(E, H, batch_first=True),
              (B, S, E), PROJECTIONS + SCORES, call=lambda m, x: m(x, x, x)),
    **both_of("nn.TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(E, H, INNER, batch_first=True),
              (B, S, E), PROJECTIONS + SCORES + 4 * B * S * E * INNER),
    **both_of("LSTM", lambda: nn.LSTM(IN, HIDDEN), (T, N, IN), 4 * GATE, call=begun(1, N, HIDDEN, pair=True)),
    **both_of("two layers of a bidirectional LSTM", lambda: nn.LSTM(IN, HIDDEN, 2, bidirectional=True), (T, N, IN),
              8 * GATE + 8 * 2 * T * N * 3 * HIDDEN * HIDDEN, call=begun(4, N, HIDDEN, pair=True)),
    **both_of("GRU", lambda: nn.GRU(IN, HIDDEN), (T, N, IN), 3 * GATE, call=begun(1, N, HIDDEN)),
    **both_of("RNN", lambda: nn.RNN(IN, HIDDEN), (T, N, IN), GATE, call=begun(1, N, HIDDEN)),
    **both("mv", torch.mv, ((3, 5), (5,)), 2 * 15, backward=1),  # the matrix's gradient is an outer product, pointwise
    **both("dot", torch.dot, ((7,), (7,)), 2 * 7, backward=0),  # both gradients are a vector times a number
    **both("addmv", torch.addmv, ((3,), (3, 5), (5,)), 2 * 15, backward=1),
    "bilinear": Case(plain(F.bilinear, (6, 5), (6, 3), (4, 5, 3)), 4 * (2 * 6 * 5 * 3 + 2 * 6 * 3)),
    **both("linear", F.linear, ((2, 3, 5), (4, 5), (4,)), 2 * 6 * 20),
    **both_of("convolution", lambda: nn.Conv2d(4, 6, 3, padding=1), (2, 4, 8, 8), 2 * 2 * 6 * 64 * 36),
    **both_of("depthwise convolution", lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), (2, 8, 6, 6),
              2 * 2 * 8 * 36 * 9),
    **both_of("grouped convolution", lambda: nn.Conv2d(8, 12, 3, padding=1, groups=4), (2, 8, 6, 6),
              2 * 2 * 12 * 36 * 18),
    **both_of("transposed convolution", lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1), (2, 6, 5, 5),
              2 * 2 * 6 * 25 * 36),
    **both_of("grouped transposed convolution", lambda: nn.ConvTranspose2d(6, 4, 3, groups=2), (2, 6, 5, 5),
              2 * 2 * 6 * 25 * 18),
}  # fmt: skip


def experts(device: str) -> Step:
    """Six tokens on three experts of 16 x 8: each token meets one."""
    tokens, weights = (draw(device, *shape, dtype=BF16) for shape in ((6, 16), (3, 16, 8)))
    ends = torch.tensor([2, 4, 6], device=device, dtype=torch.int32)
    return lambda: torch._grouped_mm(tokens, weights, offs=ends).float().sum().backward()


def float8(device: str) -> Step:
    left = torch.zeros(32, 64, device=device).to(torch.float8_e4m3fn)
    right = torch.zeros(16, 64, device=device).to(torch.float8_e4m3fn).t()
    scale = torch.ones((), device=device)
    return lambda: torch._scaled_mm(left, right, scale, scale, out_dtype=BF16)


def int8(device: str) -> Step:
    left, right = (torch.zeros(shape, dtype=torch.int8, device=device) for shape in ((32, 16), (16, 8)))
    return lambda: torch._int_mm(left, right)


def int8_weight(device: str) -> Step:
    x, scales = torch.randn(4, 32, device=device, dtype=BF16), torch.ones(8, device=device, dtype=BF16)
    weight = torch.zeros(8, 32, device=device, dtype=torch.int8)
    return lambda: torch._weight_int8pack_mm(x, weight, scales)


def int4_weight(device: str) -> Step:
    """[4, 64] x [64, 32], groups of 32 along K: two on the CPU's packing [N, K / 2], and on a GPU's in tiles."""
    x = torch.randn(4, 64, device=device, dtype=BF16)
    scales = torch.ones(2, 32, 2, device=device, dtype=BF16)
    if device == "cpu":
        weight = torch.zeros(32, 32, dtype=torch.uint8, device=device)
        return lambda: torch.ops.aten._weight_int4pack_mm_for_cpu(x, weight, 32, scales)
    weight = torch.zeros(4, 2, 32, 1, dtype=torch.int32, device=device)
    return lambda: torch.ops.aten._weight_int4pack_mm(x, weight, 32, scales)


CASES |= {
    "experts": Case(experts, 3 * 2 * 6 * 16 * 8),
    "float8": Case(float8, 2 * 32 * 64 * 16),
    "int8": Case(int8, 2 * 32 * 16 * 8),
    "int8 weights": Case(int8_weight, 2 * 4 * 32 * 8),
    "int4 weights": Case(int4_weight, 2 * 4 * 64 * 32),
}


@pytest.mark.parametrize("name", spread(list(CASES), 4))
def test_a_contraction(name: str) -> None:
    case = CASES[name]
    found = {where: count(case.make, where) for where in case.where}
    assert {where: one.flop_contraction for where, one in found.items()} == dict.fromkeys(found, case.flop)
    assert {where: one.unknown for where, one in found.items()} == {where: {} for where in found}


def bag(device: str) -> Step:
    table = torch.randn(100, 16, device=device)
    indices, offsets = torch.tensor([1, 5, 5, 7, 9], device=device), torch.tensor([0, 2], device=device)
    return lambda: F.embedding_bag(indices, table, offsets, mode="sum")


def scaled(device: str) -> Step:
    """By a number that is on the host."""
    x, factor = torch.randn(6, 32, device=device), torch.tensor(2.0)
    return lambda: x * factor


VECTOR: dict[str, tuple[Callable[[str], Step], float]] = {
    "five rows added up": (bag, 5 * 16),
    "a product with a number of the host's": (scaled, 6 * 32),
    "cumsum": (plain(lambda x: x.cumsum(1), (6, 32)), 6 * 32),
    # 6 transforms of 32 points, 5 N log2 N each; of real numbers half of it
    "fft": (plain(lambda x: torch.fft.rfft(x), (6, 32)), 6 * 2.5 * 32 * 5),
    "softmax": (plain(lambda x: x.softmax(1), (6, 32)), 5 * 192),
    "layer norm": (plain(lambda x: F.layer_norm(x, (32,)), (6, 32)), 8 * 192),
}


@pytest.mark.parametrize("name", VECTOR)
def test_what_no_contraction_is(name: str) -> None:
    make, flop = VECTOR[name]
    for where in (*DEVICES, REAL):
        found = count(make, where)
        assert (found.flop_model, found.flop_contraction, found.unknown) == (flop, 0.0, {})
        assert found.bytes_as_run > 0


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_product_counts_what_is_stored(layout: str) -> None:
    dense = torch.zeros(64, 64)
    dense[0, :10] = 1.0  # 10 of 4,096
    found = gobrrr.count(torch.mm, getattr(dense, layout)(), torch.randn(64, 32))
    assert (found.flop_contraction, found.unknown) == (2 * 10 * 32, {})


def test_a_fast_path_and_its_parts_are_one_count() -> None:
    """nn.TransformerEncoderLayer in evaluation is one fused operation; with gradients it is a dozen."""
    build = lambda: nn.TransformerEncoderLayer(E, H, INNER, batch_first=True, dropout=0.0)  # noqa: E731

    def with_graph(device: str) -> Step:
        with torch.device(device):
            made, x = build().eval(), draw(device, B, S, E)
        return lambda: made(x)

    for where in (*DEVICES, REAL):
        fused, parts = count(layer(build, B, S, E), where), count(with_graph, where)
        assert fused.flop_contraction == parts.flop_contraction


# What is recomputed


def checkpointed(reentrant: bool, early_stop: bool = True) -> Callable[[str], Step]:
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    def make(device: str) -> Step:
        made, x = nn.Linear(8, 4, device=device), draw(device, 6, 8)

        def step() -> None:
            with set_checkpoint_early_stop(early_stop):
                checkpoint(made, x, use_reentrant=reentrant).sum().backward()

        return step

    return make


@pytest.mark.parametrize("where", [*DEVICES, REAL])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_linear_layer_runs_four_times_and_needs_three(reentrant: bool, where: str) -> None:
    once = 2 * 6 * 8 * 4
    found = count(checkpointed(reentrant, early_stop=False), where)
    assert found.flop_contraction == 3 * once
    beside = found.flop_model - found.flop_contraction  # the sum and what the bias needs
    assert found.flop_hardware - beside == pytest.approx(4 * once, abs=beside)
    assert found.flop_executed == found.flop_model


@pytest.mark.parametrize("where", [*DEVICES, REAL])
def test_what_an_early_stop_leaves_out_is_not_counted(where: str) -> None:
    """Without reentrance the recomputation ends once all that was saved is there: before the product itself."""
    found = count(checkpointed(reentrant=False), where)
    assert found.flop_hardware == found.flop_model


# Custom operations


@torch.library.custom_op("gobrrr_static::product", mutates_args=())
def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A matrix product that torch knows nothing of."""
    return left @ right


@product.register_fake
def _(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


@pytest.mark.parametrize("where", [*DEVICES, REAL])
def test_a_custom_op_without_a_rule_is_unknown_and_seen(where: str) -> None:
    found = count(plain(lambda a, b: product(a, b).relu(), (3, 5), (5, 4)), where)
    assert found.unknown == {"gobrrr_static::product": 1}
    assert found.calls["unknown"] == 1
    (row,) = (one for one in found.ops if one.op == "gobrrr_static::product")
    assert (row.count, row.flop, row.bytes) == ("unknown", None, None)


@pytest.mark.parametrize("where", [*DEVICES, REAL])
def test_a_custom_op_with_a_rule_counts(where: str) -> None:
    @cost.rule("gobrrr_static::product", family="matmul")
    def _count(call: cost.OpCall) -> cost.Work:
        a, b = cost.tensor(call, 0), cost.tensor(call, 1)
        flop = 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return cost.contraction(call, flop=flop, dtype=a.dtype, read=cost.read_bytes(a, b), written=48)

    try:
        found = count(plain(product, (3, 5), (5, 4)), where)
    finally:
        cost.unregister("gobrrr_static::product")
    assert (found.flop_contraction, found.bytes_as_run, found.unknown) == (120, 4 * (15 + 20) + 48, {})


# Compiled functions


def test_a_compiled_function_counts_as_written_and_stays_compiled() -> None:
    runs = []

    def backend(graph: Any, _: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(graph)
            return graph(*args)

        return run

    compiled = torch.compile(lambda x, w: F.gelu(x @ w), backend=backend)
    x, w = torch.randn(6, 8), torch.randn(8, 4)
    compiled(x, w)
    assert len(runs) == 1
    found = gobrrr.count(compiled, x, w)
    assert (found.flop_contraction, found.unknown) == (2 * 6 * 8 * 4, {})
    compiled(x, w)
    assert len(runs) == 2
    assert runs[0] is runs[1]  # the graph of before, not one made anew


def test_a_function_that_was_never_compiled_counts_too() -> None:
    compiled = torch.compile(lambda x: (x @ x).relu(), backend="aot_eager")
    assert gobrrr.count(compiled, torch.randn(8, 8)).flop_contraction == 2 * 8**3


# Programs that ask for a GPU


def moved_by_name(device: str) -> Step:
    made, x = nn.Linear(8, 4).to(device), torch.randn(6, 8, device=device)
    return lambda: made(x).sum().backward()


def moved_by_method(_: str) -> Step:
    made, x = nn.Linear(8, 4).cuda(), torch.randn(6, 8).cuda()
    return lambda: made(x).sum().backward()


def moved_by_default(_: str) -> Step:
    with torch.device("cuda"):
        made, x = nn.Linear(8, 4), torch.randn(6, 8)
    return lambda: made(x).sum().backward()


def moved_as_programs_do(_: str) -> Step:
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    made, x = nn.Linear(8, 4, device=device), torch.randn(6, 8)

    def step() -> None:
        made(x.to(device, non_blocking=True)).sum().backward()
        torch.cuda.synchronize()

    return step


FLOPS = ("flop_model", "flop_executed", "flop_hardware", "flop_contraction", "unknown")


@pytest.mark.parametrize("make", [moved_by_name, moved_by_method, moved_as_programs_do, moved_by_default])
def test_a_program_for_a_gpu_counts_as_on_the_cpu(make: Any) -> None:
    on_cpu, on_gpu = count(moved_by_name, "cpu"), count(make, "cuda")
    assert [getattr(on_gpu, field) for field in FLOPS] == [getattr(on_cpu, field) for field in FLOPS]
    copied = 2 * 6 * 8 * 4 if make is moved_as_programs_do else 0  # the input, read and written
    assert on_gpu.bytes_as_run - on_cpu.bytes_as_run in (0, copied / 2, copied)


@pytest.mark.parametrize("kind", ["Adam", "NAdam", "SGD", "ASGD"])
def test_an_optimizer_counts_its_steps_at_the_same_place_everywhere(kind: str) -> None:
    """torch keeps the step counters of all but ASGD on the host, wherever the parameters are."""

    def made(device: str) -> Step:
        weight = torch.zeros(4, 4, device=device).requires_grad_()
        weight.grad = torch.zeros(4, 4, device=device)
        step: Step = getattr(torch.optim, kind)([weight], lr=0.1).step
        return step

    def places(device: str) -> Counter[tuple[str, str]]:
        recording = api.record(lambda: gobrrr.Workload(step=made(device)))
        return Counter((one.call.name, one.place) for one in recording.calls)

    found = [places(device) for device in DEVICES]
    waits = [{place for name, place in one if name == "aten::_local_scalar_dense"} for one in found]
    assert waits == [{"Adam": {"host"}, "NAdam": {"host"}, "SGD": set(), "ASGD": {"device"}}[kind]] * 3
    if kind != "ASGD":
        assert found[0] == found[1] == found[2]
