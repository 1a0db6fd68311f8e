"""Let torch.compile fuse the pointwise operations and generate their kernels.

A chain of pointwise operations, norms and conversions becomes one kernel: intermediate results stay in registers, and
the host launches less and runs less Python. Matmuls and convolutions stay as they are.

Predicted, by finding:

- A chain (M01): what the finding claims, with one launch for the whole chain. In training the low end still writes
  every intermediate for the backward pass. The high end is expected, because torch's partitioner keeps a minimal cut of
  the joint graph and computes pointwise calls again (torch/_functorch/partitioners.py,
  min_cut_rematerialization_partition).
- Attention written out (M02): from nothing to the whole claim. Forms that the compiler knows become the fused kernel
  (torch/_inductor/fx_passes/fuse_attention.py); in others the operations between the products become fewer passes.
- Conversions (M04) and layout copies (M05): from none to all of them, because the compiler fuses those next to
  pointwise calls.
- Norms (M03): from those that are written out to all of them, because the compiler makes the images of convolutions
  channels-last by itself (torch/_inductor/graph.py, decide_layout_opt).
- Misaligned matmuls (C02): the compiler pads them where that is faster (torch/_inductor/fx_passes/pad_mm.py). From
  nothing to the whole claim, which is expected.
- A launch-bound step (O01), or a loop whose turns need each other (O04): each chain is one launch, and compiled code
  issues the rest of the forward and backward passes. That takes 2.4 times a launch call of the same trace for each
  operation, and once per call the time of the guards, as measured steps show (`docs/calibration.md`). Where the host
  waits within the passes the compiler breaks its graph, and the expected saving is nothing.

It is not predicted where compiled code launches most of the step already: there graph breaks (O10) and recompilation
(O05) are left. For a step that is compiled in part, it is predicted for the rest.

The first calls take tens of seconds to compile; varying shapes and branches on data cause recompilation or graph
breaks. Results are rounded differently: fused kernels keep float32 intermediates where eager mode rounds to bfloat16
after each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.norms import written_share
from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.host_loops import CostlyLoop, spans_of_loops
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.savings.compiled import compiled, in_the_model, is_compiled, of_the_model
from gobrrr.analysis.savings.effects import of_claim, sooner
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import COMPILER, NotApplicable, TreatmentWay, UnfitWay
from gobrrr.treatments.framework.wording import changed_model, line, place

NAME = "compile"
NUMERICS = "rounding"
ANSWERS = ("O01", "O04")
"""Findings for which the launches of the whole step are predicted."""
CODE = """
model = torch.compile(model)  # or only the block that repeats: block.compile()
"""
AUTOTUNED_TREATMENT, GRAPHED_TREATMENT = "max-autotune", "cuda-graph:compiled"
"""The treatments that predict what inductor's modes do in addition."""

