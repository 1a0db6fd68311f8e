"""docs/live.md holds what the results say."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_the_page_is_current(root: Path) -> None:
    made = runpy.run_path(str(root / "tools" / "make_live.py"))
    assert (root / "docs" / "live.md").read_text(encoding="utf-8") == made["page"](), "run python -m tools.make_live"


def test_every_case_is_named_where_it_is_and_only_there(root: Path) -> None:
    made = runpy.run_path(str(root / "tools" / "make_live.py"))
    for name in ("live_cases.json", "live_cases_h100.json"):
        rows = made["load"](name)["rows"].values()
        assert [row["case"] for row in rows if not row["negative"] and not made["named"](row)] == []


def test_budgets_sum_to_the_measured_step_on_the_gpu(root: Path) -> None:
    made = runpy.run_path(str(root / "tools" / "make_live.py"))
    for row in made["load"]("live_h100.json")["workloads"].values():
        for form in ("faulty", "fixed"):
            found = row[form]["diagnosis"]
            wall = found["unprofiled_wall_ns"]
            assert wall["how"] == "measured"
            assert abs(sum(line["ns"] for line in found["budget"]) - wall["value"]) < 1e-6 * wall["value"]
            low, high = made["alone"](row[form])
            assert 0.96 * low <= wall["value"] / 1e6 <= 1.04 * high  # blocks of ten begin on an empty queue
