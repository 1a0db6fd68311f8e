"""What compiled code does to a step's graph: fewer launches, issued from a compiler's wrapper, or as captured graphs.

The wrapper's host time is one of its own, whatever the eager code took: it launches each kernel from generated Python.
Its unit is what a launch call alone takes in the same trace (cudaLaunchKernel, recorded), which tells how fast that
host was: one launch of compiled code then takes `CALLS` of them, within an eighth, over models and over runs of a host
that is now fast and now slow. Shares of the eager host's time scatter from a third to more than all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import ALLOCATOR, COLLECTING, COMPILING, HOST_WORK, INPUT, UNEXPLAINED
from gobrrr.analysis.detect.chains import BACKWARD
from gobrrr.analysis.events.intervals import inside_spans, union
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS, launch_call_ns
from gobrrr.analysis.host.optimizers import STEP
from gobrrr.analysis.host.waits import cause_of, inner_waits
from gobrrr.analysis.pricing.fusion import Chain
from gobrrr.analysis.replay.fitted import by_name
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.what_if import GRAPH_LAUNCH_NS, Change, captured, host_of, hosted, merged
from gobrrr.analysis.savings.effects import spans_of, step_spans, within, works_of
from gobrrr.analysis.savings.gains import Effect
from gobrrr.analysis.savings.regions import IN_GRAPH_NS, as_graph, launching, without
from gobrrr.model.events import I8, Kind
from gobrrr.model.tree import HOST_KINDS

REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "Call CompiledFxGraph")
"""What torch writes around a call of compiled code."""
GENERATED = re.compile(r"triton_(poi|red|per|for|spl|mix|tem|mm|bmm)_")
"""What the compiler calls the kernels that it generates."""
GENERATED_SHARE = 0.19
"""The least share of them among the launches of compiled code: of 12 traces with marks (tests/data, data/h100) the
written_layers_compile pair's; the others are calls of libraries."""
MOSTLY = 0.5
"""A step that launches more than this share from compiled code is compiled."""

MODULE = "nn.Module: "
"""How a trace names the Python frame of a module's call."""

RECURRENT = (
    "aten::lstm", "aten::gru", "aten::rnn_", "aten::_cudnn_rnn", "aten::miopen_rnn",
    "autograd::engine::evaluate_function: CudnnRnnBackward", "autograd::engine::evaluate_function: MiopenRnnBackward",
    "CudnnRnnBackward", "MiopenRnnBackward",
)  # fmt: skip
"""What torch.nn's LSTM, GRU and RNN call, forward and backward: the compiler breaks its graph at these modules and
leaves them as they are (torch/_dynamo/config.py, allow_rnn = False)."""
CELLS = ("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell")
"""One turn of them, called alone: that is compiled."""

LAUNCH = by_name("compiled launch")
"""What the host needs, without the profiler, for a launch of compiled code, in durations of a launch call as recorded:
fitted to compiled steps of inference."""

GUARDS, TRAINED_GUARDS = by_name("compiled guards, inference"), by_name("compiled guards, training")
"""What a call of compiled code costs besides, whatever it launches: guards, and in training what autograd keeps and
hands on between the two compiled passes."""

REPLAYED, TRAINED = by_name("captured replay, inference"), by_name("captured replay, training")
"""What the compiler's wrapper needs to check its guards and have a model's graphs launched, beside the launch itself:
the forward pass alone, or both passes with what is kept between them."""

SHARE, LEAN_SHARE = 0.75, 0.37
"""Of the host's time to issue a step, where no launch call is recorded to measure by: the mean and the least of four
pairs."""

SHAPING = (
    "nonzero", "masked_select", "_unique", "_unique2", "unique_consecutive", "unique_dim", "repeat_interleave",
    "bincount",
)  # fmt: skip
"""Operations that the host waits for because the shape of what follows depends on them: that is in no graph."""


