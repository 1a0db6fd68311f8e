"""Fused attention: two products over the (query, key) pairs that the mask leaves, 4 D FLOP a pair and head.

Forward 2 products; backward 5 (the scores again, dV, dP, dQ, dK): 2.5 times on the hardware, of which the scores are
recomputed: 2 times is executed for the first time, and 2 times is what the maths needs (Dao et al., FlashAttention,
arXiv:2205.14135, section 3.1: the backward pass recomputes the scores instead of reading them).
A causal mask leaves S (S + 1) / 2 pairs of S x S: the fused kernels skip the rest, up to half a tile on the diagonal;
the unfused form computes the square, and the model's FLOP are the half. The softmax is not counted.

The memory-efficient kernels multiply float32 on the TF32 unit from compute capability 8.0 on: CUTLASS splits each
factor into two TF32 numbers and adds three products (OpMultiplyAddFastF32, example 27 of CUTLASS). An H100 counted
206,158,430,208 operations of TF32 for a forward pass of 68,719,476,736 (efficient.fp32 in
bench/results/h100_counters.json): three times the hardware's FLOP, and the model's as ever.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gobrrr.cost.arguments import flag, flags, integer, maybe_tensor, tensor
from gobrrr.cost.build import contraction
from gobrrr.cost.registry import Rule, Uncounted, register, rule
from gobrrr.cost.shapes import FMA_FLOP, numel, read_bytes, write_bytes
from gobrrr.model.work import Count, OpCall, Tensor, Work

TF32_PRODUCTS = 3  # of float32 numbers split into two of TF32 each: the product of the small parts is left out
_VECTOR_ARCHITECTURE = re.compile(r"fmha_cutlass[FB]_\w*_sm(50|70|75)")
"""Memory-efficient kernels for devices without TF32."""
ROWS_BYTES = 4  # the log-sum-exp, float32, one a query row and head


class AttentionSchema(NamedTuple):
    """A schema: `layout` is the order of dimensions; the others are positions, -1 where the schema has none."""

    layout: Literal["bhsd", "bshd"]
    causal: int
    bias: int = -1
    lengths: int = -1  # cumulative sequence lengths of the queries
    query: int = 0
    backward: bool = False
    bottom_right: bool = False  # the causal diagonal ends in the last row and column (flash) or starts in the first
    output: int = -1  # backward: the forward's result, read again


# By operation, from its schema.
_PLACES: dict[str, AttentionSchema] = {
    "aten::scaled_dot_product_attention": AttentionSchema("bhsd", 5, bias=3),
    "aten::_scaled_dot_product_flash_attention": AttentionSchema("bhsd", 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": AttentionSchema("bhsd", 4, bias=5),
    "aten::_scaled_dot_product_efficient_attention": AttentionSchema("bhsd", 6, bias=3),
    "aten::_scaled_dot_product_cudnn_attention": AttentionSchema("bhsd", 6, bias=3),
    "aten::_scaled_dot_product_fused_attention_overrideable": AttentionSchema("bhsd", 5, bias=3),
    "aten::_flash_attention_forward": AttentionSchema("bshd", 8, lengths=3, bottom_right=True),
    "aten::_flash_attention_forward_no_dropout_inplace": AttentionSchema(
        "bshd", 9, lengths=4, query=1, bottom_right=True
    ),
    "aten::_triton_scaled_dot_attention": AttentionSchema("bhsd", -1),
    "aten::_efficient_attention_forward": AttentionSchema("bshd", 9, bias=3, lengths=4),
    "aten::_cudnn_attention_forward": AttentionSchema("bhsd", 10, bias=3, lengths=4),
    "flash_attn::_flash_attn_forward": AttentionSchema("bshd", 5, bottom_right=True),
    "flash_attn::_flash_attn_varlen_forward": AttentionSchema("bshd", 9, lengths=3, bottom_right=True),
    "aten::_scaled_dot_product_flash_attention_backward": AttentionSchema("bhsd", 11, query=1, backward=True, output=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": AttentionSchema(
        "bhsd", 7, query=1, backward=True, output=4
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": AttentionSchema(
        "bhsd", 11, bias=4, query=1, backward=True, output=5
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": AttentionSchema(
        "bhsd", 14, bias=8, query=1, backward=True, output=4
    ),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": AttentionSchema(
        "bhsd", 13, bias=4, query=1, backward=True, output=6
    ),
    "aten::_flash_attention_backward": AttentionSchema(
        "bshd", 11, lengths=6, query=1, backward=True, bottom_right=True, output=4
    ),
    "aten::_efficient_attention_backward": AttentionSchema(
        "bshd", 14, bias=4, lengths=6, query=1, backward=True, output=5
    ),
    "aten::_cudnn_attention_backward": AttentionSchema("bhsd", 14, bias=8, lengths=9, query=1, backward=True, output=4),
    "flash_attn::_flash_attn_backward": AttentionSchema(
        "bshd", 11, query=1, backward=True, bottom_right=True, output=4
    ),
    "flash_attn::_flash_attn_varlen_backward": AttentionSchema(
        "bshd", 15, lengths=9, query=1, backward=True, bottom_right=True, output=4
    ),
}


class Sizes(NamedTuple):
    """Of one attention: sequences, heads of the queries, rows and columns of the scores, the two head sizes."""

    batch: int
    heads: int
    queries: int
    keys: int
    head: int
    value_head: int
    certain: bool  # False: packed sequences of unknown lengths, taken as equal


def pairs(queries: int, keys: int, *, causal: bool, bottom_right: bool = False) -> int:
    """(query, key) pairs of one head that attend: all, or those that a causal mask leaves."""
    if not causal:
        return queries * keys
    if queries == keys:
        return queries * (queries + 1) // 2
    # Row i sees the first i + 1 + offset keys. Count rows from where the mask stops being all or nothing.
    offset = keys - queries if bottom_right else 0
    first = max(0, -offset)
    ramp = max(0, min(queries, keys - offset) - first)
    start = first + 1 + offset
    full = max(0, queries - max(first, keys - offset))
    return ramp * start + ramp * (ramp - 1) // 2 + full * keys


def _sizes(call: OpCall, places: AttentionSchema) -> Sizes:
    query, key, value = (tensor(call, places.query + offset) for offset in range(3))
    ranks = {len(query.shape), len(key.shape), len(value.shape)}
    if ranks == {3}:
        return _packed(call, places, query, key, value)
    if ranks != {4}:
        raise Uncounted("attention whose query, key and value aren't all 4-d or all 3-d")
    heads, rows = (1, 2) if places.layout == "bhsd" else (2, 1)
    lengths = maybe_tensor(call, places.lengths)
    if lengths is not None and lengths.shape and query.shape[0] == 1 and lengths.shape[0] > 2:
        return _packed(call, places, *(Tensor(part.shape[1:], part.dtype) for part in (query, key, value)))
    return Sizes(
        query.shape[0], query.shape[heads], query.shape[rows], key.shape[rows], query.shape[3], value.shape[3], True
    )


def _packed(call: OpCall, places: AttentionSchema, query: Tensor, key: Tensor, value: Tensor) -> Sizes:
    """Sequences laid end to end, (tokens, heads, head size): equal lengths give the fewest pairs."""
    lengths = maybe_tensor(call, places.lengths)
    if lengths is None:
        if places.layout == "bhsd":  # a single sequence without a batch dimension
            return Sizes(1, query.shape[0], query.shape[1], key.shape[1], query.shape[2], value.shape[2], True)
        raise Uncounted("packed sequences whose lengths are not recorded")
    count = max(1, lengths.shape[0] - 1) if lengths.shape else 1
    tokens, key_tokens = query.shape[0], key.shape[0]
    return Sizes(
        count, query.shape[1], -(-tokens // count), -(-key_tokens // count), query.shape[2], value.shape[2], count == 1
    )


def _is_causal(call: OpCall, places: AttentionSchema) -> bool | None:
    if call.name == "aten::_scaled_dot_product_flash_attention" and len(call.inputs) == 10:
        return flag(call, 7)  # the overload with three scales of quantized inputs before it
    if places.causal < 0 or places.causal >= len(call.inputs):
        return False  # left at its default
    custom = integer(call, places.causal)  # mask types of the memory-efficient kernels: 0 none, 1 and 2 causal
    recorded = flag(call, places.causal)
    return recorded if recorded is not None else (custom > 0 if custom is not None else None)


def _count(call: OpCall, places: AttentionSchema) -> Work:
    sizes, causal = _sizes(call, places), _is_causal(call, places)
    each = pairs(sizes.queries, sizes.keys, causal=bool(causal), bottom_right=places.bottom_right)
    total = sizes.batch * sizes.heads * each
    # Products over the head size D: the scores, dQ, dK, and in the backward pass the scores again; over the values'
    # size: the result, dP, dV.
    once = FMA_FLOP * total * sizes.head
    over_values = FMA_FLOP * total * sizes.value_head
    notes = [] if sizes.certain else ["packed sequences are taken as equally long: the fewest FLOP"]
    if causal is None:
        notes.append("whether the mask is causal is not recorded: taken as not")
    count: Count = "bounded" if notes else "exact"
    flop = 3 * once + 2 * over_values if places.backward else once + over_values
    again = once if places.backward else 0
    read, written = _traffic(call, places, sizes)
    dtype, times = tensor(call, places.query).dtype, products(call)
    return contraction(
        call,
        flop=flop * times,
        dtype=dtype if times == 1 else "tf32",
        read=read,
        written=written,
        count=count,
        note="; ".join([*notes, _SPLIT_NOTE] if times > 1 else notes),
        recomputed_flop=again * times,
        model_flop=flop - again if times > 1 else None,
    )


_SPLIT_NOTE = "float32 as three products of TF32 each"


def products(call: OpCall) -> int:
    """Products that the matrix units compute for each one of the maths: 3 for float32 in the memory-efficient kernels.

    Without kernel names too: PyTorch has no other float32 kernel for compute capability 8.0 and above.
    """
    query = maybe_tensor(call, int("backward" in call.name))
    if "_efficient_attention" not in call.name or query is None or query.dtype != "float32":
        return 1
    named = [name for name in call.kernels if "fmha_cutlass" in name]
    if call.kernels and (not named or any(map(_VECTOR_ARCHITECTURE.search, named))):
        return 1  # another vendor's kernel, or a device without TF32
    return TF32_PRODUCTS


def _traffic(call: OpCall, places: AttentionSchema, sizes: Sizes) -> tuple[float, float]:
    query, key, value = (tensor(call, places.query + offset) for offset in range(3))
    rows = sizes.batch * sizes.heads * sizes.queries
    result = write_bytes((*query.shape[:-1], value.shape[-1]), query.dtype)
    read = read_bytes(query, key, value, maybe_tensor(call, places.bias))
    if not places.backward:
        return read, result + rows * ROWS_BYTES
    gradients = sum(write_bytes(part.shape, part.dtype) for part in (query, key, value))
    gradients += _bias_gradient(call, places)
    return read + read_bytes(tensor(call, 0)) + result + rows * ROWS_BYTES, gradients


def _bias_gradient(call: OpCall, places: AttentionSchema) -> float:
    """Bytes of the bias's gradient, which only the memory-efficient kernels write: for every sequence and head."""
    bias = maybe_tensor(call, places.bias)
    wanted = (flags(call, 10) or ())[3:4] if call.name.startswith("aten::_scaled") else (flag(call, 16),)
    if bias is None or "_efficient" not in call.name or not any(wanted):
        return 0.0
    return write_bytes(bias.shape, bias.dtype)