LEAST_LOOP_SHARE = 0.5
"""A loop is compiled by itself where it takes more than this share of the step. Chosen, not measured."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """Fewer bytes for a chain of pointwise operations, fewer launches for a launch-bound step."""
    code = found.finding.code
    if is_compiled(evidence):
        return None
    if code[:1] in "CM":
        every, found = found, of_the_model(evidence, found)
        if len(every.claim.unit) and not len(found.claim.unit):
            return None  # all of it belongs to the optimizer, or is compiled already
    how = _how(evidence, found)
    if code == "M01":
        if not evidence.training:
            return of_claim(evidence, found, how, "every chain becomes one kernel; no graph breaks")
        assumes = (
            "every chain becomes one kernel; the backward pass recomputes intermediates; low: they are still written"
        )
        return sooner(of_claim(evidence, found, how, f"{assumes}; no graph breaks"))
    if code == "M02":
        assumes = "high: the compiler knows this form of attention and takes the fused kernel; low: it fuses nothing"
        return of_claim(evidence, found, how, assumes, least=0.0)
    if code == "M03":
        least = written_share(evidence)
        assumes = "low: norms that are written out become one kernel each; high: the framework's own do as well"
        return sooner(of_claim(evidence, found, how, assumes, least=least))
    if code == "C02":
        assumes = "the compiler pads the matmuls (shape_padding); low: it finds that copying them takes longer"
        return sooner(of_claim(evidence, found, how, assumes, least=0.0, better=True))
    if code in ("M04", "M05"):
        assumes = "high: each of them can be fused with a call next to it; no graph breaks"
        return sooner(of_claim(evidence, found, how, assumes, least=0.0))
    return _launching(evidence, how) if code in ANSWERS else None


def unasked(evidence: Evidence) -> TreatmentPlan | None:
    """The host time for compiled code, even where the device bounds the step now: other treatments may change that."""
    if not evidence.device.asynchronous or is_compiled(evidence):
        return None
    return _launching(evidence, changed_model(evidence, "torch.compile({})"))


def _launching(evidence: Evidence, how: str) -> TreatmentPlan:
    chains = [chain for whole in evidence.fusion.chains if (chain := whole.without_head()) is not None]
    gone = np.array([call for chain in chains for call in chain.calls[1:]], dtype=np.int64)
    gone = gone[in_the_model(evidence)[gone]]
    of = f"{units.count(len(gone) / evidence.steps.count)} of {units.count(path_of(evidence).launches)}"
    assumes = f"fusion removes {of} pieces of device work a step; no graph breaks; compiled code launches the rest"
    return TreatmentPlan(how, assumes, compiled(evidence, gone), once=True, last=True)


def _how(evidence: Evidence, found: ClaimedFinding) -> str:
    """The line to change; where a loop outside the model takes most of the step, the function around that loop."""
    program = program_of(evidence)
    looped = _loop_outside(evidence)
    if looped is None and found.finding.code == "O04" and program.model is None and program.step is None:
        looped = next((spot.source for spot in found.finding.where if spot.source), None)
    name = looped.rpartition(": ")[2] if looped is not None else ""
    if name.isidentifier():
        return line(f"{name} = torch.compile({name})", place(looped))
    return changed_model(evidence, "torch.compile({})")


def _loop_outside(evidence: Evidence) -> str | None:
    """The line of loops that take most of the step, whose turns need each other, in a function outside the model."""
    step = program_of(evidence).step
    by_source: dict[str, list[CostlyLoop]] = {}
    for host_loop in evidence.host_loops:
        source = host_loop.loop.source or ""
        if (
            host_loop.loop.needing
            and evidence.module(host_loop.loop.row) is None
            and source.rpartition(": ")[2] != step
        ):
            by_source.setdefault(source, []).append(host_loop)
    for source, loops in by_source.items():
        if spans_of_loops(evidence, loops).length > LEAST_LOOP_SHARE * evidence.wall_ns * evidence.recorded_steps.count:
            return source or None
    return None


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """The model and its loss (or the step where there is no model), the repeated blocks alone, and inductor's modes."""
    names = [
        NAME,
        *(f"{NAME}:{mode}" for mode in ("regional", "max-autotune", "reduce-overhead", "max-autotune-graphs")),
    ]
    module = applying.module_of(workload)
    what = "step" if workload.step is not None and module is None else "model"
    if module is not None and _is_compiled(module):
        yield from (UnfitWay(name, "the model is compiled already") for name in names)
        return
    whole = [what] if workload.loss is None or _is_compiled(workload.loss) else [what, "loss_fn"]
    yield _way(NAME, _pasted(whole), _whole({}))
    blocks = applying.repeated_blocks(module)
    if not blocks:
        yield UnfitWay(f"{NAME}:regional", applying.of_model(workload, "the model has no repeated blocks"))
    elif any(_is_compiled(block) for block in blocks):
        yield UnfitWay(f"{NAME}:regional", "its blocks are compiled already")
    else:
        kind = type(blocks[0]).__name__
        code = f'for block in model.modules():\n    if type(block).__name__ == "{kind}":\n        block.compile()'
        yield _way(f"{NAME}:regional", code, _blocks(blocks))
    mode = "max-autotune-no-cudagraphs"
    tuned = _way(f"{NAME}:max-autotune", _pasted(whole, mode), _whole({"mode": mode}))
    yield replace(tuned, as_if=(NAME, AUTOTUNED_TREATMENT), slow=True)
    graphed = _graphed(f"{NAME}:reduce-overhead", whole, "reduce-overhead")
    tuned = _graphed(f"{NAME}:max-autotune-graphs", whole, "max-autotune")
    if not applying.on_cuda(workload):
        yield from (UnfitWay(way.name, "CUDA graphs need a CUDA device") for way in (graphed, tuned))
        return
    yield graphed
    yield replace(tuned, as_if=(NAME, AUTOTUNED_TREATMENT, GRAPHED_TREATMENT), slow=True)


