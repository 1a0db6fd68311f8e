"""The terminal's advice: prescriptions with their findings, other findings, trials, and what was not checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from gobrrr import units
from gobrrr.analysis.answer.outcome import largest
from gobrrr.guarded import UNCHECKED
from gobrrr.model.diagnosis import Diagnosis, Finding, Interval, NotChecked, Place, Prescription, Trial
from gobrrr.report import words
from gobrrr.report.layout import CODE, Line, Page, fits, spread
from gobrrr.report.neighbours import neighbours, same_place
from gobrrr.report.pasted import folded
from gobrrr.report.text import clean_lines, name_of, sanitise, short_name, wrap
from gobrrr.report.tree import at_line

TITLE_INDENT = " " * 10
MENDS_INDENT = " " * 5
CODE_INDENT = " " * 7
"""Indents: of a title's and a trial's second line, of what a remedy mends, of its code."""
HOW_TO_SEE_ALL = "--all shows all"
COSTS_HEADING = "cost per step"
MEASUREMENT = "About the measurement, not the program"
OF_MEASUREMENT = "Q"
"""The first letter of the codes about the measurement."""
NOT_YET = "nothing yet"
"""The saving of a finding that costs no time now but will, such as memory that fills up."""
ROOF_WORDS = {"compute": ("arithmetic", "less arithmetic"), "memory": ("moving bytes", "moving fewer bytes")}
"""By side of the roofline: what takes the time at the roof, and what would shorten it."""
BOUND_SHARE = 0.5
"""A line of the budget with more than this share is what bounds the step."""
OUR_DEFECT = "The defect is in gobrrr, not in your program: please report it with the output of --debug."
LONG_WORD = 40
"""A longer word of the evidence, in characters, is taken as a kernel's name and shortened; chosen."""


def named_here(diagnosis: Diagnosis, most_treatments: int, most_findings: int) -> set[str]:
    """The codes of the findings on the screen: references to other findings are left out."""
    treated = {
        code
        for prescription in worth_doing(diagnosis)[:most_treatments]
        for code in (prescription.finding, *prescription.mends)
    }
    costly, _ = _untreated(diagnosis)
    return treated | {finding.code for finding in costly[:most_findings]}


def prescriptions(
    diagnosis: Diagnosis,
    page: Page,
    *,
    most: int,
    named: Collection[str] | None = None,
    facts: Sequence[int] = (),
    code: int | None = None,
) -> list[Line]:
    """The first `most` ranked treatments, each with what it mends, the place, and the code to paste.

    `named`: findings that may be referred to (None: all). `facts`: lines of evidence for the first finding, the second,
    and so on. `code`: code of more lines is told by where it stands (None: no limit).
    """
    ranked = worth_doing(diagnosis)
    if not ranked:
        return []
    lines: list[Line] = [_heading(page, several=len(ranked[:most]) > 1)]
    by_code = {finding.code: finding for finding in diagnosis.findings}
    beside = neighbours(diagnosis)
    first: dict[str, int] = {}
    for rank, prescription in enumerate(ranked[:most], start=1):
        seen = first.setdefault(prescription.finding, rank)
        room = facts[len(first) - 1] if seen == rank and len(first) <= len(facts) else 0
        there = same_place(beside.get(prescription.finding, []), named) if seen == rank else ""
        lines += _remedy(rank, prescription, by_code.get(prescription.finding), page, code)
        lines += _mends(prescription, by_code, seen if seen < rank else None, there, page)
        lines += _facts(by_code.get(prescription.finding), page, room)
        if prescription.then and room:
            lines += page.wrapped(
                f"then {sanitise(prescription.then)}", first=MENDS_INDENT, rest=f"{MENDS_INDENT}  ", style="dim"
            )
    return [*lines, *more((len(ranked) - most, "remedy"))]


def more(*left: tuple[int, str]) -> list[Line]:
    """A line that counts what is not shown, by name; nothing if all is shown."""
    counts = [units.things(count, f"more {name}") for count, name in left if count > 0]
    return [[(f"    and {', '.join(counts)}: {HOW_TO_SEE_ALL}", "dim")]] if counts else []


def _heading(page: Page, *, several: bool) -> Line:
    right: Line = [("predicted saving", "dim")]
    head: Line = [(" What to do", "bold")]
    hint: Line = [*head, (", one change at a time: savings do not add up", "dim")]
    return spread(hint if several and fits(hint, right, page.width) else head, right, page.width)


