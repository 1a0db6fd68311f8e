"""Products of several matrices: the order in which they were multiplied, and the FLOPs of the cheapest order.

(A B) v computes a matrix that A (B v) does not need. A trace does not say which tensor is which. A product is assumed
to read the result of the product before it if it is next on the stream, an operand has exactly the result's shape, and
no other call of the step reads a tensor of that shape.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from math import prod

import numpy as np

from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.pricing.roofline import floor
from gobrrr.cost import OpCall, Scalar, Tensor, price
from gobrrr.cost.shapes import FMA_FLOP
from gobrrr.model.events import EventKind
from gobrrr.model.machine import Machine

Shape = tuple[int, ...]
LINEAR_LAYER = "aten::linear"
"""The product of a layer, whose weight is fixed: the order of two layers belongs to the model."""

MOST_EINSUM_OPERANDS = 6
"""An einsum of more operands is not examined: the search for the cheapest order grows exponentially. Chosen."""

MATRIX_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_CHAIN_PRODUCTS = len(MATRIX_LETTERS) - 1
"""A longer run of products is examined in pieces: each matrix is written as a letter, and the time to find the cheapest
order grows with the cube of their number."""

BACKWARD_NAME = re.compile(r"^autograd::engine|Backward\d*$")
"""Names of the operations of autograd's engine."""


@dataclass(frozen=True)
class ChainProduct:
    """A product of matrices (rows x inner) (inner x columns), `batch` times, and the shapes of operands and result."""

    batch: int
    rows: int
    inner: int
    columns: int
    left: Shape
    right: Shape
    out: Shape

    @property
    def flop(self) -> float:
        """FLOPs; a fused multiply-add counts as 2."""
        return float(FMA_FLOP * self.batch * self.rows * self.inner * self.columns)


@dataclass(frozen=True)
class MultiplicationOrder:
    """A place where another order is cheaper.

    `calls`: indices into `evidence.calls`. `now_flop`, `now_floor_ns`: FLOPs and floor of these calls; `best_flop`,
    `best_floor_ns`: those of the cheapest order. `how`: that order, written out. `sure`: no operand has the shape of an
    intermediate result.
    """

    calls: tuple[int, ...]
    kind: str  # "chain", "einsum", "outer" or "differences"
    now_flop: float
    best_flop: float
    now_floor_ns: float
    best_floor_ns: float
    how: str
    sure: bool


def product_of_call(call: OpCall) -> ChainProduct | None:
    """A call as a product of matrices; None for any other call, and for a product to which something is added."""
    name, operands = call.name.removeprefix("aten::"), call.tensors
    if name == "addmv_" and _adds_nothing(call):
        operands = operands[1:]
    elif name not in ("mm", "bmm", "mv"):
        return None
    if len(operands) < 2:
        return None
    left, right = operands[0].shape, operands[1].shape
    matrix = right if len(right) > 1 else (*right, 1)
    if len(left) < 2 or len(matrix) != len(left) or left[-1] != matrix[-2] or left[:-2] != matrix[:-2]:
        return None
    out = (*left[:-1], right[-1]) if len(right) > 1 else left[:-1]
    return ChainProduct(prod(left[:-2]), left[-2], left[-1], matrix[-1], left, right, out)


def _adds_nothing(call: OpCall) -> bool:
    """Whether beta, the factor of what is added, is 0."""
    scalars = [value.text for value in call.inputs if isinstance(value, Scalar) and value.text]
    return bool(scalars) and scalars[0] in ("0", "0.", "0.0")


def orders(evidence: Evidence, least: float) -> list[MultiplicationOrder]:
    """Places whose products need at least `least` times the FLOPs of the cheapest order."""
    if evidence.machine is None:
        return []
    einsums = _einsums(evidence, least)
    in_einsums = {call for einsum in einsums for call in einsum.calls}
    return [*einsums, *(order for order in _chains(evidence, least) if not in_einsums & set(order.calls))]


