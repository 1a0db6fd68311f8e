"""The public reports of bench/reports/on_gpu on a GPU: what is named and where, what is promised and what is saved.

    python -m bench.gpu.reports OUT [NAME ...] [--commit C]   # goes on where OUT stops; NAME: anew
    python -m bench.gpu.reports --again OUT                   # what this code says of the profiles in OUT, as those
                                                              # of bench/results/reports_h200
    python -m bench.gpu.reports --take OUT                    # into bench/results/reports_h200.json

Each report has a process of its own and a limit. Its two forms are timed in turns, between synchronisations, by rounds
that make them anew; then each is diagnosed. OUT/reports.json has the answers, judged as in bench/reports/judging.py;
OUT/profiles.tar is what each answer was made from (NAME.FORM.profile.xz, bench/stored_profile.py): one file, because a
device may give few back. On a CPU it runs at small sizes.
"""

from __future__ import annotations

import argparse
import importlib
import io
import multiprocessing
import sys
import tarfile
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import gobrrr
from bench import pages
from bench.gpu.timed import wait
from bench.reports import FORMS, form_of
from bench.reports.__main__ import commit, facts, said, saved, without_text
from bench.reports.judging import judged
from bench.stored_profile import pack, unpack
from gobrrr.doors import live

REPORTS, RESULTS = pages.ROOT / "bench" / "reports" / "on_gpu", pages.RESULTS / "reports_h200.json"
PROFILES = "profiles.tar"
ROUNDS, ROUNDS_S, ROUND_S = 4, 6.0, 0.25
"""Of the timing: rounds of both forms, and seconds of all rounds and of one."""


def names() -> list[str]:
    """The reports. They are not imported: that looks for a device, after which no process can be forked."""
    return sorted(path.stem for path in REPORTS.glob("[!_]*.py"))


def module_of(name: str) -> ModuleType:
    """The module of a report."""
    return importlib.import_module(f"bench.reports.on_gpu.{name}")


def tried(name: str, out: Path) -> dict[str, Any]:
    """One report here: what its fix saves, and what is said of both forms."""
    module = module_of(name)
    measured = saved(module, rounds=ROUNDS, rounds_s=ROUNDS_S, round_s=ROUND_S, clock=time.perf_counter, wait=wait)
    answers = {}
    for form in FORMS:
        profile = live.profile_of(form_of(module, form), (), {})
        packed = pack(profile)
        found = live.diagnose_profile(profile)
        with tarfile.open(out / PROFILES, "a") as tar:
            about = tarfile.TarInfo(f"{name}.{form}.profile.xz")
            about.size = len(packed)
            tar.addfile(about, io.BytesIO(packed))
        answers[form] = said(found, module)
    return {"measured": measured, "now": judged(module, answers["faulty"], answers["fixed"], measured["share"])}


