"""The what-if panel in headless Chromium: what is chosen is shown, what was not replayed can't be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, WhatIf
from gobrrr.report import html, what_if
from tests.analysis.tables import diagnosis
from tests.conftest import H100
from tests.report.browser import Opened, browser
from tests.report.test_html import ATTACK
from tests.report.what_ifs import OTHER, SLOW, entry, with_what_ifs
from tests.spread import slow

GPT = H100 / "gpt_eager_attn.faulty.json.gz"
SERIES = "echarts.getInstanceByDom(document.getElementById('what-if-roofline')).getOption().series"
POINTS = f"{SERIES}.filter(one => ['memory', 'compute'].includes(one.name)).flatMap(one => one.data)"
NAMED = f"name => {SERIES}.filter(one => one.name === name).flatMap(one => one.data)"
ROOFS = f"{SERIES}.filter(one => one.type === 'line' && one.name !== 'roof before').map(one => one.name)"
ALL = """echarts.getInstanceByDom(document.getElementById('roofline-chart')).getOption().series
  .filter(one => ['memory', 'compute'].includes(one.name)).flatMap(one => one.data)"""
TODAY = "echarts.getInstanceByDom(document.getElementById('roofline-chart')).getOption().series"
COMPILE, GRAPH, BATCH, PAD = (f"#what-if .toggle[data-t='{at}']" for at in range(4))
HERE, THERE, ELSEWHERE = (f"#what-if input[value='{at}']" for at in range(3))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def one() -> Diagnosis:
    return with_what_ifs(diagnosis(GPT))


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a diagnosis; afterwards no page may have complained or asked for anything but itself."""
    opened: list[Opened] = []

    def call(one: Diagnosis, **options: Any) -> Opened:
        file = tmp_path / f"page{len(opened)}.html"
        file.write_text(html.render(one), encoding="utf-8")
        opened.append(Opened(chromium, file, **options))
        opened[-1].page.click("#what-if-title")
        return opened[-1]

    yield call
    for page in opened:
        assert page.complaints == []
        asked = {request.split("#")[0] for request in page.requests if not request.startswith("data:")}
        assert asked <= {page.page.url.split("#")[0], "about:blank"}
        page.close()


def found(one: Diagnosis, names: list[str], machine: str | None = None) -> WhatIf:
    return next(item for item in one.what_ifs if item.treatments == names and item.machine == machine)


def answer(page: Opened) -> str:
    page.settle()
    return " ".join(page.page.inner_text("#what-if-answer").split())


def shows(page: Opened, one: Diagnosis, wanted: WhatIf) -> None:
    """The panel has the entry's numbers, words and budget."""
    text = answer(page)
    now = one.what_ifs[0]
    assert what_if.title(wanted) in text
    assert what_if.times(now, wanted, "→") in text
    assert what_if.saving(now, wanted) in text
    assert what_if.between(wanted.saving_ns) in text
    assert what_if.bound(wanted.regime) in text
    assert what_if.told(wanted) in text
    assumed = page.page.inner_text("#what-if-assumes")
    assert all(item in assumed for item in wanted.assumes)
    bars = page.page.inner_text("#what-if-bars")
    assert units.duration(now.step_ns) in bars
    assert units.duration(wanted.step_ns) in bars
    lines = page.page.inner_text("#what-if-lines")
    for line in wanted.lines:
        if line.share > 0.01:
            assert units.duration(line.ns) in lines


def test_it_opens_as_the_step_is(show: Any, one: Diagnosis) -> None:
    page = show(one)
    assert answer(page).startswith("The step as it is: nothing is chosen. about 75.8 ms")
    assert not page.page.is_visible("#what-if-bars")
    assert page.js("document.querySelector('#what-if .combinations').open") is False
    assert not page.page.is_visible("#what-if-roofline")


