"""How compiled code changes a step's graph: fewer launches, made by the compiler's wrapper or as captured graphs.

The wrapper launches each kernel from generated Python. Its host time does not depend on the eager code's. It is counted
in launch calls (cudaLaunchKernel) as recorded in the same trace, which show how fast the host was: a launch of compiled
code takes `COMPILED_LAUNCH` of them, within an eighth, over models and over faster and slower runs of a host. As a
share of the eager host's time it scatters from a third to more than all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.analysis.budget.idle import ALLOCATOR, COLLECTING, COMPILE_CAUSE, HOST_WORK, INPUT_CAUSE, UNEXPLAINED
from gobrrr.analysis.detect.chains import BACKWARD_NAME
from gobrrr.analysis.events.intervals import inside_spans, union
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import KERNEL_GAP_NS, launch_call_ns
from gobrrr.analysis.host.optimizers import OPTIMIZER_STEP
from gobrrr.analysis.host.waits import cause_of, inner_waits
from gobrrr.analysis.pricing.fusion import Chain
from gobrrr.analysis.replay.fitted import by_name
from gobrrr.analysis.replay.graph import StepGraph
from gobrrr.analysis.replay.what_if import GRAPH_LAUNCH_NS, Change, captured, host_of, hosted, merged
from gobrrr.analysis.savings.effects import spans_of, step_spans, within, works_of
from gobrrr.analysis.savings.gains import Effect
from gobrrr.analysis.savings.regions import IN_GRAPH_NS, as_graph, launching, without
from gobrrr.model.events import I8, EventKind
from gobrrr.model.tree import HOST_KINDS

REGIONS = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "Call CompiledFxGraph")
"""Names of the events that torch records around a call of compiled code."""
GENERATED_KERNEL = re.compile(r"triton_(poi|red|per|for|spl|mix|tem|mm|bmm)_")
"""Names of the kernels that the compiler generates."""
GENERATED_SHARE = 0.19
"""The least share of generated kernels among the launches of compiled code; the others are library calls. The smallest
in 12 traces with marks (tests/data, data/h100), that of the written_layers_compile pair."""
LEAST_COMPILED_SHARE = 0.5
"""A step is compiled if compiled code makes at least this share of its launches. Chosen, not measured."""

COMPILED_MODULE_FRAME = "nn.Module: "
"""The prefix by which a trace names the Python frame of a module's call."""

RECURRENT = (
    "aten::lstm", "aten::gru", "aten::rnn_", "aten::_cudnn_rnn", "aten::miopen_rnn",
    "autograd::engine::evaluate_function: CudnnRnnBackward", "autograd::engine::evaluate_function: MiopenRnnBackward",
    "CudnnRnnBackward", "MiopenRnnBackward",
)  # fmt: skip
"""Operations of torch.nn's LSTM, GRU and RNN, forward and backward. The compiler breaks its graph at these modules and
does not compile them (torch/_dynamo/config.py, allow_rnn = False)."""
RECURRENT_CELLS = ("aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell")
"""Operations of single recurrent cells, which are compiled."""

COMPILED_LAUNCH = by_name("compiled launch")
"""The host's time for a launch of compiled code without the profiler, in recorded durations of a launch call. Fitted to
compiled steps of inference."""

INFERENCE_GUARDS, TRAINING_GUARDS = by_name("compiled guards, inference"), by_name("compiled guards, training")
"""The fixed host time of a call of compiled code, in the same unit: guards, and in training the tensors that autograd
keeps between the two compiled passes. Fitted."""

INFERENCE_REPLAY, TRAINING_REPLAY = by_name("captured replay, inference"), by_name("captured replay, training")
"""The wrapper's time to check its guards and have a model's graphs launched, beside the launch itself, in the same
unit: for the forward pass alone, and for both passes with the tensors kept between them. Fitted."""

COMPILED_HOST_SHARE, LEAST_COMPILED_HOST_SHARE = 0.75, 0.37
"""The share of the host's time to launch a step that compiled code needs, where no launch call is recorded: the mean
and the least of four pairs of traces."""

SHAPE_DEPENDENT_OPS = (
    "nonzero", "masked_select", "_unique", "_unique2", "unique_consecutive", "unique_dim", "repeat_interleave",
    "bincount",
)  # fmt: skip
"""Operations that the host waits for because later shapes depend on their result. No captured graph can hold them."""


