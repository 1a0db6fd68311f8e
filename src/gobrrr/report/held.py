"""What holds the step: up to three places of the program with most of its time, and what each does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gobrrr import units
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.places import PlaceNode
from gobrrr.report.doing import bare, does, own
from gobrrr.report.layout import Line, Page, length
from gobrrr.report.text import name_of, sanitise
from gobrrr.report.tree import SOURCE_PATTERN, PlaceTree, at_line

MOST_HELD = 3
"""Places that are shown; chosen."""

LEAST_HELD_SHARE = 0.05
"""A further place below this share of the step is not shown; chosen."""

SAME_LINE_SHARE = 0.9
"""A place with at least this share of its line is shown as the line; chosen."""

HELD_LABEL = " held by  "
"""What stands before the first place."""


@dataclass(frozen=True)
class HoldingPlace:
    """One place as it is shown. `where`: "train.py:28", or "" if it is not known; `what`: the line's text, the function
    or the operation; `does`: what it does, in words."""

    id: int
    where: str
    what: str
    share: float
    does: str


def held(diagnosis: Diagnosis) -> list[HoldingPlace]:
    """The places with most of the step, largest first; empty if no places are known."""
    if diagnosis.held_by is None or not diagnosis.places or diagnosis.places[0].step_ns <= 0:
        return []
    tree, cpu = PlaceTree(diagnosis.places), diagnosis.device_model.on_host
    first = tree.lifted(diagnosis.places[diagnosis.held_by], SAME_LINE_SHARE)
    split = first.kind == "program" or tree.has_lines(first)
    places = _one_a_line(tree, [*([] if split else [first]), *_beside(tree, first, within=split)])
    others = [_of_place(tree, place, cpu=cpu) for place in places]
    shown = [] if split else [others.pop(0)]
    whole = first if split or first.parent is None else diagnosis.places[first.parent]
    if (split or first.kind == "op") and (rest := _of_rest(tree, whole)) is not None:
        others.append(rest)
    others.sort(key=lambda other: -other.share)
    shown += [other for other in others if other.share >= LEAST_HELD_SHARE]
    return shown[:MOST_HELD] or [_of_place(tree, first, cpu=cpu)]


def without_frames(diagnosis: Diagnosis) -> str:
    """Why no source lines are shown, and how to get them; "" if they are."""
    if not diagnosis.places or diagnosis.origin == "static" or any(place.source for place in diagnosis.places):
        return ""
    if diagnosis.origin == "trace":
        return "no Python frames: with_stack=True adds functions, gobrrr run lines"
    return "no Python frames were recorded"


def lines(diagnosis: Diagnosis, page: Page, *, most: int = MOST_HELD) -> list[Line]:
    """The places on the terminal: the share, the position, the code there, and what it does."""
    result: list[Line] = []
    for place in held(diagnosis)[:most]:
        result += _entry(place, HELD_LABEL if not result else " " * len(HELD_LABEL), page)
    missing = without_frames(diagnosis)
    if result and missing:
        result += page.wrapped(f"({missing})", first=" " * len(HELD_LABEL), style="dim")
    return result


def _entry(place: HoldingPlace, label: str, page: Page) -> list[Line]:
    lead = f"{label}{units.percent(place.share):>6}  "
    what = f"{place.where}  {name_of(place.what)}" if place.where else name_of(place.what)
    whole: Line = [(lead, ""), (what, "bold"), (f"  {place.does}", "")]
    if length(whole) <= page.width:
        return [whole]
    indent = " " * len(lead)
    return [
        *page.wrapped(what, first=lead, rest=indent, style="bold"),
        *page.wrapped(place.does, first=indent, rest=f"{indent}  "),
    ]


def _beside(tree: PlaceTree, first: PlaceNode, *, within: bool) -> Iterator[PlaceNode]:
    """Other places: those around the first one, and those in it if it is split."""
    inner = first
    for around in tree.path(first):
        for node in tree.below(around):
            if node.kind != "kernel" and node.id != inner.id and (around.id != first.id or within):
                yield tree.told(node, SAME_LINE_SHARE)
        inner = around


def _one_a_line(tree: PlaceTree, places: list[PlaceNode]) -> list[PlaceNode]:
    """The places, with those on the same line replaced by the line."""
    lines = [line if (line := tree.of_line(place)) is not None else place for place in places]
    several = Counter(line.id for line in lines)
    return list(
        {node.id: node for node in (b if several[b.id] > 1 else a for a, b in zip(places, lines, strict=True))}.values()
    )


def _of_place(tree: PlaceTree, node: PlaceNode, *, cpu: bool) -> HoldingPlace:
    where, what = _named(tree, node)
    doing = does(tree, node, cpu=cpu)
    line = tree.of_line(node)
    if line is not None and line.id != node.id and line.name != line.source:  # the text of the line says more
        what, doing = sanitise(line.name), f"{what}: {doing}"
    return HoldingPlace(node.id, where, what, tree.share(node.step_ns), doing)


def _of_rest(tree: PlaceTree, node: PlaceNode) -> HoldingPlace | None:
    """The place's own time, apart from the places within it that are shown."""
    if not node.own_ns:
        return None
    where, what = _named(tree, node)
    name = "outside any operation" if node.kind == "program" else f"elsewhere in {what}"
    return HoldingPlace(node.id, where, name, tree.share(node.own_ns), own(tree, node))


def _named(tree: PlaceTree, node: PlaceNode) -> tuple[str, str]:
    """(its position, the code there)."""
    source = SOURCE_PATTERN.fullmatch(node.source or "")
    where = at_line(node.source)
    if node.kind == "function" and source:
        return sanitise(where), f"{sanitise(source['function'])}()"
    if node.kind == "line" and source and node.name == node.source:
        return sanitise(where), f"in {sanitise(source['function'])}()"
    if where and not tree.of_line(node):  # the source is where the function around it begins
        return "", f"{bare(node)} in {sanitise(source['function'])}() ({sanitise(where)})" if source else bare(node)
    return sanitise(where), bare(node)