def compiled(evidence: Evidence, gone: I8) -> Effect:
    """`gone` calls are fused into those before them; the host issues what is left from a compiler's wrapper.

    The optimizer, and what follows the last backward pass, is not compiled with the model.
    """
    work = works_of(evidence, gone)[0]
    begin, end = still_eager(evidence)
    launched = _launched(evidence, (begin, end))
    call, other = launch_call_ns(evidence), _not_issuing_ns(evidence, (begin, end))
    waits = inner_waits(evidence)
    waits = waits[inside_spans(evidence.events.start_ns[waits], begin, end)]
    guarded, steps = TRAINED_GUARDS if evidence.training else GUARDS, evidence.recorded_steps.count

    def kept(graph: StepGraph, share: float) -> float:
        left = launched & ~graph.gone
        left[work] = False
        now = float(host_of(graph, begin, end).sum()) / graph.pace
        if call is None or not now:
            fewer = float(left.sum()) / max(float((launched & ~graph.gone).sum()), 1.0)
            return _of_three(share, 1.0, min(SHARE, max(fewer, LEAN_SHARE)), min(LEAN_SHARE, fewer))
        guards = guarded.needed(share) * steps
        first, further = issued(evidence, left)
        wrapper = (LAUNCH.needed(share) * first + further) * call
        if share < 1.0 and (np.isin(graph.waits, waits) & ~graph.cut).any():
            return 1.0 if share else 1.0 + guards * call / now  # each wait breaks the compiled graph
        # what it does not generate it calls as eager code does: no more than now; a cast of a weight has no neighbour
        # that it could be fused with
        return (min(wrapper + other, now - graph.burden) + graph.burden + guards * call) / now

    def effect(share: float) -> Change:
        return lambda graph: merged(hosted(graph, begin, end, kept(graph, share)), work)

    return effect


def _launched(evidence: Evidence, spans: tuple[I8, I8]) -> NDArray[np.bool_]:
    """One flag a piece of device work: whether the host launches it within spans, and not as part of a graph."""
    links = evidence.priced.links
    result: NDArray[np.bool_] = inside_spans(evidence.graph.called, *spans) & (links.launch >= 0) & ~links.in_graph
    return result


def issued(evidence: Evidence, left: NDArray[np.bool_]) -> tuple[float, float]:
    """(calls that the wrapper makes for what is `left`, launches beyond the first that those make by themselves).

    An operation of a library that launches many kernels, as a sort does, is one call for the wrapper.
    """
    op = evidence.priced.links.op[left]
    first = len(np.unique(op[op >= 0])) + int((op < 0).sum())
    return float(first), float(len(op) - first)


def left_by_fusion(evidence: Evidence) -> NDArray[np.bool_]:
    """One flag a piece of device work: whether it is launched in a model's passes once chains are one launch each."""
    chains: list[Chain] = [chain for each in evidence.fusion.chains if (chain := each.without_head()) is not None]
    gone = np.array([call for chain in chains for call in chain.calls[1:]], dtype=np.int64)
    left = _launched(evidence, compilable(evidence))
    left[works_of(evidence, gone[in_the_model(evidence)[gone]])[0]] = False
    return left


def _not_issuing_ns(evidence: Evidence, spans: tuple[I8, I8]) -> float:
    """What the host does within spans, all recorded steps together, that is neither launching nor Python, as far as the
    device waits for it: allocating, compiling, computing. Compiled code does it as well."""
    gaps = evidence.budget.gaps
    begin, _ = within(evidence, np.arange(len(gaps)))
    inside = inside_spans(begin, *spans)
    ns = float(gaps.of(ALLOCATOR, COLLECTING, COMPILING, HOST_WORK, INPUT, UNEXPLAINED)[inside].sum())
    return ns * evidence.recorded_steps.count / evidence.steps.count


def _of_three(share: float, least: float, expected: float, most: float) -> float:
    """`least` at share 0, `expected` at 0.5, `most` at 1."""
    if share < 0.5:
        return least + (expected - least) * 2 * share
    return expected + (most - expected) * (2 * share - 1)


def compilable(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends) of the host's time to launch a model's forward and backward passes in the recorded steps."""
    begin, end = launching(evidence)
    events, links = evidence.events, evidence.priced.links
    rows = _backward(evidence)
    launches = np.sort(events.start_ns[links.launch[links.launch >= 0]])
    rows = rows[np.searchsorted(launches, events.start_ns[rows]) < np.searchsorted(launches, events.end_ns[rows])]
    last = np.sort(events.end_ns[rows])
    at = np.searchsorted(last, end, side="right") - 1
    passes = (at >= 0) & (last[np.maximum(at, 0)] > begin) if len(last) else np.zeros(len(end), dtype=bool)
    opens, closes = _whole_calls(evidence, begin, end)
    begin, end = opens, np.where(passes, last[np.maximum(at, 0)] if len(last) else end, closes)
    return without(without((begin, end), update_spans(evidence)), recurrent_spans(evidence))


def _whole_calls(evidence: Evidence, begin: I8, end: I8) -> tuple[I8, I8]:
    """Spans that begin and end with the outermost module or operation that lies around each of their ends."""
    events = evidence.events
    named = np.array([name.startswith(MODULE) for name in events.names] or [False], dtype=bool)
    updates = np.array([name.startswith(STEP) for name in events.names] or [False], dtype=bool)
    rows = np.flatnonzero(
        ((events.kind == Kind.OP) & ~updates[events.name]) | ((events.kind == Kind.PYTHON) & named[events.name])
    )
    starts, stops = spans_of(evidence, rows)
    if not len(starts):
        return begin, end

    def around(when: I8) -> tuple[I8, NDArray[np.bool_]]:
        at = np.maximum(np.searchsorted(starts, when, side="right") - 1, 0)
        return at, (starts[at] <= when) & (when <= stops[at])

    (first, opens), (last, closes) = around(begin), around(end)
    return np.where(opens, starts[first], begin), np.where(closes, stops[last], end)


def recurrent_spans(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends) of what torch.nn's LSTM, GRU and RNN do in the forward and backward pass."""
    events = evidence.events
    named = np.array([name.startswith(RECURRENT) and name not in CELLS for name in events.names], dtype=bool)
    rows = events.of(Kind.OP)
    return spans_of(evidence, rows[named[events.name[rows]]])


