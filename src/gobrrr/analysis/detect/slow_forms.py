"""Operations that have most of a step, and what is known of their slow forms.

A slow form is known by the operation's name, or by what it is called with. What is not in the table has a line and a
share, and no better form.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.events.intervals import covered, union
from gobrrr.analysis.findings.claims import NOTHING, Claim, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import idle_under, spans_of
from gobrrr.analysis.pricing.price import Group
from gobrrr.cost.spectrum import spectral_flop
from gobrrr.model.events import ABSENT, I8, Kind
from gobrrr.model.tree import outermost

KNOWN_SHARE = 0.2
"""An operation of a slow form is told from this share of the step on. Of the 68 H100 traces of this package and its
tests without such a fault, the mended halves of pairs among them, one has more than 5 % of its step in an operation of
a known slow form: `argsort` in a grouped mixture of experts, 12 %, which is no fault."""

MOST_SHARE = 0.5
"""Another one holds the step with more than this, as a place does (analysis/places/where.py). In none of those traces
is there an operation, with any share, that no other condition judges and that takes more than twice its floor."""

AT_ITS_FLOOR = 0.5
"""An operation that needs this share of its time for its bytes and FLOPs has no form that is much better."""


@dataclass(frozen=True)
class Form:
    """One slow form. `slow`: why it takes long; `better`: what to write; `condition`: the code of a condition that
    looks at the same calls more closely."""

    slow: str
    better: str
    condition: str = ""


LISTED = Form(
    "lists the positions of a mask, all elements of which it reads, and its length depends on the data",
    "torch.where, masked_fill or a weighted sum for a mask; to sample, draw positions and draw again what the mask "
    "excludes; nonzero_static(size=...) where the number is known",
)
UNIQUE = Form(
    "sorts all values to find those that differ",
    "torch.bincount or a table of flags for small integers; once before the loop where the values stay",
)
UNIQUE_ROWS = Form(
    "sorts rows by comparing them element by element",
    "one number a row, such as x[:, 0] * n + x[:, 1], and unique of these; once before the loop where the rows stay",
)
SORTED = Form("sorts all values", "torch.topk for the first few; sort once where the order stays")
ORDER = Form("sorts as many random numbers as there are elements", "torch.randint for a sample with repetition")
REPEATED = Form(
    "reads the repeats to know the length of its result", "torch.repeat_interleave(x, repeats, output_size=...)"
)
TILED = Form(
    "writes the tensor once for every repetition",
    "no repetition where the next operation broadcasts (a size of 1 fits any), else expand(), which copies nothing",
)
RENORMED = Form(
    "makes the norms of the rows in each look-up, row by row",
    "no max_norm; table.weight.renorm_(2, 0, max_norm) under no_grad, once after each update",
)
SELECTED = Form(
    "looks for one value among all, a row on one processor or in one block of the device",
    "torch.topk for a value near an end; for a quantile a sample of the values",
)
FACTORED = Form(
    "decomposes matrices, on few processors and in many steps that wait for one another",
    "a cheaper decomposition (cholesky, qr, torch.svd_lowrank, torch.lobpcg), once for many steps, or by batch",
)
ORTHOGONAL = Form(
    "factors one matrix of a batch after the other, in launches of their own",
    "R as torch.linalg.cholesky(x.mT @ x).mT and Q as torch.linalg.solve_triangular(R, x, upper=True, left=False) "
    "take a batch both; for a few columns Gram and Schmidt, on all matrices at once",
)
ENLARGED = Form(
    "adds in its backward pass many elements of the large tensor to each one of the small tensor, one after the other",
    "a product with a matrix of weights along each side, which interpolates as well; several steps by two",
)
SUMMED = Form(
    "adds rows one after the other where many belong to one place",
    "the rows of a place with very many apart, by sum(); or many copies of that place, which are summed at the end",
    "M08",
)
SAMPLED = Form(
    "goes through all weights for each draw, and reads the device to check them",
    "all draws of a step at once (num_samples); for a draw of one the Gumbel trick, argmax(logits - log(-log(u)))",
)
INVERTED = Form("inverts matrices", "torch.linalg.solve, or torch.cholesky_solve, with the right-hand side")
ADDED = Form(
    "adds values one after the other where indices repeat",
    "in place of table[ids], whose backward pass adds so: index_select, F.embedding or torch.gather; in place of "
    "index_put_(accumulate=True): index_add_",
    "M08",
)
ONE_HOT = Form("writes a row of zeros for every index", "F.embedding or index_select; a loss that takes indices")
PADDED = Form("copies the whole tensor to put an edge around it", "padding=... of the convolution or the pooling")
FALLBACK = Form(
    "has no kernel of the vendor's library for these types, dilations or sizes",
    "float32 or bfloat16 on contiguous tensors, groups and dilations that cuDNN and oneDNN know",
    "C06",
)
INTEGERS = Form(
    "multiplies integers, for which there is no fast kernel", "float32, exact up to 2**24, or torch._int_mm"
)
SPARSE = Form(
    "goes through a sparse tensor entry by entry",
    "to_sparse_csr() once and not in each step; dense where more than a few per cent of the entries are there",
)
QUANTIZED = Form("converts quantized weights in each call", "convert once, or a type that the device multiplies in")
MASKED = Form(
    "takes the unfused way, which no fused kernel replaces for these arguments",
    "is_causal=True or no mask in place of a mask tensor, one type for all arguments",
    "M02",
)

LONG_KERNEL = Form(
    "multiplies every value with every element of a long kernel",
    "by Fourier transforms: torch.fft.rfft of both, padded to the sum of their lengths, multiplied, and irfft; the "
    "kernel's once where it stays",
    "C06",
)
MANY_TIMES = 50.0
"""The FLOPs of a convolution over those by transforms, from which on the transforms were faster in each of the eleven
shapes that were timed on a CPU (1 to 64 channels, kernels of 16 to 2048): they reach a smaller share of the peak."""

FORMS: dict[str, Form] = {
    name: form
    for form, names in (
        (LISTED, "aten::nonzero aten::argwhere aten::masked_select aten::masked_scatter aten::masked_scatter_"),
        (UNIQUE, "aten::_unique2 aten::unique_consecutive aten::_unique"),
        (UNIQUE_ROWS, "aten::unique_dim aten::unique_dim_consecutive"),
        (SORTED, "aten::sort aten::argsort aten::msort aten::mode"),
        (SELECTED, "aten::kthvalue aten::median aten::nanmedian"),
        (TILED, "aten::repeat aten::tile"),
        (RENORMED, "aten::embedding_renorm_"),
        (ORDER, "aten::randperm"),
        (SAMPLED, "aten::multinomial"),
        (REPEATED, "aten::repeat_interleave"),
        (FACTORED, "aten::linalg_svd aten::_linalg_svd aten::svd aten::linalg_eigh aten::_linalg_eigh "
         "aten::linalg_eig aten::linalg_svdvals aten::linalg_lstsq aten::linalg_pinv "
         "aten::linalg_matrix_exp aten::linalg_eigvalsh"),
        (INVERTED, "aten::linalg_inv aten::inverse aten::linalg_inv_ex"),
        (ADDED, "aten::_index_put_impl_"),
        (SUMMED, "aten::index_add_ aten::scatter_add_ aten::scatter_reduce_"),
        (ORTHOGONAL, "aten::linalg_qr"),
        (ENLARGED, "aten::upsample_linear1d_backward aten::upsample_bilinear2d_backward "
         "aten::upsample_trilinear3d_backward aten::upsample_bicubic2d_backward"),
        (ONE_HOT, "aten::one_hot"),
        (PADDED, "aten::pad aten::constant_pad_nd aten::reflection_pad1d aten::reflection_pad2d "
         "aten::replication_pad1d aten::replication_pad2d aten::replication_pad3d"),
        (FALLBACK, "aten::_slow_conv2d_forward aten::_slow_conv2d_backward aten::slow_conv3d_forward "
         "aten::slow_conv_dilated2d aten::slow_conv_dilated3d aten::slow_conv_transpose2d aten::slow_conv_transpose3d"),
        (SPARSE, "aten::_sparse_mm aten::_sparse_addmm aten::sparse_mask aten::_coalesce aten::to_sparse "
         "aten::to_sparse_csr aten::_to_sparse aten::_to_dense"),
        (QUANTIZED, "aten::dequantize aten::fake_quantize_per_tensor_affine aten::quantize_per_tensor"),
        (MASKED, "aten::_scaled_dot_product_attention_math"),
    )
    for name in names.split()
}  # fmt: skip

BY_MASK = ("aten::index", "aten::index_put_", "aten::index_put")
"""Operations that a mask as an index turns into a list of positions first."""

PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv", "aten::addmv", "aten::dot")

ELSEWHERE = (
    "matmul", "convolution", "attention", "optimizer", "pointwise", "reduction", "normalization", "softmax", "pooling",
    "recurrent", "movement", "view", "inductor", "collective",
)  # fmt: skip
"""Families of which other conditions say whether they take longer than they must."""


@dataclass(frozen=True)
class Heavy:
    """An operation with much of the step. `form`: None where no slow form of it is known; `calls`: indices into
    `evidence.calls`; `rows`: the operations as the program calls them; `idle`: ns within these in which the
    device runs no call, as in a form that goes through rows one by one, in the window; `ns`: with the calls'."""

    name: str
    form: Form | None
    source: str | None
    module: str | None
    calls: I8
    rows: I8
    idle: float
    ns: float


