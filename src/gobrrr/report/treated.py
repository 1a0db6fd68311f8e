"""Treatments on the terminal: the trials, the code of those kept, their order, what was not tried; and the ledger."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from gobrrr import units
from gobrrr.model.treated import Advised, ErrorRow, LedgerErrors, Numerics, Treated, TrialRecord
from gobrrr.report import advice, words
from gobrrr.report.layout import ASCII, CODE, DEFAULT_WIDTH, UNICODE, Line, Page, fold, plain, row
from gobrrr.report.pasted import folded
from gobrrr.report.terminal import basename, knows_unicode
from gobrrr.report.text import clean_lines, name_of, sanitise, to_ascii

NAME, PREDICTED, MEASURED_COLUMN_CELLS, ERROR, NUMERICS_CELLS, MEMORY_CHANGE_CELLS = 20, 15, 6, 5, 8, 7
"""Widths of the columns at 80 columns, in terminal cells."""

MOST_LEFT, MOST_ADVICE, MOST_ORDER = 30, 4, 12
"""Reasons, advice and entries of the order that are listed; chosen."""

LEFT_LINES = 2
"""Lines for the ways that were not tried for one reason; chosen."""

SAME_MEMORY = 0.01
"""A change of the memory peak below this share counts as none; chosen."""

TRIAL_STYLES = {"helped": "green", "hurt": "red", "unsafe": "red", "inconclusive": "yellow"}
"""Verdict of a trial -> its style."""

NOTHING_PREDICTS = "unknown"
"""Shown for a trial without a prediction."""


def for_print(treated: Treated) -> str:
    """The text that `print` shows: plain, 80 columns, in characters that standard output can encode."""
    unicode = knows_unicode(getattr(sys.stdout, "encoding", None))
    return plain(lines(treated, Page(width=DEFAULT_WIDTH, glyphs=UNICODE if unicode else ASCII)))


def lines(treated: Treated, page: Page) -> list[Line]:
    """The page of a treated step."""
    blocks = [
        _head(treated, page), _table(treated, page), _code(treated, page), _order(treated, page), _left(treated, page),
        _advice(treated.advice, page), _tail(treated, page),
    ]  # fmt: skip
    out: list[Line] = []
    for block in filter(None, blocks):
        out += [*([[]] if out else []), *fold(block, page.width)]
    return out if page.glyphs is not ASCII else [[(to_ascii(text), style) for text, style in line] for line in out]


def _head(treated: Treated, page: Page) -> list[Line]:
    device = name_of(treated.before.device or "device unknown")
    top: Line = [(f" {basename(treated.target)}", "bold"), (f"{page.joint}{device}", "")]
    caveats = [
        line for caveat in treated.caveats for line in page.wrapped(sanitise(caveat), first=" ! ", style="yellow")
    ]
    return [top, *page.wrapped(headline(treated, page.glyphs.arrow), first=" "), *caveats]


def headline(treated: Treated, arrow: str = "->") -> str:
    """The step before and after, in one sentence."""
    before, after = treated.step_before_ns, treated.step_after_ns
    counted = f"{units.things(len(treated.trials), 'trial')}, {treated.seconds:.0f} s"
    if before is None:
        return f"the step's time is unknown ({counted})"
    if not treated.kept or after is None:
        return f"{units.duration(before)} a step; {_nothing(treated.trials)} ({counted})"
    kept = " + ".join(sanitise(way) for way in treated.kept)
    doubt = uncertain(treated)
    about, doubt = ("about ", f" ({doubt})") if doubt else ("", "")
    times = f": {about}{treated.faster:.3g} times as fast" if treated.faster else ""
    work = (
        " for the same work" if any(trial.work != 1.0 for trial in treated.trials if trial.way in treated.kept) else ""
    )
    then = f"{about}{units.duration(after)}{work}"
    return f"{units.duration(before)} a step {arrow} {then} with {kept}{times}{doubt} ({counted})"


def _nothing(trials: Sequence[TrialRecord]) -> str:
    """Why nothing is kept."""
    if not trials:
        return "nothing was tried"
    decided = any(trial.verdict != "inconclusive" for trial in trials)
    return "nothing that was tried is worth keeping" if decided else "no trial was conclusive"


def uncertain(treated: Treated) -> str:
    """Why the step's times are uncertain: not timed in turns in this run, or on a busy machine; else ""."""
    if treated.together is not None and treated.together.timing is not None:
        if treated.together.disturbed:
            return "on a busy machine"
        return "" if treated.together.verdict != "inconclusive" else "inconclusive together"
    kept = [trial for trial in treated.trials if is_kept(trial, treated)]
    together = bool(kept) and set(kept[-1].members) == set(treated.kept)
    apart = (len(treated.kept) > 1 and not together) or any(trial.instead_of for trial in kept)
    reasons = ["not timed together"] if apart else []
    reasons += ["on a busy machine"] if any(trial.disturbed for trial in kept) else []
    reasons += ["from trials in the ledger"] if any(trial.from_ledger for trial in kept) else []
    return ", ".join(reasons)