def _graphed(name: str, whole: list[str], mode: str) -> TreatmentWay:
    """A mode of inductor that launches compiled code as CUDA graphs."""
    code = (
        f"{_pasted(whole, mode)}\n"
        "torch.compiler.cudagraph_mark_step_begin()  # before each step; clone what is kept beyond it"
    )
    way = _way(name, code, _whole({"mode": mode}, graphs=True))
    return replace(way, as_if=(NAME, GRAPHED_TREATMENT), conflicts=frozenset({"cuda-graph"}))


def _pasted(names: list[str], mode: str = "") -> str:
    given = f', mode="{mode}"' if mode else ""
    return "\n".join(f"{name} = torch.compile({name}{given})" for name in names)


def _way(name: str, code: str, apply: Any) -> TreatmentWay:
    return TreatmentWay(
        name=name, treatment=NAME, apply=apply, code=code, numerics="rounding", rank=COMPILER, as_if=(NAME,),
        compiles=True,
    )  # fmt: skip


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")


def _compiled(function: Callable[..., Any], kept: dict[str, Any], options: dict[str, Any]) -> Callable[..., Any]:
    """The compiled callable of an arm, created at the first call."""
    import torch

    if "compiled" not in kept:
        kept["compiled"] = torch.compile(applying.own_code(function), backend=applying.BACKEND, **_known(options))
    return kept["compiled"]  # type: ignore[no-any-return]


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Without modes where the backend is not inductor: no other backend knows them."""
    return options if applying.BACKEND == "inductor" else {}


def _call(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def _whole(options: dict[str, Any], *, graphs: bool = False) -> Any:
    """Compiles the model in place, because a user's step calls it by its own name, or the step."""

    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        import torch

        workload = _with_loss(workload, kept, options)
        begun = _each_its_own(workload) if graphs else workload
        module = applying.module_of(workload)
        if module is None:
            yield _without_module(begun, kept, options)
            return
        if type(module).__call__ is not torch.nn.Module.__call__:
            raise NotApplicable(f"{type(module).__name__} overrides __call__, and so can't be compiled in place")
        called = _compiled(_call, kept, options)
        if graphs and workload.step is None and workload.loss is None:
            called = _owned(called)
        with ExitStack() as stack:
            applying.patched(stack, module, "_compiled_call_impl", _bound(called, module))
            yield begun

    return apply


def _without_module(workload: Workload, kept: dict[str, Any], options: dict[str, Any]) -> Workload:
    step = workload.step if workload.step is not None else workload.model
    if step is None:
        raise NotApplicable("there is neither a model nor a step")
    called = _compiled(lambda *args, **kwargs: step(*args, **kwargs), kept, options)
    return replace(workload, step=called) if workload.step is not None else replace(workload, model=called)


def _with_loss(workload: Workload, kept: dict[str, Any], options: dict[str, Any]) -> Workload:
    """Compiles the loss too: its passes over the logits take as long as any of the model's."""
    loss = workload.loss
    if loss is None or _is_compiled(loss):
        return workload
    called = _compiled(lambda *args, **kwargs: loss(*args, **kwargs), kept.setdefault("loss", {}), options)
    return replace(workload, loss=called)


def _blocks(blocks: list[Any]) -> Any:
    """Compiles the code of the blocks once for all of them, in place."""

    @contextmanager
    def apply(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
        called = _compiled(_call, kept, {})
        with ExitStack() as stack:
            for block in blocks:
                applying.patched(stack, block, "_compiled_call_impl", _bound(called, block))
            yield workload

    return apply


def _bound(called: Callable[..., Any], module: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: called(module, *args, **kwargs)


def _owned(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: applying.mapped(function(*args, **kwargs), lambda tensor: tensor.clone())


def _each_its_own(workload: Workload) -> Workload:
    """Copies each step's results, because the next replay of a graph overwrites them."""
    import torch

    def begin() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return nullcontext()

    begun = replace(workload, around=(begin, *workload.around))
    if workload.step is not None:
        return replace(begun, step=_owned(workload.step))
    return begun if workload.loss is None else replace(begun, loss=_owned(workload.loss))
