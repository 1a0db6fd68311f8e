"""The laws of the tree of places: each nanosecond of a step is at one place, as it is in one line of the budget."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from gobrrr.analysis.budget.idle import IDLE_CAUSES
from gobrrr.analysis.places import PlaceTimes, where_time_goes
from gobrrr.analysis.places.instants import IdlePieces
from gobrrr.analysis.places.labels import PlaceSort, same_labels, shown, sorts
from gobrrr.analysis.places.lines import MODULE_CALL, _of_the_whole, called_name
from gobrrr.analysis.places.tree import plant
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.events import EventKind
from gobrrr.model.frame_names import is_users
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import Row, table
from tests.spread import spread

SHIPPED = sorted(one.name for one in files("gobrrr").joinpath("data/h100").iterdir() if one.name.endswith(".json.gz"))


def evidences(name: str):
    profile = read_trace(str(files("gobrrr").joinpath("data/h100", name)), python=True)
    return [evidence for rank in profile.ranks for evidence in evidence_of(rank)]


@pytest.mark.parametrize("name", spread(SHIPPED))
def test_every_nanosecond_is_at_one_place(name):
    for evidence in evidences(name):
        where = where_time_goes(evidence)
        window = evidence.steps.stop - evidence.steps.start
        assert int(where.own.sum()) == window
        assert int(where.device.sum()) == evidence.budget.busy_ns
        np.testing.assert_allclose(where.host.sum(axis=1), where.own - where.device, atol=1e-3)
        by_cause = dict(zip(IDLE_CAUSES, where.host.sum(axis=0).tolist(), strict=True))
        for cause in IDLE_CAUSES:
            told = evidence.budget.lines.get(("overhead", cause), 0.0)
            assert by_cause[cause] == pytest.approx(told, rel=1e-9, abs=1.0), cause


@pytest.mark.parametrize("name", SHIPPED[:3])
def test_a_node_has_its_own_time_and_that_of_its_children(name):
    for evidence in evidences(name):
        where = where_time_goes(evidence)
        step = where.total(where.own)
        children = np.zeros(len(where.tree), dtype=np.int64)
        np.add.at(children, where.tree.parent[1:], step[1:])
        np.testing.assert_array_equal(step, where.own + children)
        assert (where.tree.parent[1:] < np.arange(1, len(where.tree))).all()
        held = where.holding(step)
        below = step[np.flatnonzero(where.tree.parent == held)]
        kernels = [one for one in np.flatnonzero(where.tree.parent == held) if sort_of(where, one) == PlaceSort.KERNEL]
        beside = np.flatnonzero(where.tree.parent == where.tree.parent[held])
        leads = sort_of(where, held) == PlaceSort.OP and step[held] == step[beside].max()
        assert step[held] > step[0] / 2 or leads
        assert all(one <= step[0] / 2 for one in below) or kernels


def sort_of(where, node):
    return where.tree.labels[int(where.tree.label[node])][0]


def test_alike_events_in_the_same_place_are_one_node():
    """Two calls of `f` from line 3, each with one `add`; one call of `f` from line 4."""
    parent = np.array([-1, 0, 1, 0, 3, 0, 5])
    label = np.array([0, 1, 2, 1, 2, 1, 2])
    line = np.array([-1, 3, -1, 3, -1, 4, -1])
    labels = [(2, "main"), (2, "f"), (5, "add"), (3, "a.py(3): main"), (3, "a.py(4): main")]
    planting, node = plant(parent, label, line, labels)
    tree = planting.done(node)
    assert node[1] == node[3] != node[5]
    assert node[2] == node[4] != node[6]
    # program, main, two lines, f twice, add twice
    assert len(tree) == 8


def test_the_layers_of_a_model_that_one_line_calls_are_one_place():
    """line 3 calls Block_0 and Block_1, each of which runs line 9: neither has half of the step, the line has."""
    names = ("nn.Module: Block_0", "nn.Module: Block_1")
    rows = [(EventKind.PYTHON, one) for name in names for one in (name, "a.py(8): forward")]
    events = table([Row(kind, name, 10 * at, 10) for at, (kind, name) in enumerate(rows)])
    parent = np.array([-1, 0, -1, 2])
    label, labels = same_labels(events.names, sorts(events, parent, is_users), events.name)
    lines = [(int(PlaceSort.LINE), "a.py(3): step"), (int(PlaceSort.LINE), "a.py(9): forward")]
    line = np.array([2, 3, 2, 3]) - 2 + len(labels)
    planting, node = plant(parent, label, line, [*labels, *lines])
    assert planting.done(node).of_row.tolist() == [node[0], node[1], node[0], node[1]]
    assert [text for sort, text in labels if sort == PlaceSort.MODULE] == ["Block"]


@pytest.mark.parametrize(("own", "held"), [((0, 6, 4), True), ((6, 2, 2), False), ((0, 2, 8), False)])
def test_a_line_holds_the_step_where_nothing_in_it_does(own: tuple[int, ...], held: bool):
    """The step > a line > an operation."""
    planting, node = plant(
        np.array([-1]), np.array([0]), np.array([1]), [(int(PlaceSort.OP), "add"), (int(PlaceSort.LINE), "a")]
    )
    empty = np.zeros(3, dtype=np.int64)
    where = PlaceTimes(
        planting.done(node), np.array(own), empty, np.zeros((3, len(IDLE_CAUSES))), empty, empty, 1, empty, empty, 0,
        IdlePieces(empty, empty, empty, np.zeros((3, len(IDLE_CAUSES)))),
    )  # fmt: skip
    assert where.held_by_line is held


def test_addresses_and_the_numbers_of_steps_are_no_part_of_a_name():
    assert shown("<built-in method tensor of type object at 0x7f00>", PlaceSort.CALL) == "<built-in method tensor>"
    assert shown("train step 12", PlaceSort.ANNOTATION) == "train step"
    assert shown("a.py(19): torch_dynamo_resume_in__asks_at_19", PlaceSort.FUNCTION) == "a.py(19): _asks"


def test_a_module_is_called_by_the_function_that_all_modules_have():
    assert called_name("nn.Module: Linear_3") == MODULE_CALL
    assert called_name("<built-in method relu of type object at 0x7f00>") == "relu"
    assert called_name("torch/nn/functional.py(12): relu") == "relu"


def test_what_an_annotation_holds_is_called_by_the_function_around_it():
    """train > annotation > a library's function: the function calls it."""
    rows = [
        (EventKind.PYTHON, "train.py(3): train"),
        (EventKind.ANNOTATION, "part"),
        (EventKind.PYTHON, "torch/f.py(1): relu"),
    ]
    events = table([Row(kind, name, at, 10 - 2 * at) for at, (kind, name) in enumerate(rows)])
    parent = np.array([-1, 0, 1])
    assert sorts(events, parent, is_users).tolist() == [PlaceSort.FUNCTION, PlaceSort.ANNOTATION, PlaceSort.CALL]


def test_the_mark_of_a_step_is_no_place_whatever_a_trace_calls_it():
    rows = [(EventKind.OP, "ProfilerStep#8"), (EventKind.OP, "aten::mm"), (EventKind.ANNOTATION, "ProfilerStep#9")]
    events = table([Row(kind, name, at, 10 - 2 * at) for at, (kind, name) in enumerate(rows)])
    assert sorts(events, np.array([-1, 0, -1]), is_users).tolist() == [PlaceSort.NONE, PlaceSort.OP, PlaceSort.NONE]


def test_an_operation_made_of_others_is_on_the_line_of_the_first_of_them():
    """matmul (not dispatched) > mm, mv; add is dispatched itself."""
    sort = np.array([PlaceSort.FUNCTION, PlaceSort.OP, PlaceSort.OP, PlaceSort.OP, PlaceSort.OP], dtype=np.uint8)
    above, sites = np.array([-1, 0, 1, 1, 0]), np.array([-1, -1, 7, 8, 9])
    assert _of_the_whole(sort, above, sites).tolist() == [-1, 7, 7, 8, 9]