def _row(page: Page, mark: str, name: str, rest: Sequence[str], verdict: str) -> list[Line]:
    widths: tuple[int, ...] = (PREDICTED, MEASURED_COLUMN_CELLS, ERROR, NUMERICS_CELLS, MEMORY_CHANGE_CELLS)
    wide = NAME + page.width - DEFAULT_WIDTH
    if page.width < DEFAULT_WIDTH:  # no room for the last two
        widths, wide = widths[:3], wide + NUMERICS_CELLS + MEMORY_CHANGE_CELLS + 2
    cells = " ".join(f"{cell:>{width}}" for cell, width in zip(rest, widths, strict=False))
    lines = row(sanitise(name), wide, f" {cells} ", lead=f"{mark:<3}")
    lines[-1].append((words.VERDICTS.get(verdict, verdict), TRIAL_STYLES.get(verdict, "")))
    return lines


def _table(treated: Treated, page: Page) -> list[Line]:
    if not treated.trials:
        return []
    heads = ("predicted", "meas'd", "error", "numerics", "memory")
    head = plain(_row(page, "", "saves, % of a step", heads, "verdict"))
    out: list[Line] = [[(head, "bold")]]
    for trial, interval in zip(treated.trials, predicted(treated.trials), strict=True):
        mark = " +" if is_kept(trial, treated) else ""
        cells = (interval, measured(trial), error(trial), numerics(trial.numerics), memory(trial))
        out += _row(page, mark, trial.way, cells, trial.verdict)
        for text in told(trial):
            out += page.wrapped(text, first="     ", style="dim")
    if (whole := treated.together) is not None:
        cells = ("-", measured(whole), "-", numerics(whole.numerics), memory(whole))
        out += _row(page, "", whole.way, cells, whole.verdict)
    legend = (
        "+ kept; each trial runs on top of those kept before it. Error: predicted minus measured, in percentage points "
        "of the step."
    )
    return [*out, *page.wrapped(legend, first=" ", style="dim")]


def is_kept(trial: TrialRecord, treated: Treated) -> bool:
    """Whether the way of this trial is kept because of this trial, its last one."""
    last = next((other for other in reversed(treated.trials) if other.way == trial.way), None)
    kept = bool(set(trial.members) & set(treated.kept)) and trial.verdict == "helped"
    return (kept or trial.way in treated.kept) and trial is last


def predicted(trials: Sequence[TrialRecord]) -> list[str]:
    """The predicted savings in percent of the step: "17 (0 to 42)".

    All have one form: if "to" does not fit it is "17 (0..42)", and if that does not fit, the ends are whole numbers.
    """
    for to, whole in ((" to ", False), ("..", False), ("..", True)):
        shown = [_interval(trial, to, whole) for trial in trials]
        if all(len(text) <= PREDICTED for text in shown):
            return shown
    return [text.replace(" ", "") if len(text) > PREDICTED else text for text in shown]


def _interval(trial: TrialRecord, to: str, whole: bool) -> str:
    step = trial.step_ns or (trial.timing.before_ns if trial.timing is not None else None)
    if trial.expected_ns is None or trial.predicted_saving_ns is None or not step:
        return NOTHING_PREDICTS
    low, high = (100 * end / step for end in trial.predicted_saving_ns)
    ends = (f"{math.floor(low)}", f"{math.ceil(high)}") if whole else (points(low), points(high))
    return f"{points(100 * trial.expected_ns / step)} ({ends[0]}{to}{ends[1]})"


def measured(trial: TrialRecord) -> str:
    """The measured saving in percent of the step before it; "-" if the trial was not timed or is inconclusive."""
    if trial.timing is None or trial.saving_ns is None or trial.verdict == "inconclusive":
        return "-"
    return points(100 * trial.saving_ns / trial.timing.before_ns)


