"""Capture the step once as a CUDA graph, and launch it with one call.

The host issues one call a step, however many kernels there are. The step then takes about the device's busy time plus
1 us between kernels.

Predicted: everything that the host does in a step, except loading input, becomes one launch, and the device goes from
kernel to kernel in 0.3 to 1 us. At the low end the optimizer stays outside, as where only the model is captured
(`--what-if cuda-graph:model`). Where the host waits within the step, a graph alone changes nothing: remove the waits
first. `torch.compile(model, mode="reduce-overhead")` (`--what-if compile,cuda-graph:compiled`) cuts its graphs at the
waits, and its wrapper takes some host time. An Adam that goes from parameter to parameter then counts its steps on the
device, in 14 more launches for each parameter.

A graph needs static shapes and addresses; it can hold no wait, no copy to the host and no branch on device data. A step
with such waits gets (0, high), because its graph has to be cut around them. The next replay overwrites the outputs.
Random numbers advance correctly only with a generator that is registered with the graph (`torch.compile` does so).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.program import program_of
from gobrrr.analysis.host.waits import inner_waits
from gobrrr.analysis.savings.compiled import as_graphs, as_model_graphs
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import as_graph
from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying, capturing, reaching
from gobrrr.treatments.framework.way import GRAPH, NotApplicable, TreatmentWay, UnfitWay, error_line
from gobrrr.treatments.framework.wording import changed_model

NAME = "cuda-graph"
NUMERICS = "none"
ANSWERS = ("M04", "O01", "O04")
"""Findings for which a graph is predicted."""
CODE = """
# inference: each call of the model is one launch then
model = torch.cuda.make_graphed_callables(model, (x,))

# training: capture the whole step
"""

STEP = """
# step, static_x and x stand for your own; each call of step is a step of training: copy the next batch in before it
for group in optimizer.param_groups:  # before its first step: what it counts is made on the device then
    group["capturable"] = True
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step(static_x)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = step(static_x)
static_x.copy_(x)
graph.replay()
"""
CODE += STEP.lstrip()
KNOWN = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD", "Rprop", "RMSprop")
"""Optimizers of torch.optim that can be captured."""
FROM_ZERO = ("SGD", "Adam", "AdamW", "RAdam", "Adamax", "Adadelta", "RMSprop")
"""Those whose state begins with zeros, so that a captured state can be reset."""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The host launches once a step; the device goes from kernel to kernel."""
    return unasked(evidence) if found.finding.code in ANSWERS else None


def unasked(evidence: Evidence) -> TreatmentPlan | None:
    """The same, even where the device bounds the step now: with less device work the host may bound it."""
    if not evidence.device.captures:
        return None
    assumes = "static shapes; the whole step is captured (low: all but the optimizer)"
    waits = len(inner_waits(evidence)) > 0
    if waits:
        assumes = "a graph can't hold the waits inside the step: nothing is gained until they are removed (remove-sync)"
    return TreatmentPlan(_how(evidence), assumes, as_graph(evidence), once=True)


def _how(evidence: Evidence) -> str:
    """Code that captures what the prediction covers: in training the whole step with its optimizer."""
    program = program_of(evidence)
    if evidence.training or (program.model is None and program.step is not None):
        return (
            STEP.strip()
            .replace("step(", f"{program.step or 'step'}(")
            .replace("# step,", f"# {program.step or 'step'},")
        )
    given = ", ".join(tensor.name for tensor in program.inputs) or "x"
    return changed_model(evidence, f"torch.cuda.make_graphed_callables({{}}, ({given},))")


