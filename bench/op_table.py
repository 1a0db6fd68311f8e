"""From a profiler trace to a compact table of the calls that put work on the device, and back to `OpCall`s.

    python -m bench.op_table TRACE    # prints the table of a trace as JSON

One row a kind of call (same op, arguments and kernels):

    {"op": "aten::mm", "inputs": [["bfloat16", [64, 9]], ...], "calls": 12, "ns": 5400, "kernels": 1, "kernel": "nvjet"}

`ns` is the device time of one call (all its kernels; the median over the calls), `kernel` the name of the longest. An
input is [dtype, shape] for a contiguous tensor, [dtype, shape, strides] for another (strides null: not recorded),
{"list": [[times, tensor], ...]} for a list of tensors with runs of equals joined, and the text of any other argument.
"copied" (bytes of memcpy and memset) and "case" (the mark around the calls) stand where there are any.

The profiler records no element types of lists, and no list of more than 30 tensors: `list_calls` records them in a run
of the same step, and `table_of` adds them to what the trace says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr import read_trace
from gobrrr.analysis.events.intervals import union
from gobrrr.analysis.events.links import Links, link
from gobrrr.analysis.pricing.price import Priced, price_all
from gobrrr.cost import parse_inputs
from gobrrr.model.events import I8, EventKind, EventTable
from gobrrr.model.profile import Profile
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, TensorList

MOST_NAME = 80
MOST_IN_ORDER = 30
"""A list of more tensors than this is sorted, so that equals stand together (for its cost the order means nothing)."""

MARK = "case:"
"""Annotations that begin so name the case that the calls launched within them belong to."""

DROPPED, ANY = "dropped", "any"

INNER = {"aten::stack": ("aten::cat",)}
"""Ops that a device runs through others, which then own the kernels (with the same shapes in their list)."""

Row = dict[str, Any]
Lists = Mapping[str, Sequence[Sequence[Any]]]
"""An op's name -> the packed inputs of its calls, in order."""


@dataclass(frozen=True)
class Entry:
    """A row, loaded: `ns` of device time a call, `kernels` a call, how many `calls` of this kind."""

    call: OpCall
    ns: float
    kernels: int
    calls: int
    case: str | None = None


@dataclass(frozen=True)
class Table:
    """The rows of a trace, with the device's busy time (overlaps counted once) and its pieces of work."""

    rows: list[Row]
    busy_ns: int
    kernels: int


def table_of(target: str | os.PathLike[str] | Profile, lists: Mapping[str | None, Lists] | None = None) -> Table:
    """The table of a trace's first rank: rows by total time, the longest first.

    `lists`: what `list_calls` found, by case (None: no case); a case may have been recorded several times over.
    """
    profile = target if isinstance(target, Profile) else read_trace(target)
    events = profile.ranks[0].events
    links = link(events)
    priced = price_all(events, links, None)
    marks = Marks.of(events)
    inputs = _listed(events, marks, lists or {})
    kinds: dict[tuple[int, str | None, str], list[NDArray[np.int64]]] = {}
    for index in _calls(priced):
        row = int(links.op[index[0]])
        group, case = int(priced.group[index[0]]), marks.case(events, links, int(index[0]))
        given = inputs.get(row, "") if row >= 0 and events.name_of(row) == priced.groups[group].call.name else ""
        kinds.setdefault((group, case, given), []).append(index)
    rows = [_row(events, links, priced, *key, found) for key, found in kinds.items()]
    rows.sort(key=lambda row: -row["ns"] * row["calls"])
    start, stop = events.start_ns[links.device], events.end_ns[links.device]
    return Table(rows, union(start, stop).length if len(start) else 0, len(start))


def _calls(priced: Priced) -> list[NDArray[np.int64]]:
    """The device work of each call, as indices into `links.device`; work without an owner is a call of its own."""
    found: dict[int, list[int]] = {}
    for index, instance in enumerate(priced.instance.tolist()):
        found.setdefault(instance if instance >= 0 else -1 - index, []).append(index)
    return [np.array(index) for index in found.values()]


