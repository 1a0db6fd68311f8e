"""Experiment 9: the same matmul by dtype, and by dimension around multiples of 8, 16 and 64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.hardware.measure.compiler import first_line
from gobrrr.hardware.measure.matmul import DTYPES, rate
from gobrrr.lab import article
from gobrrr.lab.judge import judged, within
from gobrrr.lab.session import Lab
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import Experiment, Judgement, LabTable
from gobrrr.model.measured import Quantity

OFFSETS = (-1, 0, 1, 2, 4, 8, 16, 32, 64)
SLOW = {"float16"}
"""Of the CPU's dtypes: no library there has a fast one, so it is left out where others take their time."""


@dataclass(frozen=True)
class Rate:
    """FLOP/s of one matmul; None with the reason where it was refused."""

    dtype: str
    size: int
    flop_per_s: Quantity | None
    why: str = ""


def run(lab: Lab) -> Experiment:
    """Every dtype at one size, then two dtypes at sizes around it."""
    size, base = lab.sized(cpu=1024, gpu=8192), lab.sized(cpu=1024, gpu=4096)
    by_dtype = [_rate(lab, dtype, size) for dtype in DTYPES if not (lab.cpu and dtype in (*SLOW, "tf32"))]
    around = ("float32", "bfloat16") if lab.cpu else ("tf32", "bfloat16")
    known = {one.dtype for one in by_dtype if one.flop_per_s}
    by_size = [_rate(lab, dtype, base + off) for dtype in around if dtype in known for off in OFFSETS if lab.left_s > 1]
    return result(by_dtype, by_size, lab.vector_peak(), lab.cpu, lab.settings(size=size, around=base))


def _rate(lab: Lab, dtype: str, size: int) -> Rate:
    try:
        return Rate(dtype, size, rate(lab.bench, dtype, size, size, size, budget_s=0.3))
    except (RuntimeError, NotImplementedError, ValueError, AttributeError, TypeError) as error:
        return Rate(dtype, size, None, first_line(error))


def result(
    by_dtype: Sequence[Rate], by_size: Sequence[Rate], vector: float | None, cpu: bool, settings: dict[str, str]
) -> Experiment:
    """The record of the rates: pure."""
    return Experiment(
        name="tensorcores",
        title="The same matmul by dtype and by dimension",
        tables=(_dtypes(by_dtype), _sizes(by_size)),
        judgements=(_gap(by_dtype, vector, cpu),),
        notes=(*(f"{one.dtype}: {one.why}" for one in by_dtype if one.why), "on dimensions the article claims nothing"),
        settings=settings,
    )


def _dtypes(rates: Sequence[Rate]) -> LabTable:
    single = next((one.flop_per_s for one in rates if one.dtype == "float32"), None)
    rows = tuple(
        (one.dtype, one.flop_per_s, one.flop_per_s.value / single.value if one.flop_per_s and single else None)
        for one in rates
    )
    heads = columns("dtype", "rate [FLOP/s]", "over float32 [x]")
    size = rates[0].size if rates else 0
    return LabTable(title=f"Matmul of {size} x {size} x {size}", columns=heads, rows=rows)


def _sizes(rates: Sequence[Rate]) -> LabTable:
    dtypes = list(dict.fromkeys(one.dtype for one in rates))
    found = {(one.dtype, one.size): one.flop_per_s for one in rates}
    rows = tuple(
        (float(size), f"multiple of {alignment(size)}", *(found.get((dtype, size)) for dtype in dtypes))
        for size in sorted({one.size for one in rates})
    )
    heads = columns("n", "", *(f"{dtype} [FLOP/s]" for dtype in dtypes))
    return LabTable(title="The same around multiples of 8, 16 and 64", columns=heads, rows=rows)


def alignment(size: int) -> int:
    """The largest power of two that divides a size, at most 64."""
    return min(64, size & -size)


def _gap(rates: Sequence[Rate], vector: float | None, cpu: bool) -> Judgement:
    said = f"{article.A100_PEAK_RATIO:.0f} (312 / 19.5)"
    rule = f"16-bit matmul over the float32 vector units within a factor of 2 of {said}"
    found = {one.dtype: one.flop_per_s for one in rates if one.flop_per_s}
    half = max(
        (found[name] for name in ("bfloat16", "float16") if name in found),
        key=lambda quantity: quantity.value,
        default=None,
    )
    single = vector or (found["float32"].value if "float32" in found else None)
    if half is None or single is None:
        return judged(article.TENSOR_CORES, "can't tell", "one of the two was not measured", rule)
    over = half.scaled(1 / single)
    low, high = article.A100_PEAK_RATIO / 2, article.A100_PEAK_RATIO * 2
    against = "the vector units" if vector else "a float32 matmul"
    here = f"{over.value:.1f} times {against}" + (" (a CPU without tensor cores)" if cpu else "")
    return judged(article.TENSOR_CORES, within(over, low, high), here, rule)
