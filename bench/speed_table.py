"""Write the measured times between the marks in docs/manual.md, so that no number there is typed by hand.

python -m bench.speed_table           rewrite the block
python -m bench.speed_table --check   exit 1 when the block differs from the results
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import pages
from gobrrr.units import bytes_, duration, duration_range

RESULTS, PAGE = pages.RESULTS / "trace_reading.json", pages.DOCS / "manual.md"
START = "<!-- bench:start -->"
END = "<!-- bench:end -->"

ROWS = (
    ("diagnose", "`gobrrr diagnose trace.json --json`"),
    ("json_loads", "`json.loads` of the same file, for comparison"),
    ("help", "`gobrrr --help`"),
    ("import", "`import gobrrr`"),
    ("python", "Python alone"),
)


def table(results: dict[str, Any]) -> str:
    """The block in Markdown, without the marks."""
    machine, trace, launches = results["machine"], results["trace"], results.get("decode_loop")
    lines = [
        f"{_sizes(trace)} copies of the shipped `{trace['source']}`), on {machine['cores']} cores ({machine['cpu']}), "
        f"Python {machine['python']}, {results['date']}. Whole processes, median of "
        f"{results['diagnose']['runs']} (minimum to maximum):",
        "",
        *_rows(results),
    ]
    if launches is not None:
        lines += ["", f"{_sizes(launches['trace'])} copies of a generated decode loop of short kernels):", ""]
        lines += _rows(launches)
    return "\n".join(lines)


def _sizes(trace: dict[str, Any]) -> str:
    return f"A trace of {trace['mb']:.0f} MB and {trace['events']:,} events ({trace['copies']}"


def _rows(results: dict[str, Any]) -> list[str]:
    rows = [
        f"| {label} | {_wall(results[name])} | {_memory(results[name])} |" for name, label in ROWS if name in results
    ]
    return [*pages.heads("command | wall time | peak memory"), *rows]


def _wall(times: dict[str, Any]) -> str:
    low, median, high = (1e9 * times[f"wall_s_{which}"] for which in ("min", "median", "max"))
    return f"{duration(median)} ({duration_range(low, high)})"


def _memory(times: dict[str, Any]) -> str:
    peak_mb = times["peak_rss_mb"]
    return bytes_(None if peak_mb is None else peak_mb * 1e6)


def with_block(text: str, block: str) -> str:
    """`text` with `block` between the marks. Raises ValueError when a mark is missing or there are several."""
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise ValueError(f"expected one {START} and one {END} after it")
    before, _, rest = text.partition(START)
    return f"{before}{START}\n\n{block}\n\n{END}{rest.partition(END)[2]}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    now = options.page.read_text(encoding="utf-8")
    wanted = with_block(now, table(pages.read(options.results)))
    if options.check:
        if now != wanted:
            print(f"{options.page}: the bench block is out of date; run `make bench`")
        return int(now != wanted)
    options.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