def test_toggling_shows_the_entrys_numbers(show: Any, one: Diagnosis) -> None:
    page = show(one)
    page.page.click(COMPILE)
    shows(page, one, found(one, ["compile"]))
    assert page.page.get_attribute(COMPILE, "aria-pressed") == "true"
    page.page.click(GRAPH)
    shows(page, one, found(one, ["compile", "cuda-graph"]))
    page.page.click(THERE)
    shows(page, one, found(one, ["compile", "cuda-graph"], OTHER))
    page.page.click(GRAPH)
    shows(page, one, found(one, ["compile"], OTHER))
    page.page.click(ELSEWHERE)
    shows(page, one, found(one, ["compile"], SLOW))
    page.page.click("#what-if-reset")
    assert "nothing is chosen" in answer(page)
    assert page.page.is_checked(HERE)


def test_what_the_command_line_asked_for_is_chosen_at_first(show: Any, one: Diagnosis) -> None:
    asked = found(one, ["compile", "cuda-graph"])
    rows = [replace(item, asked=item is asked) for item in one.what_ifs]
    page = show(replace(one, what_ifs=rows))
    page.page.click("#what-if-title")  # it was open, and has been closed
    shows(page, one, asked)
    assert page.page.get_attribute(COMPILE, "aria-pressed") == "true"
    page.page.click("#what-if-reset")
    assert "nothing is chosen" in answer(page)


def test_what_is_chosen_is_in_the_address(show: Any, one: Diagnosis) -> None:
    page = show(one)
    page.page.click(COMPILE)
    page.page.click(GRAPH)
    page.page.click(THERE)
    address = page.page.url
    assert address.endswith(f"#what-if=compile,cuda-graph@{quote(OTHER)}")
    page.page.click("#what-if-reset")
    assert page.page.url.endswith("#what-if")
    page.page.goto("about:blank")
    page.page.goto(address)
    shows(page, one, found(one, ["compile", "cuda-graph"], OTHER))
    assert page.page.is_checked(THERE)
    assert [page.page.get_attribute(toggle, "aria-pressed") for toggle in (COMPILE, GRAPH, BATCH)] == [
        "true", "true", "false",
    ]  # fmt: skip
    plain = address.partition("#")[0]
    for hash_, wanted in {
        "#what-if=compile,no-such-treatment@no-such-machine": ["compile"],
        "#what-if=%E0%A4%A": [],
        "#what-if=__proto__,<img src=x>": [],
        "#budget": [],
    }.items():
        page.page.goto("about:blank")
        page.page.goto(plain + hash_)
        page.settle()
        assert page.js("document.querySelectorAll('#what-if [aria-pressed=true]').length") == len(wanted)


def test_the_bars_have_one_scale_and_the_budgets_colours(show: Any, one: Diagnosis) -> None:
    page = show(one)
    page.page.click(COMPILE)
    page.settle()
    wanted = found(one, ["compile"])
    widths = page.js("""[...document.querySelectorAll('#what-if-bars .track[role=img]')].map(track =>
      [...track.querySelectorAll('i:not(.whisker)')].map(one => one.getBoundingClientRect().width))
      .map(all => all.reduce((sum, one) => sum + one, 0))""")
    assert widths[1] / widths[0] == pytest.approx(wanted.step_ns / one.what_ifs[0].step_ns, rel=0.02)
    track, low, high = page.js("""(() => {
      const track = document.querySelectorAll('#what-if-bars .track[role=img]')[1];
      const [box, whisker] = [track, track.querySelector('.whisker')].map(one => one.getBoundingClientRect());
      return [box.width, whisker.left - box.left, whisker.right - box.left];
    })()""")
    assert low / widths[1] == pytest.approx(wanted.low_ns / wanted.step_ns, rel=0.02)
    assert high / widths[1] == pytest.approx(wanted.high_ns / wanted.step_ns, rel=0.02)
    assert high <= track
    colours = "[...document.querySelectorAll('SCOPE [class*=\"c-\"]')].map(one => one.className.match(/c-[\\w-]+/)[0])"
    shown = set(page.js(colours.replace("SCOPE", "#what-if-bars")))
    assert shown == set(page.js(colours.replace("SCOPE", ".budget-table th")))


