"""Operations that take most of a step, with the slow forms that are known and what to write instead.

A slow form is recognised by the operation's name or by its arguments. For an operation that is not in the table, the
line and the share of the step are given, and no better form.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gobrrr.analysis.events.intervals import covered, union
from gobrrr.analysis.findings.claims import F8, NO_CLAIM, TimeClaim, of_calls, of_gaps
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.scopes import idle_under, spans_of
from gobrrr.analysis.pricing.price import CallGroup
from gobrrr.cost.spectrum import spectral_flop
from gobrrr.model.events import ABSENT, I8, EventKind
from gobrrr.model.tree import outermost

LEAST_SLOW_FORM_SHARE = 0.2
"""An operation of a known slow form is reported if it takes at least this share of the step. Of the 68 H100 traces of
this package and its tests without such a fault, the mended halves of pairs among them, one has more than 5 % of its
step in an operation of a known slow form: `argsort` in a grouped mixture of experts, 12 %, which is no fault."""

LEAST_OTHER_SHARE = 0.5
"""Any other operation is reported if it takes more than this share of the step, as a place is
(analysis/places/where.py). In none of those traces is there an operation, with any share, that no other condition
judges and that takes more than twice its floor."""

LEAST_FLOOR_SHARE = 0.5
"""An operation whose floor is at least this share of its time has no form that is much faster: at most twice."""


@dataclass(frozen=True)
class SlowForm:
    """One slow form.

    `slow`: why it takes long; `better`: what to write instead; `condition`: the code of a condition that examines the
    same calls in more detail.
    """

    slow: str
    better: str
    condition: str = ""


MASK_LISTED = SlowForm(
    "lists the positions of a mask: it reads all elements, and the length of its result depends on the data",
    "torch.where, masked_fill or a weighted sum instead of the mask; to sample, draw positions, and again those "
    "that the mask excludes; nonzero_static(size=...) where the number is known",
)
INTEGER_PRODUCT = SlowForm(
    "multiplies integers, for which there is no fast kernel",
    "float32, exact up to 2**24, or torch._int_mm",
)

LONG_KERNEL = SlowForm(
    "multiplies every value with every element of a long kernel",
    "by Fourier transforms: torch.fft.rfft of both, padded to the sum of their lengths, multiplied, and irfft; "
    "the kernel's once if it does not change",
    "C06",
)
"""Forms that the arguments show: an index that is a mask, integers, and a long convolution kernel."""

LEAST_FLOP_RATIO = 50.0
"""How many times the FLOPs of the transforms a convolution must have. From this ratio on, the transforms were faster in
each of the eleven shapes that were timed on a CPU (1 to 64 channels, kernels of 16 to 2048), although they reach a
smaller share of the peak."""

_TABLE: dict[str, SlowForm] = {
    "aten::nonzero aten::argwhere aten::masked_select aten::masked_scatter aten::masked_scatter_": MASK_LISTED,
    "aten::_unique2 aten::unique_consecutive aten::_unique": SlowForm(
        "sorts all values to find the distinct ones",
        "torch.bincount or a table of flags for small integers; once before the loop if the values do not change",
    ),
    "aten::unique_dim aten::unique_dim_consecutive": SlowForm(
        "sorts rows by comparing them element by element",
        "one number per row, such as x[:, 0] * n + x[:, 1], and unique() of these; once before the loop if the "
        "rows do not change",
    ),
    "aten::sort aten::argsort aten::msort aten::mode": SlowForm(
        "sorts all values",
        "torch.topk for the first few; sort once if the order does not change",
    ),
    "aten::kthvalue aten::median aten::nanmedian": SlowForm(
        "searches one value among all, each row on one processor or in one block of the device",
        "torch.topk for a value near an end; for a quantile a sample of the values",
    ),
    "aten::repeat aten::tile": SlowForm(
        "writes the tensor once for every repetition",
        "no repetition where the next operation broadcasts (a size of 1 fits any), else expand(), which copies nothing",
    ),
    "aten::embedding_renorm_": SlowForm(
        "computes the norms of the rows in each look-up, row by row",
        "no max_norm; table.weight.renorm_(2, 0, max_norm) under no_grad, once after each update",
    ),
    "aten::randperm": SlowForm(
        "sorts as many random numbers as there are elements",
        "torch.randint for a sample with repetition",
    ),
    "aten::multinomial": SlowForm(
        "processes all weights for each draw, and makes the host wait to check them",
        "all draws of a step at once (num_samples); for a single draw the Gumbel trick, argmax(logits - log(-log(u)))",
    ),
    "aten::repeat_interleave": SlowForm(
        "reads the repeats to know the length of its result",
        "torch.repeat_interleave(x, repeats, output_size=...)",
    ),
    (
        "aten::linalg_svd aten::_linalg_svd aten::svd aten::linalg_eigh aten::_linalg_eigh aten::linalg_eig "
        "aten::linalg_svdvals aten::linalg_lstsq aten::linalg_pinv aten::linalg_matrix_exp aten::linalg_eigvalsh"
    ): SlowForm(
        "decomposes matrices, on few processors and in many steps that wait for one another",
        "a cheaper decomposition (cholesky, qr, torch.svd_lowrank, torch.lobpcg), once for many steps, or in batches",
    ),
    "aten::linalg_inv aten::inverse aten::linalg_inv_ex": SlowForm(
        "inverts matrices",
        "torch.linalg.solve, or torch.cholesky_solve, with the right-hand side",
    ),
    "aten::_index_put_impl_": SlowForm(
        "adds values one after the other where indices repeat",
        "instead of table[ids], whose backward pass does this: index_select, F.embedding or torch.gather; instead "
        "of index_put_(accumulate=True): index_add_",
        "M08",
    ),
    "aten::index_add_ aten::scatter_add_ aten::scatter_reduce_": SlowForm(
        "adds rows one after the other where many have the same index",
        "sum() for an index with very many rows; or several copies of that index, summed at the end",
        "M08",
    ),
    "aten::linalg_qr": SlowForm(
        "factors one matrix of a batch after the other, each with its own launches",
        "R as torch.linalg.cholesky(x.mT @ x).mT and Q as torch.linalg.solve_triangular(R, x, upper=True, "
        "left=False) both take a batch; for a few columns, Gram-Schmidt on all matrices at once",
    ),
    (
        "aten::upsample_linear1d_backward aten::upsample_bilinear2d_backward aten::upsample_trilinear3d_backward "
        "aten::upsample_bicubic2d_backward"
    ): SlowForm(
        "adds, in its backward pass, many elements of the large tensor one after the other to each element of the "
        "small one",
        "a product with a matrix of interpolation weights along each side; or several steps by a factor of two",
    ),
    "aten::one_hot": SlowForm(
        "writes a row of zeros for every index",
        "F.embedding or index_select; a loss that takes indices",
    ),
    (
        "aten::pad aten::constant_pad_nd aten::reflection_pad1d aten::reflection_pad2d aten::replication_pad1d "
        "aten::replication_pad2d aten::replication_pad3d"
    ): SlowForm(
        "copies the whole tensor to put an edge around it",
        "padding=... of the convolution or the pooling",
    ),
    (
        "aten::_slow_conv2d_forward aten::_slow_conv2d_backward aten::slow_conv3d_forward "
        "aten::slow_conv_dilated2d aten::slow_conv_dilated3d aten::slow_conv_transpose2d "
        "aten::slow_conv_transpose3d"
    ): SlowForm(
        "has no kernel of the vendor's library for these types, dilations or sizes",
        "float32 or bfloat16 on contiguous tensors, groups and dilations that cuDNN and oneDNN know",
        "C06",
    ),
    (
        "aten::_sparse_mm aten::_sparse_addmm aten::sparse_mask aten::_coalesce aten::to_sparse "
        "aten::to_sparse_csr aten::_to_sparse aten::_to_dense"
    ): SlowForm(
        "processes a sparse tensor entry by entry",
        "to_sparse_csr() once and not in each step; dense where more than a few per cent of the entries are there",
    ),
    "aten::dequantize aten::fake_quantize_per_tensor_affine aten::quantize_per_tensor": SlowForm(
        "converts quantized weights in each call",
        "convert once, or a type that the device multiplies in",
    ),
    "aten::_scaled_dot_product_attention_math": SlowForm(
        "runs unfused: no fused kernel supports these arguments",
        "is_causal=True or no mask instead of a mask tensor, one type for all arguments",
        "M02",
    ),
}
"""Slow forms by the names of the operations that have them."""

SLOW_FORMS = {name: form for names, form in _TABLE.items() for name in names.split()}
"""The slow form of each operation that has one."""

BY_MASK = ("aten::index", "aten::index_put_", "aten::index_put")
"""Operations that first convert a mask, used as an index, to a list of positions."""

PRODUCT_OPS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv", "aten::addmv", "aten::dot")
"""Operations that multiply matrices or vectors."""

JUDGED_FAMILIES = (
    "matmul", "convolution", "attention", "optimizer", "pointwise", "reduction", "normalization", "softmax", "pooling",
    "recurrent", "movement", "view", "inductor", "collective",
)  # fmt: skip
"""Families of operations that other conditions judge."""


@dataclass(frozen=True)
class HeavyOperation:
    """An operation at one line that takes much of the step.

    `form`: None where no slow form of it is known. `calls`: indices into `evidence.calls`; `rows`: the operations that
    the program calls. `idle`: ns in the window within these operations in which the device runs no call, as in a form
    that processes rows one by one; `ns`: these and the calls' own.
    """

    name: str
    form: SlowForm | None
    source: str | None
    module: str | None
    calls: I8
    rows: I8
    idle: float
    ns: float


def heavy(evidence: Evidence) -> list[HeavyOperation]:
    """The operations that take much of the step, by line, most time first (`LEAST_SLOW_FORM_SHARE`,
    `LEAST_OTHER_SHARE`)."""
    calls = evidence.calls
    named = _named(evidence)
    known = np.where(calls.op >= 0, named[np.maximum(calls.op, 0)], ABSENT)
    ns: dict[tuple[str, SlowForm | None], float] = defaultdict(float)
    by_form: dict[tuple[str, SlowForm | None], list[int]] = defaultdict(list)
    names = [group.call.name for group in evidence.priced.groups]
    for call, (row, number) in enumerate(zip(known.tolist(), calls.group.tolist(), strict=True)):
        name = evidence.events.name_of(row) if row >= 0 else names[number]
        form = _form(evidence, name, number, masked=row >= 0)
        ns[name, form] += float(calls.ns[call])
        by_form[name, form].append(call)
    idle = _idle_within(evidence, named)
    for row in idle:
        name = evidence.events.name_of(row)
        ns[name, SLOW_FORMS.get(name, MASK_LISTED)] += idle[row]
    whole = evidence.wall_ns * evidence.steps.count
    operations: list[HeavyOperation] = []
    for (name, form), total in ns.items():
        own = np.array(by_form[name, form], dtype=np.int64)
        if (
            total >= LEAST_SLOW_FORM_SHARE * whole
            if form is not None
            else _unexplained(evidence, name, own, total, whole)
        ):
            operations += _by_line(evidence, name, form, own, np.where(known >= 0, known, calls.op)[own], idle)
    return sorted(operations, key=lambda operation: -operation.ns)


IN_PIECES = 64
"""An operation of a slow form with at least this many launches processes its argument piece by piece on the host. On a
whole tensor it has a few launches, in the QR of 600 matrices on an H200 thousands (bench/reports/on_gpu)."""


def _idle_within(evidence: Evidence, named: I8) -> dict[int, float]:
    """For each operation of a slow form, the ns within it in which the device runs no call.

    On a device other than the host's processor, only for operations that launch piece by piece (`IN_PIECES`).
    """
    events, gaps = evidence.replayed, evidence.budget.gaps
    rows = np.flatnonzero(named == np.arange(len(named)))
    if evidence.device.asynchronous:
        launching = named[np.maximum(evidence.priced.links.op, 0)]
        launches = np.bincount(launching[(launching >= 0) & (evidence.priced.links.op >= 0)], minlength=len(named))
        rows = rows[launches[rows] >= IN_PIECES]
    rows = rows[(events.end_ns[rows] > evidence.steps.start) & (events.start_ns[rows] < evidence.steps.stop)]
    ns = covered(union(gaps.start, gaps.stop), events.start_ns[rows], events.end_ns[rows])
    return dict(zip(rows.tolist(), ns.astype(np.float64).tolist(), strict=True))


def claim_of(evidence: Evidence, operations: list[HeavyOperation]) -> TimeClaim:
    """A claim of up to all time of the operations above their floors; the low end is 0."""
    if not operations:
        return NO_CLAIM
    calls = np.concatenate([operation.calls for operation in operations])
    claim = of_calls(calls, np.zeros(len(calls)), beyond(evidence, calls))
    rows = np.concatenate([operation.rows for operation in operations if operation.idle] or [calls[:0]])
    if not len(rows):
        return claim
    idle = idle_under(evidence, spans_of(evidence, rows)).astype(np.float64)
    return claim + of_gaps(evidence, np.arange(len(idle)), idle, np.zeros(len(idle)))


def beyond(evidence: Evidence, calls: I8) -> F8:
    """The time of calls above their floors, in ns; all of it for a call without a floor."""
    ns, floor = evidence.calls.ns[calls], evidence.calls.floor_ns[calls]
    return np.maximum(ns - np.where(np.isnan(floor), 0.0, floor), 0.0)


def _named(evidence: Evidence) -> I8:
    """For each row, the outermost operation of a known slow form around it, itself included; -1 for none."""
    events, parent = evidence.events, evidence.priced.links.op_parent
    by_name = np.array([name in SLOW_FORMS for name in events.names] or [False], dtype=bool)
    op = events.kind == EventKind.OP
    flagged = by_name[events.name] & op
    masks = np.array([name in BY_MASK for name in events.names] or [False], dtype=bool)[events.name]
    listing = np.array([name == "aten::nonzero" for name in events.names] or [False], dtype=bool)[events.name]
    above = parent[np.flatnonzero(listing & op)]
    flagged[above[(above >= 0) & masks[np.maximum(above, 0)]]] = True
    return outermost(parent, flagged)


def _form(evidence: Evidence, name: str, group: int, *, masked: bool) -> SlowForm | None:
    """The slow form of a call, by its name or its arguments; `masked`: it indexes with a mask."""
    if name in SLOW_FORMS:
        return SLOW_FORMS[name]
    if masked:
        return MASK_LISTED
    call = evidence.priced.groups[group].call
    if name in PRODUCT_OPS and any("int" in tensor.dtype for tensor in call.tensors):
        return INTEGER_PRODUCT
    return LONG_KERNEL if _is_long(evidence.priced.groups[group]) else None


def _is_long(group: CallGroup) -> bool:
    """Whether a convolution's kernel is so long that Fourier transforms need far fewer FLOPs."""
    if group.work.family != "convolution" or not group.work.flop:
        return False
    spectral = spectral_flop(group.call)
    return spectral is not None and group.work.flop >= LEAST_FLOP_RATIO * spectral