def error(trial: TrialRecord) -> str:
    """Predicted minus measured saving, in percentage points of the step; "-" if either is unknown."""
    step = trial.step_ns or (trial.timing.before_ns if trial.timing is not None else None)
    if trial.timing is None or trial.saving_ns is None or trial.expected_ns is None or not step:
        return "-"
    if trial.verdict == "inconclusive":
        return "-"
    off = 100 * (trial.expected_ns / step - trial.saving_ns / trial.timing.before_ns)
    return f"{'+' if off > 0 else ''}{points(off)}"


def points(value: float) -> str:
    """A number of percent, with a decimal below 10."""
    text = f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"
    return "0" if float(text) == 0 else text


def numerics(result: Numerics | None) -> str:
    """How the numerical results compare: result word, or the largest error."""
    if result is None:
        return "-"
    if result.ok is None:
        return "unknown"
    if not result.ok:
        return "differ"
    compared = (result.output, result.loss, result.gradients)
    errors = [each.treated for each in compared if each is not None and each.treated is not None]
    if not errors:
        return "finite" if result.reference == "none" else "ok"
    return "same" if max(errors) == 0 else f"{max(errors):.0e}"


def memory(trial: TrialRecord) -> str:
    """The change of the memory peak; "-" if it was not measured."""
    before, after = trial.memory_before_bytes, trial.memory_after_bytes
    if before is None or after is None:
        return "-"
    if abs(after - before) < SAME_MEMORY * max(before, 1):
        return "same"
    number, unit = units.bytes_(abs(after - before)).replace(",", "").split(" ")
    value = float(number)
    sign = "+" if after > before else "-"
    return f"{sign}{value:.0f} {unit}" if value >= 10 else f"{sign}{value:.1f} {unit}"


def told(trial: TrialRecord) -> list[str]:
    """Remarks on a trial, below its row."""
    out = [f"in place of {sanitise(trial.instead_of)}, and measured against it"] if trial.instead_of else []
    if trial.leaves_out:
        stays = trial.verdict not in ("helped", "no_change")
        out = [f"{sanitise(trial.leaves_out)} {'stays' if stays else 'was dropped again'}: measured against all kept"]
    if trial.from_ledger:
        out.append(f"from the ledger, {sanitise(trial.from_ledger)[:10]}; --again runs it again")
    out += _by_earlier(trial)
    if trial.disturbed:
        out.append("timed on a busy machine")
    if trial.verdict in ("unsafe", "inconclusive") and trial.why:
        out.append(sanitise(trial.why))
    if trial.verdict == "helped" and trial.compile_s:
        out.append(f"its first steps took {trial.compile_s:.1f} s more{_paid_back(trial.break_even_steps)}")
    return out


def _by_earlier(trial: TrialRecord) -> list[str]:
    """How the ledger's earlier trials changed the interval that the replay predicts."""
    intervals = (trial.replayed_saving_ns, trial.predicted_saving_ns)
    if trial.instead_of or not trial.step_ns or None in intervals:
        return []
    was, now = (
        " to ".join(points(100 * end / trial.step_ns) for end in ends) for ends in intervals if ends is not None
    )
    return [f"the interval is {now} with earlier trials in the ledger, {was} without them"] if was != now else []


def _paid_back(steps: float | None) -> str:
    """After how many steps the saving exceeds the extra time of the first ones."""
    if not steps:
        return ""
    whole = math.ceil(steps)
    return f", paid back after {units.things(whole, 'step')}"


def _code(treated: Treated, page: Page) -> list[Line]:
    code = clean_lines(treated.code)
    if not code:
        return []
    return [
        [(" To paste", "bold")],
        *([(f"   {part}", CODE)] for line in code for part in folded(line, page.width - 3)),
    ]


def _order(treated: Treated, page: Page) -> list[Line]:
    head = " Order" if treated.trials else " What would be tried, in this order"
    out: list[Line] = [[(head, "bold")]] if treated.order else []
    for at, entry in enumerate(treated.order[:MOST_ORDER], start=1):
        out += page.wrapped(sanitise(entry), first=f"  {at:>2}  ", rest="      ")
    if len(treated.order) > MOST_ORDER:
        out.append([(f"      and {len(treated.order) - MOST_ORDER} more: --json", "dim")])
    if treated.stopped:
        out += page.wrapped(f"Stopped: {sanitise(treated.stopped)}.", first=" ")
    return out


