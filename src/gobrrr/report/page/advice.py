"""The page's cards: what to do and the findings, with their evidence; and the table of trials."""

from __future__ import annotations

from collections.abc import Mapping

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis, Finding, Interval, Place, Prescription, Trial
from gobrrr.report import advice, words
from gobrrr.report.neighbours import SAME_PLACE, neighbours
from gobrrr.report.page.links import Link
from gobrrr.report.page.markup import Markup, bar, code, el, join, section
from gobrrr.report.pasted import folded
from gobrrr.report.text import clean_lines, sanitise, short_name

CARD_CODE_CHARACTERS = 34
"""Characters of code that fit a line of a card on a screen 1,280 px wide."""

FINDINGS_LEAD = (
    "Sorted by cost; no time is counted twice. A treatment above may save more than a finding costs, if it mends "
    "several, or less, if the step then waits for something else."
)
"""The introduction to the findings."""


def what_to_do(diagnosis: Diagnosis) -> Markup | None:
    """The treatments, sorted by predicted saving."""
    ranked = advice.worth_doing(diagnosis)
    if not ranked:
        return None
    by_code = {finding.code: finding for finding in diagnosis.findings}
    step = diagnosis.unprofiled_wall_ns.value or diagnosis.wall_ns
    cards = [_prescription(item, by_code, step) for item in ranked]
    lead = (
        "Sorted by the expected saving of each treatment alone; savings do not add up. On measured workloads, three of "
        "four savings lay within such an interval: its low end is the solid part of a bar, its high end the hatched "
        "part. A full bar is the step."
    )
    return section("todo", "What to do", el("ol", cards, class_="cards"), lead=lead)


def _prescription(item: Prescription, by_code: Mapping[str, Finding], step: float | None) -> Markup:
    low, high = item.predicted_saving_ns
    saves = advice.amount(item, by_code.get(item.finding))
    track = bar(high / step, "saving", low=low / step) if step else None
    return el(
        "li",
        el("h3", item.treatment),
        _mends(item, by_code),
        el("p", el("b", saves), el("span", _of_step(item, step)), class_="saves"),
        track,
        _code(item.how),
        el("p", "Assumes: ", item.assumes, class_="sub") if item.assumes else None,
        class_="card",
    )


def _mends(item: Prescription, by_code: Mapping[str, Finding]) -> Markup:
    """The findings that a treatment mends; if there are several, each with the saving on it alone."""
    mended = advice.mended(item)
    links = [el("a", advice.named(code, by_code), href=f"#finding-{sanitise(code)}") for code, _ in mended]
    if len(links) == 1:
        return el("p", "for ", links[0], class_="sub")
    rows = [el("li", link, advice.alone(ns, ", {} alone")) for link, (_, ns) in zip(links, mended, strict=True)]
    return join([el("p", "for all of these together:", class_="sub"), el("ul", rows, class_="plain sub")])


def _of_step(item: Prescription, step: float | None) -> str:
    low, high = item.predicted_saving_ns
    if not step or high <= 0:
        return ""
    shares = [units.percent(low / step), units.percent(high / step)]
    text = shares[0] if shares[0] == shares[1] else f"{shares[0].removesuffix(' %')} to {shares[1]}"
    share = "" if item.expected_ns is None else f"{units.percent(item.expected_ns / step)} of the step expected, "
    return f" less; {share}{text}"


def _code(how: str) -> Markup:
    lines = [part for line in clean_lines(how) for part in folded(line, CARD_CODE_CHARACTERS)]
    return el("pre", el("code", join(el("span", line, Markup("\n")) for line in lines)), tabindex="0")


def findings(diagnosis: Diagnosis, links: list[Link]) -> Markup:
    """Every finding with its evidence and its places."""
    if not diagnosis.findings:
        return section("findings", "Findings", el("p", advice.nothing_found(diagnosis), class_="empty"))
    beside = neighbours(diagnosis)
    cards = [
        _finding(item, link, index, beside.get(item.code, []))
        for index, (item, link) in enumerate(zip(diagnosis.findings, links, strict=True))
    ]
    return section("findings", "Findings", el("ol", cards, class_="cards"), lead=FINDINGS_LEAD)


def _finding(item: Finding, link: Link, index: int, beside: list[Finding]) -> Markup:
    show = el("button", "Show where", type="button", class_="show", data_finding=index) if link else None
    return el(
        "li",
        el("h3", el("span", item.code, class_="code"), " ", item.title),
        el("p", *_cost(item.at_stake_ns), f"{item.certainty} certainty", class_="saves"),
        el("ul", [el("li", fact) for fact in item.evidence], class_="plain") if item.evidence else None,
        _places(item.where),
        _neighbours(beside),
        el("p", show, el("span", f"gobrrr explain {sanitise(item.code)}", class_="hint"), class_="actions"),
        class_="card",
        id=f"finding-{sanitise(item.code)}",
    )


def _neighbours(beside: list[Finding]) -> Markup | None:
    """The other findings at the same place."""
    if not beside:
        return None
    links = [
        el("a", f"{finding.code} {finding.title}", href=f"#finding-{sanitise(finding.code)}") for finding in beside
    ]
    return el(
        "p",
        f"{SAME_PLACE} ",
        join(part for at, link in enumerate(links) for part in (", " if at else "", link)),
        class_="sub",
    )


def _cost(interval: Interval) -> tuple[Markup | str, ...]:
    if interval[1] <= 0:
        return ("about the measurement, costs the program nothing, ",)
    return "costs ", el("b", units.duration_range(*interval)), " of a step, "


def _places(where: list[Place]) -> Markup | None:
    """The first place; the others can be unfolded."""
    if not where:
        return None
    first, *others = [_place(place) for place in where]
    rest = (
        el("details", el("summary", units.things(len(others), "more place")), el("ul", others, class_="places"))
        if others
        else None
    )
    return join([el("ul", first, class_="places"), *([rest] if rest is not None else [])])


def _place(place: Place) -> Markup:
    amounts = []
    if place.count is not None:
        amounts.append(units.a_step(place.count))
    if place.ns is not None:
        amounts.append(units.duration(place.ns))
    name = code(place.op, short=short_name(place.op)) if place.op else None
    where = [el("span", part, class_="sub") for part in (place.shapes, place.module, place.source) if part]
    return el("li", name, el("span", ", ".join(amounts), class_="amount"), where)


def tried(diagnosis: Diagnosis) -> Markup | None:
    """The trials: measured savings beside predicted ones."""
    if not diagnosis.trials:
        return None
    heads = [el("th", name, scope="col") for name in ("treatment", "before", "after", "saved", "predicted", "verdict")]
    rows = [_trial(item) for item in diagnosis.trials]
    table = el("table", el("thead", el("tr", heads)), el("tbody", rows))
    return section("trials", "Tried and measured", el("div", table, class_="scroll", tabindex="0"))


def _trial(item: Trial) -> Markup:
    numbers = [el("td", cell, class_="n") for cell in advice.tried(item)]
    verdict = words.VERDICTS.get(item.verdict, item.verdict)
    why = el("span", item.why, class_="sub") if item.why else None
    return el("tr", el("th", item.treatment, scope="row"), numbers, el("td", verdict, why))
