"""What a place of the step does, in words: the largest parts of its time, with details where they are known."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from gobrrr import units
from gobrrr.model.places import PlaceNode
from gobrrr.report.text import sanitise, short_name
from gobrrr.report.tree import PlaceTree, at_line

SECOND_CAUSE_SHARE = 0.25
"""From this share of the place on, a second cause is named; chosen."""

CAUSE_MAJORITY = 0.5
"""A function with more than this share of a cause is named for it."""

LEAST_OP_SHARE = 0.1
MOST_NAMED_OPS = 3
"""At most this many operations of a function are named, each with at least this share of it; chosen."""

DEVICE_CAUSE = "device"
"""The key of the device's time among the causes of a place."""

_BUILT_IN = re.compile(r"<built-in (?:method|function) (?P<name>[^ >]+)")
_FRAME = re.compile(r"(?P<file>[^<>()]+\.py)\(\d+\): (?P<function>.+)", re.DOTALL)
"""How the profiler writes built-in functions and Python frames."""

FUNCTION_WORDS = (
    (r"tensor|as_tensor|asarray|array|stack|fromiter|vstack|hstack", "builds tensors or arrays from Python objects"),
    (r"sleep", "sleeps"),
    (r"wait|acquire|select|poll|join|recv|recv_into|recv_bytes|accept|get|_wait_for_tstate_lock|waitpid",
     "waits for another thread, process or connection"),
    (r"read|readinto|readline|readlines|load|open|recvfrom", "reads a file or a pipe"),
    (r"write|writelines|flush|fsync|print|send|sendall|dump|save", "writes a file, a pipe or the terminal"),
    (r"deepcopy|copy", "copies objects"),
    (r"item|tolist|numpy|cpu", "takes values out of tensors"),
    (r"collect", "collects garbage"),
)  # fmt: skip
"""(pattern of names, what such functions do). A function that matches none is called by its name."""

READING_OPS = ("aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal")
"""Operations whose result the host waits for."""


def does(tree: PlaceTree, node: PlaceNode, *, cpu: bool) -> str:
    """What the place does, with all places within it. `cpu`: whether operations run on the host's processor."""
    if node.kind == "input":
        return _prepares(tree, node, cpu=cpu)
    text = _causes(tree, node, node.device_ns, node.host_ns, node.step_ns, cpu=cpu)
    if node.backward_ns >= SECOND_CAUSE_SHARE * node.step_ns:
        joint = ", " if node.device_ns > CAUSE_MAJORITY * node.step_ns and "; " in text else "; "
        text += f"{joint}backward {units.percent(tree.share(node.backward_ns))}"
    if node.kind in ("line", "call"):
        text += _called_back(tree, node)
    if node.kind in ("function", "module"):
        text += made_of(tree, node, text)
    return text


def _called_back(tree: PlaceTree, node: PlaceNode) -> str:
    """The function of the program with most of a place, if a library calls it there: a hook of the backward pass."""
    calls = [node] if node.kind == "call" else list(tree.outermost(node, "call"))
    functions = [function for call in calls for function in tree.outermost(call, "function")]
    largest = max(functions, key=lambda function: function.step_ns, default=node)
    if largest is node or largest.step_ns < SECOND_CAUSE_SHARE * node.step_ns:
        return ""
    name, source = sanitise(called(largest)), sanitise(at_line(largest.source))
    return f"; {units.percent(tree.share(largest.step_ns))} in {name}(), {source}, which it calls"


def _prepares(tree: PlaceTree, node: PlaceNode, *, cpu: bool) -> str:
    """Who waits for the input, and the largest parts of preparing it."""
    inner = sorted(tree.below(node), key=lambda each: -each.step_ns)[:MOST_NAMED_OPS]
    names = ", ".join(bare(each) for each in inner)
    made = f"; {names} and what is between them" if names else ""
    return f"the {'step' if cpu else 'device'} waits for it{made}"


def own(tree: PlaceTree, node: PlaceNode) -> str:
    """What the place does apart from the places within it."""
    host: dict[str, float] = dict(node.host_ns)
    for inner in tree.below(node):
        for cause, ns in inner.host_ns.items():
            host[cause] = host.get(cause, 0) - ns
    rest = node.device_ns - sum(inner.device_ns for inner in tree.below(node))
    return _told(
        {DEVICE_CAUSE: rest, **host}, node.own_ns, {DEVICE_CAUSE: "device work", "launching": "launches"}, tree
    )


def _causes(
    tree: PlaceTree, node: PlaceNode, device: float, host: Mapping[str, float], whole: float, *, cpu: bool
) -> str:
    amounts = {DEVICE_CAUSE: device, **host}
    words = {
        DEVICE_CAUSE: _computes(tree, node, cpu=cpu),
        "launching": _launches(tree, node, host.get("launching", 0), cpu=cpu),
        "python": _python(tree, node),
        "sync_drain": _waits(tree, node),
        "host_compute": _host_computes(tree, node),
    }
    return _told(amounts, whole, words, tree)


def _told(amounts: Mapping[str, float], whole: float, words: Mapping[str, str], tree: PlaceTree) -> str:
    """The largest of the amounts in words, and the second if it is large."""
    ranked = sorted(amounts.items(), key=lambda item: -item[1])
    texts = {**CAUSE_WORDS, **words}
    if len(ranked) > 1 and ranked[1][1] >= SECOND_CAUSE_SHARE * whole:
        return "; ".join(f"{texts.get(cause, cause)} ({units.percent(tree.share(ns))})" for cause, ns in ranked[:2])
    return texts.get(ranked[0][0], ranked[0][0])


