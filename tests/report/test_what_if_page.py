"""The what-if panel as text: the record's numbers in the table and in the data, escaped, absent where empty."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr import units
from gobrrr.model.diagnosis import BudgetLine, Diagnosis, MovedOp, Prescription, Roof
from gobrrr.report import html, json, what_if
from gobrrr.report.page.machines import own
from tests.analysis.tables import diagnosis
from tests.conftest import H100
from tests.report.test_html import ATTACK, MOST_BYTES, TAGS, Seen, full
from tests.report.test_html import op as row
from tests.report.what_ifs import OFFERED, OTHER, entry, with_what_ifs

GPT = H100 / "gpt_eager_attn.faulty.json.gz"
MOST_GROWTH = 30_000


def sample(**changes: object) -> Diagnosis:
    return with_what_ifs(full(**changes))


def panel(one: Diagnosis) -> str:
    """The section's own text."""
    page = html.render(one)
    found = re.search(r'<section id="what-if".*?</section>', page, re.DOTALL)
    assert found
    return Seen(found.group()).text


def table_rows(one: Diagnosis) -> list[str]:
    body = re.search(r'<table id="what-if-table".*?<tbody>(.*?)</tbody>', html.render(one), re.DOTALL)
    assert body
    return [Seen(found).text for found in re.findall(r"<tr>.*?</tr>", body.group(1), re.DOTALL)]


@pytest.mark.parametrize("make", [sample, lambda: with_what_ifs(diagnosis(GPT))], ids=["sample", "trace"])
def test_the_table_has_every_entry_with_its_numbers(make: Callable[[], Diagnosis]) -> None:
    one = make()
    rows = table_rows(one)
    assert len(rows) == len(one.what_ifs)
    for text, wanted in zip(rows, one.what_ifs, strict=True):
        assert what_if.title(wanted) in text
        assert units.duration(wanted.step_ns) in text
        assert units.duration_range(wanted.low_ns, wanted.high_ns) in text
        assert what_if.bound(wanted.regime) in text
        assert what_if.told(wanted) in text
        assert all(item in text for item in wanted.assumes)
        if wanted is not one.what_ifs[0]:
            assert what_if.saving(one.what_ifs[0], wanted) in text
            assert what_if.between(wanted.saving_ns) in text


def test_the_scripts_data_is_the_records() -> None:
    one = with_what_ifs(diagnosis(GPT))
    data = Seen(html.render(one)).data["what_if"]
    assert len(data["entries"]) == len(one.what_ifs)
    for found, wanted in zip(data["entries"], one.what_ifs, strict=True):
        assert [data["treatments"][at] for at in found["treatments"]] == wanted.treatments
        assert data["machines"][found["machine"]]["name"] == (wanted.machine or one.machine)
        assert (found["step"], found["low"], found["high"]) == (wanted.step_ns, wanted.low_ns, wanted.high_ns)
        assert sum(found["ns"]) == pytest.approx(wanted.step_ns, rel=1e-6)
        points = {data["moves"][at][0]: data["moves"][at][1:] for at in found["moved"]}
        drawn = [item for item in wanted.ops if one.ops[item.op].flop and one.ops[item.op].bytes]
        assert {item.op for item in drawn} == set(points)
        for item in drawn:
            assert points[item.op] == pytest.approx([item.ns, item.bytes], rel=1e-6)
    roofs = data["machines"][1]["roofs"]
    assert [roof["value"] for roof in roofs] == [roof.value for roof in one.what_if_roofs[OTHER]]
    assert data["machines"][0]["roofs"] is None  # those of the page


def test_lines_of_one_name_are_summed_and_keep_their_colour() -> None:
    one = sample()
    data = Seen(html.render(one)).data["what_if"]
    names = [(line["group"], line["label"]) for line in data["lines"]]
    assert len(names) == len(set(names))
    at = names.index(("overhead", "launching"))
    assert data["lines"][at]["colour"] == "launching"
    wanted = sum(line.ns for line in one.what_ifs[2].lines if line.cause == "launching")
    assert data["entries"][2]["ns"][at] == pytest.approx(wanted, rel=1e-6)


def test_each_treatment_has_a_button_with_its_meaning_and_its_own_saving() -> None:
    one = sample()
    text = panel(one)
    for name in ("compile", "cuda-graph", "larger-batch", "pad-dimensions"):
        assert what_if.meaning(one, name) in text
    alone = one.what_ifs[1]
    assert f"compile alone {what_if.saving(one.what_ifs[0], alone)}" in text
    assert "pad-dimensions alone takes" in text
    page = Seen(html.render(one))
    toggles = [attributes for _, attributes in page.tags if attributes.get("class") == "toggle"]
    assert [one["aria-pressed"] for one in toggles] == ["false"] * 4
    assert [attributes["value"] for _, attributes in page.tags if attributes.get("type") == "radio"] == ["0", "1", "2"]


