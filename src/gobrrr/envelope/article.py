"""The article's own sentences: each claimed figure beside the same figure computed by the code that answers `calc`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gobrrr.envelope.calculate import calculate
from gobrrr.envelope.tables import TERA, a100, article_machine, bert, doubling, numbers
from gobrrr.model.envelope import Article, ArticleFigure, Envelope

ELEMENTS = 2**26
"""Size of the tensors below; no figure depends on it."""
FLOAT32_BYTES = 4
READER = "a reader's note"
ROUNDING = 0.005
"""Half of the last digit of a factor that is printed with two decimals."""
YEAR_ROUNDING = 0.05


def rounds_to(computed: float, claimed: float) -> bool:
    """Whether `computed`, rounded to the significant digits that `claimed` has, is `claimed`."""
    digits = len(f"{claimed:.12g}".replace(".", "").strip("0").partition("e")[0].strip("0") or "0")
    return math.isclose(float(f"{computed:.{max(digits, 1)}g}"), claimed, rel_tol=1e-9)


def article() -> Article:
    """The claims and the tables behind them."""
    return Article(claims=claims(), a100=a100(), doubling=doubling(), bert=bert())


def claims() -> tuple[ArticleFigure, ...]:
    """Every figure of the article that follows from others, in the order of its text."""
    return (*_factory(), *_bandwidth(), *_fusion(), *_repeat(), *_overhead(), *_readers())


def _claim(
    quote: str, claimed: float, computed: float, how: str, unit: str = "", source: str = "article"
) -> ArticleFigure:
    return ArticleFigure(
        quote=quote,
        claimed=_figure(claimed, unit),
        computed=_figure(computed, unit),
        how=how,
        agrees=rounds_to(computed, claimed),
        source=source,
    )


def _figure(value: float, unit: str) -> str:
    if unit:
        return f"{value / TERA:.4g} TFLOP/s" if unit == "FLOP/s" else f"{_short(value)} {unit}"
    return _short(value)


def _short(value: float) -> str:
    for scale, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {name}"
    return f"{value:.4g}"


def _on_article(what: str, dtype: str = "float32", ops: int | None = None) -> Envelope:
    return calculate(what, shape=ELEMENTS, dtype=dtype, ops=ops, on=article_machine())


def _factory() -> Iterator[ArticleFigure]:
    """The doubling times, the matrix units, BERT."""
    rows = {row.row.partition(" (")[0]: row for row in doubling()}
    yearly, times = rows["Annual Bandwidth Improvement"], rows["Time for Bandwidth to Double in Years"]
    for name, words in (("processor", "processor"), ("memory_module", "memory module")):
        yield _doubling_time(words, getattr(yearly, name), getattr(times, name))
    peaks = {row.unit: row for row in a100()}
    tensor, plain = peaks["BFLOAT16 Tensor Core"], peaks["FP32"]
    yield _claim(
        "our GPU computes non-matmul ops 15x slower",
        15,
        tensor.tflop_per_s / plain.tflop_per_s,
        f"{tensor.tflop_per_s:g} / {plain.tflop_per_s:g}",
    )
    yield _claim(
        "312 TFLOPS 624 TFLOPS*: sparsity doubles",
        2,
        (tensor.tflop_per_s_sparse or 0.0) / tensor.tflop_per_s,
        "624 / 312; only the dense figure is a ceiling here",
    )
    yield from _bert()


def _doubling_time(words: str, factor: float, years: float) -> ArticleFigure:
    """ln 2 / ln factor, for all factors that round to the printed one."""
    least, most = (math.log(2) / math.log(factor + off) for off in (ROUNDING, -ROUNDING))
    return ArticleFigure(
        quote=f"time for the bandwidth of the {words} to double in years",
        claimed=f"{years:g}",
        computed=f"{least:.2f} to {most:.2f}",
        how=f"ln 2 / ln {factor:.2f}, which is itself rounded",
        agrees=least < years + YEAR_ROUNDING and years - YEAR_ROUNDING <= most,
    )


def _bert() -> Iterator[ArticleFigure]:
    matmul, norm, pointwise = bert()
    yield _claim(
        "non-matmul ops only make up 0.2% of our FLOPS",
        0.2,
        norm.flop_percent + pointwise.flop_percent,
        f"{norm.flop_percent} + {pointwise.flop_percent}",
        "%",
    )
    rate = matmul.flop_percent / matmul.runtime_percent
    for one, claimed, name in ((norm, 250.0, "normalization"), (pointwise, 700.0, "pointwise")):
        yield _claim(
            f"{name} achieves {claimed:.0f}x less FLOPS than matmuls",
            claimed,
            rate / (one.flop_percent / one.runtime_percent),
            f"({matmul.flop_percent:.1f} / {matmul.runtime_percent}) / ({one.flop_percent} / {one.runtime_percent})",
        )


def _bandwidth() -> Iterator[ArticleFigure]:
    given = numbers()
    bandwidth, peak = given["memory_bandwidth"].value, given["vector_peak"].value
    yield _claim(
        "you can load in 400 billion numbers",
        400e9,
        bandwidth / FLOAT32_BYTES,
        "1.5e12 byte/s / 4 bytes, in a second",
    )
    yield _claim(
        "in the same time that the GPU can perform 20 trillion operations", 20e12, peak, "19.5e12 FLOP/s, in a second"
    )
    balance = _on_article("x * 2").balance
    if balance is not None:
        yield _claim(
            "until you're doing about a hundred operations",
            100,
            balance.needed,
            "19.5e12 / (1.5e12 / 8 bytes an element, read and written)",
        )


def _fusion() -> Iterator[ArticleFigure]:
    """x.cos().cos()."""
    twice, once = _on_article("x.cos().cos()"), _on_article("x.cos()")
    tensor = ELEMENTS * FLOAT32_BYTES
    yield _claim("x.cos().cos(): 4 global reads and writes", 4, twice.unfused.bytes / tensor, "bytes / tensor")
    yield _claim("with fusion, only 2", 2, twice.fused.bytes / tensor, "bytes / tensor")
    yield _claim("so operator fusion will speed it up by 2x", 2, twice.speedup or 0.0, "floor / floor")
    yield _claim(
        "a fused x.cos().cos() takes the time of x.cos() by itself",
        1,
        (twice.fused.floor_ns or 0.0) / (once.fused.floor_ns or 1.0),
        "floor / floor",
    )
    gelu, relu = _on_article("x.gelu()"), _on_article("x.relu()")
    yield _claim(
        "gelu costs nearly the same as relu",
        1,
        (gelu.fused.floor_ns or 0.0) / (relu.fused.floor_ns or 1.0),
        "floor / floor, with 5 times the FLOP",
    )


def _repeat() -> Iterator[ArticleFigure]:
    """The sweep over `repeat`."""
    once = _on_article("pointwise", ops=1).fused
    yield _claim(
        "we start off by achieving a measly 0.2 teraflops",
        0.2e12,
        once.flop / (once.floor_ns or 1.0) * 1e9,
        "FLOP / floor of x * 2",
        "FLOP/s",
    )
    given = numbers()
    yield _claim(
        "our peak of 9.75 teraflops",
        given["peak_without_fma"].value,
        given["vector_peak"].value / 2,
        "19.5e12 / 2: a multiplication alone is half of a fused multiply-add",
        "FLOP/s",
    )
    balance = _on_article("pointwise", ops=64).balance
    if balance is not None:
        turn = balance.needed_without_fma
        yield ArticleFigure(
            quote="memory-bound for repeat < 32, compute-bound for repeat > 64",
            claimed="32 to 64",
            computed=f"{turn:.4g}",
            how="9.75e12 / (1.5e12 / 8 bytes an element)",
            agrees=32 <= turn <= 64,
        )


def _overhead() -> Iterator[ArticleFigure]:
    given = numbers()
    yield _claim(
        "in the time of a single Python FLOP, an A100 could have chewed through 9.75 million FLOPS",
        9.75e6,
        given["matrix_peak"].value / given["python_additions"].value,
        "312e12 / 32e6",
    )


def _readers() -> Iterator[ArticleFigure]:
    """What readers' notes on the article derive from it."""
    product = calculate("mm", 4096, 4096, 4096, dtype="bf16", on=article_machine())
    yield _claim(
        "crossover of the roofline, FLOP a byte",
        208,
        product.roofs[0].ridge or 0.0,
        "312e12 / 1.5e12",
        source=READER,
    )
    cos = _on_article("x.cos()").fused.flop_per_byte
    yield _claim("a pointwise operation does 0.125 FLOP a byte", 0.125, cos or 0.0, "1 / 8 bytes", source=READER)