def heavy(evidence: Evidence) -> list[Heavy]:
    """The operations that hold the step, by line, most time first; of a slow form from `KNOWN_SHARE` of the step on."""
    calls = evidence.calls
    named = _named(evidence)
    known = np.where(calls.op >= 0, named[np.maximum(calls.op, 0)], ABSENT)
    ns: dict[tuple[str, Form | None], float] = defaultdict(float)
    mine: dict[tuple[str, Form | None], list[int]] = defaultdict(list)
    names = [one.call.name for one in evidence.priced.groups]
    for call, (row, group) in enumerate(zip(known.tolist(), calls.group.tolist(), strict=True)):
        name = evidence.events.name_of(row) if row >= 0 else names[group]
        form = _form(evidence, name, group, masked=row >= 0)
        ns[name, form] += float(calls.ns[call])
        mine[name, form].append(call)
    idle = _idle_within(evidence, named)
    for row in idle:
        name = evidence.events.name_of(row)
        ns[name, FORMS.get(name, LISTED)] += idle[row]
    whole = evidence.wall_ns * evidence.steps.count
    found = []
    for (name, form), total in ns.items():
        some = np.array(mine[name, form], dtype=np.int64)
        if total >= KNOWN_SHARE * whole if form is not None else _unexplained(evidence, name, some, total, whole):
            found += _by_line(evidence, name, form, some, np.where(known >= 0, known, calls.op)[some], idle)
    return sorted(found, key=lambda one: -one.ns)


