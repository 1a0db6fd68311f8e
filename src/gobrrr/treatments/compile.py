"""Let torch.compile fuse the pointwise operations and generate their kernels.

A chain of pointwise operations, norms and conversions becomes one kernel: the intermediates stay in registers, and
the host launches less and runs less Python. Matmuls and convolutions are left as they are.

Replayed: for a chain (M01) what the finding claims, with one launch for all of it. In training its low end writes
every intermediate for the backward pass; what is expected is the high end, for torch's partitioner keeps what a
minimal cut of the joint graph says and computes pointwise calls again
(torch/_functorch/partitioners.py, min_cut_rematerialization_partition). For attention that is written out (M02)
between nothing and all of the claim: forms that the compiler knows become the fused kernel
(torch/_inductor/fx_passes/fuse_attention.py), of others what lies between the products becomes fewer passes. For
conversions (M04) and layout copies (M05) between nothing and all of them, because a compiler fuses those that stand
beside pointwise calls. For norms (M03) from those that are written out to all, for it turns the images of convolutions
channels-last by itself (torch/_inductor/graph.py, decide_layout_opt). Misaligned matmuls (C02) it pads where that is
quicker (torch/_inductor/fx_passes/pad_mm.py): from nothing to all of the claim, which is what is expected. For
a launch-bound step (O01), or a loop whose turns need each other (O04), chains are one launch each, and the host issues
what is left of the forward and backward passes from a compiler's wrapper: 2.4 times what a launch call alone takes in
the same trace for each operation, and once a call its guards, as measured steps show (`docs/calibration.md`). Where the
host waits within the passes the compiler breaks its graph, and nothing is expected of it.

It is no remedy where most of the step is launched from compiled code already: what is left there are graph breaks (O10)
and compiling again (O05). Of a step that is compiled in part it is for the rest.

The first calls compile for tens of seconds; varying shapes and branches on data compile again or break the graph.
The result is rounded differently: fused float32 intermediates where eager mode rounds to bfloat16 after each
operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr import units
from gobrrr.analysis.detect.norms import written_share
from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.findings.path import path_of
from gobrrr.analysis.host.host_loops import HostLoop, spans_of_loops
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.savings.compiled import compiled, in_the_model, is_compiled, of_the_model
from gobrrr.analysis.savings.effects import of_claim, sooner
from gobrrr.analysis.savings.gains import Plan
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from gobrrr.treatments.framework.way import COMPILER, Unapplied, Unfit, Way
from gobrrr.treatments.framework.wording import changed_model, line, place

NAME = "compile"
NUMERICS = "rounding"
ANSWERS = ("O01", "O04")
CODE = """
model = torch.compile(model)  # or only the block that repeats: block.compile()
"""
TUNED, GRAPHED = "max-autotune", "cuda-graph:compiled"
"""What inductor's modes do besides, by the names of the treatments that predict it."""


MOSTLY = 0.5
"""A loop holds a step that has more than this share of it."""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """Bytes for a chain, launches for a launch-bound step."""
    code = found.finding.code
    if is_compiled(evidence):
        return None
    if code[:1] in "CM":
        every, found = found, of_the_model(evidence, found)
        if len(every.claim.unit) and not len(found.claim.unit):
            return None  # all of it is the optimizer's, or compiled already
    how = _how(evidence, found)
    if code == "M01":
        if not evidence.training:
            return of_claim(evidence, found, how, "every chain becomes one kernel; no graph breaks")
        assumes = "every chain becomes one kernel, and the backward pass computes intermediates again from what is "
        plan = of_claim(evidence, found, how, f"{assumes}kept; low: they are still written; no graph breaks")
        return sooner(plan)
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


def unasked(evidence: Evidence) -> Plan | None:
    """What the host needs for compiled code, also where the device bounds the step: it may not do so then."""
    if not evidence.device.asynchronous or is_compiled(evidence):
        return None
    return _launching(evidence, changed_model(evidence, "torch.compile({})"))


def _launching(evidence: Evidence, how: str) -> Plan:
    chains = [chain for one in evidence.fusion.chains if (chain := one.without_head()) is not None]
    gone = np.array([call for chain in chains for call in chain.calls[1:]], dtype=np.int64)
    gone = gone[in_the_model(evidence)[gone]]
    of = f"{units.count(len(gone) / evidence.steps.count)} of {units.count(path_of(evidence).launches)}"
    assumes = f"{of} pieces of device work a step vanish by fusion; no graph breaks; the rest is launched by a wrapper"
    return Plan(how, assumes, compiled(evidence, gone), once=True, last=True)


def _how(evidence: Evidence, found: Found) -> str:
    """The line to change; where a loop outside of the model holds the step, the function that it is in."""
    program = program_of(evidence)
    looped = _loop_outside(evidence)
    if looped is None and found.finding.code == "O04" and program.model is None and program.step is None:
        looped = next((one.source for one in found.finding.where if one.source), None)
    name = looped.rpartition(": ")[2] if looped is not None else ""
    if name.isidentifier():
        return line(f"{name} = torch.compile({name})", place(looped))
    return changed_model(evidence, "torch.compile({})")