def worth_doing(diagnosis: Diagnosis) -> list[Prescription]:
    """The ranked treatments that may save time, and those for findings that cost no time yet."""
    free = {
        finding.code
        for finding in diagnosis.findings
        if finding.at_stake_ns[1] <= 0 and not finding.code.startswith(OF_MEASUREMENT)
    }
    return [
        prescription
        for prescription in diagnosis.prescriptions
        if prescription.predicted_saving_ns[1] > 0 or prescription.finding in free
    ]


def _remedy(rank: int, prescription: Prescription, finding: Finding | None, page: Page, most: int | None) -> list[Line]:
    """The treatment's name with its code: on one line if both fit, else the whole code below the name, or where code of
    more than `most` lines stands."""
    lead, name, saves = f"  {rank}  ", name_of(prescription.treatment), amount(prescription, finding)
    said = clean_lines(prescription.how)
    right: Line = [(saves, "bold")]
    if len(said) == 1:
        head: Line = [] if said[0].startswith(name) else [(f"{name}: ", "bold")]
        left: Line = [(lead, ""), *head, (said[0], CODE)]
        if fits(left, right, page.width):
            return [spread(left, right, page.width)]
    if most is not None and len(said) > most:
        said = [f"# {len(said)} lines of code: gobrrr explain {name.partition(':')[0]}"]
    room = page.width - len(CODE_INDENT)
    code: list[Line] = [[(CODE_INDENT, ""), (part, CODE)] for line in said for part in folded(line, room)]
    return [spread([(lead, ""), (name, "bold")], right, page.width), *code]


def _mends(
    prescription: Prescription, by_code: Mapping[str, Finding], seen: int | None, there: str, page: Page
) -> list[Line]:
    """The findings that a remedy mends, each with its own saving if there are several, and the place of the first.

    `seen`: the rank of an earlier remedy that shows the place.
    """
    parts = []
    for code, ns in mended(prescription):
        notes = [sanitise(code)] if code in by_code else []
        notes += [f"{saving((ns, ns))} alone"] if len(prescription.mends) > 1 and ns is not None else []
        notes += [f"where: see {seen}"] if seen is not None and code == prescription.finding else []
        title = name_of(by_code[code].title) if code in by_code else sanitise(code)
        parts.append(f"{title} ({'; '.join(notes)})" if notes else title)
    lines = page.wrapped(f"mends {', '.join(parts)}", first=MENDS_INDENT, rest=f"{MENDS_INDENT}  ")
    finding = by_code.get(prescription.finding)
    places = finding.where if finding is not None and seen is None else []
    place = "; ".join(part for part in (where(places), there) if part)
    return lines + page.wrapped(place, first=CODE_INDENT, rest=f"{CODE_INDENT}  ", style="dim")


def alone(ns: float | None, shape: str) -> str:
    """What a treatment saves of one of its findings, put into `shape`; "" if that is not known."""
    return "" if ns is None else shape.format(saving((ns, ns)))


def mended(prescription: Prescription) -> list[tuple[str, float | None]]:
    """The findings that a treatment mends, each with the saving on it alone (None if the step can't be replayed)."""
    return list(zip_longest(prescription.mends, prescription.mends_ns[: len(prescription.mends)]))


def named(code: str, by_code: Mapping[str, Finding]) -> str:
    """A finding's code and title."""
    return sanitise(f"{code} {by_code[code].title}" if code in by_code else code)


def _facts(finding: Finding | None, page: Page, most: int) -> list[Line]:
    """The finding's evidence: as many whole facts as fit `most` lines."""
    lines: list[Line] = []
    for fact in finding.evidence if finding else []:
        text = " ".join(short_name(word) if len(word) > LONG_WORD else word for word in sanitise(fact).split(" "))
        parts = page.wrapped(text, first=f"{CODE_INDENT}{page.glyphs.dot} ", rest=f"{CODE_INDENT}  ", style="dim")
        if len(lines) + len(parts) > most:
            break
        lines += parts
    return lines


