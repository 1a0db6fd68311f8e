"""Damaged traces and diagnoses through the command line, in this process: each ends in an answer or in one line.

    python -m tests.fuzz.run --inputs 10000            all of one seed, which is printed
    python -m tests.fuzz.run --seed 1 --only 4711      one of them again, with what it printed

An input is known by its seed and its number. A part of an answer that fails counts as a failure (GOBRRR_STRICT).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from gobrrr import cli
from gobrrr.guarded import STRICT
from gobrrr.report import terminal
from tests.fuzz import bases
from tests.fuzz.mutators import MUTATORS, RECORDS, encode

LIMIT_S = 30
"""An input that takes longer hangs."""

SIZES = (bases.FEW_EVENTS, bases.FEW_EVENTS, bases.FEW_EVENTS, bases.MOST_EVENTS)
"""Of the cuts: as a rule short, as most of what goes wrong needs few events."""

CODE = " " * 12
"""What the lines of a remedy's code begin with."""

WHAT_IFS = ("compile", "compile,cuda-graph", "bf16-autocast", "fused-optimizer,remove-sync", "none", "larger-batch=2")


@dataclass(frozen=True)
class Input:
    """One damaged input: the command line to call, where its file is, and what was done to it."""

    number: int
    arguments: list[str]
    done: str


@dataclass(frozen=True)
class Outcome:
    """What came of an input. `wrong`: why it is a failure, "" where it is none."""

    input: Input
    status: int
    wrong: str
    said: str
    seconds: float


class TooLong(BaseException):
    """An input takes longer than it may."""


def made(seed: int, number: int, folder: Path) -> Input:
    """The input of a number: its file is written into `folder`."""
    rng = Random(f"{seed}:{number}")
    if rng.random() < 0.15:
        return _record(rng, number, folder)
    if rng.random() < 0.05:
        return _ranks(rng, number, folder)
    path = rng.choice(bases.TRACES)
    data, done = damaged(path, rng)
    target = folder / "trace.json"
    target.write_bytes(data)
    return Input(number, ["diagnose", str(target), *_options(rng, folder)], f"{path.name}: {done}")


def damaged(path: Path, rng: Random) -> tuple[bytes, str]:
    """(a cut of a trace after one to five mutators, their names)."""
    trace, names = bases.trace(path, rng.choice(SIZES)), []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 5))):
        name = rng.choice(list(MUTATORS))
        names.append(name)
        try:
            data = MUTATORS[name](trace, rng)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            continue  # an earlier one has left it no form to work on
        if data is not None:
            return data, " + ".join(names)
    return encode(trace), " + ".join(names)


def _ranks(rng: Random, number: int, folder: Path) -> Input:
    home, done = folder / "ranks", []
    home.mkdir(exist_ok=True)
    for rank, path in enumerate(bases.RANKS):
        data, names = damaged(path, rng) if rng.random() < 0.7 else (bases.packed(path), "as it is")
        (home / f"rank{rank}.json").write_bytes(data)
        done.append(names)
    return Input(number, ["diagnose", str(home), *_options(rng, folder)], f"two ranks: {' | '.join(done)}")


def _record(rng: Random, number: int, folder: Path) -> Input:
    index = rng.randrange(2 * len(bases.DIAGNOSED))
    record: dict[str, Any] = json.loads(bases.record(index))
    names = [rng.choice(list(RECORDS)) for _ in range(rng.choice((1, 1, 2)))]
    for name in names:
        with contextlib.suppress(TypeError, KeyError, AttributeError):
            RECORDS[name](record, rng)
    target = folder / "saved.json"
    target.write_bytes(json.dumps(record, ensure_ascii=True).encode())
    how = rng.choice(([], ["--width", "60"], ["--json"], ["--html", str(folder / "page.html")]))
    return Input(number, ["report", str(target), *how], f"diagnosis {index}: {' + '.join(names)}")


