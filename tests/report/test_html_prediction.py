"""The page of a prediction: its machines as numbers and in the charts' data, and no word of a run that never was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.model.diagnosis import BudgetLine, ChangedOp, Diagnosis, MachineRow, Totals, Wall
from gobrrr.report import html, json
from gobrrr.report.page.machines import own
from tests.report.browser import Opened, browser
from tests.report.test_html import ATTACK, MOST_BYTES, TAGS, Seen, full
from tests.spread import slow

MS = 1e6
RUN_WORDS = re.compile(r"profil|\btraces?\b|recorded|under it|replayed", re.IGNORECASE)
TOTALS = Totals(
    flop=6e12, flop_executed=5e12, flop_model=4e12, flop_contraction=3e12,
    bytes_as_run=4e10, bytes_fused=3e10, bytes_compulsory=2e10, launches=70.0, syncs=0.0,
)  # fmt: skip


def row(machine: str, step_ms: float, **changes: Any) -> MachineRow:
    fields: dict[str, Any] = {
        "machine": machine, "step_ns": step_ms * MS, "low_ns": 0.75 * step_ms * MS, "high_ns": 1.5 * step_ms * MS,
        "device_ns": 0.5 * step_ms * MS, "host_ns": 10 * MS, "regime": "memory", "compute_share": 0.25,
        "memory_share": 0.5, "overhead_share": 0.125, "speed_of_light_ns": 0.25 * step_ms * MS, "fits": True,
        "ridge_flop_per_byte": 295.3, "step_flop_per_byte": 150.0, "host": "host of a test",
    }  # fmt: skip
    return MachineRow(**{**fields, **changes})


ROWS = [
    row("H100-SXM5-80GB", 40),
    row(
        "A100-80GB-SXM4", 80, regime="compute", fits=False, ridge_flop_per_byte=120.0,
        changed=[ChangedOp(op="aten::addmm", shapes="[8, 8] bfloat16", bound="compute", ns=2 * MS)] * 5,
    ),
    row("B200-SXM-180GB", 20, regime="mixed", fits=None, ridge_flop_per_byte=None, speed_of_light_ns=None),
]  # fmt: skip


def prediction(**changes: Any) -> Diagnosis:
    """A prediction for three machines with every part of the page; the texts that the record brings speak of no run."""
    fields: dict[str, Any] = {
        "target": "/home/me/workload.py:workload", "origin": "static", "device": "H100-SXM5-80GB",
        "machine": "H100-SXM5-80GB", "wall_ns": None, "steps": 1, "steps_from": "1 ProfilerStep annotation",
        "unprofiled_wall_ns": Wall(value=40 * MS, low=30 * MS, high=60 * MS, how="estimated"), "regime": "memory",
        "budget": [BudgetLine(line="memory", cause=None, ns=40 * MS, share=1.0)], "totals": TOTALS,
        "machines": ROWS, "memory_peak_bytes": 7.9e9, "not_checked": [], "notes": ["predicted, not measured"],
        "evidence": [], "findings": [], "prescriptions": [],
    }  # fmt: skip
    return full(**{**fields, **changes})


EVERY = {
    "full": prediction,
    "one machine": lambda: prediction(machines=ROWS[:1]),
    "no work": lambda: prediction(ops=[], kernels=[], modules=[], timeline=None, budget=[], devices=[]),
    "no machine": lambda: prediction(machines=[], machine=None, roofs=[]),
}


@pytest.mark.parametrize("name", EVERY)
def test_no_word_says_that_something_was_run(name: str) -> None:
    page = html.render(EVERY[name]())
    seen = Seen(page.replace(re.findall(r"<footer>.*?</footer>", page, re.DOTALL)[0], ""))
    told = [value for _, attributes in seen.tags for key, value in attributes.items() if key in ("aria-label", "title")]
    for text in [seen.text, *filter(None, told)]:
        assert RUN_WORDS.findall(text) == []
    assert "predicted; nothing was run" in seen.text
    assert "<title>MEMORY-BOUND (predicted): workload.py:workload</title>" in page


def test_the_timeline_says_that_it_is_predicted() -> None:
    text = Seen(html.render(prediction())).text
    assert "Predicted timeline" in text
    assert "Predicted timeline" not in Seen(html.render(full())).text


def test_every_machine_has_its_numbers_in_the_table() -> None:
    text = Seen(html.render(prediction())).text
    head = text.index("On these machines")
    lines = re.split("H100-SXM5-80GB|A100-80GB-SXM4|B200-SXM-180GB", text[text.index("what changes", head) :])
    first, second, third = lines[1:4]
    for part in ("40.0 ms", "30.0 to 60.0 ms", "20.0 ms", "10.0 ms", "memory", "fits", "25 %"):
        assert part in first
    for part in ("80.0 ms", "60 to 120 ms", "too big", "0.50 times as fast", "addmm", "and 2 more"):
        assert part in second
    assert second.count("addmm") == 3
    for part in ("mixed", "2.00 times as fast", "the long operations have the same bottleneck there"):
        assert part in third
    assert (third.count("unknown"), third.count("not known")) == (1, 1)  # whether it fits, and the speed of light


def test_the_charts_get_the_same_numbers() -> None:
    data = Seen(html.render(prediction())).data["machines"]
    assert [one["name"] for one in data["rows"]] == [one.machine for one in ROWS]
    for one, wanted in zip(data["rows"], ROWS, strict=True):
        assert (one["step"], one["low"], one["high"]) == (wanted.step_ns, wanted.low_ns, wanted.high_ns)
        assert (one["device"], one["host"]) == (wanted.device_ns, wanted.host_ns)
        assert sum(one["parts"]) == pytest.approx(wanted.step_ns)
        assert one["parts"][0] == pytest.approx(wanted.compute_share * wanted.step_ns)
    assert [one["ridge"] for one in data["rows"]] == [295.3, 120.0, None]
    assert data["own"] == 150.0
    assert data["fused"] == pytest.approx(300.0)  # 6e12 / 2e10


def test_an_unknown_ridge_draws_no_gap() -> None:
    rows = [replace(one, step_flop_per_byte=None) for one in ROWS]
    page = html.render(prediction(machines=rows))
    assert 'id="gap-chart"' not in page
    assert "The FLOP per byte of the step is not known." in Seen(page).text


def test_a_step_that_is_too_big_says_so_at_the_top() -> None:
    text = Seen(html.render(prediction(machines=[replace(ROWS[0], fits=False)]))).text
    assert "too big for H100-SXM5-80GB" in text[: text.index("Where the time goes")]


@pytest.mark.parametrize("one", [prediction(), full(totals=TOTALS)], ids=["prediction", "trace"])
def test_the_sums_stand_three_ways(one: Diagnosis) -> None:
    text = Seen(html.render(one)).text
    sums = text[text.index("What a step does") :]
    for part in ("4.00 TFLOP", "5.00 TFLOP", "6.00 TFLOP", "3.00 TFLOP", "20.0 GB", "30.0 GB", "40.0 GB", "150", "70"):
        assert part in sums


def test_sums_that_are_not_known_are_unknown() -> None:
    text = Seen(
        html.render(full(totals=Totals(flop=None, bytes_as_run=None, bytes_fused=None, launches=1, syncs=0)))
    ).text
    sums = text[text.index("What a step does") : text.index("The compute time of the device")]
    assert sums.count("unknown") == 8  # three ways each, of them in contractions, and their ratio


def test_a_trace_carries_nothing_of_the_machines() -> None:
    page = html.render(full())
    assert "machines" not in Seen(page).data
    assert "drawMachines" not in page
    assert "#machines-table" not in page
    assert 'href="#machines"' not in page


def test_is_well_formed_safe_and_small() -> None:
    rows = [replace(ROWS[1], machine=ATTACK, host=ATTACK, ceilings=ATTACK,
                    changed=[ChangedOp(op=ATTACK, shapes=ATTACK, bound=ATTACK, ns=1.0)])]  # fmt: skip
    page = html.render(prediction(machines=[*ROWS, *rows]))
    seen = Seen(page)
    assert seen.open == []
    assert {tag for tag, _ in seen.tags} <= TAGS
    assert len(seen.scripts) == 3
    assert len(page.encode()) < MOST_BYTES
    for name in ("machines.js", "machines.css", "totals.css"):
        assert not re.search(r"</script|</style|<!--|url\(|@import", own(name), re.IGNORECASE)


def test_a_saved_prediction_gives_the_same_page(tmp_path: Path) -> None:
    json.save(prediction(), tmp_path / "saved.json")
    assert html.render(json.load(tmp_path / "saved.json")) == html.render(prediction())


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


OPTION = "id => echarts.getInstanceByDom(document.getElementById(id)).getOption()"


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (320, "dark"), *map(slow, [(1280, "dark"), (400, "light"), (400, "dark"), (320, "light")])],
)
def test_the_charts_are_drawn_at_any_width(chromium: Any, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(html.render(prediction()), encoding="utf-8")
    page = Opened(chromium, file, viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.js("document.documentElement.scrollWidth") <= width
    bars = page.js(f"({OPTION})('machines-chart').series.filter(one => one.type === 'bar').map(one => one.data)")
    assert [sum(parts) for parts in zip(*bars, strict=True)] == pytest.approx([one.step_ns for one in ROWS])
    words = "[...document.querySelectorAll('#NAME svg text')].map(one => one.textContent)"
    steps = page.js(words.replace("NAME", "machines-chart"))
    assert {"40.0 ms", "80.0 ms", "20.0 ms", "host 10.0 ms"} <= set(steps)
    ridges = page.js(words.replace("NAME", "gap-chart"))
    assert {"295", "120", "the step 150", "fused 300"} <= set(ridges)
    assert page.js("document.querySelectorAll('#gap-chart svg circle, #gap-chart svg path').length") >= 2
    page.page.hover("#machines-chart", position={"x": width // 2, "y": 60})
    page.page.wait_for_selector(".tip")
    assert "interval" in page.page.inner_text(".tip")
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    page.js("window.dispatchEvent(new Event('afterprint'))")
    assert page.complaints == []
    assert {request for request in page.requests if not request.startswith("data:")} == {page.page.url.split("#")[0]}
    page.close()
