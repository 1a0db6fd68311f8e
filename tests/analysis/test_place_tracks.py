"""The host on the timeline: what it enters when, and what lies around it."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

from gobrrr.analysis.places import tracks, where_time_goes
from gobrrr.analysis.places.listed import listed
from gobrrr.analysis.places.timeline import timeline
from gobrrr.model.diagnosis import Timeline
from gobrrr.model.tree import NESTING_SLACK_NS
from tests.analysis.tables import SHIPPED, diagnosis, evidence, short

NAMES = ("gpt_eager_attn.faulty", "mlp_tiny.faulty", "moe_host_loop.faulty")


def line_of(path) -> Timeline:
    line = diagnosis(path).timeline
    assert line is not None
    return line


@pytest.mark.parametrize("path", [one for one in SHIPPED if one.name.startswith(NAMES)], ids=short)
def test_an_entry_lies_in_one_that_is_around_it_and_beside_those_of_its_depth(path):
    places, line = diagnosis(path).places, line_of(path)
    assert sum(len(one.place) for one in line.host) > 100
    assert line.host_left_out == 0
    for track in line.host:
        entries = defaultdict(list)
        for begin, lasts, place, depth in zip(track.start_ns, track.duration_ns, track.place, track.depth, strict=True):
            assert 0 <= begin <= begin + lasts <= line.length_ns
            assert places[place].kind not in ("program", "line", "kernel", "unknown")
            entries[depth].append((begin, begin + lasts))
        assert sorted(entries) == list(range(len(entries)))
        for depth, mine in entries.items():
            assert mine == sorted(mine)
            assert all(one[1] <= other[0] + NESTING_SLACK_NS for one, other in itertools.pairwise(mine))
            around = np.array(entries[depth - 1] if depth else [(0, line.length_ns)])
            for begin, end in mine:
                assert ((around[:, 0] <= begin) & (around[:, 1] >= end - NESTING_SLACK_NS)).any()


def test_each_place_is_entered_as_often_as_it_is_told():
    """A step is like all others: a place's calls a step are its entries."""
    path = next(one for one in SHIPPED if one.name.startswith("mlp_tiny.faulty"))
    entered = np.bincount(line_of(path).host[0].place, minlength=len(diagnosis(path).places))
    ops = [one for one in diagnosis(path).places if one.kind == "op"]
    assert ops
    assert all(entered[one.id] == one.calls for one in ops)


def test_of_too_many_entries_the_longest_stay(monkeypatch):
    path = next(one for one in SHIPPED if one.name.startswith("mlp_tiny.faulty"))
    one, whole = evidence(path), line_of(path)
    monkeypatch.setattr(tracks, "MOST_TIMELINE_WORK", 10)
    where = where_time_goes(one)
    line = timeline(one, np.full(len(one.priced.groups), -1, dtype=np.int64))
    cut = tracks.with_host(line, one, where, listed(one, where, one.wall_ns))
    lengths = sorted(ns for track in whole.host for ns in track.duration_ns)
    assert sorted(ns for track in cut.host for ns in track.duration_ns) == lengths[-10:]
    assert cut.host_left_out == len(lengths) - 10