def test_a_combination_that_was_not_replayed_is_not_offered(show: Any, one: Diagnosis) -> None:
    page = show(one)
    page.page.click(COMPILE)
    for toggle in (BATCH, PAD):
        assert page.page.get_attribute(toggle, "aria-disabled") == "true"
        assert "not replayed together" in page.page.inner_text(toggle)
    assert page.page.get_attribute(GRAPH, "aria-disabled") == "false"
    before = answer(page)
    page.page.click(PAD, force=True)
    assert answer(page) == before
    assert page.page.get_attribute(PAD, "aria-pressed") == "false"
    page.page.click(GRAPH)
    assert page.page.is_disabled(ELSEWHERE)
    assert page.page.is_enabled(THERE)
    assert "not replayed together" in page.page.inner_text("#what-if label:has(input[value='2'])")
    page.page.click(THERE)
    assert page.page.get_attribute(COMPILE, "aria-disabled") == "true"  # cuda-graph alone was not replayed there
    assert "not replayed without it" in page.page.inner_text(COMPILE)


def test_what_no_toggle_reaches_the_table_does(show: Any, one: Diagnosis) -> None:
    lonely = with_what_ifs(diagnosis(GPT), [([], None), (["compile", "cuda-graph"], None)])
    page = show(lonely)
    assert page.page.get_attribute(COMPILE, "aria-disabled") == "true"
    page.page.click("#what-if .combinations summary")
    page.page.click("#what-if-table [data-entry='1']")
    shows(page, lonely, lonely.what_ifs[1])
    assert page.js("document.querySelectorAll('#what-if-table tr.lit').length") == 1


def test_the_points_move_and_those_of_merged_calls_vanish(show: Any, one: Diagnosis) -> None:
    page = show(one)
    today = page.js(TODAY)
    page.page.click(COMPILE)
    page.settle()
    after = {point["index"]: point["value"] for point in page.js(POINTS)}
    drawn = {point["index"]: point["value"] for point in page.js(ALL)}
    wanted = {item.op: item for item in found(one, ["compile"]).ops}
    gone = {point["index"] for point in page.js(f"({NAMED})('gone')")}
    ghosts = {point["index"]: point["value"] for point in page.js(f"({NAMED})('before')")}
    assert gone == {index for index in drawn if index in wanted and wanted[index].ns == 0}
    assert set(after) == set(drawn) - gone
    moved = {index for index in after if index in wanted}
    assert moved
    assert ghosts == {index: drawn[index] for index in moved}
    assert len(page.js(f"({NAMED})('moves')")) == len(moved)
    for index, (x, y) in after.items():
        row, then = one.ops[index], wanted.get(index)
        assert row.flop is not None
        bytes_ = then.bytes if then else row.bytes
        assert bytes_
        assert x == pytest.approx(row.flop / bytes_, rel=1e-5)
        assert y == pytest.approx(row.flop / (then.ns if then else row.ns) * 1e9, rel=1e-5)
    assert page.js(TODAY) == today  # the page's own roofline stays as the step is
    assert f"{len(moved)} of " in page.page.inner_text("#what-if-moved")
    page.page.click(COMPILE)
    assert not page.page.is_visible("#what-if-roofline")


def test_the_roofs_change_with_the_machine(show: Any, one: Diagnosis) -> None:
    page = show(one)
    page.page.click(COMPILE)
    before = page.js(ROOFS)
    page.page.click(THERE)
    page.settle()
    after = page.js(ROOFS)
    assert any("DRAM  6.70 TB/s" in name for name in after)  # twice the bandwidth
    assert not set(before) & set(after)
    assert len(page.js(f"({NAMED})('roof before')")) >= 4
    assert OTHER in page.page.inner_text("#what-if-moved")
    assert OTHER in page.page.get_attribute("#what-if-roofline", "aria-label")


def test_a_larger_step_moves_no_point_that_does_as_much_a_second(show: Any, one: Diagnosis) -> None:
    page = show(one)
    page.page.click(BATCH)
    assert "does 4 times the work: for the work of today's step" in answer(page)
    assert page.js(f"({NAMED})('before')") == []
    assert "No point moves." in page.page.inner_text("#what-if-moved")


