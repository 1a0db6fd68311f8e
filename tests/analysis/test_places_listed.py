"""The tree of places as a diagnosis lists it: what each finding is about, what is gone without a place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.analysis.places.listed import _ids, _whole
from gobrrr.report.held import held
from tests.analysis.tables import SHIPPED, diagnosis, short

amount = st.one_of(st.just(0.0), st.floats(1, 1e9))
times = st.lists(amount, min_size=1, max_size=40)


@given(times, st.integers(1, 10**12), st.floats(0, 1))
def test_whole_nanoseconds_sum_to_the_step(own: list[float], wall: int, behind: float):
    parts = np.array([[one, one / 3, one * behind] for one in own])
    found = _whole(parts, float(wall))
    assert int(found[:, :-1].sum()) == (wall if parts[:, :-1].sum() > 0 else 0)
    assert (found >= 0).all()
    assert (found[:, -1] <= found[:, :-1].sum(axis=1)).all()


def test_what_is_too_small_lies_in_the_nearest_listed_place():
    """0 > 1 > 2 > 3; 1 and 2 are too small, as is all within them."""
    kept = np.array([True, False, False, False, True])
    assert _ids(kept, np.array([-1, 0, 1, 2, 0])).tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("path", SHIPPED[:6], ids=short)
def test_what_is_gone_without_the_place_that_holds_the_step_is_most_of_it(path):
    one = diagnosis(path)
    assert one.held_by is not None
    place = one.places[one.held_by]
    asked = [each for each in one.places if each.gone_ns is not None]
    assert len(asked) <= 2
    if place.id:
        assert place.gone_ns is not None
        assert place.gone_ns > 0


@pytest.mark.parametrize("path", SHIPPED[:6], ids=short)
def test_a_finding_is_about_a_place(path):
    one = diagnosis(path)
    assert all(each.place is not None for each in one.findings if each.where and each.where[0].op)


def test_what_prepares_the_input_outside_any_known_function_is_one_place():
    """By hand: ops on the host and the Python between them are 54 % of the step; no single op has over 11 %."""
    one = diagnosis(next(path for path in SHIPPED if short(path) == "resnet_slow_loader.faulty"))
    assert one.held_by is not None
    place = one.places[one.held_by]
    assert (place.kind, place.parent, place.calls) == ("input", 0, None)
    assert place.device_ns == 0
    assert 0.5 < place.step_ns / one.places[0].step_ns < 0.55
    inside = {each.name for each in one.places if each.parent == place.id}
    assert {"aten::std", "aten::flip", "aten::div"} <= inside
    assert not inside & {"aten::to", "aten::conv2d"}  # they launch
    assert {each.place for each in one.findings if each.code == "D01"} == {place.id}
    first = held(one)[0]
    assert (first.id, first.what) == (place.id, "the input")
    assert first.does.startswith("the device waits for it; aten::std")


HELD_BY = {
    "dit_adaln": ("op", "aten::linear"),
    "gpt_eager_attn": ("op", "aten::softmax"),
    "gpt_fp32_notf32": ("op", "aten::mm"),
    "mlp_tiny": ("program", "the step"),
    "moe_host_loop": ("function", "forward"),
    "pointwise_chain": ("op", "aten::mul"),
    "resnet_slow_loader": ("input", "the input"),
}
"""What holds the faulty steps of the shipped pairs: the operation of the fault where one leads. That of `dit_adaln` is
spread over aten::mul, aten::add and aten::layer_norm (14, 13 and 6 %), and its matrix products lead; the layers of
`mlp_tiny` are equals."""


@pytest.mark.parametrize("name", HELD_BY)
def test_without_frames_the_operation_that_leads_holds_the_step(name: str):
    one = diagnosis(next(path for path in SHIPPED if short(path) == f"{name}.faulty"))
    assert one.held_by is not None
    place = one.places[one.held_by]
    assert (place.kind, place.name.rpartition(": ")[2] if place.kind == "function" else place.name) == HELD_BY[name]
    if place.kind in ("op", "function", "input"):
        assert held(one)[0].share == max(each.share for each in held(one))
