"""Dense linear algebra: leading terms of LAPACK's operation counts; an eigenvalue iteration is an estimate.

LAPACK Working Note 41 (Blackford, Dongarra: Installation Guide, appendix C) for the direct ones; Golub and Van Loan,
Matrix Computations (4th edition), sections 5.2 to 8.6, for eigenvalues and singular values. Complex numbers: 4 times.
All are bounded: blocked and batched kernels do somewhat more, and the lower-order terms are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gobrrr.cost.arguments import flag, integer, maybe_tensor, tensor, tensor_list, text
from gobrrr.cost.build import contraction, copy, made_bytes, vector
from gobrrr.cost.dtypes import category
from gobrrr.cost.registry import Uncounted, register, rule
from gobrrr.cost.shapes import FMA_FLOP, broadcast, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

_ITERATIVE = "an iteration whose length depends on the values: the textbook's estimate"
_LEADING = "the leading term of LAPACK's operation count"
"""Notes of the counts."""


def lu_flop(rows: int, columns: int) -> float:
    """FLOP of an LU factorization: m n^2 - n^3 / 3 for m >= n (2/3 n^3 for a square)."""
    large, small = max(rows, columns), min(rows, columns)
    return large * small**2 - small**3 / 3


def cholesky_flop(size: int) -> float:
    """FLOP of a Cholesky (or LDL) factorization: n^3 / 3."""
    return size**3 / 3


def qr_flop(rows: int, columns: int) -> float:
    """FLOP of Householder QR without forming Q: 2 m n^2 - 2/3 n^3 for m >= n."""
    large, small = max(rows, columns), min(rows, columns)
    return 2 * large * small**2 - 2 * small**3 / 3


def form_q_flop(rows: int, columns: int, reflectors: int) -> float:
    """FLOP of forming m x n of Q from k reflectors: 4 m n k - 2 (m + n) k^2 + 4/3 k^3."""
    return 4 * rows * columns * reflectors - 2 * (rows + columns) * reflectors**2 + 4 * reflectors**3 / 3


def triangular_flop(size: int, columns: int) -> float:
    """FLOP of a triangular solve with n x n for some right-hand sides: n^2 each."""
    return float(size**2 * columns)


def _matrix(given: Tensor) -> tuple[int, int, int]:
    """(batch, rows, columns). Raises Uncounted for less than a matrix."""
    if len(given.shape) < 2:
        raise Uncounted("linear algebra on something that isn't a matrix")
    return numel(given.shape[:-2]), given.shape[-2], given.shape[-1]


def _count(call: OpCall, read: Sequence[Tensor | None], flop: float, written: float, note: str = _LEADING) -> Work:
    first = next(given for given in read if given is not None)
    complex_times = 4 if category(first.dtype) == 3 else 1
    made = made_bytes(call)
    return contraction(
        call,
        flop=flop * complex_times,
        dtype=first.dtype,
        read=read_bytes(*read),
        written=written if made is None else made,
        count="bounded",
        note=note,
    )


def _bytes(given: Tensor) -> float:
    return write_bytes(given.shape, given.dtype)


# Of one square or rectangular matrix: FLOP from (rows, columns), and how many results of the input's size are written.
_OF_ONE: dict[str, tuple[Callable[[int, int], float], int]] = {
    "linalg_lu_factor_ex": (lu_flop, 1),
    "linalg_lu": (lu_flop, 2),
    "linalg_cholesky_ex": (lambda m, n: cholesky_flop(n), 1),
    "cholesky": (lambda m, n: cholesky_flop(n), 1),
    "linalg_ldl_factor_ex": (lambda m, n: cholesky_flop(n), 1),
    "cholesky_inverse": (lambda m, n: 2 * n**3 / 3, 1),
    "linalg_inv_ex": (lambda m, n: 2.0 * n**3, 1),
    "_linalg_det": (lu_flop, 1),
    "_linalg_slogdet": (lu_flop, 1),
    "geqrf": (qr_flop, 1),
    "linalg_householder_product": (lambda m, n: form_q_flop(m, n, min(m, n)), 1),
}


def _of_one(flop: Callable[[int, int], float], results: int) -> Callable[[OpCall], Work]:
    def count(call: OpCall) -> Work:
        given = tensor(call, 0)
        batch, rows, columns = _matrix(given)
        return _count(call, [given], batch * flop(rows, columns), results * _bytes(given))

    return count


for _name, (_flop, _results) in _OF_ONE.items():
    register(f"aten::{_name}", _of_one(_flop, _results), family="linalg")


@rule("aten::linalg_qr", family="linalg")
def _qr(call: OpCall) -> Work:
    given = tensor(call, 0)
    batch, rows, columns = _matrix(given)
    mode, small = text(call, 1).strip("\"'") or "reduced", min(rows, columns)
    width = rows if mode == "complete" else small
    forming = 0.0 if mode == "r" else form_q_flop(rows, width, small)
    made = batch * width * ((0 if mode == "r" else rows) + columns)
    return _count(call, [given], batch * (qr_flop(rows, columns) + forming), write_bytes((made,), given.dtype))


@rule("aten::_linalg_solve_ex", family="linalg")
def _solve(call: OpCall) -> Work:
    """LU, then two triangular solves a right-hand side; writes the solution and the factors."""
    left, right = tensor(call, 0), tensor(call, 1)
    batch, size, _ = _matrix(left)
    sides = _sides(right, size, on_left=flag(call, 2) is not False, vector=len(right.shape) == len(left.shape) - 1)
    flop = batch * (lu_flop(size, size) + 2 * triangular_flop(size, sides))
    return _count(call, [left, right], flop, _bytes(left) + _bytes(right))


def _sides(right: Tensor, size: int, *, on_left: bool, vector: bool = False) -> int:
    """Right-hand sides: columns (or rows) of the second matrix."""
    if vector or len(right.shape) < 2:
        return 1
    return right.shape[-1] if on_left else right.shape[-2]


@rule("aten::linalg_lu_solve", "aten::linalg_ldl_solve", family="linalg")
def _factored_solve(call: OpCall) -> Work:
    factors, right = tensor(call, 0), tensor(call, 2)
    _, size, _ = _matrix(factors)
    on_left = call.name == "aten::linalg_ldl_solve" or flag(call, 3) is not False
    batch = numel(broadcast(factors.shape[:-2], right.shape[:-2]))
    flop = batch * 2 * triangular_flop(size, _sides(right, size, on_left=on_left))
    return _count(call, [factors, tensor(call, 1), right], flop, _bytes(right))


@rule("aten::cholesky_solve", "aten::_cholesky_solve_helper", family="linalg")
def _cholesky_solve(call: OpCall) -> Work:
    right, factors = tensor(call, 0), tensor(call, 1)
    _, size, _ = _matrix(factors)
    batch = numel(broadcast(factors.shape[:-2], right.shape[:-2]))
    flop = batch * 2 * triangular_flop(size, _sides(right, size, on_left=True))
    return _count(call, [right, factors], flop, _bytes(right))


@rule("aten::linalg_solve_triangular", "aten::triangular_solve", family="linalg")
def _triangular(call: OpCall) -> Work:
    """(A, B, upper, left, ...) and, in the older spelling, (B, A, ...)."""
    older = call.name == "aten::triangular_solve"
    left, right = (tensor(call, 1), tensor(call, 0)) if older else (tensor(call, 0), tensor(call, 1))
    _, size, _ = _matrix(left)
    on_left = older or flag(call, 3) is not False
    batch = numel(broadcast(left.shape[:-2], right.shape[:-2]))
    flop = batch * triangular_flop(size, _sides(right, size, on_left=on_left))
    return _count(call, [left, right], flop, _bytes(right))


@rule("aten::ormqr", family="linalg")
def _apply_q(call: OpCall) -> Work:
    """4 m n k - 2 n k^2: k reflectors of length m applied to n columns."""
    factors, other = tensor(call, 0), tensor(call, 2)
    batch, rows, columns = _matrix(other)
    long, wide = (rows, columns) if flag(call, 3) is not False else (columns, rows)
    reflectors = min(factors.shape[-1], long)
    flop = batch * (4 * long * wide * reflectors - 2 * wide * reflectors**2)
    return _count(call, [factors, tensor(call, 1), other], flop, _bytes(other))


@rule("aten::_linalg_eigh", "aten::linalg_eig", "aten::linalg_eigvals", "aten::_linalg_eigvals", family="linalg")
def _eigenvalues(call: OpCall) -> Work:
    """Symmetric: 4/3 n^3, 9 n^3 with vectors. General: 10 n^3, 25 n^3 with vectors."""
    given = tensor(call, 0)
    batch, size, _ = _matrix(given)
    if call.name == "aten::_linalg_eigh":
        each = 9.0 if flag(call, 2) is not False else 4 / 3
    else:
        each = 25.0 if call.name == "aten::linalg_eig" else 10.0
    vectors = each in (9.0, 25.0)
    written = write_bytes((batch, size, size if vectors else 1), given.dtype)
    return _count(call, [given], batch * each * size**3, written, _ITERATIVE)


def singular_flop(rows: int, columns: int, *, vectors: bool, full: bool) -> float:
    """Golub-Reinsch, m >= n: 4 m n^2 - 4/3 n^3 for the values, 14 m n^2 + 8 n^3 with U1 and V, more with all of U."""
    large, small = max(rows, columns), min(rows, columns)
    if not vectors:
        return 4 * large * small**2 - 4 * small**3 / 3
    if full:
        return 4.0 * large**2 * small + 8 * large * small**2 + 9 * small**3
    return 14.0 * large * small**2 + 8 * small**3


@rule("aten::_linalg_svd", family="linalg")
def _svd(call: OpCall) -> Work:
    given = tensor(call, 0)
    batch, rows, columns = _matrix(given)
    full, vectors = bool(flag(call, 1)), flag(call, 2) is not False
    small = min(rows, columns)
    made = small + (vectors * (rows * (rows if full else small) + columns * (columns if full else small)))
    flop = batch * singular_flop(rows, columns, vectors=vectors, full=full)
    return _count(call, [given], flop, write_bytes((batch, made), given.dtype), _ITERATIVE)


@rule("aten::linalg_pinv", family="linalg")
def _pseudo_inverse(call: OpCall) -> Work:
    """A singular value decomposition, and the product of its parts: 2 m n min(m, n)."""
    given = tensor(call, 0)
    batch, rows, columns = _matrix(given)
    product = FMA_FLOP * rows * columns * min(rows, columns)
    flop = batch * (singular_flop(rows, columns, vectors=True, full=False) + product)
    return _count(call, [given], flop, _bytes(given), _ITERATIVE)


@rule("aten::linalg_lstsq", family="linalg")
def _least_squares(call: OpCall) -> Work:
    """QR, Q applied to the right-hand sides, a triangular solve."""
    left, right = tensor(call, 0), tensor(call, 1)
    batch, rows, columns = _matrix(left)
    sides = _sides(right, rows, on_left=True, vector=len(right.shape) == len(left.shape) - 1)
    small = min(rows, columns)
    apply_q = 4 * rows * sides * small - 2 * sides * small**2
    flop = batch * (qr_flop(rows, columns) + apply_q + triangular_flop(small, sides))
    return _count(call, [left, right], flop, write_bytes((batch, columns, sides), left.dtype))


@rule("aten::lu_unpack", family="linalg")
def _unpack(call: OpCall) -> Work:
    given, pivots = tensor(call, 0), maybe_tensor(call, 1)
    _matrix(given)
    made = made_bytes(call)
    written = 3 * _bytes(given) if made is None else made
    return copy(read=read_bytes(given, pivots), written=written, count="bounded", note="three matrices are written")


@rule("aten::linalg_cross", "aten::cross", family="pointwise")
def _cross(call: OpCall) -> Work:
    """Two products and a difference an element."""
    left, right = tensor(call, 0), tensor(call, 1)
    shape = broadcast(left.shape, right.shape)
    return vector(
        flop=3 * numel(shape), dtype=left.dtype, read=read_bytes(left, right), written=write_bytes(shape, left.dtype)
    )


@rule("aten::trace", family="reduction")
def _trace(call: OpCall) -> Work:
    given = tensor(call, 0, 2)
    length = min(given.shape)
    # One element a row, wherever it lies.
    out = "int64" if category(given.dtype) in (0, 1) else given.dtype
    return vector(
        flop=length, dtype=given.dtype, read=write_bytes((length,), given.dtype), written=write_bytes((), out)
    )


@rule("aten::chain_matmul", "aten::linalg_multi_dot", family="matmul")
def _chain(call: OpCall) -> Work:
    """The cheapest order of the products, as torch chooses it (dynamic programming over the sizes)."""
    parts = tensor_list(call, 0)
    if any(len(part.shape) > 2 or not part.shape for part in parts) or len(parts) < 2:
        raise Uncounted("a chain of something that isn't matrices")
    sizes = [parts[0].shape[0] if len(parts[0].shape) == 2 else 1, *(part.shape[-1] for part in parts[:-1])]
    sizes.append(parts[-1].shape[1] if len(parts[-1].shape) == 2 else 1)
    if len(parts) > 64:
        raise Uncounted("a chain of more matrices than are worked out")
    out = (sizes[0], sizes[-1])
    flop = FMA_FLOP * chain_multiplications(sizes)
    return _count(call, list(parts), flop, write_bytes(out, parts[0].dtype), "the cheapest order of the products")


def chain_multiplications(sizes: Sequence[int]) -> int:
    """Fewest multiplications for a chain of matrices sizes[i] x sizes[i + 1]."""
    count = len(sizes) - 1
    best = [[0] * count for _ in range(count)]
    for span in range(1, count):
        for start in range(count - span):
            end = start + span
            best[start][end] = min(
                best[start][cut] + best[cut + 1][end] + sizes[start] * sizes[cut + 1] * sizes[end + 1]
                for cut in range(start, end)
            )
    return best[0][count - 1]


@rule("aten::linalg_matrix_exp", "aten::linalg_matrix_power", "aten::matrix_power", family="linalg")
def _power(call: OpCall) -> Work:
    exponent = integer(call, 1) if call.name != "aten::linalg_matrix_exp" else None
    if exponent is None:
        raise Uncounted("how many products a matrix exponential takes depends on its norm")
    given = tensor(call, 0)
    batch, size, _ = _matrix(given)
    power = abs(exponent)
    # Binary powering: a squaring for each bit but the first, a product for each further bit set.
    products = max(0, power.bit_length() - 1) + max(0, power.bit_count() - 1)
    flop = batch * (products * FMA_FLOP * size**3 + (2 * size**3 if exponent < 0 else 0))
    return _count(call, [given], flop, _bytes(given), "by repeated squaring")