IN_PIECES = 64
"""An operation of a slow form with so many launches of its own goes through its argument piece by piece on the host:
one on a whole tensor has a few, the QR of 600 matrices on an H200 thousands (bench/reports/on_gpu)."""


def _idle_within(evidence: Evidence, named: I8) -> dict[int, float]:
    """Of each operation of a slow form, what it takes of a CPU beside calls; on another device, for how long that idles
    for it, of those that launch piece by piece."""
    events, gaps = evidence.replayed, evidence.budget.gaps
    rows = np.flatnonzero(named == np.arange(len(named)))
    if evidence.device.asynchronous:
        launching = named[np.maximum(evidence.priced.links.op, 0)]
        launches = np.bincount(launching[(launching >= 0) & (evidence.priced.links.op >= 0)], minlength=len(named))
        rows = rows[launches[rows] >= IN_PIECES]
    rows = rows[(events.end_ns[rows] > evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    ns = covered(union(gaps.start, gaps.stop), events.start_ns[rows], events.end_ns[rows])
    return dict(zip(rows.tolist(), ns.astype(np.float64).tolist(), strict=True))


def claim_of(evidence: Evidence, found: list[Heavy]) -> Claim:
    """What the operations take beyond their floors, at the most; nothing for sure."""
    if not found:
        return NOTHING
    calls = np.concatenate([one.calls for one in found])
    claim = of_calls(calls, np.zeros(len(calls)), beyond(evidence, calls))
    rows = np.concatenate([one.rows for one in found if one.idle] or [calls[:0]])
    if not len(rows):
        return claim
    idle = idle_under(evidence, spans_of(evidence, rows)).astype(np.float64)
    return claim + of_gaps(evidence, np.arange(len(idle)), idle, np.zeros(len(idle)))


def beyond(evidence: Evidence, calls: I8) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What calls take beyond their floors; all of it where there is none."""
    ns, floor = evidence.calls.ns[calls], evidence.calls.floor_ns[calls]
    return np.maximum(ns - np.where(np.isnan(floor), 0.0, floor), 0.0)


def _named(evidence: Evidence) -> I8:
    """For each row the outermost operation of a slow form around it, itself included; -1 for none."""
    events, parent = evidence.events, evidence.priced.links.op_parent
    by_name = np.array([name in FORMS for name in events.names] or [False], dtype=bool)
    op = events.kind == Kind.OP
    flagged = by_name[events.name] & op
    masks = np.array([name in BY_MASK for name in events.names] or [False], dtype=bool)[events.name]
    listing = np.array([name == "aten::nonzero" for name in events.names] or [False], dtype=bool)[events.name]
    above = parent[np.flatnonzero(listing & op)]
    flagged[above[(above >= 0) & masks[np.maximum(above, 0)]]] = True
    return outermost(parent, flagged)


def _form(evidence: Evidence, name: str, group: int, *, masked: bool) -> Form | None:
    if name in FORMS:
        return FORMS[name]
    if masked:
        return LISTED
    call = evidence.priced.groups[group].call
    if name in PRODUCTS and any("int" in tensor.dtype for tensor in call.tensors):
        return INTEGERS
    return LONG_KERNEL if _is_long(evidence.priced.groups[group]) else None


def _is_long(group: Group) -> bool:
    """Whether a convolution has a kernel so long that transforms need far fewer FLOPs."""
    if group.work.family != "convolution" or not group.work.flop:
        return False
    spectral = spectral_flop(group.call)
    return spectral is not None and group.work.flop >= MANY_TIMES * spectral


def _unexplained(evidence: Evidence, name: str, calls: I8, total: float, whole: float) -> bool:
    """Whether calls of no known form hold the step and no other condition looks at what they are."""
    if total <= MOST_SHARE * whole or not name.startswith("aten::"):
        return False
    families = {evidence.group_of(call).work.family for call in calls[:1].tolist()}
    floor = evidence.calls.floor_ns[calls]
    return not families & set(ELSEWHERE) and float(np.nansum(floor)) < AT_ITS_FLOOR * total


def _by_line(
    evidence: Evidence, name: str, form: Form | None, calls: I8, rows: I8, idle: dict[int, float]
) -> list[Heavy]:
    """`rows`: the operation of each call, as the program calls it; `idle`: of each one what it takes beside calls."""
    alone = {row for row, ns in idle.items() if ns and evidence.events.name_of(row) == name} - set(rows.tolist())
    lines: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    every = [*rows.tolist(), *sorted(alone)]
    for at, row in enumerate(every):
        lines[evidence.source(row), evidence.module(row)].append(at)
    found = []
    for (source, module), places in lines.items():
        mine = np.unique(np.array(every, dtype=np.int64)[places])
        some = calls[[place for place in places if place < len(calls)]]
        spent = sum(idle.get(row, 0.0) for row in mine.tolist())
        found.append(Heavy(name, form, source, module, some, mine, spent, float(evidence.calls.ns[some].sum()) + spent))
    return found