def titled(lead: str, code: str, title: str, amount: str, page: Page) -> list[Line]:
    """A finding's code and title, with an amount at the right end of the first line."""
    head = f"{lead}{code}"
    gap = " " * max(1, len(TITLE_INDENT) - len(head))
    room = page.width - len(head) - len(gap) - len(amount) - 2
    parts = wrap(title, max(room, 8)) or [""]
    top = spread([(lead, ""), (code, "bold"), (gap, ""), (parts[0], "")], [(amount, "bold")], page.width)
    return [top, *([(TITLE_INDENT, ""), (part, "")] for part in parts[1:])]


def saving(interval: Interval) -> str:
    """A predicted saving in words: its interval, or "no gain"."""
    return "no gain" if interval[1] <= 0 else units.duration_range(*interval)


def amount(prescription: Prescription, finding: Finding | None) -> str:
    """A treatment's predicted saving in words; `finding`: the one that it mends."""
    free = finding is not None and finding.at_stake_ns[1] <= 0 and prescription.predicted_saving_ns[1] <= 0
    return NOT_YET if free else saved_by(prescription)


def saved_by(prescription: Prescription) -> str:
    """A treatment's expected saving, with its interval in the same unit."""
    return expected_saving(prescription.expected_ns, prescription.predicted_saving_ns)


def expected_saving(expected_ns: float | None, interval: Interval) -> str:
    """ "23.1 ms (9.2 to 31.4)"; the interval alone if there is no expected value."""
    low, high = interval
    if expected_ns is None or high <= 0 or low == high:
        return saving(interval)
    if expected_ns <= 0:
        return f"no gain (up to {units.duration(high)})"
    return units.duration_within(expected_ns, low, high)


def where(places: Sequence[Place]) -> str:
    """The first place in full, and the number of others."""
    if not places:
        return ""
    others = f"; {units.things(len(places) - 1, 'more place')}" if len(places) > 1 else ""
    return _place(places[0]) + others


def _place(place: Place) -> str:
    parts = [name_of(short_name(place.op))] if place.op else []
    source = name_of(at_line(place.source) or place.source) if place.source else ""
    if place.module:
        parts.append(name_of(place.module) + (f" ({source})" if source else ""))
    elif source:
        parts.append(source)
    if place.count is not None:
        parts.append(units.a_step(place.count))
    return ", ".join(parts)


def other_findings(diagnosis: Diagnosis, page: Page, *, most: int, named: Collection[str] | None = None) -> list[Line]:
    """Findings without a prescription, or one sentence if nothing was found that costs time of the step.

    `named`: findings that may be referred to (None: all).
    """
    costly, free = _untreated(diagnosis)
    about = [f"{name_of(finding.code)} {name_of(finding.title)}" for finding in free]
    ranked = worth_doing(diagnosis)
    lines: list[Line] = []
    if not costly and not ranked:
        lines += page.wrapped(nothing_found(diagnosis), first=" ")
    beside = neighbours(diagnosis)
    if costly[:most]:
        head = "Also found" if ranked else "Found, but no remedy is predicted to save time"
        lines.append(spread([(f" {head}", "bold")], [(COSTS_HEADING, "dim")], page.width))
    for finding in costly[:most]:
        amount = units.duration_range(*finding.at_stake_ns)
        there = same_place(beside.get(finding.code, []), named)
        title = f"{name_of(finding.title)} ({there})" if there else name_of(finding.title)
        lines += titled("     ", name_of(finding.code), title, amount, page)
    lines += more((len(costly) - most, "finding"))
    lines += page.wrapped(f"{MEASUREMENT}: {'; '.join(about)}.", first=" ", rest="   ") if about else []
    return lines


def _untreated(diagnosis: Diagnosis) -> tuple[list[Finding], list[Finding]]:
    """The findings that no treatment mends: (those that cost time of the step, those that cost none)."""
    treated = {code for prescription in worth_doing(diagnosis) for code in prescription.mends}
    left = [finding for finding in diagnosis.findings if finding.code not in treated]
    return [finding for finding in left if finding.at_stake_ns[1] > 0], [
        finding for finding in left if finding.at_stake_ns[1] <= 0
    ]


def nothing_found(diagnosis: Diagnosis) -> str:
    """That nothing was found, what bounds the step, and how many conditions could not be checked."""
    text = f"Nothing to do was found: {_bound(diagnosis)}"
    unchecked = len(diagnosis.not_checked)
    return f"{text}. {units.things(unchecked, 'condition')} could not be checked." if unchecked else f"{text}."


