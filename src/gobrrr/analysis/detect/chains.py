"""Products of several matrices: in which order they were multiplied, and what another order would need.

(A B) v makes a matrix that A (B v) never needs. A trace does not say which tensor is which. A product is taken to read
its predecessor's result when it comes next on the stream, an operand has just the result's shape, and no other call of
the step reads that shape: what else would the result be for?
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
from gobrrr.model.events import I8, Kind
from gobrrr.model.machine import Machine

Shape = tuple[int, ...]
LAYER = "aten::linear"
"""A layer's product has a weight that stays: the order of two layers is the model's."""

MOST_OPERANDS = 6
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_PRODUCTS = len(LETTERS) - 1
"""A longer run of products is looked at in pieces: a matrix is written as a letter, and the cheapest order is found in
the cube of the number."""

BACKWARD = re.compile(r"^autograd::engine|Backward\d*$")


@dataclass(frozen=True)
class Product:
    """A product of matrices (rows x inner) (inner x columns), `batch` times; `left`, `right`, `out` as shapes."""

    batch: int
    rows: int
    inner: int
    columns: int
    left: Shape
    right: Shape
    out: Shape

    @property
    def flop(self) -> float:
        """A fused multiply-add is 2."""
        return float(FMA_FLOP * self.batch * self.rows * self.inner * self.columns)


@dataclass(frozen=True)
class Order:
    """A place where another order is cheaper. `calls`: indices into `Calls`; `now_flop`, `best_flop`: of all products.

    `best_ns`: the floor of the best order's products, `now_ns` that of the calls. `how`: the better order in words;
    `sure`: no other tensor of the step has the shape of a result in between.
    """

    calls: tuple[int, ...]
    kind: str  # "chain", "einsum", "outer" or "differences"
    now_flop: float
    best_flop: float
    now_floor_ns: float
    best_floor_ns: float
    how: str
    sure: bool


def product_of_call(call: OpCall) -> Product | None:
    """The product that a call is; None for any other call, and where something is added to it."""
    name, given = call.name.removeprefix("aten::"), call.tensors
    if name in ("mm", "bmm") and len(given) >= 2:
        left, right = given[0].shape, given[1].shape
    elif name == "addmv_" and len(given) >= 3 and _adds_nothing(call):
        left, right = given[1].shape, given[2].shape
    elif name == "mv" and len(given) >= 2:
        left, right = given[0].shape, given[1].shape
    else:
        return None
    matrix = right if len(right) > 1 else (*right, 1)
    if len(left) < 2 or len(matrix) != len(left) or left[-1] != matrix[-2] or left[:-2] != matrix[:-2]:
        return None
    out = (*left[:-1], right[-1]) if len(right) > 1 else left[:-1]
    return Product(prod(left[:-2]), left[-2], left[-1], matrix[-1], left, right, out)


def _adds_nothing(call: OpCall) -> bool:
    scalars = [one.text for one in call.inputs if isinstance(one, Scalar) and one.text]
    return bool(scalars) and scalars[0] in ("0", "0.", "0.0")


def orders(evidence: Evidence, least: float) -> list[Order]:
    """Places whose products need `least` times the FLOPs of another order."""
    if evidence.machine is None:
        return []
    einsums = _einsums(evidence, least)
    told = {call for einsum in einsums for call in einsum.calls}
    return [*einsums, *(order for order in _chains(evidence, least) if not told & set(order.calls))]


def backward(evidence: Evidence, call: int) -> bool:
    """Whether a call runs in autograd's engine."""
    return any(BACKWARD.search(name) for name in _around(evidence, call))


def free(evidence: Evidence, call: int) -> bool:
    """Whether a call is in the program's own hands: outside of autograd's engine and of a layer."""
    return not any(name == LAYER or BACKWARD.search(name) for name in _around(evidence, call))


def _around(evidence: Evidence, call: int) -> list[str]:
    return [evidence.events.name_of(row) for row in evidence.ancestors(int(evidence.calls.op[call]))]


# -- products one after another