def compiled(evidence: Evidence, gone: I8) -> Effect:
    """`gone` calls are fused into those before them; the compiler's wrapper launches the rest.

    The optimizer, and whatever follows the last backward pass, is not compiled with the model.
    """
    work = works_of(evidence, gone)[0]
    begin, end = still_eager(evidence)
    launched = _launched(evidence, (begin, end))
    call, other = launch_call_ns(evidence), _not_issuing_ns(evidence, (begin, end))
    waits = inner_waits(evidence)
    waits = waits[inside_spans(evidence.events.start_ns[waits], begin, end)]
    guarded, steps = TRAINING_GUARDS if evidence.training else INFERENCE_GUARDS, evidence.recorded_steps.count

    def kept(graph: StepGraph, share: float) -> float:
        left = launched & ~graph.gone
        left[work] = False
        now = float(host_of(graph, begin, end).sum()) / graph.pace
        if call is None or not now:
            fewer = float(left.sum()) / max(float((launched & ~graph.gone).sum()), 1.0)
            return _of_three(
                share,
                1.0,
                min(COMPILED_HOST_SHARE, max(fewer, LEAST_COMPILED_HOST_SHARE)),
                min(LEAST_COMPILED_HOST_SHARE, fewer),
            )
        guards = guarded.needed(share) * steps
        first, further = issued(evidence, left)
        wrapper = (COMPILED_LAUNCH.needed(share) * first + further) * call
        if share < 1.0 and (np.isin(graph.waits, waits) & ~graph.cut).any():
            return 1.0 if share else 1.0 + guards * call / now  # each wait breaks the compiled graph
        # library calls take as long as in eager code, so not more than now; a cast of a weight has no neighbour that it
        # could be fused with
        return (min(wrapper + other, now - graph.burden) + graph.burden + guards * call) / now

    def effect(share: float) -> Change:
        return lambda graph: merged(hosted(graph, begin, end, kept(graph, share)), work)

    return effect


def _launched(evidence: Evidence, spans: tuple[I8, I8]) -> NDArray[np.bool_]:
    """One flag per piece of device work: whether the host launches it within spans, and not as part of a graph."""
    links = evidence.priced.links
    result: NDArray[np.bool_] = inside_spans(evidence.graph.called, *spans) & (links.launch >= 0) & ~links.in_graph
    return result


def issued(evidence: Evidence, left: NDArray[np.bool_]) -> tuple[float, float]:
    """(calls that the wrapper makes for the work that is `left`, launches beyond the first within those calls).

    A library operation that launches many kernels, such as a sort, is one call for the wrapper.
    """
    op = evidence.priced.links.op[left]
    first = len(np.unique(op[op >= 0])) + int((op < 0).sum())
    return float(first), float(len(op) - first)


def left_by_fusion(evidence: Evidence) -> NDArray[np.bool_]:
    """One flag per piece of device work: whether a model's passes still launch it once each chain is one launch."""
    chains: list[Chain] = [rest for chain in evidence.fusion.chains if (rest := chain.without_head()) is not None]
    gone = np.array([call for chain in chains for call in chain.calls[1:]], dtype=np.int64)
    left = _launched(evidence, compilable(evidence))
    left[works_of(evidence, gone[in_the_model(evidence)[gone]])[0]] = False
    return left