def test_the_code_of_a_meaning_is_its_first_line_that_does_something() -> None:
    how = "# first\nimport torch\n\nstep = f(step)"
    one = full(prescriptions=[Prescription(treatment="a", finding="O01", predicted_saving_ns=(0, 1), how=how)])
    assert what_if.meaning(one, "a") == "step = f(step)"
    assert what_if.meaning(one, "b") == ""


def test_only_treatments_that_were_replayed_alone_have_a_saving_of_their_own() -> None:
    one = with_what_ifs(full(), [([], None), (["compile", "cuda-graph"], None)])
    text = panel(one)
    assert text.count("not replayed alone") == 2
    assert 'type="radio"' not in html.render(one)  # there is one machine


@pytest.mark.parametrize("one", [full(), with_what_ifs(full(), OFFERED[:1])], ids=["none", "as it is alone"])
def test_a_record_without_combinations_has_nothing_of_the_panel(one: Diagnosis) -> None:
    page = html.render(one)
    assert "what_if" not in Seen(page).data
    assert 'href="#what-if"' not in page
    assert "What if" not in Seen(page).text
    assert "sceneOf" not in page
    assert ".toggles" not in page


def test_the_page_leads_to_the_panel() -> None:
    assert 'href="#what-if"' in html.render(sample())


def test_a_step_without_points_has_a_panel_without_a_roofline() -> None:
    page = html.render(sample(ops=[]))
    assert 'id="what-if"' in page
    assert 'id="what-if-roofline"' not in page


def test_a_budget_that_is_not_known_still_makes_a_panel() -> None:
    one = full(budget=[])
    one = replace(one, what_ifs=[entry(one, 1e6, names, machine) for names, machine in OFFERED])
    assert 'id="what-if"' in html.render(one)


def test_hostile_names_stay_text() -> None:
    base = sample(ops=[row(ATTACK, bound="memory"), row()])
    bad = entry(
        base, 31e6, [ATTACK], ATTACK, then=ATTACK, assumes=[ATTACK],
        lines=[BudgetLine(line="overhead", cause=ATTACK, ns=1e6, share=1.0)],
        ops=[MovedOp(op=0, ns=1.0, floor_ns=None, bytes=None), MovedOp(op=99, ns=1.0, floor_ns=1.0, bytes=1.0)],
    )  # fmt: skip
    roofs = {ATTACK: [Roof(name=ATTACK, kind="memory", value=1e12, provenance=ATTACK)]}
    how = Prescription(treatment=ATTACK, finding="O01", predicted_saving_ns=(0, 1), how=ATTACK)
    one = replace(base, what_ifs=[*base.what_ifs, bad], what_if_roofs=roofs, prescriptions=[how])
    page = html.render(one)
    seen = Seen(page)
    assert seen.open == []
    assert {tag for tag, _ in seen.tags} <= TAGS
    assert len(seen.scripts) == 3
    assert seen.data["what_if"]["entries"][-1]["then"] == ATTACK
    assert len(seen.data["what_if"]["entries"][-1]["moved"]) == 1  # row 99 is in no table
    assert panel(one).count("<img src=x onerror=alert(2)>") >= 6
    ids = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
    assert len([one for one in ids if one.startswith("what-if")]) == len(
        {one for one in ids if one.startswith("what-if")}
    )


def test_what_it_adds_is_small_and_safe() -> None:
    one = full()
    with_panel = with_what_ifs(replace(one, prescriptions=[]), OFFERED[:2])
    without = replace(with_panel, what_ifs=[])
    assert len(html.render(with_panel).encode()) - len(html.render(without).encode()) < MOST_GROWTH
    assert len(html.render(with_what_ifs(diagnosis(GPT))).encode()) < MOST_BYTES
    for name in ("what_if.js", "what_if.css"):
        assert not re.search(r"</script|</style|<!--|url\(|@import|innerHTML", own(name), re.IGNORECASE)


def test_a_saved_record_gives_the_same_page(tmp_path: Path) -> None:
    json.save(sample(), tmp_path / "saved.json")
    assert html.render(json.load(tmp_path / "saved.json")) == html.render(sample())