def backward(evidence: Evidence, call: int) -> bool:
    """Whether a call runs in autograd's engine."""
    return any(BACKWARD_NAME.search(name) for name in _around(evidence, call))


def free(evidence: Evidence, call: int) -> bool:
    """Whether the program makes a call itself: outside autograd's engine and outside layers."""
    return not any(name == LINEAR_LAYER or BACKWARD_NAME.search(name) for name in _around(evidence, call))


def _around(evidence: Evidence, call: int) -> list[str]:
    return [evidence.events.name_of(row) for row in evidence.ancestors(int(evidence.calls.op[call]))]


# -- products one after another


def _chains(evidence: Evidence, least: float) -> list[MultiplicationOrder]:
    """Runs of products that each read the result of the one before, always as the same operand."""
    products = [product_of_call(group.call) for group in evidence.priced.groups]
    numbers = evidence.calls.group.tolist()
    place = list(zip(evidence.calls.stream.tolist(), evidence.step_of_call.tolist(), strict=True))
    chains: list[MultiplicationOrder] = []
    run: list[int] = []
    side = ""
    for call in computing(evidence):
        product = products[numbers[call]]
        last = products[numbers[run[-1]]] if run else None
        together = bool(run) and place[call] == place[run[-1]]
        operand = _operand(last, product) if together else ""
        if operand and (len(run) == 1 or operand == side) and len(run) < MOST_CHAIN_PRODUCTS:
            run, side = [*run, call], operand
            continue
        chains += _order_of(evidence, run, side, products, least)
        run = [call] if product is not None else []
    return chains + _order_of(evidence, run, side, products, least)


def computing(evidence: Evidence) -> list[int]:
    """The calls in their order, without views (a CPU's `_unsafe_view`)."""
    view = [group.work.count == "view" for group in evidence.priced.groups]
    return [call for call, number in enumerate(evidence.calls.group.tolist()) if not view[number]]


def _operand(first: ChainProduct | None, then: ChainProduct | None) -> str:
    """Which operand of `then` may be the result of `first`: "left", "right", or "" for neither."""
    if first is None or then is None or first.batch != then.batch or first.columns * first.rows <= 1:
        return ""
    if then.left == first.out and len(first.out) > 1:
        return "left"
    return "right" if then.right == first.out else ""


def _read_by(evidence: Evidence, shape: Shape, chain: tuple[ChainProduct, ...]) -> bool:
    """Whether a call other than those of the chain takes a tensor of this shape in the forward pass."""
    others = evidence.calls_that(
        lambda group: (
            any(tensor.shape == shape for tensor in group.call.tensors)
            and group.work.count != "view"
            and product_of_call(group.call) not in chain
        )
    )
    return any(not backward(evidence, call) for call in others.tolist())


def _order_of(
    evidence: Evidence, run: list[int], side: str, products: list[ChainProduct | None], least: float
) -> list[MultiplicationOrder]:
    """A run as an `MultiplicationOrder`, if another order is cheaper and nothing else reads the intermediate results;
    else []."""
    if len(run) < 2:
        return []
    chain = tuple(product for call in run if (product := products[int(evidence.calls.group[call])]) is not None)
    sizes = _sizes(chain, side)
    now = sum(product.flop for product in chain)
    best, pairs = cheapest(sizes)
    best *= chain[0].batch
    if now < least * best or not all(free(evidence, call) for call in run):
        return []
    if any(_read_by(evidence, product.out, chain) for product in chain[:-1]):
        return []
    floors = _floors_of(evidence, run, [(chain[0].batch, *pair) for pair in pairs])
    if floors is None:
        return []
    return [MultiplicationOrder(tuple(run), "chain", now, best, *floors, _brackets(sizes), _distinct(chain))]


def _distinct(chain: tuple[ChainProduct, ...]) -> bool:
    """Whether each intermediate result has a shape that no operand has."""
    return all(
        first.out not in (first.left, first.right) and (then.left, then.right).count(first.out) == 1
        for first, then in pairwise(chain)
    )


