"""The HTML page as text: self-contained, escaped, small, the same from a saved record, and in the terminal's words."""

from __future__ import annotations

import base64
import hashlib
import json as stdlib_json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import gobrrr
from gobrrr import api, cli, units
from gobrrr.model.diagnosis import (
    BudgetLine,
    Diagnosis,
    Finding,
    KernelRow,
    ModuleRow,
    OpRow,
    Place,
    Roof,
    Timeline,
    Wall,
)
from gobrrr.report import html, json, terminal, words
from gobrrr.report.page.links import link, rows_of
from gobrrr.report.page.modules import ordered
from tests.analysis.tables import SHIPPED, diagnosis, short
from tests.report import samples
from tests.spread import spread

MOST_BYTES = 2_000_000
ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&--><svg/onload=alert(3)>"
TAGS = {
    "html", "head", "meta", "link", "title", "style", "body", "a", "header", "nav", "main", "section", "footer", "div",
    "span", "p", "b", "h1", "h2", "h3", "ul", "ol", "li", "dl", "dt", "dd", "i", "code", "pre", "button", "label",
    "input", "select", "option", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "script",
    "wbr",
}  # fmt: skip


class Seen(HTMLParser):
    """Every tag, attribute and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "input", "wbr"}:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif not (self.open and self.open[-1] == "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    @property
    def data(self) -> Any:
        return stdlib_json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "data"))


def op(name: str = "aten::mul", **changes: Any) -> OpRow:
    fields: dict[str, Any] = {
        "op": name, "shapes": "[8, 8] float32", "family": "pointwise", "calls": 2.0, "ns": 2e6, "floor_ns": 1e6,
        "bound": "memory", "flop": 64.0, "bytes": 512.0, "roof": "DRAM", "kernel": "void at::native::k<float>(int)",
    }  # fmt: skip
    return OpRow(**{**fields, **changes})


def line(pieces: int = 2, **changes: Any) -> Timeline:
    """Pieces of 8 us every 10 us on one stream, each with a gap after it."""
    fields: dict[str, Any] = {
        "device": 0, "length_ns": 10_000 * pieces, "streams": [7], "kinds": ["compute", "communication", "transfer"],
        "causes": ["launching", "python", "sync_drain", "input"], "start_ns": [10_000 * n for n in range(pieces)],
        "duration_ns": [8_000] * pieces, "stream": [0] * pieces, "op": [n % 2 for n in range(pieces)],
        "kind": [0] * pieces, "gap_start_ns": [10_000 * n + 8_000 for n in range(pieces)],
        "gap_duration_ns": [2_000] * pieces, "gap_cause": [n % 3 for n in range(pieces)],
    }  # fmt: skip
    return Timeline(**{**fields, **changes})


def full(pieces: int = 40, **changes: Any) -> Diagnosis:
    """A sample with every part of the page."""
    fields: dict[str, Any] = {
        "ops": [op(), op("aten::addmm", bound="compute", flop=1e12, bytes=1e9, roof="bfloat16 matrix", ns=3e6)],
        "kernels": [KernelRow(name="void at::native::k<float>(int)", calls=2.0, ns=2e6, ops=[0])],
        "modules": [
            ModuleRow(path=["Net_0"], calls=2, ns=5e6, compute_ns=3e6, memory_ns=2e6, other_ns=0, ops=[0, 1]),
            ModuleRow(path=["Net_0", "Linear_0"], calls=1, ns=3e6, compute_ns=3e6, memory_ns=0, other_ns=0, ops=[1]),
        ],
        "roofs": [
            Roof(name="bfloat16 matrix", kind="compute", value=989e12, provenance="datasheet", source="a datasheet"),
            Roof(name="DRAM", kind="memory", value=3.35e12, provenance="measured", source="a copy"),
        ],
        "timeline": line(pieces),
        "versions": {"cuda_runtime_version": "13000"},
    }  # fmt: skip
    return samples.diagnosis(**{**fields, **changes})


def hostile() -> Diagnosis:
    """A trace whose every text attacks the page."""
    place = Place(op=ATTACK, module=ATTACK, source=ATTACK, shapes=ATTACK, count=1, ns=1.0)
    return full(
        target=f"/tmp/{ATTACK}",
        device=ATTACK,
        machine=ATTACK,
        steps_from=ATTACK,
        notes=[ATTACK],
        evidence=[ATTACK],
        budget=[BudgetLine(line="overhead", cause=ATTACK, ns=31e6, share=1.0)],
        ops=[op(ATTACK, **dict.fromkeys(("shapes", "family", "kernel", "note", "roof", "module", "bound"), ATTACK))],
        kernels=[KernelRow(name=ATTACK, calls=1, ns=1, ops=[0])],
        modules=[ModuleRow(path=[ATTACK], calls=1, ns=1, compute_ns=0, memory_ns=0, other_ns=1, ops=[0])],
        roofs=[Roof(name=ATTACK, kind="memory", value=1e12, provenance=ATTACK, source=ATTACK)],
        versions={ATTACK: ATTACK},
        version=ATTACK,
        findings=[
            Finding(code=ATTACK, title=ATTACK, where=[place], at_stake_ns=(1, 2), certainty="low", treatments=[],
                    evidence=[ATTACK])
        ],
        timeline=line(4, kinds=[ATTACK] * 3, causes=[ATTACK] * 4, op=[-1, 0, -1, 0]),
    )  # fmt: skip


EVERY = {**samples.ALL, "full": full, "page_attack": hostile}


@pytest.mark.parametrize("name", EVERY)
def test_is_well_formed_and_asks_for_nothing(name: str) -> None:
    seen = Seen(html.render(EVERY[name]()))
    assert seen.open == []
    assert {tag for tag, _ in seen.tags} <= TAGS
    for tag, attributes in seen.tags:
        assert not any(key.startswith("on") or key in {"src", "srcset", "action", "formaction"} for key in attributes)
        if tag == "link":
            assert attributes["href"] == "data:,"
        elif "href" in attributes:
            assert (attributes["href"] or "").startswith("#")


@pytest.mark.parametrize("name", EVERY)
def test_has_one_heading_and_labelled_sections_with_unique_ids(name: str) -> None:
    seen = Seen(html.render(EVERY[name]()))
    ids = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
    assert [tag for tag, _ in seen.tags].count("h1") == 1
    for tag, attributes in seen.tags:
        if tag == "section":
            assert attributes["aria-labelledby"] in ids
    unique = [one for one in ids if one and not one.startswith("finding-")]  # two findings may have one code
    assert len(unique) == len(set(unique))


def test_only_the_two_scripts_of_the_policy_may_run() -> None:
    page = html.render(full())
    seen = Seen(page)
    policy = next(attributes["content"] for tag, attributes in seen.tags if "http-equiv" in attributes) or ""
    run = [text for attributes, text in seen.scripts if "type" not in attributes]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert len(run) == 2
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_an_attack_in_every_text_stays_text() -> None:
    seen = Seen(html.render(hostile()))
    assert len(seen.scripts) == 3
    assert seen.text.count("<img src=x onerror=alert(2)>") > 12
    assert "<img src=x" in seen.data["ops"][0]["shapes"]
    assert "<img src=x" in seen.data["names"][seen.data["kernels"][0]["name"]]


def test_what_hides_in_a_name_is_shown() -> None:
    seen = Seen(html.render(samples.hostile()))
    for sign in "\x1b\u202e\x07\x00\u2028\ud800":
        assert sign not in seen.text
    assert "\N{REPLACEMENT CHARACTER}evil" in seen.text


@pytest.mark.parametrize("path", spread(SHIPPED), ids=short)
def test_the_shipped_traces_make_pages_under_two_megabytes(path: Path) -> None:
    one = diagnosis(path)
    page = html.render(one)
    data = Seen(page).data
    assert len(page.encode()) < MOST_BYTES
    assert len(data["ops"]) == len(one.ops)
    assert one.timeline is not None
    assert sum(data["timeline"]["start"]) == one.timeline.start_ns[-1]
    assert one.kernels
    assert sum(kernel.ns for kernel in one.kernels) == pytest.approx(sum(row.ns for row in one.ops), rel=1e-6)


def test_a_saved_record_gives_the_same_page(tmp_path: Path) -> None:
    one = full()
    json.save(one, tmp_path / "saved.json")
    assert html.render(json.load(tmp_path / "saved.json")) == html.render(one)


@pytest.mark.parametrize("name", ["overhead", "memory", "compute", "communication", "mixed", "unknown", "full"])
def test_says_what_the_terminal_says(name: str) -> None:
    one = EVERY[name]()
    text = Seen(html.render(one)).text
    assert words.headline(one).capitalize() in text
    assert words.reason(one)[1:] in text
    assert terminal.light(one) in text
    for finding in one.findings:
        assert finding.title in text
        assert units.duration_range(*finding.at_stake_ns) in text
    for missing in one.not_checked:
        assert missing.needs.removeprefix("needs ") in text


def test_what_is_unknown_is_not_zero() -> None:
    text = Seen(
        html.render(replace(samples.nothing(), ops=[op(floor_ns=None, bound=None, flop=None, bytes=None)]))
    ).text
    assert "Speed of light" in text
    assert text.count("unknown") >= 12
    assert "?" not in text.replace("Sort by", "")
    assert not re.search(r"(?<![\d.,\w-])0(\.0+)? ?(ns|us|ms|s|B|FLOP|%)", text)
    data = Seen(html.render(samples.nothing())).data
    assert data["timeline"] is None
    assert data["step_ns"] is None


def test_a_step_whose_time_without_the_profiler_is_unknown_says_which_is_shown() -> None:
    one = replace(samples.overhead(), unprofiled_wall_ns=Wall(value=None, low=None, high=None, how="unknown"))
    assert "a step under the profiler, in exactly one line" in Seen(html.render(one)).text


def test_keeps_no_folder_no_credential_and_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USER", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tell-nobody")
    target = "https://user:pass-word@example.org/private-folder/trace.json.gz?X-Amz-Signature=abcdef"
    page = html.render(full(target=target))
    for secret in ("tell-nobody", "pass-word", "private-folder", "abcdef"):
        assert secret not in page
    assert "trace.json.gz" in page


def test_a_finding_leads_to_its_rows_and_gaps() -> None:
    one = full(findings=[_finding("O01", Place(op="aten::addmm")), _finding("D01", Place(op="aten::nothing"))])
    assert link(one, one.findings[0]).ops == (1,)
    assert link(one, one.findings[0]).causes == ("launching", "python")
    assert not link(one, one.findings[1])
    page = Seen(html.render(one))
    assert [attributes["data-finding"] for _, attributes in page.tags if "data-finding" in attributes] == ["0"]


def _finding(code: str, *places: Place) -> Finding:
    return Finding(code=code, title="t", where=list(places), at_stake_ns=(1, 2), certainty="high", treatments=[])


@pytest.mark.parametrize(
    ("place", "rows"),
    [
        (Place(op="aten::mul", shapes="[4] float32"), [1]),
        (Place(op="aten::mul", shapes="[9] float32"), [0, 1]),
        (Place(op="aten::mul"), [0, 1]),
        (Place(op="mul, log_softmax", shapes="[4] float32, [2] float32"), [1, 2]),
        (Place(op="mul, log_softmax"), [0, 1, 2]),
        (Place(op="aten::add"), []),
        (Place(op=None), []),
    ],
)
def test_a_place_means_the_nearest_rows(place: Place, rows: list[int]) -> None:
    ops = [op(), op(shapes="[4] float32"), op("aten::_log_softmax", shapes="[4] float32")]
    assert rows_of(place, ops) == rows


def test_modules_come_after_their_parent_and_by_time() -> None:
    def row(*path: str, ns: float) -> ModuleRow:
        return ModuleRow(path=list(path), calls=1, ns=ns, compute_ns=0, memory_ns=0, other_ns=ns)

    rows = [
        row("a", ns=3),
        row("a", "b", ns=1),
        row("a", "c", ns=2),
        row("d", ns=9),
        row("lost", "child", ns=1),
        row(ns=8),
    ]
    assert [rows[index].path[-1:] for index in ordered(rows)] == [["d"], ["a"], ["c"], ["b"], ["child"], []]


def test_the_shares_of_modules_are_of_all_device_time() -> None:
    """A forward pass of 154 ms in a step of 466 ms is 33 % of it, not 99 %."""
    rows = [
        ModuleRow(path=["GPT"], calls=9, ns=460e6, compute_ns=460e6, memory_ns=0, other_ns=0),
        ModuleRow(path=["GPT", "GPT.head"], calls=2, ns=154e6, compute_ns=154e6, memory_ns=0, other_ns=0),
        ModuleRow(path=[], calls=3, ns=6e6, compute_ns=0, memory_ns=6e6, other_ns=0),
    ]
    text = Seen(html.render(full(modules=rows))).text
    assert "compute time of the device in a step (466 ms)" in text
    table = re.sub(r"\s", "", text)
    for told in ("GPT9460ms99%", "GPT.head2154ms33%", "innomodule36.00ms1.3%"):
        assert told in table


def test_without_frames_says_how_to_get_them() -> None:
    assert "--stacks" in Seen(html.render(full(modules=[]))).text


def test_the_command_line_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    monkeypatch.setattr(api, "read_trace", lambda *_, **__: None)
    monkeypatch.setattr(api, "diagnose", lambda *_, **__: full())
    assert cli.main(["diagnose", str(trace), "--quiet", "--html", str(tmp_path / "a.html")]) == 0
    json.save(full(), tmp_path / "saved.json")
    assert cli.main(["report", str(tmp_path / "saved.json"), "--html", str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == gobrrr.html(full())
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_page_that_cant_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    assert cli.main(["diagnose", str(trace), "--html", str(tmp_path / "no" / "a.html")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("name", EVERY)
def test_a_notebook_shows_a_light_summary(name: str) -> None:
    one = EVERY[name]()
    view = one._repr_html_()
    assert view is not None
    seen = Seen(view)
    assert {tag for tag, _ in seen.tags} <= {"div", "span", "strong", "table", "tbody", "tr", "td", "ol", "li"}
    assert len(view) < 60_000
    assert words.headline(one).capitalize() in seen.text