def _backward(evidence: Evidence) -> I8:
    """Rows of the operations of the backward pass."""
    events = evidence.events
    named = np.array([BACKWARD.search(name) is not None for name in events.names], dtype=bool)
    rows = events.of(Kind.OP)
    found: I8 = rows[named[events.name[rows]]]
    return found


def update_spans(evidence: Evidence) -> tuple[I8, I8]:
    """(begins of the first, ends of the last) launch of each run of an optimizer's launches with no others between."""
    return _runs_of(evidence, evidence.updates.work)


def _runs_of(evidence: Evidence, work: I8) -> tuple[I8, I8]:
    """(begins of the first, ends of the last) launch of each run of launches of `work` with no others between."""
    events, launch = evidence.events, evidence.priced.links.launch
    rows = np.unique(launch[launch >= 0])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    own = launch[work]
    mine = np.isin(rows, own[own >= 0])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mine, [False]]).astype(np.int8)))
    return events.start_ns[rows[edges[::2]]], events.end_ns[rows[edges[1::2] - 1]]


def of_the_model(evidence: Evidence, found: Found) -> Found:
    """What a finding claims of calls in the model's passes, outside of compiled code: the chains of an optimizer that
    steps one parameter at a time are not compiled with the model."""
    inside = in_the_model(evidence)
    claim, calls = found.claim, len(evidence.calls)
    kept = (claim.unit >= calls) | inside[np.minimum(claim.unit, calls - 1)] if calls else np.zeros(0, dtype=bool)
    less = replace(claim, unit=claim.unit[kept], ns=claim.ns[kept], low=claim.low[kept])
    return replace(found, claim=less, gone=found.gone[inside[found.gone]] if calls else found.gone)


def in_the_model(evidence: Evidence) -> NDArray[np.bool_]:
    """One flag a call: whether it is launched in a model's forward or backward pass, and not from compiled code."""
    called = evidence.graph.called[evidence.calls.first]
    return inside_spans(called, *still_eager(evidence))