def _loop_outside(evidence: Evidence) -> str | None:
    """The line of loops whose turns need each other, in a function beside the model's, that have most of the step."""
    step = program_of(evidence).step
    mine: dict[str, list[HostLoop]] = {}
    for host_loop in evidence.host_loops:
        source = host_loop.loop.source or ""
        if (
            host_loop.loop.needing
            and evidence.module(host_loop.loop.row) is None
            and source.rpartition(": ")[2] != step
        ):
            mine.setdefault(source, []).append(host_loop)
    for source, loops in mine.items():
        if spans_of_loops(evidence, loops).length > MOSTLY * evidence.wall_ns * evidence.recorded_steps.count:
            return source or None
    return None


def ways(workload: Workload) -> Iterator[Way | Unfit]:
    """The model and its loss (or the step where there is no model), the repeated blocks alone, and inductor's modes."""
    names = [NAME, *(f"{NAME}:{one}" for one in ("regional", "max-autotune", "reduce-overhead", "max-autotune-graphs"))]
    module = applying.module_of(workload)
    what = "step" if workload.step is not None and module is None else "model"
    if module is not None and _is_compiled(module):
        yield from (Unfit(name, "the model is compiled already") for name in names)
        return
    whole = [what] if workload.loss is None or _is_compiled(workload.loss) else [what, "loss_fn"]
    yield _way(NAME, _pasted(whole), _whole({}))
    blocks = applying.repeated_blocks(module)
    if not blocks:
        yield Unfit(f"{NAME}:regional", applying.of_model(workload, "no block of the model is repeated"))
    elif any(_is_compiled(block) for block in blocks):
        yield Unfit(f"{NAME}:regional", "its blocks are compiled already")
    else:
        kind = type(blocks[0]).__name__
        code = f'for block in model.modules():\n    if type(block).__name__ == "{kind}":\n        block.compile()'
        yield _way(f"{NAME}:regional", code, _blocks(blocks))
    mode = "max-autotune-no-cudagraphs"
    tuned = _way(f"{NAME}:max-autotune", _pasted(whole, mode), _whole({"mode": mode}))
    yield replace(tuned, as_if=(NAME, TUNED), slow=True)
    graphed = _graphed(f"{NAME}:reduce-overhead", whole, "reduce-overhead")
    tuned = _graphed(f"{NAME}:max-autotune-graphs", whole, "max-autotune")
    if not applying.on_cuda(workload):
        yield from (Unfit(way.name, "CUDA graphs need a CUDA device") for way in (graphed, tuned))
        return
    yield graphed
    yield replace(tuned, as_if=(NAME, TUNED, GRAPHED), slow=True)


def _graphed(name: str, whole: list[str], mode: str) -> Way:
    """A mode of inductor that launches what it compiled as graphs."""
    code = (
        f"{_pasted(whole, mode)}\n"
        "torch.compiler.cudagraph_mark_step_begin()  # before each step; clone what is kept beyond it"
    )
    way = _way(name, code, _whole({"mode": mode}, graphs=True))
    return replace(way, as_if=(NAME, GRAPHED), conflicts=frozenset({"cuda-graph"}))


def _pasted(names: list[str], mode: str = "") -> str:
    given = f', mode="{mode}"' if mode else ""
    return "\n".join(f"{name} = torch.compile({name}{given})" for name in names)


def _way(name: str, code: str, apply: Any) -> Way:
    return Way(
        name=name, treatment=NAME, apply=apply, code=code, numerics="rounding", rank=COMPILER, as_if=(NAME,),
        compiles=True,
    )  # fmt: skip


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")


def _compiled(function: Callable[..., Any], kept: dict[str, Any], options: dict[str, Any]) -> Callable[..., Any]:
    """The compiled callable of an arm, made at the first time."""
    import torch

    if "compiled" not in kept:
        kept["compiled"] = torch.compile(applying.own_code(function), backend=applying.BACKEND, **_known(options))
    return kept["compiled"]  # type: ignore[no-any-return]


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Modes are inductor's alone."""
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
            raise Unapplied(f"{type(module).__name__} has a call of its own, which can't be compiled in place")
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
        raise Unapplied("there is neither a model nor a step")
    called = _compiled(lambda *args, **kwargs: step(*args, **kwargs), kept, options)
    return replace(workload, step=called) if workload.step is not None else replace(workload, model=called)


def _with_loss(workload: Workload, kept: dict[str, Any], options: dict[str, Any]) -> Workload:
    """With the loss compiled as well, whose passes over the logits are as long as any of the model's."""
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
    return lambda *args, **kwargs: applying.mapped(function(*args, **kwargs), lambda one: one.clone())


def _each_its_own(workload: Workload) -> Workload:
    """Steps whose results outlive the next one: a graph's replay overwrites what it returned before."""
    import torch

    def begin() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return nullcontext()

    begun = replace(workload, around=(begin, *workload.around))
    if workload.step is not None:
        return replace(begun, step=_owned(workload.step))
    return begun if workload.loss is None else replace(begun, loss=_owned(workload.loss))