def _options(rng: Random, folder: Path) -> list[str]:
    """How the answer is asked for: on the screen as a rule, a share as JSON, as a page, with a change or elsewhere."""
    chosen = rng.choices(
        ([], ["--width", "60"], ["--quiet"], ["--json"], ["--html", str(folder / "page.html"), "--quiet"],
         ["--what-if", rng.choice(WHAT_IFS)], ["--on", rng.choice(("b200", "a100-80gb", "mi300x"))], ["--stacks"],
         ["--replayed", str(folder / "replayed.json"), "--quiet"]),
        (30, 5, 3, 20, 8, 15, 10, 6, 3),
    )[0]  # fmt: skip
    return list(chosen)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(one: Input) -> Outcome:
    """Call the command line and judge what it did."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict") for _ in range(2))
    began, status, wrong = time.monotonic(), -1, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings(), _limited():
        warnings.simplefilter("error")
        try:
            status = cli.main([*one.arguments, "--debug"])
        except TooLong as error:
            wrong = f"takes longer than {LIMIT_S} s\n{''.join(traceback.format_exception(error)[-6:])}"
        except BaseException as error:
            wrong = "".join(traceback.format_exception(error))
    said, told = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (_flushed(out), _flushed(err)))  # type: ignore[attr-defined]
    if not wrong:
        wrong = _judged(one, status, said, told)
    return Outcome(one, status, wrong, said, time.monotonic() - began)


def _flushed(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    return stream


def _judged(one: Input, status: int, said: str, told: str) -> str:
    """Why an outcome is a failure; "" where it is none."""
    if status not in (0, 2):
        return told or f"exit status {status}"
    if status == 2:
        lines = [line for line in told.splitlines() if line]
        return "" if lines and lines[-1].startswith("gobrrr: ") and "Traceback" not in told else f"no one line: {told}"
    if "Traceback" in told:
        return told
    try:
        _check_answer(one, said)
    except Exception as error:
        return "".join(traceback.format_exception(error))
    return ""


def _check_answer(one: Input, said: str) -> None:
    """What holds of every answer, whatever it was made from."""
    if "--html" in one.arguments:
        page = Path(one.arguments[one.arguments.index("--html") + 1]).read_text(encoding="utf-8")
        assert page.endswith("</html>\n"), "a page without an end"
        assert "could not be checked: " not in page.lower().partition("<main")[2][:3000], "a section failed"
    if "--json" in one.arguments:
        _check_record(json.loads(said, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name))))
    elif "--html" not in one.arguments or one.arguments[0] == "report":
        from rich.cells import cell_len

        width = int(one.arguments[one.arguments.index("--width") + 1]) if "--width" in one.arguments else 80
        long = [line for line in said.splitlines() if cell_len(line) > width and not _unbreakable(line, width)]
        assert not long or "--quiet" in one.arguments, f"wider than {width}: {long[0]!r}"
        assert said.strip(), "nothing was printed"


def _unbreakable(line: str, width: int) -> bool:
    """Whether a line is code of a remedy with a part that Python can't break and that is too wide by itself."""
    try:
        ast.parse(line.strip())
    except SyntaxError:
        return False
    parts = re.split(r"(?<=[(\[,])\s*", line.strip())
    return line.startswith(CODE) and len(CODE) + max(map(len, parts)) > width


def _check_record(record: dict[str, Any]) -> None:
    """The contract of docs/design.md, as far as it holds of anything."""
    lines = record["budget"]
    assert all(line["ns"] >= 0 for line in lines), f"a line below nothing: {lines}"
    wall = record["unprofiled_wall_ns"]["value"] or record["wall_ns"]
    total = sum(line["ns"] for line in lines)
    assert not lines or wall is None or abs(total - wall) <= 1e-6 * max(wall, 1.0) + 1.0, f"{total} of {wall}"
    for one in record["prescriptions"]:
        low, high = one["predicted_saving_ns"]
        assert 0 <= low <= high <= max(wall or high, 0.0) * (1 + 1e-9) + 1.0, (
            f"{one['treatment']}: {low} to {high} of {wall}"
        )
    assert all(0 <= one["at_stake_ns"][0] <= one["at_stake_ns"][1] for one in record["findings"]), (
        "a stake below nothing"
    )
    path = Path(bases._scratch()) / "again.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    from gobrrr import api

    terminal.render(api.load(path))  # what is written can be read


def outcomes(seed: int, numbers: Iterable[int]) -> Iterator[Outcome]:
    """Run the inputs of some numbers."""
    os.environ[STRICT] = "1"
    with tempfile.TemporaryDirectory(prefix="gobrrr-fuzz-") as folder:
        for number in numbers:
            yield run(made(seed, number, Path(folder)))


def place(wrong: str) -> str:
    """Where a failure was raised and how, so that those of one kind count together."""
    lines = [line.strip() for line in wrong.splitlines() if line.strip()]
    frames = [line for line in lines if line.startswith("File ") and "guarded.py" not in line]
    last = next((line for line in reversed(lines) if not line.startswith(("gobrrr: ", "^", "~"))), "?")
    return f"{frames[-1].partition('src/')[2] if frames else ''} {last[:160]}"


def main() -> int:
    """Run them and say what failed, by its place."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else int(time.time())
    numbers = [given.only] if given.only is not None else range(given.first, given.first + given.inputs)
    print(f"seed {seed}, {len(numbers):,} inputs", flush=True)
    statuses: Counter[int] = Counter()
    failed: Counter[str] = Counter()
    slowest = (0.0, -1)
    for one in outcomes(seed, numbers):
        statuses[one.status] += 1
        slowest = max(slowest, (one.seconds, one.input.number))
        if given.only is not None:
            print(one.input.done, one.input.arguments, one.status, one.said, one.wrong, sep="\n")
        if one.wrong:
            where = place(one.wrong)
            failed[where] += 1
            if failed[where] <= 2:
                print(f"--- input {one.input.number} ({one.input.done})\n{where}", flush=True)
    print(f"exit statuses {dict(statuses)}; slowest {slowest[0]:.1f} s (input {slowest[1]})")
    for where, count in failed.most_common():
        print(f"{count:6,} x {where}")
    print(f"seed {seed}: {sum(failed.values())} failures of {len(failed)} kinds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
