"""Builds all HTML of the page: text that is not Markup is cleaned and escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from gobrrr.report.text import sanitise

VOID = frozenset({"meta", "link", "br", "hr", "input", "col"})
"""Elements without children and end tag."""


class Markup(str):
    """Text that is HTML already; other text is escaped when it enters an element."""

    __slots__ = ()


Child = str | None | Iterable["Child"]
Attribute = str | int | float | bool | None


def text(value: str) -> Markup:
    """Text as HTML: control and bidirectional characters replaced, markup escaped."""
    clean = sanitise(value)
    before, after = (" " if side.isspace() else "" for side in (value[:1], value[-1:]))
    return Markup(html.escape(f"{before}{clean}{after}" if clean else before, quote=True))


def el(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` becomes class, `data_i` data-i; attributes that are None or False are left out."""
    head = "".join([f"<{tag}", *(_attribute(key, value) for key, value in attributes.items()), ">"])
    if tag in VOID:
        return Markup(head)
    return Markup(f"{head}{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Markup:
    """The children one after the other."""
    return Markup("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return text(child)
    return join(child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


def section(name: str, title: str, *children: Child, lead: Child = None) -> Markup:
    """A section of the page with its heading; `lead` is the text under it."""
    head = el("h2", title, id=f"{name}-title")
    under = el("p", lead, class_="lead") if lead else None
    return el("section", head, under, *children, id=name, aria_labelledby=f"{name}-title")


def folded(name: str, title: str, told: str, *children: Child, lead: Child = None, opened: bool = False) -> Markup:
    """A section that is closed at first, unless `opened`; `told` is the text beside its heading."""
    head = el("summary", el("h2", title, id=f"{name}-title"), el("span", told, class_="sub") if told else None)
    under = el("p", lead, class_="lead") if lead else None
    body = el("details", head, under, *children, class_="folded", open=opened)
    return el("section", body, id=name, aria_labelledby=f"{name}-title")


def code(value: str, *, short: str | None = None) -> Markup:
    """A name in the code font; `short` is shown in its place, with the whole name on hover."""
    return el("code", value if short is None else short, title=value if short not in (None, value) else None)


def bar(share: float, colour: str, *, low: float | None = None) -> Markup:
    """A bar of `share` (0 to 1) of its track, hatched from `low` to `share` if there is an interval."""
    share = min(max(share, 0.0), 1.0)
    sure = share if low is None else min(max(low, 0.0), share)
    parts = [el("i", class_=f"c-{colour}", style=f"width:{100 * sure:.2f}%")]
    if low is not None and share > sure:
        parts.append(el("i", class_=f"c-{colour} maybe", style=f"width:{100 * (share - sure):.2f}%"))
    return el("span", *parts, class_="bar", aria_hidden="true")