def _not_issuing_ns(evidence: Evidence, spans: tuple[I8, I8]) -> float:
    """The host's time within spans, in all recorded steps, for which the device waits and that is neither launching nor
    Python: allocating, compiling, computing. Compiled code spends it as well."""
    gaps = evidence.budget.gaps
    begin, _ = within(evidence, np.arange(len(gaps)))
    inside = inside_spans(begin, *spans)
    ns = float(gaps.of(ALLOCATOR, COLLECTING, COMPILE_CAUSE, HOST_WORK, INPUT_CAUSE, UNEXPLAINED)[inside].sum())
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
    """The spans, extended to the begin and the end of the outermost module or operation around their ends."""
    events = evidence.events
    named = np.array([name.startswith(COMPILED_MODULE_FRAME) for name in events.names] or [False], dtype=bool)
    updates = np.array([name.startswith(OPTIMIZER_STEP) for name in events.names] or [False], dtype=bool)
    rows = np.flatnonzero(
        ((events.kind == EventKind.OP) & ~updates[events.name])
        | ((events.kind == EventKind.PYTHON) & named[events.name])
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
    """(begins, ends) of the operations of torch.nn's LSTM, GRU and RNN in the forward and backward pass."""
    events = evidence.events
    named = np.array([name.startswith(RECURRENT) and name not in RECURRENT_CELLS for name in events.names], dtype=bool)
    rows = events.of(EventKind.OP)
    return spans_of(evidence, rows[named[events.name[rows]]])


def _backward(evidence: Evidence) -> I8:
    """Rows of the operations of the backward pass."""
    events = evidence.events
    named = np.array([BACKWARD_NAME.search(name) is not None for name in events.names], dtype=bool)
    rows = events.of(EventKind.OP)
    backward: I8 = rows[named[events.name[rows]]]
    return backward


def update_spans(evidence: Evidence) -> tuple[I8, I8]:
    """(begins of the first, ends of the last) launch of each uninterrupted run of an optimizer's launches."""
    return _runs_of(evidence, evidence.updates.work)


def _runs_of(evidence: Evidence, work: I8) -> tuple[I8, I8]:
    """(begins of the first, ends of the last) launch of each uninterrupted run of launches of `work`."""
    events, launch = evidence.events, evidence.priced.links.launch
    rows = np.unique(launch[launch >= 0])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    own = launch[work]
    of_work = np.isin(rows, own[own >= 0])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], of_work, [False]]).astype(np.int8)))
    return events.start_ns[rows[edges[::2]]], events.end_ns[rows[edges[1::2] - 1]]


def of_the_model(evidence: Evidence, found: ClaimedFinding) -> ClaimedFinding:
    """The finding with the part of its claim in the model's passes, outside compiled code.

    The chains of an optimizer that updates one parameter at a time are not compiled with the model.
    """
    inside = in_the_model(evidence)
    claim, calls = found.claim, len(evidence.calls)
    kept = (claim.unit >= calls) | inside[np.minimum(claim.unit, calls - 1)] if calls else np.zeros(0, dtype=bool)
    less = replace(claim, unit=claim.unit[kept], ns=claim.ns[kept], low=claim.low[kept])
    return replace(found, claim=less, gone=found.gone[inside[found.gone]] if calls else found.gone)


def in_the_model(evidence: Evidence) -> NDArray[np.bool_]:
    """One flag per call: whether it is launched in a model's forward or backward pass, and not from compiled code."""
    called = evidence.graph.called[evidence.calls.first]
    return inside_spans(called, *still_eager(evidence))