@dataclass(frozen=True)
class Marks:
    """The annotations that name cases, by begin (ns)."""

    begin: I8
    end: I8
    names: tuple[str, ...]

    @classmethod
    def of(cls, events: EventTable) -> Marks:
        """Those of a trace."""
        rows = [row for row in events.of(EventKind.ANNOTATION).tolist() if events.name_of(row).startswith(MARK)]
        names = tuple(events.name_of(row).removeprefix(MARK) for row in rows)
        return cls(events.start_ns[rows], events.end_ns[rows], names)

    def at(self, when: int) -> str | None:
        """The case at an instant."""
        index = int(np.searchsorted(self.begin, when, side="right")) - 1
        return self.names[index] if index >= 0 and when < self.end[index] else None

    def case(self, events: EventTable, links: Links, index: int) -> str | None:
        """The case of a piece of device work, by when it was launched."""
        launch = int(links.launch[index])
        return self.at(int(events.start_ns[launch if launch >= 0 else links.device[index]]))


def _listed(events: EventTable, marks: Marks, lists: Mapping[str | None, Lists]) -> dict[int, str]:
    """For ops with lists of tensors: the row -> its inputs as `list_calls` found them, as JSON.

    Calls in a case are matched by name and the first list's shapes where the trace has them, else by name. Where such
    calls differ (in element types, or in lists that the trace dropped), they are matched by their order, if the number
    of calls in the trace is a multiple of the number found.
    """
    wanted = {name for calls_of_case in lists.values() for name in calls_of_case}
    known: dict[tuple[str | None, str, str], list[str]] = {}
    for case, calls in lists.items():
        for name, found in calls.items():
            for call_inputs in found:
                for shapes in dict.fromkeys((_shapes(map(unpacked, call_inputs)), ANY)):
                    known.setdefault((case, name, shapes), []).append(json.dumps(call_inputs))
    rows: dict[tuple[str | None, str, str], list[int]] = {}
    for row in events.of(EventKind.OP).tolist() if wanted else ():
        name = events.name_of(row)
        if name in wanted:
            key = (marks.at(int(events.start_ns[row])), name, _shapes(_recorded(events, row)))
            rows.setdefault(key, []).append(row)
    result = {}
    for key, members in rows.items():
        texts = known.get(key) or known.get((*key[:2], ANY), [])
        if len(set(texts)) == 1 or (texts and len(members) % len(texts) == 0):
            for index, row in enumerate(members):
                other = [unpacked(text) for text in json.loads(texts[index % len(texts)])]
                both = zip_longest(_recorded(events, row), other, fillvalue=Scalar())
                result[row] = json.dumps([packed(_completed(*pair)) for pair in both])
    return result


def _completed(recorded: Argument, found: Argument) -> Argument:
    """What the trace recorded, with the list or the element types that it lacks."""
    if not isinstance(found, TensorList):
        return recorded
    if not isinstance(recorded, TensorList) or len(recorded.items) != len(found.items):
        return found
    return TensorList(
        tuple(
            Tensor(mine.shape, mine.dtype or other.dtype, mine.strides or other.strides)
            for mine, other in zip(recorded.items, found.items, strict=True)
        )
    )


def _recorded(events: EventTable, row: int) -> tuple[Argument, ...]:
    """An op's inputs as the trace has them."""
    columns = (events.dims, events.types, events.strides, events.concrete)
    dims, types, strides, concrete = (
        events.texts[int(column[row])] if column[row] >= 0 else None for column in columns
    )
    return parse_inputs(dims, types, strides, concrete)


def _shapes(inputs: Iterable[Argument]) -> str:
    """The shapes in the first list as text; `DROPPED` for a list so long that the profiler drops it, or none."""
    for argument in inputs:
        if isinstance(argument, TensorList):
            return str([item.shape for item in argument.items]) if 0 < len(argument.items) <= MOST_IN_ORDER else DROPPED
    return DROPPED


