"""The data of the charts, as JSON that is safe inside a page."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from gobrrr.model.diagnosis import Diagnosis, OpRow, Timeline
from gobrrr.model.places import Kind
from gobrrr.report import budget, words
from gobrrr.report.page.charts import host_kind
from gobrrr.report.page.flame import flame_data, has_places
from gobrrr.report.page.links import Link
from gobrrr.report.page.machine import ceiling
from gobrrr.report.page.machines import machines_data
from gobrrr.report.page.modules import label
from gobrrr.report.page.tables import OP_NAME_CHARACTERS, kernels_of
from gobrrr.report.page.verdict import CAUSE_COLOURS, row_colour
from gobrrr.report.page.what_if import offers, what_if_data
from gobrrr.report.text import sanitise, short_name, shorten

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script element or break a parser -> their escapes."""


def as_script(value: Any) -> str:
    """JSON that can't end the script element that holds it."""
    text = msgspec.json.encode(value).decode("utf-8")
    for sign, escaped in _UNSAFE.items():
        text = text.replace(sign, escaped)
    return text


def page_data(diagnosis: Diagnosis, links: list[Link]) -> dict[str, Any]:
    """The data that the script reads, with cleaned texts. Unknown is null."""
    names = _Names()
    found = {
        "step_ns": diagnosis.unprofiled_wall_ns.value or diagnosis.wall_ns,
        "budget": _budget(diagnosis),
        "ops": [_op(row, launched, names) for row, launched in zip(diagnosis.ops, kernels_of(diagnosis), strict=True)],
        "kernels": [
            {"name": names(row.name), "calls": row.calls, "ns": row.ns, "each": _ratio(row.ns, row.calls),
             "ops": row.ops}
            for row in diagnosis.kernels
        ],
        "modules": [{"name": sanitise(label(row)), "ns": row.ns, "ops": row.ops} for row in diagnosis.modules],
        "roofs": [
            {"name": sanitise(roof.name), "kind": roof.kind, "value": roof.value, "text": ceiling(roof),
             "provenance": sanitise(roof.provenance)}
            for roof in diagnosis.roofs
        ],
        "findings": [
            {"name": sanitise(f"{finding.code} {finding.title}"), "ops": link.ops, "causes": link.causes,
             "kinds": link.kinds}
            for finding, link in zip(diagnosis.findings, links, strict=True)
        ],
        "timeline": _timeline(diagnosis.timeline, has_places(diagnosis)) if diagnosis.timeline else None,
        "names": names.texts,
    }  # fmt: skip
    found |= {"flame": flame_data(diagnosis, names)} if has_places(diagnosis) else {}
    found |= {"machines": machines_data(diagnosis)} if diagnosis.machines else {}
    return found | ({"what_if": what_if_data(diagnosis)} if offers(diagnosis) else {})


class _Names:
    """A table of long names, each once; called with a name, it returns its index."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = len(self.texts)
            self.texts.append(sanitise(name))
        return self._places[name]


def _budget(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{words.BUDGET_GROUPS.get(row.kind, row.kind)}, {row.label}",
            "colour": row_colour(row, index),
            "ns": row.ns,
            "share": row.share,
        }
        for index, row in enumerate(budget.rows(diagnosis.budget))
    ]


def _op(row: OpRow, launched: list[str], names: _Names) -> dict[str, Any]:
    return {
        "name": shorten(short_name(row.op), OP_NAME_CHARACTERS),
        "full": names(row.op),
        "shapes": sanitise(row.shapes),
        "family": sanitise(row.family),
        "module": sanitise(row.module) if row.module else None,
        "calls": row.calls,
        "ns": row.ns,
        "floor": row.floor_ns,
        "reach": _ratio(row.floor_ns, row.ns),
        "bound": sanitise(row.bound) if row.bound else None,
        "flop": row.flop,
        "bytes": row.bytes,
        "flop_s": _ratio(row.flop, row.ns, 1e9),
        "byte_s": _ratio(row.bytes, row.ns, 1e9),
        "roof": sanitise(row.roof) if row.roof else None,
        "kernels": [names(name) for name in launched],
        "note": sanitise(row.note),
    }


def _ratio(part: float | None, whole: float, scale: float = 1.0) -> float | None:
    return part / whole * scale if part is not None and whole > 0 else None


def _timeline(line: Timeline, placed: bool) -> dict[str, Any]:
    """The columns of the timeline, starts as differences to keep them short. `placed`: whether the page has places."""
    causes = [words.cause(name) for name in line.causes]
    return {
        "device": line.device,
        "length": line.length_ns,
        "streams": line.streams,
        "kinds": line.kinds,
        "causes": [{"key": key, "name": name, "colour": CAUSE_COLOURS.get(name, "unexplained")}
                   for key, name in zip(line.causes, causes, strict=True)],
        "start": _differences(line.start_ns),
        "duration": line.duration_ns,
        "stream": line.stream,
        "op": line.op,
        "kind": line.kind,
        "gap_start": _differences(line.gap_start_ns),
        "gap_duration": line.gap_duration_ns,
        "gap_cause": line.gap_cause,
        "left_out": line.left_out,
        "host": [
            {"start": _differences(track.start_ns), "duration": track.duration_ns, "place": track.place,
             "depth": track.depth}
            for track in line.host if placed
        ],
        "host_colours": {kind: host_kind(kind)[0] for kind in get_args(Kind)},
    }  # fmt: skip


def _differences(values: list[int]) -> list[int]:
    return [value - before for value, before in zip(values, [0, *values], strict=False)]
