"""The block in docs/manual.md is written from the results, and nothing else in the file changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.speed_table import END, START, main, table, with_block

TIMES = {"runs": 5, "wall_s_min": 1.0, "wall_s_median": 1.234, "wall_s_max": 2.0, "peak_rss_mb": 1234.5}
RESULTS = {
    "date": "2026-01-02",
    "trace": {"source": "a.json.gz", "copies": 30, "events": 1139640, "mb": 389.6},
    "machine": {"cpu": "Some CPU", "cores": 2, "python": "3.11.7"},
    **dict.fromkeys(("diagnose", "json_loads", "help", "import", "python"), TIMES),
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "manual.md").write_text(f"before\n{START}\nold\n{END}\nafter\n")
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    return ["--page", str(tmp_path / "manual.md"), "--results", str(tmp_path / "results.json")]


def test_the_table_shows_the_results() -> None:
    text = table(RESULTS)
    assert "390 MB and 1,139,640 events" in text
    assert "| `import gobrrr` | 1.23 s (1.00 to 2.00 s) | 1.23 GB |" in text


def test_the_launch_heavy_trace_has_a_table_of_its_own() -> None:
    launches = {"trace": {"source": "b.json", "copies": 6, "events": 1372878, "mb": 370.1}, "diagnose": TIMES}
    text = table({**RESULTS, "decode_loop": launches})
    assert "A trace of 370 MB and 1,372,878 events (6 copies of a generated decode loop of short kernels):" in text
    assert text.count("| `gobrrr diagnose trace.json --json` |") == 2


def test_the_block_is_rewritten_and_then_stable(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, "--check"]) == 1
    assert "make bench" in capsys.readouterr().out
    assert main(files) == 0
    assert main([*files, "--check"]) == 0
    text = Path(files[1]).read_text()
    assert text.startswith(f"before\n{START}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text


@pytest.mark.parametrize("text", ["", START, f"{END}{START}", f"{START}{START}{END}"])
def test_missing_marks_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected one"):
        with_block(text, "block")


def test_the_manual_of_this_repository_is_up_to_date(root: Path) -> None:
    if not (root / "bench" / "results" / "trace_reading.json").exists():
        pytest.skip("no results yet: `make bench` writes bench/results/trace_reading.json")
    assert main(["--check"]) == 0