def test_a_machine_whose_ceilings_are_not_in_the_record_says_so(show: Any, one: Diagnosis) -> None:
    page = show(replace(one, what_if_roofs={}))
    page.page.click(THERE)
    page.settle()
    assert page.js(ROOFS) == []
    assert f"The ceilings of {OTHER} are not known." in page.page.inner_text("#what-if-moved")


def test_the_keyboard_is_enough(show: Any, one: Diagnosis) -> None:
    page = show(one)
    page.page.focus(COMPILE)
    page.page.keyboard.press("Enter")
    shows(page, one, found(one, ["compile"]))
    page.page.keyboard.press("Tab")
    page.page.keyboard.press(" ")
    shows(page, one, found(one, ["compile", "cuda-graph"]))
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Tab")
    assert page.js("document.activeElement.dataset.t") == "3"  # a toggle that is not offered still tells why
    page.page.keyboard.press("Enter")
    shows(page, one, found(one, ["compile", "cuda-graph"]))
    page.page.focus(HERE)
    page.page.keyboard.press("ArrowRight")
    shows(page, one, found(one, ["compile", "cuda-graph"], OTHER))
    page.page.keyboard.press("ArrowRight")  # the third machine is not offered: back to this one
    shows(page, one, found(one, ["compile", "cuda-graph"]))


def test_without_a_script_the_table_is_there(show: Any, one: Diagnosis) -> None:
    page = show(one, java_script_enabled=False)
    assert page.page.is_visible("#what-if-table")
    assert page.page.locator("#what-if-table tbody tr:visible").count() == len(one.what_ifs)
    for selector in (COMPILE, "#what-if-answer", "#what-if-roofline", "#what-if-table .show"):
        assert not page.page.locator(selector).first.is_visible()


@pytest.mark.parametrize(("width", "scheme"), [slow((1280, "light")), slow((390, "dark")), (320, "light")])
def test_it_fits_any_width_and_prints(show: Any, one: Diagnosis, width: int, scheme: str) -> None:
    page = show(one, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.page.click("#what-if .combinations summary")
    page.page.click(COMPILE)
    page.page.click(ELSEWHERE)
    page.settle()
    assert page.js("document.documentElement.scrollWidth") <= width
    page.page.click("#what-if .combinations summary")
    page.page.emulate_media(media="print")
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    assert page.page.is_visible("#what-if-answer")
    assert not page.page.is_visible(COMPILE)
    assert not page.page.is_visible("#what-if-table")
    page.js("window.dispatchEvent(new Event('afterprint'))")
    page.page.emulate_media(media="screen")
    page.page.click("#what-if-reset")
    page.page.emulate_media(media="print")
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    assert page.page.is_visible("#what-if-table")  # nothing is chosen: paper gets all of them
    assert not page.page.is_visible("#what-if-answer")
    page.js("window.dispatchEvent(new Event('afterprint'))")


def test_an_attack_runs_nothing(show: Any, one: Diagnosis) -> None:
    bad = entry(one, 75e6, [ATTACK], None, then=ATTACK, assumes=[ATTACK])
    page = show(replace(one, what_ifs=[one.what_ifs[0], bad]))
    page.on("dialog", lambda dialog: pytest.fail(f"an alert opened: {dialog.message}"))
    page.page.click(COMPILE)
    assert "<img src=x" in answer(page)
    assert page.js("document.querySelectorAll('img, iframe, object').length") == 0
    assert page.js("document.scripts.length") == 3


def test_a_step_without_points_or_budget_can_be_toggled(show: Any, one: Diagnosis) -> None:
    bare = replace(one, ops=[], kernels=[], modules=[], timeline=None, findings=[])
    bare = replace(bare, what_ifs=[replace(item, ops=[], lines=[]) for item in one.what_ifs])
    page = show(bare)
    page.page.click(COMPILE)
    assert what_if.saving(one.what_ifs[0], found(one, ["compile"])) in answer(page)
