"""Nine architectures counted by gobrrr and by other counters, each against the closed form in its own convention.

    pip install gobrrr[peers]             torch's own counters need no more than torch
    python -m bench.compare_counters      counts with each tool that is installed, in about 15 minutes of a CPU core
    python -m bench.compare_counters "torch FlopCounterMode" BERT-base      just these, printed and not written

The closed forms are those of bench/closed_forms.py. gobrrr is held to what the maths needs; the others count attention
over all pairs, causal or not, and are held to that. A tool that counts multiply-adds is doubled. "meta" is the model at
full size on the meta device; "cpu" the model on real tensors, where most tools compute what they count: there it has
batch 1 (and Llama 256 tokens). Each figure is a process of its own with a time limit. Results:
bench/results/compare_counters.json.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from bench import pages
from bench.closed_forms import CASES, SMALL, Case, counted, on_device
from bench.process import answer

RESULTS = pages.RESULTS / "compare_counters.json"
LIMIT_S = 90.0
"""For one tool and one model on one device: building it and counting it."""
PACKAGES = ("torch", "transformers", "fvcore", "calflops", "deepspeed", "torchinfo")
LONGEST_ERROR = 90
ONE = "--one"


def flop_counter_mode(model: Any, inputs: tuple[Any, ...]) -> float:
    """torch.utils.flop_counter, forward."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*inputs)
    return float(counter.get_total_flops())


def flop_counter_mode_training(model: Any, inputs: tuple[Any, ...]) -> float:
    """torch.utils.flop_counter, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(*inputs).backward()
    return float(counter.get_total_flops())


def profiler(model: Any, inputs: tuple[Any, ...]) -> float:
    """torch.profiler with `with_flops=True`; it counts additions and products of tensors too."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as found, torch.no_grad():
        model(*inputs)
    return float(sum(average.flops for average in found.key_averages()))


def fvcore(model: Any, inputs: tuple[Any, ...]) -> float:
    """fvcore counts multiply-adds."""
    counter = importlib.import_module("fvcore.nn").FlopCountAnalysis(model, inputs)
    counter.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return 2.0 * float(counter.total())


def calflops(model: Any, inputs: tuple[Any, ...]) -> float:
    """calflops, in FLOP; it counts norms and activations too."""
    calculate = importlib.import_module("calflops").calculate_flops
    return float(calculate(model, args=list(inputs), print_results=False, output_as_string=False)[0])


def deepspeed(model: Any, inputs: tuple[Any, ...]) -> float:
    """DeepSpeed's flops profiler, in FLOP; it counts norms and activations too."""
    profile = importlib.import_module("deepspeed.profiling.flops_profiler").get_model_profile
    found = profile(
        model, args=list(inputs), print_profile=False, detailed=False, warm_up=0, as_string=False, mode="forward"
    )
    return float(found[0])


def torchinfo(model: Any, inputs: tuple[Any, ...]) -> float:
    """torchinfo counts multiply-adds."""
    summary = importlib.import_module("torchinfo").summary
    where = inputs[0].device
    return 2.0 * float(summary(model, input_data=list(inputs), verbose=0, device=where).total_mult_adds)


PEERS: dict[str, Callable[[Any, tuple[Any, ...]], float]] = {
    "torch FlopCounterMode": flop_counter_mode, "torch FlopCounterMode, training": flop_counter_mode_training,
    "torch.profiler with_flops": profiler, "fvcore": fvcore, "calflops": calflops, "DeepSpeed": deepspeed,
    "torchinfo": torchinfo,
}  # fmt: skip
OURS = {"gobrrr": False, "gobrrr, training": True}
"""Whether the backward pass is counted."""
TOOLS = (*OURS, *PEERS)
NEEDS = {"fvcore": "fvcore", "calflops": "calflops", "DeepSpeed": "deepspeed", "torchinfo": "torchinfo"}


def ratio(tool: str, case: Case, where: str) -> float:
    """What the tool counts over the closed form in its convention."""
    if tool in OURS:
        found = counted(case, where, training=OURS[tool])
        return float(found.flop_contraction) / (case.form.training if OURS[tool] else case.form.forward)
    with on_device(where):
        model, inputs = case.build()
    expected = case.form.square_training if tool.endswith("training") else case.form.square
    with on_device(where):
        return PEERS[tool](model.train(tool.endswith("training")), inputs) / expected


def count_one(tool: str, model: str, where: str) -> NoReturn:
    """In a process of its own, since a counter that fails may leave torch's functions replaced: prints one line."""
    warnings.simplefilter("ignore")
    case = _case(model, where)
    try:
        found: dict[str, Any] = {"ratio": ratio(tool, case, where)}
    except Exception as error:  # whatever a peer raises is its result
        found = {"error": _first_line(error)}
    print(json.dumps(found), flush=True)
    os._exit(0)  # nothing that a peer does at its end may print after the answer


def _case(model: str, where: str) -> Case:
    return next(case for case in (SMALL if where == "cpu" else CASES) if case.name == model)


def _first_line(error: BaseException) -> str:
    """Of what was the matter at first."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [text_line for text_line in str(error).splitlines() if text_line.strip()]
    return f"{type(error).__name__}: {lines[0].strip() if lines else ''}"[:LONGEST_ERROR]


def measure(tool: str, model: str, where: str) -> dict[str, Any]:
    """One result: a ratio or an error."""
    row = {"tool": tool, "model": model, "device": where, "size": _case(model, where).what}
    return {**row, **answer("bench.compare_counters", ONE, tool, model, where, limit_s=LIMIT_S)}


def versions() -> dict[str, str]:
    """Of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main(arguments: list[str]) -> int:
    if arguments[:1] == [ONE]:
        count_one(*arguments[1:4])
    there = versions()
    tools = [tool for tool in TOOLS if NEEDS.get(tool, "torch") in there and tool in (arguments[:1] or TOOLS)]
    models = [case.name for case in CASES if case.name in (arguments[1:] or [each.name for each in CASES])]
    rows = []
    for tool in tools:
        for model in models:
            for where in ("meta", "cpu"):
                row = measure(tool, model, where)
                rows.append(row)
                result = f"{row['ratio']:.4f}" if "ratio" in row else f"ERR {row['error']}"
                print(f"{tool:32s} {model:20s} {row['device']:5s} {result}", flush=True)
    missing = [tool for tool in TOOLS if tool not in tools]
    if arguments:
        return 0
    results = {
        "command": "python -m bench.compare_counters",
        "date": pages.today(),
        "device": f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)",
        "limit_s": LIMIT_S,
        "versions": there,
        "not_installed": missing,
        "rows": rows,
    }
    pages.write(RESULTS, results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