def _sizes(chain: tuple[ChainProduct, ...], side: str) -> tuple[int, ...]:
    """The dimensions p0, p1, ..., pn of a product of n matrices p0 x p1, p1 x p2, ..."""
    first = chain[0]
    if side == "left":
        return (first.rows, first.inner, first.columns, *(product.columns for product in chain[1:]))
    return (*(product.rows for product in reversed(chain[1:])), first.rows, first.inner, first.columns)


@lru_cache(maxsize=4096)
def cheapest(sizes: tuple[int, ...]) -> tuple[float, tuple[tuple[int, int, int], ...]]:
    """(the fewest FLOPs of a product of matrices p0 x p1, p1 x p2, ..., its products as (rows, inner, columns))."""
    if len(sizes) <= 2:
        return 0.0, ()
    ways = []
    for cut in range(1, len(sizes) - 1):
        left, right = cheapest(sizes[: cut + 1]), cheapest(sizes[cut:])
        last = (sizes[0], sizes[cut], sizes[-1])
        ways.append((left[0] + right[0] + float(FMA_FLOP * prod(last)), (*left[1], *right[1], last)))
    return min(ways)


def _brackets(sizes: tuple[int, ...]) -> str:
    """The cheapest order, written out: "A (B C)"."""

    def written(first: int, last: int) -> str:
        if last - first == 1:
            return MATRIX_LETTERS[first]
        cuts = range(first + 1, last)
        cost = {
            cut: cheapest(sizes[first : cut + 1])[0] + cheapest(sizes[cut : last + 1])[0]
            + FMA_FLOP * prod((sizes[first], sizes[cut], sizes[last]))
            for cut in cuts
        }  # fmt: skip
        cut = min(cost, key=lambda key: cost[key])
        parts = (written(first, cut), written(cut, last))
        return " ".join(part if len(part) == 1 else f"({part})" for part in parts)

    return written(0, len(sizes) - 1)


# -- einsums of three or more operands


def _einsums(evidence: Evidence, least: float) -> list[MultiplicationOrder]:
    """Einsums of three or more operands whose cheapest order needs fewer FLOPs than the one that ran."""
    by_row: dict[int, list[int]] = {}
    for call in range(len(evidence.calls)):
        if evidence.group_of(call).work.matrix_flop is None:
            continue
        for row in evidence.ancestors(int(evidence.calls.op[call])):
            if evidence.events.name_of(row) == "aten::einsum":
                by_row.setdefault(row, []).append(call)
    einsums = []
    for row, calls in by_row.items():
        terms = einsum_terms(evidence, row)
        if terms is None or len(terms[0]) < 3 or len(terms[0]) > MOST_EINSUM_OPERANDS:
            continue
        operands, out, size = terms
        best, pairs = cheapest_path(operands, out, size)
        now = sum(evidence.group_of(call).work.matrix_flop or 0.0 for call in calls)
        floors = _floors_of(evidence, calls, pairs)
        if floors is not None and now >= least * best:
            einsums.append(MultiplicationOrder(tuple(calls), "einsum", now, best, *floors, "", sure=True))
    return einsums


Terms = tuple[tuple[frozenset[int], ...], frozenset[int], tuple[int, ...]]
"""(the labels of each operand, the labels of the result, the size of each label) of an einsum."""


