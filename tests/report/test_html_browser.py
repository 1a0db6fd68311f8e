"""The page in headless Chromium: it complains of nothing, asks for nothing, and draws, filters, zooms and prints."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report import html
from gobrrr.report.page.charts import drawable
from tests.analysis.tables import SHIPPED, diagnosis
from tests.conftest import H100
from tests.report import samples
from tests.report.browser import Opened, browser
from tests.report.test_held import BUILDING, nodes
from tests.report.test_html import ATTACK, full, hostile, line
from tests.spread import slow, spread

GPT = H100 / "gpt_eager_attn.faulty.json.gz"
REPLAYED = H100 / "mlp_tiny.fixed.json.gz"
LONGEST = [H100 / f"{name}.json.gz" for name in ("gpt_eager_attn.fixed", "gpt2_b8_s1024.fwdbwd")]
INPUT = H100 / "resnet_slow_loader.faulty.json.gz"
MOE = H100 / "moe_host_loop.faulty.json.gz"

OPTION = "id => echarts.getInstanceByDom(document.getElementById(id)).getOption()"
POINTS = f"""({OPTION})('roofline-chart').series.filter(one => ['memory', 'compute'].includes(one.name))
  .map(one => one.data.length).reduce((sum, one) => sum + one, 0)"""
ZOOM = f"({OPTION})('timeline-chart').dataZoom.map(one => [one.start, one.end])[0]"
RECTANGLES = "echarts.getInstanceByDom(document.getElementById('timeline-chart')).rects"
LIT = f"{RECTANGLES}.filter(one => one.lit).length"
VISIBLE = "[...document.querySelectorAll('#ops-table tbody tr')].filter(row => row.offsetParent).length"
WIDE = "document.documentElement.scrollWidth"
LINKS_CUT = """[...document.querySelectorAll('nav a')].filter(one =>
  one.getBoundingClientRect().right > document.querySelector('nav').getBoundingClientRect().right + 1).length"""
ROOF_NAMES_IN_THE_WAY = """(() => {
  const names = [...document.querySelectorAll('#roofline-chart svg text')];
  const level = names.filter(one => /ridge|matrix|vector/.test(one.textContent));
  const boxes = level.map(one => one.getBoundingClientRect());
  const across = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return boxes.flatMap((a, at) => boxes.slice(at + 1).filter(b => across(a, b))).length;
})()"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a diagnosis; afterwards no page may have complained or asked for anything but itself."""
    opened: list[Opened] = []

    def call(one: Diagnosis, **options: Any) -> Opened:
        file = tmp_path / f"page{len(opened)}.html"
        file.write_text(html.render(one), encoding="utf-8")
        opened.append(Opened(chromium, file, **options))
        if options.get("java_script_enabled", True):
            opened[-1].js("document.querySelectorAll('.folded').forEach(one => { one.open = true; })")
            opened[-1].settle()
        return opened[-1]

    yield call
    for one in opened:
        assert one.complaints == []
        assert {request for request in one.requests if not request.startswith("data:")} == {one.page.url.split("#")[0]}
        one.close()


