"""What holds the step, as a reader sees it: which places are told, in which order, and what each does."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from gobrrr.model.places import PlaceNode
from gobrrr.report import html, notebook, terminal
from gobrrr.report.held import held, lines, without_frames
from gobrrr.report.layout import Page, plain
from tests.report import samples


def nodes(*told: tuple[Any, ...]) -> list[PlaceNode]:
    """Places from (parent, kind, name, source, calls, device, {cause: ns} of its own); sums are made here."""
    device = [one[5] for one in told]
    host = [dict(one[6]) for one in told]
    own = [one[5] + sum(one[6].values()) for one in told]
    for at in range(len(told) - 1, 0, -1):
        device[told[at][0]] += device[at]
        for cause, ns in host[at].items():
            host[told[at][0]][cause] = host[told[at][0]].get(cause, 0) + ns
    return [
        PlaceNode(
            id=at, parent=one[0], kind=one[1], name=one[2], source=one[3], calls=one[4], own_ns=own[at],
            step_ns=device[at] + sum(host[at].values()), device_ns=device[at], host_ns=host[at],
        )
        for at, one in enumerate(told)
    ]  # fmt: skip


STEP, FIRST, SECOND = "a/sick.py(6): step", "a/sick.py(7): step", "a/sick.py(8): step"
BUILDING = nodes(
    (None, "program", "the step", None, 1.0, 0, {}),
    (0, "function", STEP, STEP, 1.0, 0, {"python": 10}),
    (1, "line", "x = torch.tensor(frames)", FIRST, None, 0, {}),
    (2, "call", "<built-in method tensor>", FIRST, 1.0, 0, {"python": 600}),
    (1, "line", "net(x).backward()", SECOND, None, 0, {}),
    (4, "module", "Net_0", SECOND, 1.0, 0, {}),
    (5, "op", "aten::mm", SECOND, 20.0, 0, {"launching": 340}),
    (6, "kernel", "gemm", SECOND, 20.0, 50, {}),
)
OPERATIONS = nodes(
    (None, "program", "the step", None, 1.0, 0, {"python": 220}),
    (0, "op", "aten::layer_norm", None, 64.0, 0, {"launching": 330}),
    (1, "kernel", "norm", None, 64.0, 30, {}),
    (0, "op", "aten::linear", None, 64.0, 0, {"launching": 320}),
    (0, "op", "aten::gelu", None, 64.0, 0, {"launching": 60}),
    (0, "op", "aten::add", None, 64.0, 0, {"launching": 40}),
)
READING = nodes(
    (None, "program", "the step", None, 1.0, 0, {}),
    (0, "function", STEP, STEP, 1.0, 0, {}),
    (1, "line", "loss.item()", FIRST, None, 0, {}),
    (2, "op", "aten::item", FIRST, 1.0, 0, {"sync_drain": 900}),
    (1, "line", "time.sleep(d)", SECOND, None, 0, {}),
    (4, "call", "<built-in function sleep>", SECOND, 1.0, 0, {"python": 100}),
)


def of(places: list[PlaceNode], held_by: int, **changes: Any) -> Any:
    return samples.diagnosis(places=places, held_by=held_by, **changes)


def test_the_place_that_has_most_comes_first_with_its_line_and_what_it_does():
    told = held(of(BUILDING, 3))
    assert [(one.where, one.what, round(one.share, 2)) for one in told] == [
        ("sick.py:7", "x = torch.tensor(frames)", 0.60),
        ("sick.py:8", "net(x).backward()", 0.39),
    ]
    assert told[0].does == "tensor() builds tensors or arrays from Python objects"
    assert told[1].does == "20 launches, the device waits 0.0170 us for each"


def test_of_a_step_that_nothing_holds_the_largest_operations_are_told_and_what_is_between_them():
    told = held(of(OPERATIONS, 0))
    assert [one.what for one in told] == ["aten::layer_norm", "aten::linear", "outside any operation"]
    assert told[2].does == "Python between operations"


def test_reading_and_sleeping_are_said():
    assert [one.does for one in held(of(READING, 3))] == ["reads the device in every step", "sleep() sleeps"]


@pytest.mark.parametrize(("places", "said"), [(OPERATIONS, True), (BUILDING, False)])
def test_that_there_are_no_frames_is_said_once_with_how_to_get_them(places: list[PlaceNode], said: bool):
    text = plain(lines(of(places, 0), Page(width=80)))
    assert text.count("with_stack=True") == said
    assert bool(without_frames(of(places, 0))) is said


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_off_at_any_width(width: int):
    text = plain(lines(of(BUILDING, 3), Page(width=width)))
    assert "…" not in text
    assert max(map(cell_len, text.splitlines())) <= width
    assert " ".join(text.split()).count("x = torch.tensor(frames)") == 1


def test_a_place_on_a_line_with_others_is_told_with_the_text_of_the_line():
    places = nodes(
        (None, "program", "the step", None, 1.0, 0, {}),
        (0, "function", STEP, STEP, 1.0, 0, {}),
        (1, "line", "opt.zero_grad(); net(x)", FIRST, None, 0, {"python": 400}),
        (2, "module", "Net_0", FIRST, 1.0, 0, {"python": 600}),
    )
    told = held(of(places, 3))
    assert [(one.where, one.what, one.share) for one in told] == [("sick.py:7", "opt.zero_grad(); net(x)", 0.6)]
    assert told[0].does.startswith("module Net_0: Python")


def test_of_several_places_on_one_line_the_line_is_told_once():
    places = nodes(
        (None, "program", "the step", None, 1.0, 0, {}),
        (0, "function", STEP, STEP, 1.0, 0, {}),
        (1, "line", "net(x) + other(x)", FIRST, None, 0, {"python": 50}),
        (2, "module", "Net_0", FIRST, 1.0, 0, {"python": 550}),
        (2, "module", "Other_0", FIRST, 1.0, 0, {"python": 300}),
        (1, "line", "loss.backward()", SECOND, None, 0, {"python": 100}),
    )
    told = held(of(places, 3))
    assert [(one.where, one.what, one.share) for one in told] == [
        ("sick.py:7", "net(x) + other(x)", 0.9),
        ("sick.py:8", "loss.backward()", 0.1),
    ]


@pytest.mark.parametrize(("inner", "said"), [(300, "; 43 % in watch(), sick.py:3, which it calls"), (90, "")])
def test_a_function_that_a_library_calls_back_is_named_where_it_has_much_of_the_line(inner: int, said: str):
    hook = "a/sick.py(3): watch"
    places = nodes(
        (None, "program", "the step", None, 1.0, 0, {}),
        (0, "function", STEP, STEP, 1.0, 0, {}),
        (1, "line", "loss.backward()", FIRST, None, 0, {}),
        (2, "call", "torch/_tensor.py(566): backward", FIRST, 1.0, 0, {"python": 400}),
        (3, "function", hook, hook, 40.0, 0, {"python": inner}),
    )
    assert held(of(places, 3))[0].does.endswith(said or "_tensor.py")


def test_beside_an_operation_that_leads_what_lies_outside_of_all_is_told():
    told = held(of(OPERATIONS, 1))
    assert [(one.what, round(one.share, 2)) for one in told] == [
        ("aten::layer_norm", 0.36), ("aten::linear", 0.32), ("outside any operation", 0.22),
    ]  # fmt: skip


def test_a_line_of_which_two_parts_hold_the_step_is_told_once():
    places = nodes(
        (None, "program", "the step", None, 1.0, 0, {}),
        (0, "function", STEP, STEP, 1.0, 0, {}),
        (1, "line", "out = head(enc(x))", FIRST, None, 0, {}),
        (2, "op", "aten::addmm", FIRST, 1.0, 530, {}),
        (2, "op", "aten::linear", FIRST, 1.0, 180, {}),
        (2, "op", "aten::add", FIRST, 1.0, 190, {}),
        (1, "line", "opt.step()", SECOND, None, 0, {"python": 100}),
    )
    told = held(of(places, 3))
    assert [(one.where, one.what, round(one.share, 2)) for one in told] == [
        ("sick.py:7", "out = head(enc(x))", 0.9),
        ("sick.py:8", "opt.step()", 0.1),
    ]


def test_every_answer_has_them_before_what_to_do():
    one = of(BUILDING, 3)
    text = terminal.render(one)
    assert text.index("held by") < text.index("What to do")
    for page in (html.render(one), notebook.render(one)):
        assert "x = torch.tensor(frames)" in page
        assert "builds tensors or arrays" in page


def test_a_file_from_before_there_were_places_has_none():
    assert held(samples.diagnosis()) == []
    assert "held by" not in terminal.render(samples.diagnosis())