def _bound(diagnosis: Diagnosis) -> str:
    """What bounds a step without findings."""
    for side, (what, less) in ROOF_WORDS.items():
        share = words.share(diagnosis, side)
        if share > BOUND_SHARE:
            return (
                f"{what} at the machine's roof takes {units.percent(share)} of the step; only {less} would shorten it"
            )
    most = largest(diagnosis.budget, cpu=diagnosis.device_model.on_host)
    known = "no condition that gobrrr knows explains that" if most else "no condition explains where its time goes"
    return f"{most}, and {known}" if most else known


def trials(diagnosis: Diagnosis, page: Page, *, most: int) -> list[Line]:
    """The trials: the measured savings beside the predicted ones."""
    if not diagnosis.trials:
        return []
    lines: list[Line] = [spread([(" Tried", "bold")], [("measured saving (predicted)", "dim")], page.width)]
    for trial in diagnosis.trials[:most]:
        lines.append(_trial(trial, page))
        lines += page.wrapped(sanitise(trial.why), first=TITLE_INDENT, style="dim") if trial.why else []
    return [*lines, *more((len(diagnosis.trials) - most, "trial"))]


_VERDICT_STYLES = {"helped": "green", "hurt": "red", "unsafe": "red"}


def _trial(trial: Trial, page: Page) -> Line:
    before, after, saved, predicted = tried(trial)
    change = f"{before} {page.glyphs.arrow} {after}" if trial.before_ns is not None else "not timed"
    left: Line = [("     ", ""), (name_of(trial.treatment), ""), (f"  {change}  ", "")]
    verdict = (words.VERDICTS.get(trial.verdict, trial.verdict), _VERDICT_STYLES.get(trial.verdict, ""))
    return spread([*left, verdict], [(f"{saved} ({predicted})", "")], page.width)


def tried(trial: Trial) -> tuple[str, str, str, str]:
    """The step before and after, the measured saving and the predicted one; "-" for what is not known."""
    predicted = "-" if trial.predicted_saving_ns is None else saving(trial.predicted_saving_ns)
    if trial.before_ns is None or trial.after_ns is None:
        return "-", "-", "-", predicted
    saved = "-" if trial.verdict == "inconclusive" else units.duration(trial.before_ns - trial.after_ns)
    return units.duration(trial.before_ns), units.duration(trial.after_ns), saved, predicted


def tail(unchecked: Iterable[NotChecked], notes: Sequence[str], page: Page, *, needs: int, most: int) -> list[Line]:
    """What failed, what could not be checked (at most `needs` groups by what it needs), and at most `most` notes."""
    lacking, failures = by_need(unchecked)
    lines, groups = told(failures, page), list(lacking.items())
    if groups[:needs]:
        text = page.joint.join(f"{', '.join(codes)}: needs {need}" for need, codes in groups[:needs])
        lines += page.wrapped(f"Not checked (codes: gobrrr explain): {text}", first=" ", rest="   ")
    for note in notes[:most]:
        lines += page.wrapped(sanitise(note), first=f" {page.glyphs.dot} ", style="dim")
    left = sum(len(codes) for _, codes in groups[needs:])
    return [*lines, *more((left, "unchecked condition"), (len(notes) - most, "note"))]


def by_need(items: Iterable[NotChecked]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """(the codes by what they need, the error of each part that failed)."""
    lacking: dict[str, list[str]] = {}
    failures: dict[str, str] = {}
    for item in items:
        needs, code = sanitise(item.needs), sanitise(item.code)
        if needs.startswith(f"{UNCHECKED}: "):
            failures[code] = needs
        else:
            lacking.setdefault(needs.removeprefix("needs "), []).append(code)
    return lacking, failures


def told(failures: Mapping[str, str], page: Page) -> list[Line]:
    """What failed in gobrrr itself."""
    return page.wrapped(failed(failures), first=" ", rest="   ", style="red") if failures else []


def failed(failures: Mapping[str, str]) -> str:
    """What failed in gobrrr itself, with the errors, and what to do. `failures`: as in `guarded.Parts`."""
    by_error: dict[str, list[str]] = {}
    for part, error in failures.items():
        by_error.setdefault(error.removeprefix(f"{UNCHECKED}: "), []).append(part)
    parts = "; ".join(f"{', '.join(names)} ({error})" for error, names in by_error.items())
    return f"Could not be checked: {parts}. {OUR_DEFECT}"
