"""A remedy saves the same milliseconds wherever it is told: terminal, page and JSON."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report import advice, html
from gobrrr.report.json import to_json
from gobrrr.report.layout import Page, plain
from tests.analysis.tables import diagnosis
from tests.conftest import H100

NAMES = ("gpt2_b8_s1024.fwdbwd", "gpt_eager_attn.faulty", "mlp_tiny.faulty")


def words(ns: tuple[float, float]) -> str:
    return units.duration_range(*ns) if ns[1] > 0 else "no gain"


def cards(one: Diagnosis) -> list[str]:
    """The page's cards of what to do, as text."""
    section = html.render(one).split('id="todo"')[1].split("</section>")[0]
    return [unescape(re.sub(r"<[^>]*>", "", card)) for card in section.split('<li class="card">')[1:]]


def entries(one: Diagnosis) -> list[str]:
    """The terminal's entries of what to do, each on one line."""
    text = plain(advice.prescriptions(one, Page(width=120), most=99))
    return [" ".join(entry.split()) for entry in re.split(r"\n  \d+  ", text)[1:]]


@pytest.mark.parametrize("name", NAMES)
def test_a_remedy_is_told_once_and_saves_the_same_everywhere(name: str) -> None:
    one = diagnosis(H100 / f"{name}.json.gz")
    told = msgspec.json.decode(to_json(one))["prescriptions"]
    treatments = [item["treatment"] for item in told]
    assert len(treatments) == len(set(treatments))
    for item, entry, card in zip(told, entries(one), cards(one), strict=True):
        saved = advice.expected_saving(item["expected_ns"], tuple(item["predicted_saving_ns"]))
        assert saved in entry
        assert saved in card
        assert f"{item['treatment']}: " in entry or item["treatment"] in card
        if len(item["mends"]) == 1:
            continue
        for code, ns in zip(item["mends"], item["mends_ns"], strict=True):
            assert f"({code}; {words((ns, ns))} alone" in entry
            assert re.search(rf"{code} [^,]*, {re.escape(words((ns, ns)))} alone", card)