def _left(treated: Treated, page: Page) -> list[Line]:
    by_why: dict[str, list[str]] = {}
    for untried in treated.untried:
        by_why.setdefault(sanitise(untried.why), []).append(sanitise(untried.way))
    if not by_why:
        return []
    out: list[Line] = [[(" Not tried", "bold")]]
    groups = list(by_why.items())
    for why, ways in groups[:MOST_LEFT]:
        out += _reason(ways, why, page)
    rest = groups[MOST_LEFT:]
    if rest:
        reasons = units.things(len(rest), "other reason")
        out.append([(f"     and {sum(len(ways) for _, ways in rest)} more, for {reasons}: --json", "dim")])
    return out


def _reason(ways: Sequence[str], why: str, page: Page) -> list[Line]:
    """Names and their reason; of many names, as many as fit with the reason in two lines, but at least one."""
    first = f"   {page.glyphs.dot} "
    for count in range(len(ways), 0, -1):
        names = ", ".join(ways[:count]) + (f" and {len(ways) - count} more" if count < len(ways) else "")
        lines = page.wrapped(f"{names}: {why}", first=first)
        if len(lines) <= LEFT_LINES:
            break
    return lines


def _advice(items: Sequence[Advised], page: Page) -> list[Line]:
    """Treatments that only a change of the user's source can apply."""
    if not items:
        return []
    out: list[Line] = page.wrapped(
        "Changes to your source: predicted for the step as it was, not measured", first=" ", style="bold"
    )
    for item in items[:MOST_ADVICE]:
        where = f" at {sanitise(item.where)}" if item.where else ""
        saves = advice.saving(item.predicted_saving_ns)
        out += page.wrapped(
            f"{sanitise(item.treatment)} ({sanitise(', '.join(item.mends or [item.finding]))}){where}: {saves}",
            first=f"   {page.glyphs.dot} ",
        )
        rewrite = clean_lines(item.how) or clean_lines(item.code)
        out += [[(f"       {part}", CODE)] for line in rewrite for part in folded(line, page.width - 7)]
    if len(items) > MOST_ADVICE:
        out.append([(f"     and {len(items) - MOST_ADVICE} more: --json", "dim")])
    return out


def _tail(treated: Treated, page: Page) -> list[Line]:
    out: list[Line] = []
    for note in treated.notes:
        out += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return out


def ledger_lines(found: LedgerErrors, page: Page) -> list[Line]:
    """The errors of predictions in the ledger, by treatment."""
    trials = units.things(found.trials, "trial")
    again = f", {found.repeated:,} of them repeated later and not counted below" if found.repeated else ""
    out = [*page.wrapped(f"{sanitise(found.folder)}{page.joint}{trials}{again}", first=" ", style="bold"), []]
    if not found.errors:
        out += page.wrapped("No trial is kept here yet; gobrrr treat FILE.py:NAME adds them.", first=" ")
    else:
        heads = ("trials", "helped", "error", "90 %", "inside", "width", "meas./exp.")
        out += _ledger_cells(page, "treatment", *heads, style="bold")
        out += [line for error_row in found.errors for line in _ledger_row(page, error_row)]
        legend = (
            "Error: median of |predicted - measured| in percentage points of the step; 90 %: its 90th percentile. "
            "Inside: share of trials with the measured saving inside the predicted interval; width: median width of "
            "that interval. Meas./exp.: median of measured over expected saving; below 1, too much was promised."
        )
        out += page.wrapped(legend, first=" ", style="dim")
        if left := sum(error_row.trials - error_row.predicted for error_row in found.errors):
            why = "inconclusive, on a busy machine, or without a prediction"
            out += page.wrapped(f"Not judged: {units.things(left, 'trial')} ({why}).", first=" ", style="dim")
    for note in found.notes:
        out += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    return fold(out, page.width)


def _ledger_cells(page: Page, name: str, *rest: str, style: str = "") -> list[Line]:
    wide = 26 + max(page.width - DEFAULT_WIDTH, -8)
    widths = (6, 6, 6, 6, 6, 6, 10)
    cells = " ".join(f"{cell:>{width}}" for cell, width in zip(rest, widths, strict=True))
    return row(sanitise(name), wide, f" {cells}", styles=(style, style))


def _ledger_row(page: Page, errors: ErrorRow) -> list[Line]:
    figures = (errors.median_points, errors.p90_points, errors.width_points)
    off, far, wide = ("-" if figure is None else points(figure) for figure in figures)
    inside = "-" if errors.covered is None else units.percent(errors.covered)
    ratio = "-" if errors.measured_over_expected is None else f"{errors.measured_over_expected:.2f}"
    cells = (f"{errors.trials}", f"{errors.helped}", off, far, inside, wide, ratio)
    return _ledger_cells(page, errors.treatment, *cells)