def _chains(evidence: Evidence, least: float) -> list[Order]:
    groups = evidence.priced.groups
    products = [product_of_call(group.call) for group in groups]
    numbers = evidence.calls.group.tolist()
    place = list(zip(evidence.calls.stream.tolist(), step_of(evidence).tolist(), strict=True))
    found: list[Order] = []
    run: list[int] = []
    side = ""
    for call in computing(evidence):
        one = products[numbers[call]]
        last = products[numbers[run[-1]]] if run else None
        together = bool(run) and place[call] == place[run[-1]]
        takes = _takes(last, one) if together else ""
        if takes and (len(run) == 1 or takes == side) and len(run) < MOST_PRODUCTS:
            run, side = [*run, call], takes
            continue
        found += _order_of(evidence, run, side, products, least)
        run = [call] if one is not None else []
    return found + _order_of(evidence, run, side, products, least)


def computing(evidence: Evidence) -> list[int]:
    """The calls in their order, without those that only look at a tensor differently (a CPU's `_unsafe_view`)."""
    free = [group.work.count == "view" for group in evidence.priced.groups]
    return [call for call, number in enumerate(evidence.calls.group.tolist()) if not free[number]]


def step_of(evidence: Evidence) -> I8:
    """The step that launched each call."""
    rows, links = evidence.replayed, evidence.priced.links
    launch = links.launch[evidence.calls.first]
    when = np.where(launch >= 0, rows.start_ns[np.maximum(launch, 0)], evidence.calls.start_ns)
    return np.searchsorted(np.array(evidence.steps.begins, dtype=np.int64), when, side="right")


def _takes(first: Product | None, then: Product | None) -> str:
    """Which operand of `then` may be the result of `first`: "left", "right", or ""."""
    if first is None or then is None or first.batch != then.batch or first.columns * first.rows <= 1:
        return ""
    if then.left == first.out and len(first.out) > 1:
        return "left"
    return "right" if then.right == first.out else ""


def _read_by(evidence: Evidence, shape: Shape, known: tuple[Product, ...]) -> bool:
    """Whether another call than those products takes a tensor of this shape in the forward pass."""
    groups = evidence.priced.groups
    wanted = np.array(
        [
            any(tensor.shape == shape for tensor in group.call.tensors)
            and group.work.count != "view"
            and product_of_call(group.call) not in known
            for group in groups
        ],
        dtype=bool,
    )
    return any(not backward(evidence, call) for call in evidence.calls_where(wanted).tolist())


def _order_of(
    evidence: Evidence, run: list[int], side: str, products: list[Product | None], least: float
) -> list[Order]:
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
    made = _floor_of(evidence, run, [(chain[0].batch, *pair) for pair in pairs])
    if made is None:
        return []
    return [Order(tuple(run), "chain", now, best, *made, _brackets(sizes), _told_apart(chain))]


def _told_apart(chain: tuple[Product, ...]) -> bool:
    """Whether each result in between has a shape of its own, unlike the operands'."""
    return all(
        first.out not in (first.left, first.right) and (then.left, then.right).count(first.out) == 1
        for first, then in pairwise(chain)
    )


def _sizes(chain: tuple[Product, ...], side: str) -> tuple[int, ...]:
    """The dimensions p0, p1, ..., pn of a product of n matrices p0 x p1, p1 x p2, ..."""
    first = chain[0]
    if side == "left":
        return (first.rows, first.inner, first.columns, *(product.columns for product in chain[1:]))
    return (*(product.rows for product in reversed(chain[1:])), first.rows, first.inner, first.columns)


@lru_cache(maxsize=4096)
def cheapest(sizes: tuple[int, ...]) -> tuple[float, tuple[tuple[int, int, int], ...]]:
    """The fewest FLOPs of a product of matrices of these dimensions, and its products as (rows, inner, columns)."""
    if len(sizes) <= 2:
        return 0.0, ()
    found = []
    for cut in range(1, len(sizes) - 1):
        left, right = cheapest(sizes[: cut + 1]), cheapest(sizes[cut:])
        last = (sizes[0], sizes[cut], sizes[-1])
        found.append((left[0] + right[0] + float(FMA_FLOP * prod(last)), (*left[1], *right[1], last)))
    return min(found)