CAUSE_WORDS = {
    "python": "Python between operations",
    "sync_drain": "the host waits for the device",
    "input": "waits for input data",
    "allocator": "waits for the allocator",
    "gc": "collects garbage",
    "compile": "compiles",
    "host_compute": "computes on the host",
    "unexplained": "no host event was recorded meanwhile",
}
"""Causes of which no details are known -> what the place does."""


def bare(node: PlaceNode) -> str:
    """The name of a place without the profiler's decoration."""
    if found := _BUILT_IN.match(node.name):
        return f"{sanitise(found['name'])}()"
    if node.kind == "call" and (found := _FRAME.fullmatch(node.name)):
        return f"{sanitise(found['function'])}() of {sanitise(found['file'])}"
    if node.kind == "line":
        return sanitise(node.name)
    if node.kind == "module":
        return f"module {sanitise(node.name)}"
    return short_name(node.name)


def called(node: PlaceNode) -> str:
    """The name of a function alone; "" for other places."""
    if node.kind not in ("call", "function"):
        return ""
    found = _BUILT_IN.match(node.name)
    if found:
        return found["name"]
    found = _FRAME.fullmatch(node.name)
    return found["function"] if found else node.name


def made_of(tree: PlaceTree, node: PlaceNode, said: str = "") -> str:
    """The largest operations of a place, without those that `said` names already; "" for none."""
    amounts: dict[str, float] = defaultdict(float)
    for op in tree.outermost(node, "op"):
        amounts[op.name] += op.step_ns
    ranked = sorted(amounts.items(), key=lambda item: -item[1])
    parts = [
        f"{short_name(name)} {units.percent(tree.share(ns))}"
        for name, ns in ranked[:MOST_NAMED_OPS]
        if ns >= LEAST_OP_SHARE * node.step_ns
    ]
    parts = [part for part in parts if part not in said]
    return f"; of that {', '.join(parts)}" if parts else ""


def _computes(tree: PlaceTree, node: PlaceNode, *, cpu: bool) -> str:
    what = "computes" if cpu else "device work"
    by_op: dict[str, float] = defaultdict(float)
    for each in tree.inside(node):
        if each.kind == "op" and each.id != node.id:
            by_op[each.name] += each.device_ns - sum(
                inner.device_ns for inner in tree.below(each) if inner.kind != "kernel"
            )
    if not by_op:
        return what
    name, ns = max(by_op.items(), key=lambda item: item[1])
    if ns < SECOND_CAUSE_SHARE * node.step_ns:
        return what
    return f"{what}; {short_name(name)} {units.percent(tree.share(ns))}"


def _launches(tree: PlaceTree, node: PlaceNode, ns: float, *, cpu: bool) -> str:
    kind = "op" if cpu else "kernel"
    inside = [each for each in tree.inside(node) if each.kind == kind and each.device_ns > 0]
    if cpu:
        inside = [each for each in inside if not any(inner.kind == "op" for inner in tree.below(each))]
    count = sum(each.calls or 0.0 for each in inside)
    if not count:
        return "dispatch of operations" if cpu else "launches"
    many = units.things(round(count), "operation") if cpu else units.things(round(count), "launch")
    each = units.duration(ns / count)
    return f"{many}, {each} of dispatch each" if cpu else f"{many}, the device waits {each} for each"


def _python(tree: PlaceTree, node: PlaceNode) -> str:
    """What the host does in Python, by the function with most of that time."""
    whole = node.host_ns.get("python", 0)
    deepest = None
    for each in tree.inside(node):
        name = called(each)
        if (
            name
            and each.host_ns.get("python", 0) > CAUSE_MAJORITY * whole
            and (deepest is None or each.id > deepest.id)
        ):
            deepest = each
    if deepest is None:
        return "Python between operations"
    name = called(deepest)
    for pattern, text in FUNCTION_WORDS:
        if deepest.kind == "call" and re.fullmatch(pattern, name):
            return text if deepest.id == node.id else f"{sanitise(name)}() {text}"
    if deepest.id == node.id:
        return "Python"
    return f"Python in {bare(deepest)}" if deepest.kind == "call" else f"Python in {sanitise(name)}()"


def _waits(tree: PlaceTree, node: PlaceNode) -> str:
    reads = sum(each.calls or 0.0 for each in tree.inside(node) if each.name in READING_OPS[:1])
    if not reads:
        reads = sum(each.calls or 0.0 for each in tree.inside(node) if each.name in READING_OPS[1:])
    if not reads:
        return CAUSE_WORDS["sync_drain"]
    times = "in every step" if round(reads) == 1 else units.a_step(round(reads), "time")
    return f"reads the device {times}"


def _host_computes(tree: PlaceTree, node: PlaceNode) -> str:
    ops = [each for each in tree.inside(node) if each.kind == "op"]
    whole = node.host_ns.get("host_compute", 0)
    best = [each for each in ops if each.host_ns.get("host_compute", 0) > CAUSE_MAJORITY * whole and each.id != node.id]
    return f"computes on the host in {short_name(best[-1].name)}" if best else CAUSE_WORDS["host_compute"]