def _unexplained(evidence: Evidence, name: str, calls: I8, total: float, whole: float) -> bool:
    """Whether calls of no known form take most of the step, above their floors, and no other condition judges them."""
    if total <= LEAST_OTHER_SHARE * whole or not name.startswith("aten::"):
        return False
    families = {evidence.group_of(call).work.family for call in calls[:1].tolist()}
    floor = evidence.calls.floor_ns[calls]
    return not families & set(JUDGED_FAMILIES) and float(np.nansum(floor)) < LEAST_FLOOR_SHARE * total


def _by_line(
    evidence: Evidence, name: str, form: SlowForm | None, calls: I8, rows: I8, idle: dict[int, float]
) -> list[HeavyOperation]:
    """The calls of one operation, split by line. `rows`: the operation of each call; `idle`: as `_idle_within`."""
    alone = {row for row, ns in idle.items() if ns and evidence.events.name_of(row) == name} - set(rows.tolist())
    lines: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    every = [*rows.tolist(), *sorted(alone)]
    for at, row in enumerate(every):
        lines[evidence.source(row), evidence.module(row)].append(at)
    operations = []
    for (source, module), places in lines.items():
        ops = np.unique(np.array(every, dtype=np.int64)[places])
        own = calls[[place for place in places if place < len(calls)]]
        spent = sum(idle.get(row, 0.0) for row in ops.tolist())
        ns = float(evidence.calls.ns[own].sum()) + spent
        operations.append(HeavyOperation(name, form, source, module, own, ops, spent, ns))
    return operations