def _brackets(sizes: tuple[int, ...]) -> str:
    """The cheapest order, written out: "A (B C)"."""

    def written(first: int, last: int) -> str:
        if last - first == 1:
            return LETTERS[first]
        cuts = range(first + 1, last)
        cost = {
            cut: cheapest(sizes[first : cut + 1])[0] + cheapest(sizes[cut : last + 1])[0]
            + FMA_FLOP * prod((sizes[first], sizes[cut], sizes[last]))
            for cut in cuts
        }  # fmt: skip
        cut = min(cost, key=lambda one: cost[one])
        parts = (written(first, cut), written(cut, last))
        return " ".join(part if len(part) == 1 else f"({part})" for part in parts)

    return written(0, len(sizes) - 1)


# -- einsums of three operands and more


def _einsums(evidence: Evidence, least: float) -> list[Order]:
    """Einsums of three operands and more that were contracted from left to right."""
    by_row: dict[int, list[int]] = {}
    for call in range(len(evidence.calls)):
        if evidence.group_of(call).work.matrix_flop is None:
            continue
        for row in evidence.ancestors(int(evidence.calls.op[call])):
            if evidence.events.name_of(row) == "aten::einsum":
                by_row.setdefault(row, []).append(call)
    found = []
    for row, calls in by_row.items():
        terms = einsum_terms(evidence, row)
        if terms is None or len(terms[0]) < 3 or len(terms[0]) > MOST_OPERANDS:
            continue
        operands, out, size = terms
        best, pairs = cheapest_path(operands, out, size)
        now = sum(evidence.group_of(call).work.matrix_flop or 0.0 for call in calls)
        made = _floor_of(evidence, calls, pairs)
        if made is not None and now >= least * best:
            found.append(Order(tuple(calls), "einsum", now, best, *made, "", sure=True))
    return found


Terms = tuple[tuple[frozenset[int], ...], frozenset[int], tuple[int, ...]]


def einsum_terms(evidence: Evidence, row: int) -> Terms | None:
    """(the labels of each operand, those of the result, the size of each label) of an einsum; None if it can't be told.

    The profiler does not record the equation. torch permutes each operand to one order of all labels, the result's in
    front: the permutation says which label each dimension has.
    """
    events = evidence.events
    shapes = _given(evidence, row, 1)
    inside = np.flatnonzero((evidence.priced.links.op_parent == row) & (events.kind == Kind.OP))
    inside = inside[np.argsort(events.start_ns[inside], kind="stable")]
    permutes = [one for one in inside.tolist() if events.name_of(one) == "aten::permute"]
    if not isinstance(shapes, list) or len(permutes) < len(shapes) or not all(isinstance(one, list) for one in shapes):
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
    """The fewest FLOPs of contracting the operands two at a time, and the products as (batch, rows, inner, columns)."""
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


def _given(evidence: Evidence, row: int, place: int) -> object:
    try:
        return json.loads(evidence.events.texts[int(evidence.events.dims[row])])[place]
    except (ValueError, IndexError, TypeError):
        return None


def _integers(evidence: Evidence, row: int) -> list[int] | None:
    """The list of integers that an operation was called with."""
    try:
        given = json.loads(evidence.events.texts[int(evidence.events.concrete[row])])[1]
        found = json.loads(given)
    except (ValueError, IndexError, TypeError):
        return None
    return found if isinstance(found, list) and all(isinstance(one, int) for one in found) else None


# -- floors


def _floor_of(
    evidence: Evidence, calls: list[int], pairs: list[tuple[int, int, int, int]] | list[tuple[int, ...]]
) -> tuple[float, float] | None:
    """(floor of the calls, floor of the products), in ns; None where one is not known."""
    dtype = evidence.group_of(calls[0]).work.matrix_dtype
    now = float(evidence.calls.floor_ns[np.array(calls)].sum())
    parts = [_floor(pair, evidence.group_of(calls[0]).call.tensors[-1].dtype, evidence.machine) for pair in pairs]
    if dtype is None or np.isnan(now) or any(part is None for part in parts):
        return None
    return now, float(sum(part for part in parts if part is not None))


def _floor(pair: tuple[int, ...], dtype: str, machine: Machine | None) -> float | None:
    batch, rows, inner, columns = pair
    given = (Tensor((batch, rows, inner), dtype), Tensor((batch, inner, columns), dtype))
    found = floor(price(OpCall(name="aten::bmm", inputs=given)), machine)
    return None if found is None else found.ns