def of_model(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """A graph of the model alone, forward and backward: the optimizer stays outside."""
    return model_unasked(evidence) if found.finding.code in ANSWERS else None


def model_unasked(evidence: Evidence) -> TreatmentPlan | None:
    """The same in any step."""
    whole = unasked(evidence)
    if whole is None or whole.effect is None:
        return whole
    assumes = "static shapes; the loss and the optimizer stay outside"
    how = changed_model(evidence, "torch.cuda.make_graphed_callables({}, (x,))")
    return replace(whole, how=how, assumes=assumes, effect=as_model_graphs(evidence))


def of_compiled(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """The graphs of torch.compile with mode="reduce-overhead", which are cut where the host waits."""
    return compiled_unasked(evidence) if found.finding.code in ANSWERS else None


def compiled_unasked(evidence: Evidence) -> TreatmentPlan | None:
    """The same in any step."""
    if not evidence.device.captures:
        return None
    assumes = "static shapes; graphs are cut where the host waits (low: none is captured then); the optimizer stays out"
    return TreatmentPlan('torch.compile(model, mode="reduce-overhead")', assumes, as_graphs(evidence), once=True)


PARTS = {"model": of_model, "compiled": of_compiled}
UNASKED_PARTS = {"model": model_unasked, "compiled": compiled_unasked}
"""`predict` and `unasked` for the parts of a step that can be captured by themselves."""


def ways(workload: Workload) -> Iterator[TreatmentWay | UnfitWay]:
    """Captures the whole step, or only the forward and backward of the model."""
    names = (NAME, f"{NAME}:forward")
    why = _unfit(workload)
    if why:
        yield from (UnfitWay(name, why) for name in names)
        return
    why = _optimizer(workload.optimizer)
    conflicts = {"compile:reduce-overhead"}
    if why:
        yield UnfitWay(NAME, why)
    else:
        yield TreatmentWay(
            name=NAME, treatment=NAME, apply=_step, code=STEP.strip(), numerics="none", rank=GRAPH, as_if=(NAME,),
            conflicts=frozenset({*conflicts, names[1]}),
        )  # fmt: skip
    if applying.module_of(workload) is None:
        yield UnfitWay(names[1], applying.of_model(workload, "its model is not an nn.Module"))
    elif not applying.trains(workload) and workload.step is None:
        yield UnfitWay(names[1], "the step is only the forward pass, which cuda-graph captures")
    else:
        yield TreatmentWay(
            name=names[1], treatment=NAME, apply=_forward,
            code="model = torch.cuda.make_graphed_callables(model, (x,), allow_unused_input=True)",
            numerics="none", rank=GRAPH, as_if=(f"{NAME}:model",), conflicts=frozenset({*conflicts, NAME}),
        )  # fmt: skip


def _unfit(workload: Workload) -> str:
    if not applying.on_cuda(workload):
        return "CUDA graphs need a CUDA device"
    if workload.loader is not None:
        return "batches come from a loader, and a graph needs inputs at fixed addresses"
    if any(thing is not workload.optimizer and hasattr(thing, "param_groups") for thing in reaching.reached(workload)):
        return "its step holds an optimizer that the workload does not name"
    given = list(applying.tensors_of((workload.inputs, workload.targets)))
    if any(tensor.device.type != "cuda" for tensor in given):
        return "its inputs are on the host: a copy from there can't be captured"
    return ""


def _optimizer(optimizer: Any) -> str:
    """Why an optimizer can't be captured; "" where it can."""
    kind = type(optimizer).__name__
    if optimizer is None:
        return ""
    if kind not in KNOWN or not type(optimizer).__module__.startswith("torch.optim"):
        return f"{kind} is not known to be capturable"
    if kind not in FROM_ZERO:
        return f"{kind} begins with a state that is not zero"
    if any(group.get("momentum") and group.get("dampening") for group in optimizer.param_groups):
        return "SGD with dampening computes something else in its first step"
    return ""


@contextmanager
def _step(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    if "graph" not in kept:
        kept["graph"] = capturing.CapturedStep(workload)
    graph = kept["graph"]
    with graph.held() as inputs:
        yield applying.as_step(workload, graph, inputs)


@contextmanager
def _forward(workload: Workload, kept: dict[str, Any]) -> Iterator[Workload]:
    module = applying.module_of(workload)
    if "forward" not in kept:
        kept["forward"] = _graphed(workload, module)
    with ExitStack() as stack:
        applying.patched(stack, module, "forward", kept["forward"])
        # compiled code is in the graph already
        applying.patched(stack, module, "_compiled_call_impl", None)
        yield workload


def _graphed(workload: Workload, module: Any) -> Any:
    """The model's forward as a graph that also has a graphed backward; leaves the workload as it was."""
    import torch

    before = capturing.StateBeforeCapture(workload)
    cached = torch.is_autocast_cache_enabled()
    had = vars(module).get("forward", applying.MISSING)
    try:
        given = _arguments(workload, module)
        before.put_back()
        with ExitStack() as stack:
            for context in workload.around:
                stack.enter_context(context())
            torch.set_autocast_cache_enabled(False)  # the graph would not hold a cast that comes from the cache
            with capturing.without_waits():
                module(*given)
            before.put_back()
            with capturing.recovered():
                torch.cuda.make_graphed_callables(module, given, allow_unused_input=True)
        return vars(module)["forward"]
    except (NotApplicable, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        raise NotApplicable(f"the forward can't be captured: {error_line(error)}") from error
    finally:
        torch.set_autocast_cache_enabled(cached)
        if had is applying.MISSING:
            vars(module).pop("forward", None)
        else:
            module.forward = had
        before.put_back()


def _arguments(workload: Workload, module: Any) -> tuple[Any, ...]:
    """The arguments of the model's only call in a step, which have to be tensors."""
    seen: list[tuple[Any, ...]] = []

    def look(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs:
            raise NotApplicable("the model is called with keywords, which a graphed forward does not take")
        seen.append(args)

    with ExitStack() as stack:
        applying.patched(
            stack, module, "_compiled_call_impl", None
        )  # a compiled call ignores hooks that are added later
        stack.callback(module.register_forward_pre_hook(look, with_kwargs=True).remove)
        step, inputs = applying.whole_step(workload)
        step(*inputs)
    if len(seen) != 1:
        raise NotApplicable(
            f"the model is called {len(seen)} times in a step; a graph's results live until the next call"
        )
    if not all(hasattr(argument, "data_ptr") for argument in seen[0]):
        raise NotApplicable("the model is called with arguments that are not tensors")
    return tuple(capturing.fixed(seen[0]))