@rule(
    "aten::_scaled_dot_product_attention_math", "aten::_scaled_dot_product_attention_math_for_mps", family="attention"
)
def _math(call: OpCall) -> Work:
    """Unfused: the whole square is computed, causal or not, and the scores go through memory."""
    places = AttentionSchema("bhsd", causal=-1, bias=3)
    sizes = _sizes(call, places)
    scores = sizes.batch * sizes.heads * sizes.queries * sizes.keys
    read, written = _traffic(call, places, sizes)
    query = tensor(call, 0)
    # Scores written by the first product, read and written by the softmax, read by the second product.
    through = 2 * write_bytes((scores,), query.dtype)
    a_pair = FMA_FLOP * (sizes.head + sizes.value_head)
    needed = sizes.batch * sizes.heads * pairs(sizes.queries, sizes.keys, causal=True) if flag(call, 5) else scores
    return contraction(
        call,
        flop=a_pair * scores,
        dtype=query.dtype,
        read=read + through,
        written=written + through,
        count="bounded",
        note="scale and mask kernels are not counted",
        model_flop=a_pair * needed if needed < scores else None,
    )


@rule("aten::_native_multi_head_attention", "aten::_triton_multi_head_attention", family="attention")
def _multi_head(call: OpCall) -> Work:
    query, key = tensor(call, 0, 3), tensor(call, 1, 3)
    weights = [maybe_tensor(call, place) for place in (5, 6, 7, 8)]
    batch, rows, width = query.shape
    # Projections of query, key and value and of the result: 4 width^2 a token; scores and their product with V.
    projections = FMA_FLOP * batch * width * width * (2 * rows + 2 * key.shape[1])
    scores = 2 * FMA_FLOP * batch * rows * key.shape[1] * width
    return contraction(
        call,
        flop=projections + scores,
        dtype=query.dtype,
        read=read_bytes(query, key, tensor(call, 2), *weights),
        written=write_bytes(query.shape, query.dtype),
        count="bounded",
        note="intermediate tensors are not counted as traffic",
    )