def _alone(name: str, out: Path, pipe: Any) -> None:
    try:
        pipe.send(tried(name, out))
    except BaseException as error:
        pipe.send({"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()[-3000:]})


def _in_a_process(name: str, out: Path, limit_s: float) -> dict[str, Any]:
    """What `tried` gives, or why it gave nothing. A fork: torch is loaded once; the child finds the device."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_alone, args=(name, out, there))
    child.start()
    there.close()
    try:
        row: dict[str, Any] = here.recv() if here.poll(limit_s) else {"error": f"not done in {limit_s:.0f} s"}
    except EOFError:
        row = {"error": "the process ended without an answer"}
    child.join(2)
    if child.is_alive():
        child.kill()
        child.join()
    return row


def measure(out: Path, chosen: list[str], of: str, limit_s: float, whole_s: float) -> None:
    """Try the reports that OUT has not, as far as the time reaches."""
    begun = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    path = out / "reports.json"
    record = pages.read(path) if path.is_file() else {"rows": {}}
    for name in chosen or names():
        if name in record["rows"] and not chosen:
            continue
        if time.monotonic() - begun > whole_s - limit_s:
            print("the time is over: run it again to go on", flush=True)
            break
        start = time.monotonic()
        row = _in_a_process(name, out, limit_s)
        row["seconds"] = round(time.monotonic() - start, 1)
        record["rows"][name] = row
        record |= {"torch": torch.__version__, "commit": of, "date": pages.today()}
        pages.write(path, record)
        print(_line(name, row), flush=True)


def again(out: Path, chosen: list[str]) -> None:
    """What this code says of the profiles in OUT, as OUT/again.json."""
    path = out / "reports.json"
    record = pages.read(path if path.is_file() else RESULTS)
    with tarfile.open(out / PROFILES) as tar:
        stored = {name.partition(".")[0] for name in tar.getnames()}
    rows = {}
    for name, row in record["rows"].items():
        if name not in stored or (chosen and name not in chosen):
            continue
        module = module_of(name)
        answers = {form: said(live.diagnose_profile(unpack(_stored(out, name, form))), module) for form in FORMS}
        now = judged(module, answers["faulty"], answers["fixed"], row["measured"]["share"])
        rows[name] = {"measured": row["measured"], "now": now}
        print(_line(name, rows[name]), flush=True)
    pages.write(out / "again.json", {"rows": rows})


def _stored(out: Path, name: str, form: str) -> bytes:
    """The newest profile of a form."""
    with tarfile.open(out / PROFILES) as tar:
        file = tar.extractfile(f"{name}.{form}.profile.xz")
        assert file is not None  # it is no folder
        return file.read()


def take(out: Path) -> None:
    """Put what OUT holds into bench/results; what was found at first sight stays as it was."""
    first = pages.read(out / "reports.json")
    newer = out / "again.json"
    now = pages.read(newer)["rows"] if newer.is_file() else {}
    kept = pages.read(RESULTS) if RESULTS.is_file() else {"rows": {}}
    for name, row in first["rows"].items():
        if "now" not in row:
            continue
        sight = {"commit": first["commit"], "date": first["date"], **without_text(row["now"])}
        stood = kept["rows"].get(name, {}).get("first_sight", sight)
        kept["rows"][name] = {
            **facts(module_of(name)), "measured": row["measured"], "first_sight": stood,
            "now": {"commit": commit(), "date": pages.today(), **now[name]["now"]} if name in now else sight,
        }  # fmt: skip
    about = {"command": "python -m bench.gpu.reports OUT", "device": "NVIDIA H200", "torch": first["torch"]}
    kept = {**about, "rows": dict(sorted(kept["rows"].items()))}
    pages.write(RESULTS, kept)


def _line(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{name:36}{row['error']}"
    measured, now = row["measured"], row["now"]
    promised = "nothing" if now["predicted"] is None else "{:.0%} to {:.0%}".format(*now["predicted"])
    return (
        f"{name:36}{measured['faulty_ms']:8.2f} ms, saves {measured['share']:4.0%}, promised {promised:12} "
        f"named {now['named']}, held {now['held']}, quiet {now['quiet_when_fixed']} {row.get('seconds', '')}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the results go")
    parser.add_argument("names", nargs="*", help="reports (all)")
    parser.add_argument("--commit", default="", help="of the code, where this is no clone")
    parser.add_argument("--limit", type=float, default=25.0, help="seconds that a report may take (25)")
    parser.add_argument("--seconds", type=float, default=290.0, help="the whole ends within this time (290)")
    parser.add_argument("--again", action="store_true", help="diagnose what OUT holds with this code")
    parser.add_argument("--take", action="store_true", help="copy what OUT holds into bench/results")
    given = parser.parse_intermixed_args()
    if given.take:
        take(given.out)
    elif given.again:
        again(given.out, given.names)
    else:
        print(f"gobrrr {gobrrr.__version__}, torch {torch.__version__}", file=sys.stderr)
        measure(given.out, given.names, given.commit or commit(), given.limit, given.seconds)


if __name__ == "__main__":
    main()
