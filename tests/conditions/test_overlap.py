"""What findings claim together: disjoint, within the step, the specific one first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.analysis.findings.claims import NO_CLAIM, ClaimedFinding, TimeClaim, lengths
from gobrrr.conditions import catalogue
from gobrrr.conditions.overlap import INDEPENDENT_CODE, SPECIFIC_FIRST, settle
from gobrrr.doors.pipeline import evidence_of
from gobrrr.model.diagnosis import Finding
from gobrrr.observe.trace import read_trace
from tests.analysis.tables import diagnosis
from tests.conftest import H100, H100_EXTRA, public_files
from tests.spread import examples, spread

PAIRS = sorted((H100_EXTRA / "pairs").glob("*.json.gz"))[::3]
TRACES = sorted({*H100.glob("*.json.gz"), *H100_EXTRA.glob("*.json.gz"), *H100_EXTRA.glob("holdout/*.json.gz"), *PAIRS})
PUBLIC = public_files()


def made(code: str, units: dict[int, float], low: float | None = None) -> ClaimedFinding:
    ns = np.array(list(units.values()), dtype=float)
    claim = TimeClaim(np.array(list(units), dtype=np.int64), ns, ns * (1.0 if low is None else low))
    high = float(ns.sum())
    stake = (high * (1.0 if low is None else low), high)
    finding = Finding(code=code, title=code, where=[], at_stake_ns=stake, certainty="high", treatments=[])
    return ClaimedFinding(finding, claim)


def test_claims_apart_stay_as_they_are():
    found = settle([made("M01", {0: 30.0}), made("O01", {1: 60.0})], np.array([30.0, 70.0]), 1, 100.0)
    assert [(one.code, one.at_stake_ns) for one in found] == [("O01", (60.0, 60.0)), ("M01", (30.0, 30.0))]


def test_the_specific_one_keeps_a_call_and_the_general_one_says_so():
    found = settle([made("M01", {0: 40.0, 1: 40.0}), made("M03", {0: 30.0})], np.array([50.0, 50.0]), 1, 100.0)
    assert [(one.code, one.at_stake_ns[1]) for one in found] == [("M01", 50.0), ("M03", 30.0)]
    assert found[0].evidence == ["0.0300 us a step of this belong to M03 and are not counted here"]


def test_a_saving_within_another_one_is_dropped_and_named():
    found = settle([made("C03", {0: 40.0}), made("M02", {0: 50.0})], np.array([60.0]), 1, 100.0)
    assert [one.code for one in found] == ["M02"]
    assert found[0].evidence == ["0.0400 us a step of this belong to C03 as well: C03"]


def test_threads_that_wait_hide_nothing_else_that_is_wrong_with_an_operation():
    found = settle([made("O09", {0: 50.0, 1: 50.0}, 0.0), made("M04", {0: 20.0})], np.array([60.0, 60.0]), 1, 120.0)
    assert [(one.code, one.at_stake_ns, one.evidence) for one in found] == [
        ("O09", (0.0, 100.0), []),
        ("M04", (20.0, 20.0), []),
    ]


def test_the_low_end_keeps_what_nobody_else_claims():
    """D01's copies are D02's; its idle time, which the low end rests on, is its own."""
    idle = made("D01", {0: 50.0, 1: 20.0})
    idle = ClaimedFinding(idle.finding, TimeClaim(idle.claim.unit, idle.claim.ns, np.array([50.0, 0.0])))
    found = settle([idle, made("D02", {1: 20.0})], np.array([50.0, 20.0]), 1, 100.0)
    assert [(one.code, one.at_stake_ns) for one in found] == [("D01", (50.0, 50.0)), ("D02", (20.0, 20.0))]


def test_findings_about_the_measurement_come_last_with_nothing_at_stake():
    quality = Finding(code="Q01", title="", where=[], at_stake_ns=(0.0, 0.0), certainty="high", treatments=[])
    found = settle([ClaimedFinding(quality, NO_CLAIM), made("M01", {0: 5.0})], np.array([10.0]), 1, 10.0)
    assert [one.code for one in found] == ["M01", "Q01"]


def test_every_condition_about_the_step_has_its_place():
    codes = {one.code for one in catalogue() if not one.code.startswith("Q")}
    assert codes == {*SPECIFIC_FIRST, INDEPENDENT_CODE}


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=8).flatmap(
        lambda sizes: st.tuples(
            st.just(sizes),
            st.lists(
                st.tuples(
                    st.sampled_from(SPECIFIC_FIRST),
                    st.dictionaries(st.integers(0, len(sizes) - 1), st.integers(0, 2 * 10**6), min_size=1),
                    st.floats(0, 1),
                ),
                max_size=6,
                unique_by=lambda one: one[0],
            ),
        )
    )
)
def test_all_stakes_together_never_exceed_the_window(case):
    sizes, claims = case
    units = np.array(sizes, dtype=float)
    found = settle([made(code, claim, low) for code, claim, low in claims], units, 1, float(units.sum()))
    assert all(0 <= one.at_stake_ns[0] <= one.at_stake_ns[1] for one in found)
    assert found == sorted(found, key=lambda one: -one.at_stake_ns[1])
    assert sum(one.at_stake_ns[1] for one in found) <= units.sum() * (1 + 1e-9)


def within_the_step(path: Path) -> None:
    found = diagnosis(path)
    wall = sum(line.ns for line in found.budget)
    stakes = [one.at_stake_ns for one in found.findings]
    assert all(0 <= low <= high for low, high in stakes)
    assert sum(high for _, high in stakes) <= wall * (1 + 1e-9)


@pytest.mark.parametrize("path", spread(TRACES), ids=lambda path: path.name.removesuffix(".json.gz"))
def test_stakes_are_within_the_step(path: Path):
    within_the_step(path)


@pytest.mark.parametrize("path", spread([*TRACES, *PUBLIC], 16), ids=lambda path: path.name.removesuffix(".json.gz"))
def test_the_parts_that_findings_claim_of_sum_to_the_step(path: Path):
    for evidence in evidence_of(read_trace(str(path)).ranks[0]):
        assert lengths(evidence).sum() == pytest.approx(evidence.wall_ns * evidence.steps.count, rel=1e-9)


@pytest.mark.skipif(not PUBLIC, reason="the public traces are not beside this checkout (../shared/public_traces)")
@pytest.mark.parametrize("path", spread(PUBLIC), ids=lambda path: path.name)
def test_stakes_are_within_the_step_on_public_traces(path: Path):
    within_the_step(path)