def list_calls(call: Callable[[], Any]) -> dict[str, list[list[Any]]]:
    """The packed inputs of the ops with lists of tensors that `call` runs, backward pass included, by name in order."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: dict[str, list[list[Any]]] = {}

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            schema = func._schema.arguments
            given = [
                args[i] if i < len(args) else kwargs.get(parameter.name, parameter.default_value)
                for i, parameter in enumerate(schema)
            ]
            if any(_is_list(argument) for argument in given):
                packs = [_taken(argument) for argument in given]
                for name in (func._schema.name, *INNER.get(func._schema.name, ())):
                    found.setdefault(name, []).append(packs)
            return func(*args, **kwargs)

    with Recorder():
        call()
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(hasattr(item, "stride") for item in value)


def _taken(value: Any) -> Any:
    """An argument of a running op, packed."""
    if hasattr(value, "stride"):
        return _tensor(_described(value))
    if not _is_list(value):
        return "" if value is None else str(value)
    items = [_described(item) for item in value]
    if len(items) > MOST_IN_ORDER:
        items.sort(key=lambda item: (item.shape, item.dtype, item.strides or ()))
    return packed(TensorList(tuple(items)))


def _described(value: Any) -> Tensor:
    shape = tuple(int(size) for size in value.shape)
    return Tensor(shape, str(value.dtype).removeprefix("torch."), tuple(value.stride()) or None)


def _row(
    events: EventTable,
    links: Links,
    priced: Priced,
    group: int,
    case: str | None,
    inputs: str,
    calls: Sequence[NDArray[np.int64]],
) -> Row:
    durations = events.duration_ns[links.device]
    longest = calls[0][int(np.argmax(durations[calls[0]]))]
    call = priced.groups[group].call
    row: Row = {
        "op": call.name,
        "inputs": json.loads(inputs) if inputs else [packed(argument) for argument in call.inputs],
        "calls": len(calls),
        "ns": int(np.median([durations[index].sum() for index in calls])),
        "kernels": len(calls[0]),
        "kernel": events.name_of(int(links.device[longest]))[:MOST_NAME],
    }
    if call.copied_bytes is not None:
        row["copied"] = call.copied_bytes
    if case is not None:
        row["case"] = case
    return row


def packed(value: Argument) -> Any:
    """An argument as JSON; see the top of the file."""
    if isinstance(value, Scalar):
        return value.text
    if isinstance(value, TensorList):
        return {"list": [[len(list(same)), _tensor(tensor)] for tensor, same in groupby(value.items)]}
    return _tensor(value)


def unpacked(value: Any) -> Argument:
    """The argument that `packed` wrote."""
    if isinstance(value, str):
        return Scalar(value)
    if isinstance(value, dict):
        return TensorList(tuple(_loaded(tensor) for times, tensor in value["list"] for _ in range(times)))
    return _loaded(value)


def _tensor(value: Tensor) -> list[Any]:
    short = [value.dtype, list(value.shape)]
    if value.strides == contiguous(value.shape):
        return short
    return [*short, None if value.strides is None else list(value.strides)]


def _loaded(value: list[Any]) -> Tensor:
    shape = tuple(value[1])
    if len(value) == 2:
        return Tensor(shape, value[0], contiguous(shape))
    return Tensor(shape, value[0], None if value[2] is None else tuple(value[2]))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Row-major strides as torch gives them; None for a scalar, whose strides are not recorded."""
    result, step = [], 1
    for size in reversed(shape):
        result.append(step)
        step *= max(size, 1)
    return tuple(reversed(result)) or None


def load(rows: Sequence[Row]) -> list[Entry]:
    """The rows as calls. `kernels` of a call holds the longest kernel's name alone."""
    return [
        Entry(
            call=OpCall(
                name=row["op"],
                inputs=tuple(unpacked(argument) for argument in row["inputs"]),
                kernels=(row["kernel"],),
                copied_bytes=row.get("copied"),
            ),
            ns=float(row["ns"]),
            kernels=row["kernels"],
            calls=row["calls"],
            case=row.get("case"),
        )
        for row in rows
    ]


def dumps(record: dict[str, Any]) -> str:
    """JSON with one row of a table a line, so that files stay small and differences can be read."""
    return _dump(record, 0) + "\n"


def _dump(value: Any, depth: int) -> str:
    if isinstance(value, dict) and depth < 4 and "op" not in value:
        inner = [f"{json.dumps(key)}: {_dump(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner) + "\n}" if inner else "{}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in value) + "\n]"
    return json.dumps(value)


def main() -> None:
    """Print the table of the trace that the first argument names."""
    table = table_of(sys.argv[1])
    print(dumps({"busy_ns": table.busy_ns, "kernels": table.kernels, "ops": table.rows}), end="")


if __name__ == "__main__":
    main()
