"""The article's tables and figures as they stand in hardware/data/article, and the machine that they describe."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import msgspec

from gobrrr.model.envelope import Doubling, OperatorClass, Peak
from gobrrr.model.machine import Ceiling, Machine

ARTICLE = "article"
"""The name that `--on` takes for the article's machine."""
SOURCE = "Making Deep Learning Go Brrrr From First Principles, https://horace.io/brrr_intro.html"
TERA = 1e12


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the text and the words that give it."""

    name: str
    value: float
    unit: str
    quote: str


def lines(name: str) -> list[dict[str, str]]:
    """The rows of a table, empty cells left out."""
    text = files("gobrrr.hardware").joinpath(f"data/article/{name}.csv").read_text(encoding="utf-8")
    return [{key: cell for key, cell in line.items() if cell} for line in csv.DictReader(text.splitlines())]


@cache
def a100() -> tuple[Peak, ...]:
    """The A100 table."""
    return tuple(msgspec.convert(line, Peak, strict=False) for line in lines("a100"))


@cache
def doubling() -> tuple[Doubling, ...]:
    """The table of annual improvements and doubling times."""
    return tuple(msgspec.convert(line, Doubling, strict=False) for line in lines("doubling"))


@cache
def bert() -> tuple[OperatorClass, ...]:
    """The table of BERT's operator classes."""
    return tuple(msgspec.convert(line, OperatorClass, strict=False) for line in lines("bert"))


@cache
def numbers() -> dict[str, Number]:
    """The figures of the text by name."""
    rows = (msgspec.convert(line, Number, strict=False) for line in lines("numbers"))
    return {row.name: row for row in rows}


@cache
def article_machine() -> Machine:
    """The A100 with the article's figures: its table's dense peaks and 1.5 TB/s."""
    peaks: dict[str, dict[str, Ceiling]] = {"matrix": {}, "vector": {}}
    for row in a100():
        peaks[row.kind][row.dtype] = Ceiling(value=row.tflop_per_s * TERA, provenance="article", source=SOURCE)
    bandwidth = numbers()["memory_bandwidth"].value
    return Machine(
        name="A100, the article's figures",
        vendor="NVIDIA",
        architecture="Ampere sm_80",
        matrix_flop_per_s=peaks["matrix"],
        vector_flop_per_s=peaks["vector"],
        memory_bytes_per_s=Ceiling(value=bandwidth, provenance="article", source=SOURCE),
    )