def still_eager(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends) of the host's time in a model's passes that no compiled code has."""
    return without(compilable(evidence), compiled_spans(evidence))


def as_model_graphs(evidence: Evidence) -> Effect:
    """The model's forward and its backward pass are each launched as a captured graph; the loss, the optimizer and what
    adds gradients to those that are there stay outside. Nothing where the host waits in the model.

    Which launches are the model's is told by the modules around them: the model is the outermost one with the most.
    Where no module is known, all but the optimizer's are.
    """
    waits, links = inner_waits(evidence), evidence.priced.links
    roots = [path[0] if row >= 0 and (path := evidence.modules.of(row)) else "" for row in links.op.tolist()]
    counted = Counter(root for root in roots if root)
    if not counted:
        return lambda _: as_graph(evidence)(0.0)
    model = counted.most_common(1)[0][0]
    spans = _runs_of(evidence, np.flatnonzero(np.array([root == model for root in roots], dtype=bool)))
    inside = waits[inside_spans(evidence.events.start_ns[waits], *spans)]

    def change(graph: StepGraph) -> StepGraph:
        if (np.isin(graph.waits, inside) & ~graph.cut).any():
            return graph
        return captured(graph, *spans, KERNEL_GAP_NS)

    return lambda _: change


def as_graphs(evidence: Evidence) -> Effect:
    """What is compiled is launched as captured graphs, cut where the host waits; its Python is gone.

    At the least nothing where it waits; nor is there a gain where the shapes behind a wait depend on its result.
    """
    waits = inner_waits(evidence)
    spans = compilable(evidence)
    waits = waits[inside_spans(evidence.events.start_ns[waits], *spans)]
    shaping = any(_shapes(evidence, row) for row in waits.tolist())
    around = np.array([_around(evidence, row) for row in waits.tolist()], dtype=np.int64).reshape(-1, 2)
    spans = _in_passes(evidence, spans)
    pieces = _launching_any(evidence, without(spans, (around[:, 0], around[:, 1])))

    def effect(share: float) -> Change:
        gap = KERNEL_GAP_NS + (IN_GRAPH_NS - KERNEL_GAP_NS) * share
        launch, each = _replay_ns(evidence, spans, share), _replay_ns(evidence, pieces, share)

        def held(graph: StepGraph, parts: tuple[I8, I8], needed: float) -> StepGraph:
            # where little is launched the wrapper is no more than what launches it eagerly
            return captured(graph, *parts, gap, np.minimum(needed, host_of(evidence.graph, *parts)))

        def change(graph: StepGraph) -> StepGraph:
            waiting = np.isin(graph.waits, waits) & ~graph.cut
            if not waiting.any():
                return held(graph, spans, launch)
            if share < 0.25 or (shaping and share < 1.0):
                return graph
            return held(graph, pieces, each) if share < 1.0 else held(graph, spans, launch)

        return change

    return effect


def _in_passes(evidence: Evidence, spans: tuple[I8, I8]) -> tuple[I8, I8]:
    """Spans cut where the backward pass begins in them: forward and backward pass are graphs of their own."""
    start = np.sort(evidence.events.start_ns[_backward(evidence)])
    if not len(start) or not len(spans[0]):
        return _launching_any(evidence, spans)
    first = start[np.minimum(np.searchsorted(start, spans[0]), len(start) - 1)]
    cut = first[(first > spans[0]) & (first < spans[1])]
    edges = np.sort(np.concatenate([*spans, cut, cut]))
    return _launching_any(evidence, (edges[::2], edges[1::2]))


def _launching_any(evidence: Evidence, spans: tuple[I8, I8]) -> tuple[I8, I8]:
    """Those of the spans in which something is launched."""
    called = np.sort(evidence.graph.called[evidence.priced.links.launch >= 0])
    some = np.searchsorted(called, spans[1]) > np.searchsorted(called, spans[0])
    return spans[0][some], spans[1][some]


def _replay_ns(evidence: Evidence, spans: tuple[I8, I8], share: float) -> float:
    """What the host needs to have the graphs of one of some spans launched, at a share of the effect."""
    call = launch_call_ns(evidence)
    if call is None or not len(spans[0]):
        return GRAPH_LAUNCH_NS
    replayed = REPLAYED.needed(share)
    passes, whole = (2.0, TRAINED.needed(share)) if evidence.training else (1.0, replayed)
    each = max(len(spans[0]) / evidence.recorded_steps.count, passes)
    return max(call * (whole + replayed * (each - passes)) / each, GRAPH_LAUNCH_NS)


def _shapes(evidence: Evidence, wait: int) -> bool:
    row = cause_of(evidence, wait)
    return row is not None and evidence.events.name_of(row).removeprefix("aten::") in SHAPING


def _around(evidence: Evidence, wait: int) -> tuple[int, int]:
    """The span of the operation that waits: the outermost aten operation around a wait."""
    row = wait
    for other in evidence.ancestors(wait):
        if evidence.events.name_of(other).startswith("aten::"):
            row = other
    return int(evidence.events.start_ns[row]), int(evidence.events.end_ns[row])


def is_compiled(evidence: Evidence) -> bool:
    """Whether most of the device's work is launched from code of torch.compile: compiling again changes nothing."""
    launched = evidence.priced.links.launch[evidence.priced.links.launch >= 0]
    called = evidence.events.start_ns[launched]
    return len(called) > 0 and float(inside_spans(called, *compiled_spans(evidence)).mean()) >= MOSTLY


def compiled_spans(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends) of calls of compiled code; where nothing marks them, in each step from the first to the last
    launch of a kernel that the compiler has generated, alone or in a graph, if there are enough of those."""
    events, links = evidence.events, evidence.priced.links
    named = np.array([name.startswith(REGIONS) for name in events.names], dtype=bool)
    rows = events.of(*HOST_KINDS)
    rows = rows[named[events.name[rows]]]
    if len(rows):
        return union(events.start_ns[rows], events.end_ns[rows])
    made = np.array([GENERATED.match(name) is not None for name in events.names] or [False], dtype=bool)
    mine = made[events.name[links.device]]
    spans = step_spans(evidence, np.flatnonzero(mine))
    inside = inside_spans(evidence.graph.called, *spans)
    return spans if inside.any() and mine[inside].mean() >= GENERATED_SHARE else (spans[0][:0], spans[1][:0])