def einsum_terms(evidence: Evidence, row: int) -> Terms | None:
    """The terms of an einsum; None where they are not known.

    The profiler does not record the equation. But torch permutes each operand to a common order of all labels, the
    result's first: the permutation gives the label of each dimension.
    """
    events = evidence.events
    shapes = _shapes_of(evidence, row)
    inside = np.flatnonzero((evidence.priced.links.op_parent == row) & (events.kind == EventKind.OP))
    inside = inside[np.argsort(events.start_ns[inside], kind="stable")]
    permutes = [op for op in inside.tolist() if events.name_of(op) == "aten::permute"]
    if shapes is None or len(permutes) < len(shapes):
        return None
    sizes: dict[int, int] = {}
    operands = []
    for shape, permute in zip(shapes, permutes, strict=False):
        order = _integers(evidence, permute)
        if order is None:
            return None
        labels = {place: shape[dim] for place, dim in enumerate(order) if 0 <= dim < len(shape)}
        if any(sizes.get(place, 1) not in (1, number) for place, number in labels.items()):
            return None
        sizes.update({place: number for place, number in labels.items() if number != 1 or place not in sizes})
        operands.append(frozenset(labels))
    result = _integers(evidence, int(inside[-1]))
    if result is None or len(result) > len(sizes):
        return None
    return tuple(operands), frozenset(range(len(result))), tuple(sizes.get(place, 1) for place in range(max(sizes) + 1))


def cheapest_path(
    operands: tuple[frozenset[int], ...], out: frozenset[int], size: tuple[int, ...]
) -> tuple[float, list[tuple[int, int, int, int]]]:
    """(the fewest FLOPs to contract the operands two at a time, the products as (batch, rows, inner, columns))."""
    if len(operands) < 2:
        return 0.0, []
    best: tuple[float, list[tuple[int, int, int, int]]] | None = None
    for a, b in combinations(range(len(operands)), 2):
        rest = tuple(operand for at, operand in enumerate(operands) if at not in (a, b))
        needed = out.union(*rest)
        left, right = operands[a], operands[b]
        kept = (left | right) & needed
        inner = (left & right) - needed
        shape = (left & right & needed, left - right, inner, right - left)
        sizes = [prod(size[label] for label in part) for part in shape]
        cost = float(FMA_FLOP * prod(sizes))
        after = cheapest_path((*rest, kept), out, size)
        if best is None or cost + after[0] < best[0]:
            best = cost + after[0], [(sizes[0], sizes[1], sizes[2], sizes[3]), *after[1]]
    assert best is not None
    return best


def _shapes_of(evidence: Evidence, row: int) -> list[list[int]] | None:
    """The shapes of the list of tensors that is an operation's second argument."""
    try:
        shapes = json.loads(evidence.events.texts[int(evidence.events.dims[row])])[1]
    except (ValueError, IndexError, TypeError):
        return None
    return shapes if isinstance(shapes, list) and all(isinstance(shape, list) for shape in shapes) else None


def _integers(evidence: Evidence, row: int) -> list[int] | None:
    """The list of integers that is an operation's second argument."""
    try:
        numbers = json.loads(json.loads(evidence.events.texts[int(evidence.events.concrete[row])])[1])
    except (ValueError, IndexError, TypeError):
        return None
    return numbers if isinstance(numbers, list) and all(isinstance(number, int) for number in numbers) else None


# -- floors


def _floors_of(
    evidence: Evidence, calls: list[int], pairs: list[tuple[int, int, int, int]] | list[tuple[int, ...]]
) -> tuple[float, float] | None:
    """(floor of the calls, floor of the products `pairs`), in ns; None where one is not known."""
    dtype = evidence.group_of(calls[0]).work.matrix_dtype
    now = float(evidence.calls.floor_ns[np.array(calls)].sum())
    parts = [_floor(pair, evidence.group_of(calls[0]).call.tensors[-1].dtype, evidence.machine) for pair in pairs]
    if dtype is None or np.isnan(now) or any(part is None for part in parts):
        return None
    return now, float(sum(part for part in parts if part is not None))


def _floor(pair: tuple[int, ...], dtype: str, machine: Machine | None) -> float | None:
    """The floor of a product (batch, rows, inner, columns), in ns."""
    batch, rows, inner, columns = pair
    operands = (Tensor((batch, rows, inner), dtype), Tensor((batch, inner, columns), dtype))
    least = floor(price(OpCall(name="aten::bmm", inputs=operands)), machine)
    return None if least is None else least.ns
