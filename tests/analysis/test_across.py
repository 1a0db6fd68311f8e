"""Ranks together: transfer and waiting told apart, and lines that sum to the slowest rank's step."""

from __future__ import annotations

import pytest

from gobrrr.analysis.answer.across import combine, transfer_shares
from gobrrr.analysis.answer.study import study
from gobrrr.model.profile import RankProfile, TraceMeta
from tests.analysis.tables import launched, table

MS = 1_000_000


def rank(number: int, *, compute_ms: int, collective_ms: int, name: str = "ncclDevKernel_AllReduce") -> RankProfile:
    """One kernel, then one collective on the same stream, back to back; the host is never in the way."""
    rows = launched("gemm", 0, 7_000, compute_ms * MS, 1, device=number)
    begin = 7_000 + compute_ms * MS
    rows += launched(name, 20_000, begin, collective_ms * MS, 2, device=number)
    return RankProfile(meta=TraceMeta(source=f"rank{number}", rank=number), events=table(rows))


def test_the_shortest_of_a_collective_is_its_transfer_and_the_rest_waiting() -> None:
    """Rank 0 computes 10 ms, rank 1 30 ms; the transfer takes 2 ms, and rank 0 waits for the 20 ms between them."""
    studies = [
        study(rank(0, compute_ms=10, collective_ms=22), None),
        study(rank(1, compute_ms=30, collective_ms=2), None),
    ]
    shares = transfer_shares(studies)
    assert shares == pytest.approx([2 / 22, 1.0])
    lines, wall = combine(studies)
    assert wall.value == pytest.approx(32 * MS, rel=0.01)
    assert sum(lines.values()) == pytest.approx(wall.value)
    assert lines["communication", None] == pytest.approx(2 * MS, rel=0.01)
    # 20 ms on rank 0, none on rank 1
    assert lines["communication", "waiting"] == pytest.approx(10 * MS, rel=0.01)
    assert lines["unpriced", None] == pytest.approx(20 * MS, rel=0.01)


def test_ranks_with_other_collectives_are_averaged() -> None:
    one = study(rank(0, compute_ms=10, collective_ms=4), None)
    other = study(rank(1, compute_ms=20, collective_ms=4, name="ncclDevKernel_Broadcast"), None)
    assert transfer_shares([one, other]) is None
    lines, wall = combine([one, other])
    assert ("communication", "waiting") not in lines
    assert sum(lines.values()) == pytest.approx(wall.value)


def test_one_rank_is_itself() -> None:
    lines, wall = combine([study(rank(0, compute_ms=10, collective_ms=4), None)])
    assert lines["communication", None] == pytest.approx(4 * MS, rel=0.01)
    assert sum(lines.values()) == pytest.approx(wall.value)
