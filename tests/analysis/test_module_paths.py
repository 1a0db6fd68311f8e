"""The modules around an operation: by the program's names where they are known, in both passes, and by the frames."""

from __future__ import annotations

import numpy as np

from gobrrr.analysis.findings.module_paths import FramePaths, ModulePaths, prefixes
from gobrrr.analysis.findings.origins import AUTOGRAD_NODE, forward_ops
from gobrrr.model.events import EventKind, EventTable
from gobrrr.model.recording import Site
from gobrrr.model.tree import parents
from tests.analysis.tables import Row, table


def step() -> EventTable:
    """Net(Linear(mm), add), then the backward pass on another thread, then an optimizer."""
    return table(
        [
            Row(EventKind.PYTHON, "nn.Module: Net_0", 0, 100),
            Row(EventKind.PYTHON, "nn.Module: Linear_0", 10, 40),
            Row(EventKind.OP, "aten::mm", 20, 20, sequence=1),
            Row(EventKind.OP, "aten::add", 60, 20, sequence=2),
            Row(EventKind.OP, f"{AUTOGRAD_NODE}: AddBackward", 200, 30, thread=1, sequence=2),
            Row(EventKind.OP, "aten::neg", 205, 20, thread=1),
            Row(EventKind.OP, f"{AUTOGRAD_NODE}: MmBackward", 240, 30, thread=1, sequence=1),
            Row(EventKind.OP, "aten::t", 245, 20, thread=1),
            Row(EventKind.OP, "aten::_fused_adam_", 300, 20),
        ]
    )


def frames(events: EventTable) -> FramePaths:
    around = parents(events)
    return FramePaths(events, around, forward_ops(events, around))


def row(events: EventTable, name: str) -> int:
    return next(at for at in range(len(events)) if events.name_of(at) == name)


def test_the_backward_pass_is_in_the_modules_of_the_forward_pass() -> None:
    events = step()
    paths = ModulePaths(frames(events), np.full(len(events), -1), (), ())
    found = {name: paths.of(row(events, name)) for name in ("aten::mm", "aten::t", "aten::neg", "aten::_fused_adam_")}
    assert found == {
        "aten::mm": ("Net_0", "Linear_0"), "aten::t": ("Net_0", "Linear_0"), "aten::neg": ("Net_0",),
        "aten::_fused_adam_": (),
    }  # fmt: skip
    assert paths.of(-1) == ()


def test_the_programs_names_are_used_for_what_lies_beside_an_operation_that_has_one() -> None:
    events = step()
    sites = np.full(len(events), -1)
    sites[row(events, "aten::mm")] = 0
    found = (Site(("Net_0", "Linear_0"), paths=("Net", "Net.layers.0")),)
    paths = ModulePaths(frames(events), sites, found, range(len(events)))
    assert paths.of(row(events, "aten::mm")) == ("Net", "Net.layers", "Net.layers.0")
    assert paths.of(row(events, "aten::t")) == ("Net", "Net.layers", "Net.layers.0")
    assert paths.of(row(events, "aten::add")) == paths.of(row(events, "aten::neg")) == ("Net",)
    assert paths.of(row(events, "aten::_fused_adam_")) == ()


def test_sites_are_enough_where_no_frames_were_read() -> None:
    events = step()
    sites = np.full(len(events), -1)
    sites[row(events, "aten::mm")] = 0
    paths = ModulePaths(None, sites, (Site(paths=("Net", "Net.head")),), range(len(events)))
    assert paths.of(row(events, "aten::mm")) == ("Net", "Net.head")
    assert paths.of(row(events, "aten::add")) == ()


def test_a_path_and_all_that_it_lies_in() -> None:
    assert prefixes("GPT.blocks.3") == ("GPT", "GPT.blocks", "GPT.blocks.3")
    assert prefixes("GPT") == ("GPT",)


def test_the_class_of_a_module_is_known_whatever_the_answer_calls_it() -> None:
    """A live step's paths name attributes ("Net.look"); the class is the profiler's word for the same module."""
    events = step()
    sites = np.full(len(events), -1)
    sites[row(events, "aten::mm")] = 0
    found = (Site(("Net_0", "MultiheadAttention_11"), paths=("Net", "Net.look")),)
    live, framed = (ModulePaths(frames(events), one, found, ()) for one in (sites, np.full(len(events), -1)))
    mm = row(events, "aten::mm")
    assert (live.of(mm)[-1], live.kind(mm)) == ("Net.look", "MultiheadAttention")
    assert (framed.of(mm)[-1], framed.kind(mm)) == ("Linear_0", "Linear")
    assert live.kind(-1) is live.kind(row(events, "aten::_fused_adam_")) is None