def narrow(dark: bool = False) -> dict[str, Any]:
    return {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark" if dark else "light"}


@pytest.mark.parametrize("name", spread(sorted(samples.ALL)))
def test_every_sample_opens(show: Any, name: str) -> None:
    for options in ({}, {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"}):
        page = show(samples.ALL[name](), **options)
        assert page.js(WIDE) <= page.js("window.innerWidth")
        assert page.js(LINKS_CUT) == 0


@pytest.mark.parametrize("path", spread(SHIPPED[::5], 3), ids=lambda path: path.name)
def test_a_shipped_trace_draws_all_its_points(show: Any, path: Path) -> None:
    one = diagnosis(path)
    page = show(one, **narrow())
    wanted = sum(drawable(row) for row in one.ops)
    assert (page.js(POINTS) if wanted else 0) == wanted
    assert bool(page.js("document.getElementById('roofline-chart') !== null")) is bool(wanted)
    assert page.js(WIDE) <= 400
    assert one.timeline is not None
    drawn = page.js(f"{RECTANGLES}.reduce((sum, one) => sum + one.many, 0)")
    host = sum(len(track.place) for track in one.timeline.host)
    assert drawn == len(one.timeline.start_ns) + len(one.timeline.gap_start_ns) + host


def test_an_attack_runs_nothing(show: Any) -> None:
    page = show(hostile())
    page.on("dialog", lambda dialog: pytest.fail(f"an alert opened: {dialog.message}"))
    page.page.hover("#timeline-chart canvas", position={"x": 300, "y": 30})
    page.page.click("#ops-table .name")
    page.page.click("#kernels-table .name")
    page.page.click("#tree tbody tr")
    page.page.fill("#ops-filter", "<img src=x onerror=alert(9)>")
    page.settle()
    assert page.js("document.querySelectorAll('img, iframe, object').length") == 0
    assert page.js("document.scripts.length") == 3
    assert page.js("document.querySelectorAll('svg').length") <= 2  # the charts' own


def test_the_charts_are_really_painted(show: Any) -> None:
    page = show(diagnosis(GPT))
    assert page.js("document.querySelectorAll('#budget-chart svg path').length") >= len(diagnosis(GPT).budget)
    assert page.js("document.querySelectorAll('#roofline-chart svg path').length") >= 50
    colours = page.js("""() => {
      const canvas = document.querySelector('#timeline-chart canvas');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      const seen = new Set();
      for (let at = 0; at < pixels.length; at += 4) if (pixels[at + 3]) seen.add(pixels.slice(at, at + 3).join());
      return [...seen];
    }""")
    assert {"12,143,120", "47,111,219"} <= set(colours)  # memory and compute, in the light theme


def test_the_filter_leaves_rows_and_lights_the_plots(show: Any) -> None:
    one = diagnosis(GPT)
    page = show(one)
    assert page.js(VISIBLE) == 12
    page.page.click("#ops-all")
    assert page.js(VISIBLE) == len(one.ops)
    page.page.fill("#ops-filter", "softmax")
    page.settle()
    wanted = [index for index, row in enumerate(one.ops) if "softmax" in f"{row.op} {row.kernel}".lower()]
    assert page.js(VISIBLE) == len(wanted)
    assert page.page.inner_text("#ops-count") == f"{len(wanted)} of {len(one.ops)}"
    assert 0 < page.js(LIT) < page.js(f"{RECTANGLES}.length")
    dimmed = f"({OPTION})('roofline-chart').series.flatMap(one => one.data).filter(one => one.itemStyle?.opacity < 0.2)"
    assert page.js(f"{dimmed}.length") == sum(map(drawable, one.ops)) - sum(
        drawable(one.ops[index]) for index in wanted
    )
    page.page.keyboard.press("Escape")
    page.settle()
    assert page.page.input_value("#ops-filter") == ""
    assert page.js(f"{dimmed}.length") == 0


def test_columns_sort_both_ways_with_the_unknown_last(show: Any) -> None:
    one = diagnosis(H100 / "pointwise_chain.fixed.json.gz")
    page = show(full(ops=[*one.ops, *diagnosis(REPLAYED).ops, *diagnosis(GPT).ops[:20]]))
    order = "[...document.querySelectorAll('#ops-table tbody tr')].map(row => data(row))".replace(
        "data(row)", "JSON.parse(document.getElementById('data').textContent).ops[row.dataset.i].floor"
    )
    page.page.click("#ops-table th[data-key=floor] button")
    values = page.js(order)
    known = [value for value in values if value is not None]
    assert None in values
    assert values == sorted(known, reverse=True) + [None] * (len(values) - len(known))
    assert page.js("document.querySelector('#ops-table [data-key=floor]').ariaSort") == "descending"
    page.page.click("#ops-table th[data-key=floor] button")
    assert page.js(order) == sorted(known) + [None] * (len(values) - len(known))
    assert page.js("document.querySelectorAll('#ops-table [aria-sort]').length") == 1


def test_the_timeline_zooms_and_pans_by_button_and_key(show: Any) -> None:
    page = show(diagnosis(GPT))
    page.page.click("[data-zoom=in]")
    page.settle()
    assert page.js(ZOOM) == [25, 75]
    page.page.focus("#timeline-chart")
    page.page.keyboard.press("ArrowRight")
    page.settle()
    assert page.js(ZOOM) == [37.5, 87.5]
    assert " of " in page.page.inner_text("#timeline-range")
    for _ in range(30):
        page.page.keyboard.press("+")
    page.settle()
    start, end = page.js(ZOOM)
    assert 0 < end - start < 0.1
    page.page.keyboard.press("Home")
    page.settle()
    assert page.js(ZOOM) == [0, 100]
    assert page.page.inner_text("#timeline-range").startswith("the whole step")


def test_control_and_wheel_zoom_and_the_wheel_alone_scrolls(show: Any) -> None:
    page = show(diagnosis(GPT))
    page.page.locator("#timeline-chart").scroll_into_view_if_needed()
    box = page.page.locator("#timeline-chart").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.page.mouse.wheel(0, -200)
    page.settle()
    assert page.js(ZOOM) == [0, 100]
    page.page.locator("#timeline-chart").scroll_into_view_if_needed()
    box = page.page.locator("#timeline-chart").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.page.keyboard.down("Control")
    page.page.mouse.wheel(0, -300)
    page.page.keyboard.up("Control")
    page.page.wait_for_function(f"() => {{ const [a, b] = {ZOOM}; return b - a < 100; }}", timeout=5_000)


def test_the_host_is_above_the_device_and_is_searched(show: Any) -> None:
    one = diagnosis(MOE)
    page = show(one)
    lanes = page.js("echarts.getInstanceByDom(document.getElementById('timeline-chart')).getOption().yAxis[0].data")
    assert lanes[0] == "host"
    assert lanes[-2:] == ["stream 7", "idle"]
    assert one.timeline is not None
    wanted = [at for at, place in enumerate(one.places) if "where" in place.name and place.kind == "op"]
    times = sum(track.place.count(at) for track in one.timeline.host for at in wanted)
    page.page.fill("#timeline-search", "aten::where")
    page.settle()
    assert page.page.inner_text("#timeline-found") == f"found {times} times; Enter: the next"
    assert 0 < page.js(LIT) < page.js(f"{RECTANGLES}.length")
    page.page.press("#timeline-search", "Enter")
    page.settle()
    start, end = page.js(ZOOM)
    assert end - start < 10
    assert page.page.inner_text("#timeline-found") == f"1 of {times}"
    page.page.fill("#timeline-search", "no such place")
    assert page.page.inner_text("#timeline-found") == "found 0 times"


def test_without_places_there_is_nothing_to_search_on_the_timeline(show: Any) -> None:
    page = show(full())
    assert page.js("document.getElementById('timeline-search')") is None


@pytest.mark.parametrize("kernels", [7_000, slow(12_000)])
def test_thousands_of_kernels_stay_fluid(show: Any, kernels: int) -> None:
    page = show(full(pieces=kernels))
    page.page.click("[data-zoom=in]")
    times = page.js("""async () => {
      const frame = () => new Promise(done => requestAnimationFrame(done));
      const times = [];
      for (let turn = 0; turn < 20; turn++) {
        const begin = performance.now();
        document.querySelector(turn % 2 ? '[data-zoom=left]' : '[data-zoom=right]').click();
        await frame(); await frame();
        times.push(performance.now() - begin);
      }
      return times.sort((a, b) => a - b);
    }""")
    assert times[len(times) // 2] < 150  # two frames and the drawing, on a machine that may be busy
    assert page.js(f"{RECTANGLES}.length") < 6_000


def test_a_finding_shows_where_it_is(show: Any) -> None:
    page = show(diagnosis(GPT))
    page.page.click("[data-finding='0']")
    page.settle()
    assert page.js("document.querySelectorAll('#ops-table tr.lit').length") == 2
    assert "M02" in page.page.inner_text("#selection")
    assert 0 < page.js(LIT) < page.js(f"{RECTANGLES}.length")
    page.page.click("#selection button")
    page.settle()
    assert page.page.inner_text("#selection") == ""
    assert page.js("document.querySelectorAll('tr.lit').length") == 0


def test_a_finding_about_idle_time_lights_its_gaps(show: Any) -> None:
    one = diagnosis(INPUT)
    page = show(one)
    index = next(place for place, finding in enumerate(one.findings) if finding.code == "D01")
    page.page.click(f"[data-finding='{index}']")
    page.settle()
    assert "idle" in page.page.inner_text("#selection")
    lit = page.js(f"{RECTANGLES}.filter(one => one.lit).map(one => one.colour)")
    assert "input" in lit


def test_a_gap_of_the_list_is_zoomed_to(show: Any) -> None:
    page = show(diagnosis(INPUT))
    page.page.click("[data-gap] >> nth=1")
    page.settle()
    start, end = page.js(ZOOM)
    assert end - start < 50


def test_a_row_opens_and_is_highlighted_everywhere(show: Any) -> None:
    one = diagnosis(GPT)
    page = show(one)
    page.page.focus("#ops-table .name >> nth=0")
    page.page.keyboard.press("Enter")
    page.settle()
    assert re.sub(r"\s", "", one.ops[0].kernel) in re.sub(r"\s", "", page.page.inner_text("#ops-table .detail"))
    assert page.page.get_attribute("#ops-table .name >> nth=0", "aria-expanded") == "true"
    assert page.js("document.querySelectorAll('#kernels-table tr.lit').length") >= 1
    assert page.js(LIT) > 0
    page.page.keyboard.press("Enter")
    assert page.js("document.querySelectorAll('#ops-table .detail').length") == 0


def test_an_open_row_keeps_the_columns_at_any_width(show: Any) -> None:
    page = show(diagnosis(GPT), **narrow())
    width = "document.querySelector('#ops-table tbody th').offsetWidth"
    before = page.js(width)
    page.page.click("#ops-table .name >> nth=0")
    assert page.js(width) == before > 100
    page.page.set_viewport_size({"width": 1280, "height": 800})
    page.settle()
    inner = "document.querySelector('#ops-table .detail td').offsetWidth"
    assert page.js(inner) == page.js("document.getElementById('ops-table').offsetWidth")


def test_a_point_is_hovered_and_clicked(show: Any) -> None:
    page = show(diagnosis(GPT))
    page.page.locator("#roofline-chart").scroll_into_view_if_needed()
    place = page.js("""() => {
      const chart = echarts.getInstanceByDom(document.getElementById('roofline-chart'));
      const box = document.getElementById('roofline-chart').getBoundingClientRect();
      const one = chart.getOption().series.filter(one => one.name === 'memory').flatMap(one => one.data)
        .reduce((a, b) => (a.symbolSize > b.symbolSize ? a : b));
      const [x, y] = chart.convertToPixel({ gridIndex: 0 }, one.value);
      return [box.x + x, box.y + y];
    }""")
    page.page.mouse.move(*place)
    page.page.wait_for_selector(".tip")
    told = page.page.inner_text(".tip")
    for part in ("arguments", "calls a step", "time a step", "floor", "bound", "FLOP/s"):
        assert part in told
    page.page.mouse.click(*place)
    page.settle()
    assert page.js("document.querySelectorAll('#ops-table tr.lit').length") == 1


def test_the_tree_of_modules_opens_by_key_and_lights_its_ops(show: Any) -> None:
    page = show(full())
    page.page.focus("#tree tbody tr >> nth=0")
    page.page.keyboard.press("ArrowLeft")
    assert page.js("document.querySelectorAll('#tree tbody tr:not([hidden])').length") == 1
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("Enter")
    page.settle()
    assert page.js("document.activeElement.ariaLevel") == "2"
    assert page.js("document.querySelectorAll('#ops-table tr.lit').length") == 1


def test_the_theme_follows_the_system_and_the_button(show: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page = show(full(), color_scheme="dark")
    dark = page.js(background)
    page.page.click("#theme")
    assert page.page.inner_text("#theme") == "Theme: light"
    light = page.js(background)
    assert light != dark
    page.page.click("#theme")
    assert page.js(background) == dark
    page.settle()


def test_prints_in_light_with_its_charts(show: Any) -> None:
    page = show(diagnosis(GPT), color_scheme="dark")
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    page.page.emulate_media(media="print", color_scheme="dark")
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js("document.querySelector('#roofline-chart svg').getBoundingClientRect().width") == 660
    assert not page.page.is_visible(".top")
    assert len(page.page.pdf(format="A4")) > 20_000
    page.js("window.dispatchEvent(new Event('afterprint'))")


def test_reads_without_a_script(show: Any) -> None:
    page = show(diagnosis(GPT), java_script_enabled=False)
    assert not page.page.is_visible("#ops-table")
    page.page.click("#ops-title")
    text = page.page.inner_text("main")
    title = "attention scores written to memory"
    for part in ("Memory-bound", "Where the time goes", title, "aten::_softmax_backward_data"):
        assert part in text
    assert not page.page.is_visible("#ops-filter")
    assert not page.page.is_visible("#roofline-chart")


def test_the_longest_pages_of_the_shipped_traces_are_under_5_000_pixels(chromium: Any, tmp_path: Path) -> None:
    """As it opens, at 1280 pixels: findings are open, and what is closed opens by its heading, a link, and on paper."""
    file = tmp_path / "page.html"
    for path in LONGEST:
        file.write_text(html.render(diagnosis(path)), encoding="utf-8")
        page = Opened(chromium, file)
        assert page.js("document.documentElement.scrollHeight") < 5_000, path.name
        assert page.js(ROOF_NAMES_IN_THE_WAY) == 0
        assert page.page.locator("#findings .card:visible").count() == len(diagnosis(path).findings)
    assert not page.page.is_visible("#ops-table")
    page.page.click("nav a[href='#ops']")
    assert page.page.is_visible("#ops-table")
    assert not page.page.is_visible("#kernels-table")
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    assert page.page.is_visible("#kernels-table")
    page.js("window.dispatchEvent(new Event('afterprint'))")
    assert not page.page.is_visible("#kernels-table")
    assert page.page.is_visible("#ops-table")
    assert page.complaints == []
    page.close()


NUMBERS = (0, 1, 999, 999.6, 1_000, 12_345, 999_499, 999_500, 1e6, 1.5e9, 123.456, 0.92, 0.004, 3.35e12, 989.4e12, 1e18)


def test_numbers_read_as_in_the_terminal(show: Any) -> None:
    """The script's own formatter, which stands for gobrrr.units in hovers."""
    page = show(full())
    code = (Path(html.__file__).parent / "assets" / "units.js").read_text(encoding="utf-8")
    texts = "[duration(n), rate(n, 'FLOP'), percent(n / 1e6), count(n)]"
    got = page.js(f"numbers => {{ {code}; return numbers.map(n => {texts}); }}", list(NUMBERS))
    for number, texts in zip(NUMBERS, got, strict=True):
        wanted = [units.duration(number), units.rate(number, "FLOP"), units.percent(number / 1e6)]
        assert texts[:3] == wanted
        assert texts[3] == units.count(number)


def test_a_page_is_ready_in_a_second(show: Any) -> None:
    begin = time.perf_counter()
    show(full(timeline=line(20_000)))
    assert time.perf_counter() - begin < 5


def test_the_flame_graph_zooms_and_searches_and_no_name_is_markup(show: Any) -> None:
    told, row = "document.getElementById('flame-told').textContent", 19
    odd = nodes((4, "op", ATTACK, ATTACK, 1.0, 200, {}))[0]
    places = [*BUILDING, replace(odd, id=len(BUILDING))]
    page = show(samples.diagnosis(places=places, held_by=3))
    width, height = page.js("(one => [one.clientWidth, one.clientHeight])(document.getElementById('flame-chart'))")
    assert height == 6 * row  # the program, its function, a line, the module, the operation, its kernel
    page.page.click("#flame-chart", position={"x": width * 0.2, "y": 2.5 * row})
    assert page.js(told).startswith("x = torch.tensor(frames) (line): 0.600 us")
    page.page.keyboard.press("ArrowRight")
    assert page.js(told).startswith("net(x).backward() (line): 0.590 us")
    page.page.click("#flame-whole")
    page.page.fill("#flame-search", "aten::mm")
    assert page.js("document.getElementById('flame-count').textContent") == "1 of 9 places, 33 % of the step"
    page.page.fill("#flame-search", "onerror")
    assert page.js("document.getElementById('flame-count').textContent") == "1 of 9 places, 17 % of the step"
    assert page.js("document.querySelectorAll('img, iframe, object').length") == 0
    page.page.set_viewport_size({"width": 320, "height": 640})
    page.settle()
    assert page.js(WIDE) <= 320
