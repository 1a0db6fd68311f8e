"""Pages that are made by a command: written, or with `--check` held against what the command would write."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS, DOCS = ROOT / "bench" / "results", ROOT / "docs"


def read(path: Path) -> Any:
    """Results as a command wrote them."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, results: Any) -> None:
    """Results for the repository."""
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def today() -> str:
    """The date in UTC."""
    return datetime.now(timezone.utc).date().isoformat()


def now() -> str:
    """The second in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def heads(columns: str) -> list[str]:
    """The first two lines of a table in Markdown; `columns`: "case | what | saved"."""
    return [f"| {columns} |", "|" + " --- |" * (columns.count("|") + 1)]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The arguments of a command that makes a page."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is not current")
    return made


def stale(files: Mapping[Path, str]) -> dict[Path, str]:
    """The files that differ from what they should be, and what that is."""
    return {
        path: text for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def keep(files: Mapping[Path, str], command: str, *, check: bool) -> int:
    """Write the files that are not current, or name them; the exit status."""
    differing = stale(files)
    for path, text in differing.items():
        if check:
            print(f"{path.relative_to(ROOT)} is not current: run {command}")
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(differing))


def main(
    doc: str | None, files: Callable[[], Mapping[Path, str]], command: str, arguments: Sequence[str] | None = None
) -> int:
    """The whole of a command that makes pages from results that are there."""
    checking = parser(doc).parse_args(arguments).check
    return keep(files(), command, check=checking)


def measured(
    asked: argparse.Namespace, module: str, page: Path, text: Callable[[dict[str, Any]], str],
    measure: Callable[[], dict[str, Any]],
) -> int:  # fmt: skip
    """The whole of a command `python -m MODULE` that measures for bench/results/NAME.json and makes a page of it."""
    import gobrrr

    command, results = f"python -m {module}", RESULTS / f"{module.rpartition('.')[2]}.json"
    if not asked.check:
        about = {"command": command, "version": gobrrr.__version__, "date": today()}
        write(results, {**about, **measure()})
        print(text(read(results)))
    return keep({page: text(read(results))}, command, check=asked.check)
