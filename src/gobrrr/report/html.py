"""The diagnosis as one HTML file that needs no network: the page's parts, its style, its script and the chart library.

It reads the Diagnosis alone, so a saved one gives the same page. It shows no more of the trace's path than the file's
name.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from functools import partial
from importlib.resources import files

from gobrrr.guarded import GuardedParts
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.report import json, terminal, words
from gobrrr.report.advice import failed, worth_doing
from gobrrr.report.page import (
    advice,
    charts,
    flame,
    held,
    live,
    machine,
    machines,
    modules,
    tables,
    totals,
    verdict,
    what_if,
)
from gobrrr.report.page.data import as_script, page_data
from gobrrr.report.page.links import Link, link
from gobrrr.report.page.machines import own
from gobrrr.report.page.markup import Markup, el, join
from gobrrr.system.files import write

ASSETS = files("gobrrr.report") / "assets"
SCRIPTS = ("units", "page", "budget", "roofline", "timeline", "tables", "modules", "main")
"""The page's own scripts in the order in which they are joined."""


def render(diagnosis: Diagnosis) -> str:
    """The whole page as text. Raises ValueError if the record has no JSON form."""
    diagnosis = json.decode(json.to_json(diagnosis))  # so that a saved record gives the same page, to the byte
    parts = GuardedParts()
    links = [
        parts.make("links of findings", partial(link, diagnosis, finding), Link()) for finding in diagnosis.findings
    ]
    data = parts.make("charts", lambda: as_script(page_data(diagnosis, links)), "")
    scripts = [_asset("echarts/echarts.min.js"), _script(diagnosis)] if data else []
    sections = _sections(diagnosis, links, parts)
    failing = el("p", failed(parts.failed)) if parts.failed else None
    body = join(
        [
            _top(diagnosis),
            el("main", failing, sections, id="main", tabindex="-1"),
            machine.footer(diagnosis),
            el("div", id="selection", role="status", aria_live="polite"),
            Markup(f'<script type="application/json" id="data">{data}</script>'),
            *(Markup(f"<script>{script}</script>") for script in scripts),
        ]
    )
    how = " (predicted)" if verdict.predicted(diagnosis) else ""
    title = f"{words.headline(diagnosis)}{how}: {terminal.basename(diagnosis.target)}"
    head = _head(title, _style(diagnosis), scripts)
    return f'<!doctype html>\n<html lang="en">{head}{el("body", body)}</html>\n'


def save(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, atomically. Raises UsageError if it can't be written."""
    write(path, render(diagnosis).encode("utf-8"))


def _head(title: str, style: str, scripts: list[str]) -> Markup:
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return el(
        "head",
        el("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href="data:,"),
        el("title", title),
        Markup(f"<style>{style}</style>"),
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _style(diagnosis: Diagnosis) -> str:
    """The page's style, with those of the panels that it has."""
    return "".join([_asset("page.css"), own("totals.css"), *(own(f"{name}.css") for name in _panels(diagnosis))])


def _script(diagnosis: Diagnosis) -> str:
    """The page's scripts, with those of the panels that it has."""
    parts = "\n".join(
        [*(_asset(f"{name}.js") for name in SCRIPTS), *(own(f"{name}.js") for name in _panels(diagnosis))]
    )
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def _panels(diagnosis: Diagnosis) -> list[str]:
    """The panels of this page that have a style and a script of their own."""
    filled = {
        "flame": flame.has_places(diagnosis),
        "machines": diagnosis.machines,
        "what_if": what_if.offers(diagnosis),
    }
    return [name for name, has in filled.items() if has]


NAVIGATION = (
    ("budget", "Budget"),
    ("machines", "Machines"),
    ("todo", "What to do"),
    ("what-if", "What if"),
    ("findings", "Findings"),
    ("roofline", "Roofline"),
    ("timeline", "Timeline"),
    ("flame", "Flame graph"),
    ("totals", "Totals"),
    ("live", "Run"),
    ("modules", "Modules"),
    ("ops", "Operations"),
    ("kernels", "Kernels"),
    ("unchecked", "Not checked"),
    ("machine", "Machine"),
)
"""(id of the section, its name in the navigation), in the order of the page."""


def _top(diagnosis: Diagnosis) -> Markup:
    absent = {"todo"} if not worth_doing(diagnosis) else set()
    absent |= {"kernels"} if not diagnosis.kernels else set()
    absent |= {"live"} if diagnosis.times is None else set()
    absent |= {"machines"} if not diagnosis.machines else set()
    absent |= {"what-if"} if not what_if.offers(diagnosis) else set()
    names = {
        **dict(NAVIGATION),
        **({"machine": "Versions"} if diagnosis.machines else {}),
    }  # "Machines" and "Machine" would be mistaken
    absent |= {"flame"} if not flame.has_places(diagnosis) else set()
    links = [el("a", name, href=f"#{target}") for target, name in names.items() if target not in absent]
    theme = el("button", "Theme: auto", type="button", id="theme", class_="needs-script")
    return join(
        [
            el("a", "Skip to the answer", href="#main", class_="skip"),
            el(
                "header",
                el(
                    "div",
                    el("a", "gobrrr", href="#main", class_="brand"),
                    el("nav", links, aria_label="Sections"),
                    theme,
                ),
                class_="top",
            ),
        ]
    )


def _sections(diagnosis: Diagnosis, links: list[Link], parts: GuardedParts) -> Markup:
    made: dict[str, Callable[[Diagnosis], Markup | None]] = {
        "verdict": verdict.verdict,
        "held by": held.section_of,
        "budget": verdict.step_budget,
        "machines": machines.machines,
        "what to do": advice.what_to_do,
        "what if": what_if.panel,
        "findings": partial(advice.findings, links=links),
        "trials": advice.tried,
        "roofline": charts.roofline,
        "timeline": charts.timeline,
        "flame graph": flame.flame,
        "totals": totals.totals,
        "run": live.run,
        "modules": modules.modules,
        "operations": tables.ops,
        "kernels": tables.kernels,
        "not checked": machine.not_checked,
        "notes": machine.notes,
        "machine": machine.machine,
    }
    return join(parts.make(name, partial(section, diagnosis), None) for name, section in made.items())