@rule("aten::_transformer_encoder_layer_fwd", family="attention")
def _encoder_layer(call: OpCall) -> Work:
    given = tensor(call, 0, 3)
    batch, rows, width = given.shape
    matrices = [tensor(call, place, 2) for place in (3, 5, 14, 16)]  # query, key and value; result; the two layers
    # Every weight matrix meets every token once.
    flop = FMA_FLOP * batch * rows * sum(numel(matrix.shape) for matrix in matrices)
    flop += 2 * FMA_FLOP * batch * rows * rows * width
    everything = [argument for argument in call.inputs if isinstance(argument, Tensor)]
    return contraction(
        call,
        flop=flop,
        dtype=given.dtype,
        read=read_bytes(*everything),
        written=write_bytes(given.shape, given.dtype),
        count="bounded",
        note="intermediate tensors are not counted as traffic",
    )


@rule("flex_attention", "higher_order::flex_attention", family="attention")
@rule("flex_attention_backward", "higher_order::flex_attention_backward", family="attention")
def _flex(call: OpCall) -> Work:
    """(query, key, value, ...): which blocks the mask skips is in the block mask's indices, not in its shapes."""
    backward = call.name.endswith("backward")
    places = AttentionSchema("bhsd", -1, backward=backward, output=3 if backward else -1)
    sizes = _sizes(call, places)
    scores = FMA_FLOP * sizes.batch * sizes.heads * sizes.queries * sizes.keys
    once, over_values = scores * sizes.head, scores * sizes.value_head
    read, written = _traffic(call, places, sizes)
    return contraction(
        call,
        flop=3 * once + 2 * over_values if backward else once + over_values,
        dtype=tensor(call, 0).dtype,
        read=read,
        written=written,
        count="bounded",
        note="the whole square is counted: at most, blocks that the mask skips are not computed",
        recomputed_flop=once if backward else 0.0,
    )


@rule("aiter::mha_batch_prefill", family="attention")
def _paged_prefill(call: OpCall) -> Work:
    """Queries of packed sequences against a paged cache; argument 5 lists the cache entries in use."""
    query, key, value = tensor(call, 0, 3), tensor(call, 1), tensor(call, 2)
    starts, used = tensor(call, 3, 1), tensor(call, 5, 1)
    count = max(1, starts.shape[0] - 1)
    tokens, heads, head = query.shape
    length = -(-tokens // count)
    flop = 2 * FMA_FLOP * count * heads * head * pairs(length, length, causal=True)
    entry = numel(key.shape[1:]) + numel(value.shape[1:])
    return contraction(
        call,
        flop=flop,
        dtype=query.dtype,
        read=read_bytes(query) + write_bytes((used.shape[0], entry), key.dtype),
        written=write_bytes(query.shape, query.dtype),
        count="bounded",
        note="sequences are taken as equally long, causal and without a prefix in the cache: the fewest FLOP",
    )


def _bound(places: AttentionSchema) -> Rule:
    def count(call: OpCall) -> Work:
        return _count(call, places)

    return count


for _name, _places in _PLACES.items():
    register(_name, _bound(_places), family="attention")
