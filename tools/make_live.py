"""Write the tables of docs/live.md from bench/results; `--check` compares.

The words of the page are its own; every figure comes from the results (live_cases.json, live_held.json, reports.json,
live_h100.json, watch_cost.json, after_recording.json), each with its command, device, versions and date.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from bench import pages

PAGE = pages.DOCS / "live.md"
Row = dict[str, Any]


def load(name: str) -> dict[str, Any] | None:
    """A result; None where it was never made."""
    path = pages.RESULTS / name
    return pages.read(path) if path.is_file() else None


def page() -> str:
    """The page as it is, its tables anew."""
    text = PAGE.read_text(encoding="utf-8")
    tables = {
        "cases": cases(), "held": holders(), "reports": reports(), "workloads": workloads(), "cost": cost(),
        "after": after(),
    }  # fmt: skip
    for name, table in tables.items():
        between = re.compile(f"(<!-- {name}:start -->).*?(<!-- {name}:end -->)", re.DOTALL)
        text = between.sub(lambda found, body=table: f"{found[1]}\n\n{body}\n\n{found[2]}", text)  # type: ignore[misc]
    return text


def made(found: dict[str, Any]) -> str:
    """Where, with what and when."""
    return f"{found['device']}, torch {found['torch']}, {found['date'][:10]}: `{found['command']}`"


def cases() -> str:
    """One row a case."""
    parts = []
    for name in ("live_cases.json", "live_cases_h100.json"):
        found = load(name)
        if found is not None:
            parts.append(_cases(found))
    return "\n\n".join(parts) or "Not run yet."


def _cases(found: dict[str, Any]) -> str:
    lines = [
        f"{made(found)}.\n",
        *pages.heads("case | what | named | faulty, ms | fixed, ms | promised, ms | saved, ms"),
    ]
    lines += [_case(row) for row in sorted(found["rows"].values(), key=lambda row: (row["negative"], row["case"]))]
    judged = [row for row in found["rows"].values() if not row["negative"]]
    right = sum(map(named, judged))
    lines.append(f"\nNamed on the sick form and not on the healthy one: {right} of {len(judged)}.")
    return "\n".join(lines)


def named(row: Row) -> bool:
    """The fault is named where it is, and not where it is mended."""
    return row["code"] in row["faulty"].get("codes", ()) and row["code"] not in row["fixed"].get("codes", ())


def _case(row: Row) -> str:
    what = row["what"].rstrip(".")
    sick, healthy = row["faulty"], row["fixed"]
    if "error" in sick or "error" in healthy:
        return f"| {row['case']} | {what} | failed: {sick.get('error') or healthy.get('error')} | | | | |"
    if row["negative"]:
        most = max((promise[2] / 1e6 for promise in sick["promised_ns"]), default=0.0)
        said = "nothing to promise" if most < LITTLE * sick["wall_ms"] else "promised"
    else:
        said = f"{row['code']}" if named(row) else f"NOT {row['code']}"
    best = max(sick["promised_ns"], key=lambda promise: promise[1] + promise[2], default=None)
    promised = f"{best[1] / 1e6:.2f} to {best[2] / 1e6:.2f}" if best else "nothing"
    saved = sick["wall_ms"] - healthy["wall_ms"]
    times = f"{sick['wall_ms']:.2f} | {healthy['wall_ms']:.2f}"
    return f"| {row['case']} | {what} | {said} | {times} | {promised} | {saved:.2f} |"


def holders() -> str:
    """One row a sick case: what holds its step, beside the lines of the fault."""
    found = load("live_held.json")
    if found is None:
        return "Not run yet."
    rows = sorted(found["rows"].values(), key=lambda row: row["case"])
    lines = [
        f"{made(found)}.\n",
        *pages.heads("case | lines of the fault | held by | share | at the fault"),
    ]
    lines += [_holder(row) for row in rows]
    verdicts = [_held_right(row) for row in rows if row["cause"]]
    lines.append(
        f"\nAt the fault's line: {verdicts.count('yes')} of {len(verdicts)}; in {verdicts.count('second')} more it is "
        "another place that is told."
    )
    return "\n".join(lines)


def _holder(row: Row) -> str:
    if "error" in row:
        return f"| {row['case']} | | failed: {row['error']} | | |"
    where, what, share, *_ = row["held"][0]
    cause = f"`{row['cause'].replace('|', '`, `')}`" if row["cause"] else "a setting, at no line"
    told = f"{where} `{what}`".strip().replace("|", "\\|")
    return f"| {row['case']} | {cause} | {told} | {share:.0%} | {_held_right(row)} |"


def _held_right(row: Row) -> str:
    """Whether the place that holds the step is at the fault, another place that is told is, or none."""
    if not row["cause"]:
        return "-"
    at = [any(part in text for part in row["cause"].split("|")) for *_, text in row.get("held", [])]
    return "yes" if at[:1] == [True] else "second" if any(at) else "no"


def reports() -> str:
    """One row a report, those where something is to be had first."""
    found = load("reports.json")
    if found is None:
        return "Not run yet."
    rows = sorted(found["rows"].items(), key=lambda item: (item[1]["negative"], item[1]["mechanism"], item[0]))
    lines = [
        f"{made(found)}.\n",
        *pages.heads("report | mechanism | cause | named at first sight | now | held by | saved | promised"),
        *(_report(name, row) for name, row in rows),
    ]
    judged = [row for _, row in rows if not row["negative"]]
    for when in ("first_sight", "now"):
        named = sum(1 for row in judged if row[when]["named"])
        held = [row[when]["held"] for row in judged]
        tempted = [row[when]["tempted"] for _, row in rows if row["negative"]]
        lines.append(
            f"\n{WHEN[when]}: {named} of {len(judged)} causes named. What holds the step is at the line in "
            f"{held.count('first')}; in {held.count('told')} more another place that is told is, in "
            f"{held.count('function')} its function is told. At most "
            f"{LITTLE:.0%} promised on {sum(share <= LITTLE for share in tempted)} of {len(tempted)} where nothing is "
            "to be had."
        )
    return "\n".join(lines)


WHEN = {"first_sight": "At first sight", "now": "Now"}


def _report(name: str, row: Row) -> str:
    """A report as its project and number, with what was said of it."""
    project, kind, number = row["source"].removeprefix("https://github.com/").rsplit("/", 2)
    assert kind in ("issues", "pull"), name
    now, first, measured = row["now"], row["first_sight"], row["measured"]
    said = [_named_report(answer, negative=row["negative"]) for answer in (first, now)]
    promised = now["predicted"] if not row["negative"] else [0.0, now["tempted"]]
    share = f"{promised[0]:.0%} to {promised[1]:.0%}" if promised else "nothing"
    remedy = f" ({now['remedy']})" if promised and not row["negative"] else ""
    cells = (
        f"[{project}#{number}]({row['source']})", row["mechanism"], row["cause"], *said, now["held"] or "no",
        f"{measured['share']:.0%}", f"{share}{remedy}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _named_report(said: Row, *, negative: bool) -> str:
    if negative:
        return "nothing promised" if said["tempted"] <= LITTLE else f"{said['tempted']:.0%} promised"
    codes: list[str] = [finding["code"] for finding in said["sick"]["findings"]]
    if said["named"]:
        return codes[int(said["named"]) - 1]
    return f"NO: {', '.join(codes[:3])}" if codes else "NO: nothing"


def workloads() -> str:
    """One row a form of each workload."""
    found = load("live_h100.json")
    if found is None:
        return "Not run yet."
    lines = [
        f"{made(found)}. *Alone*: the same step timed by itself before and after, in blocks of ten with a wait at the "
        "end and step by step; a block begins on an empty queue, which a step in the middle of a loop does not.\n",
        *pages.heads("workload | step, ms | alone, ms | under the profiler, ms | regime | known | findings"),
    ]
    for name, row in found["workloads"].items():
        lines += [_workload(f"{name}, {form}", row[form], row["regime"] if form == "faulty" else "") for form in FORMS]
    return "\n".join(lines)


FORMS = ("faulty", "fixed")
LITTLE = 0.05
"""No more of a step than this may be promised on a negative case."""


def alone(row: Row) -> tuple[float, float]:
    """The least and the most that the step took by itself."""
    times = [ms for run in row["alone"] for kind in ("pipelined_ms", "sync_ms") for ms in run[kind]]
    return min(times), max(times)


def _workload(name: str, row: Row, known: str) -> str:
    if "error" in row:
        return f"| {name} | failed: {row['error']} | | | | | |"
    found = row["diagnosis"]
    wall = found["unprofiled_wall_ns"]
    low, high = alone(row)
    codes = ", ".join(finding["code"] for finding in found["findings"]) or "none"
    return (
        f"| {name} | {wall['value'] / 1e6:.2f} ({wall['low'] / 1e6:.2f} to {wall['high'] / 1e6:.2f}) "
        f"| {low:.2f} to {high:.2f} | {found['wall_ns'] / 1e6:.2f} | {found['regime']} | {known} | {codes} |"
    )


def cost() -> str:
    """What watching adds to a step of 10 ms."""
    found = load("watch_cost.json")
    if found is None:
        return "Not run yet."
    lines = [f"{made(found)}, steps of {found['step_ms']:.0f} ms.\n", "| while | a boundary takes | of the step |"]
    lines.append("| --- | --- | --- |")
    for name, ns in found["boundary_ns"].items():
        lines.append(f"| {name} | {ns / 1e3:.2f} us | {ns / 1e6 / found['step_ms']:.4%} |")
    return "\n".join(lines)


def after() -> str:
    """What a late step of a training takes when it was looked at, against one that was not."""
    found = load("after_recording.json")
    if found is None:
        return "Not run yet: `python -m bench.gpu.after_recording`."
    rounds = found["rounds"]
    count = f"{len(rounds)} runs each, in turns. The host has slow and fast phases: the lowest is the best comparison"
    heads = pages.heads("under | a late step, ms: median | lowest | highest")
    lines = [f"{made(found)}; {count}.\n", *heads]
    for name, median in found["median_ms"].items():
        times = [times[name] for times in rounds]
        lines.append(f"| {name} | {median:.2f} | {min(times):.2f} | {max(times):.2f} |")
    return "\n".join(lines)


def main() -> int:
    return pages.main(__doc__, lambda: {PAGE: page()}, "python -m tools.make_live")


if __name__ == "__main__":
    sys.exit(main())