def still_eager(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends) of the host's time in a model's passes outside compiled code."""
    return without(compilable(evidence), compiled_spans(evidence))


def as_model_graphs(evidence: Evidence) -> Effect:
    """The model's forward and backward pass are captured graphs, launched as one each; no effect where the host waits.

    The loss, the optimizer and the accumulation of gradients stay outside. The model's launches are those within the
    outermost module that has the most. Where no module is known, all launches but the optimizer's are the model's.
    """
    waits, links = inner_waits(evidence), evidence.priced.links
    roots = [path[0] if row >= 0 and (path := evidence.modules.of(row)) else "" for row in links.op.tolist()]
    launches = Counter(root for root in roots if root)
    if not launches:
        return lambda _: as_graph(evidence)(0.0)
    model = launches.most_common(1)[0][0]
    spans = _runs_of(evidence, np.flatnonzero(np.array([root == model for root in roots], dtype=bool)))
    inside = waits[inside_spans(evidence.events.start_ns[waits], *spans)]

    def change(graph: StepGraph) -> StepGraph:
        if (np.isin(graph.waits, inside) & ~graph.cut).any():
            return graph
        return captured(graph, *spans, KERNEL_GAP_NS)

    return lambda _: change


def as_graphs(evidence: Evidence) -> Effect:
    """Compiled code is launched as captured graphs, split where the host waits; its Python is gone.

    Where the host waits, the least effect is none. It is none short of the most where later shapes depend on a wait.
    """
    waits = inner_waits(evidence)
    spans = compilable(evidence)
    waits = waits[inside_spans(evidence.events.start_ns[waits], *spans)]
    shaping = any(_shapes(evidence, row) for row in waits.tolist())
    waiting_ops = np.array([evidence.outermost(row) for row in waits.tolist()], dtype=np.int64)
    spans = _in_passes(evidence, spans)
    ops = evidence.events.start_ns[waiting_ops], evidence.events.end_ns[waiting_ops]
    pieces = _launching_any(evidence, without(spans, ops))

    def effect(share: float) -> Change:
        gap = KERNEL_GAP_NS + (IN_GRAPH_NS - KERNEL_GAP_NS) * share
        whole_ns, piece_ns = _replay_ns(evidence, spans, share), _replay_ns(evidence, pieces, share)

        def as_replays(graph: StepGraph, parts: tuple[I8, I8], needed: float) -> StepGraph:
            # where little is launched, the wrapper takes no longer than the eager launches
            return captured(graph, *parts, gap, np.minimum(needed, host_of(evidence.graph, *parts)))

        def change(graph: StepGraph) -> StepGraph:
            waiting = np.isin(graph.waits, waits) & ~graph.cut
            if not waiting.any():
                return as_replays(graph, spans, whole_ns)
            if share < 0.25 or (shaping and share < 1.0):
                return graph
            return as_replays(graph, pieces, piece_ns) if share < 1.0 else as_replays(graph, spans, whole_ns)

        return change

    return effect


def _in_passes(evidence: Evidence, spans: tuple[I8, I8]) -> tuple[I8, I8]:
    """The spans, split where the backward pass begins: forward and backward pass are graphs of their own."""
    start = np.sort(evidence.events.start_ns[_backward(evidence)])
    if not len(start) or not len(spans[0]):
        return _launching_any(evidence, spans)
    first = start[np.minimum(np.searchsorted(start, spans[0]), len(start) - 1)]
    cut = first[(first > spans[0]) & (first < spans[1])]
    edges = np.sort(np.concatenate([*spans, cut, cut]))
    return _launching_any(evidence, (edges[::2], edges[1::2]))


def _launching_any(evidence: Evidence, spans: tuple[I8, I8]) -> tuple[I8, I8]:
    """The spans in which something is launched."""
    called = np.sort(evidence.graph.called[evidence.priced.links.launch >= 0])
    launching = np.searchsorted(called, spans[1]) > np.searchsorted(called, spans[0])
    return spans[0][launching], spans[1][launching]


def _replay_ns(evidence: Evidence, spans: tuple[I8, I8], share: float) -> float:
    """The host's time to have the graph of one span launched, as a mean over the spans, at a share of the effect."""
    call = launch_call_ns(evidence)
    if call is None or not len(spans[0]):
        return GRAPH_LAUNCH_NS
    replayed = INFERENCE_REPLAY.needed(share)
    passes, whole = (2.0, TRAINING_REPLAY.needed(share)) if evidence.training else (1.0, replayed)
    graphs = max(len(spans[0]) / evidence.recorded_steps.count, passes)
    return max(call * (whole + replayed * (graphs - passes)) / graphs, GRAPH_LAUNCH_NS)


def _shapes(evidence: Evidence, wait: int) -> bool:
    """Whether later shapes depend on the operation that a wait is for."""
    row = cause_of(evidence, wait)
    return row is not None and evidence.events.name_of(row).removeprefix("aten::") in SHAPE_DEPENDENT_OPS


def is_compiled(evidence: Evidence) -> bool:
    """Whether compiled code launches most of the device's work: compiling again changes nothing."""
    launched = evidence.priced.links.launch[evidence.priced.links.launch >= 0]
    called = evidence.events.start_ns[launched]
    return len(called) > 0 and float(inside_spans(called, *compiled_spans(evidence)).mean()) >= LEAST_COMPILED_SHARE


def compiled_spans(evidence: Evidence) -> tuple[I8, I8]:
    """(begins, ends) of calls of compiled code.

    Where no event marks them: in each step from the first to the last launch of a generated kernel, alone or in a
    graph, if there are enough of those (`GENERATED_SHARE`).
    """
    events, links = evidence.events, evidence.priced.links
    named = np.array([name.startswith(REGIONS) for name in events.names], dtype=bool)
    rows = events.of(*HOST_KINDS)
    rows = rows[named[events.name[rows]]]
    if len(rows):
        return union(events.start_ns[rows], events.end_ns[rows])
    generates = np.array([GENERATED_KERNEL.match(name) is not None for name in events.names] or [False], dtype=bool)
    generated = generates[events.name[links.device]]
    spans = step_spans(evidence, np.flatnonzero(generated))
    inside = inside_spans(evidence.graph.called, *spans)
    return spans if inside.any() and generated[inside].mean() >= GENERATED_SHARE else (spans[0][:0], spans[1][:0])
