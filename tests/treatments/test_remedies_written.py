"""Every remedy's text is Python; the names and arguments of torch in it exist; and each is run by a test, or can't be.

tests/treatments/test_remedies_run.py runs those that a program on a CPU can be sick for.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.analysis.findings.evidence import Evidence  # noqa: E402
from gobrrr.model.live import Switches  # noqa: E402
from gobrrr.treatments import Treatment, catalogue  # noqa: E402
from tests.conditions.lives import live_of  # noqa: E402
from tests.conditions.makers import extra, indexing, shipped  # noqa: E402
from tests.conditions.test_loops import reading, recurrence  # noqa: E402
from tests.evidence import watched  # noqa: E402
from tests.treatments.remedies.examples import EXAMPLES  # noqa: E402
from tests.treatments.remedies.on_gpu import EXAMPLES as ON_GPU  # noqa: E402
from tests.treatments.remedies.pasting import is_advice  # noqa: E402
from tests.treatments.test_predictions import OWN, about  # noqa: E402
from tests.treatments.ways.test_form import codes  # noqa: E402

AS_IT_IS = {
    "allocator": "O06", "comm-overlap": "N01", "cudnn-benchmark": "C06", "eager-trace": "Q03", "no-sync": "N02",
    "preallocate": "M10", "record-shapes": "Q02", "static-shapes": "O05", "tf32": "C01", "warm-up": "O05",
}  # fmt: skip
"""Run here as it stands: what it is for is the matter of a GPU, of several processes or of a trace."""

ADVICE = {
    "batched-loop": "O04", "bucket-or-pack": "M11", "free-host": "O13", "other-form": "C07",
    "compute-once": "R02", "kv-cache": "R03", "index-batch": "D01", "let-go": "R04",
    "hoist-product": "O04", "inference-mode": "R05", "lighter-hook": "O14",
    "grouped-matmul": "O04", "keep-order": "M09", "log-less": "O12",
    "need-weights-false": "M02", "no-autocast": "M04", "no-barrier": "N03", "no-checkpoint": "R01",
    "fewer-groups": "O03", "pad-dimensions": "C02", "read-once": "O02", "recurrent-layer": "O04", "remove-sync": "O02",
    "reorder-contraction": "C05", "whole-graph": "O10",
}  # fmt: skip
"""Comments, with the line that they are about: what to write there depends on more than is seen."""

WAYS_ALONE = {"activation-budget", "checkpoint", "fp8", "int8-weights", "set-to-none"}
"""No finding is for them: `gobrrr treat` alone shows them, and tests of ways run what they do."""


def test_each_remedy_is_run_or_it_is_said_why_not() -> None:
    run = {one.treatment for one in [*EXAMPLES, *ON_GPU]}
    kinds = [run, set(AS_IT_IS) - run, set(ADVICE), WAYS_ALONE]
    assert sum(map(len, kinds)) == len(set().union(*kinds))
    assert set().union(*kinds) == {one.name for one in catalogue()}
    assert {name for name, codes in OWN.items() if not codes} == {*WAYS_ALONE, "max-autotune"}


PREDICT = {one.name: one.predict for one in catalogue()}


def text_of(name: str, code: str, evidence: Evidence) -> str:
    plan = PREDICT[name](evidence, about(code, name))
    assert plan is not None
    return plan.how


@pytest.mark.parametrize("name", ADVICE)
def test_advice_is_a_comment(name: str, launch_bound: Evidence, tmp_path: Path) -> None:
    about_it: dict[str, Callable[[], Evidence]] = {
        "grouped-matmul": lambda: shipped("moe_host_loop.faulty"),
        "batched-loop": lambda: shipped("moe_host_loop.faulty"),
        "recurrent-layer": lambda: extra("holdout/lstm_cells"),
        "read-once": lambda: reading(tmp_path),
        "hoist-product": lambda: recurrence(tmp_path),
        "index-batch": lambda: indexing(tmp_path),
        "no-autocast": lambda: watched(launch_bound, live=live_of(switches=Switches(autocast="bfloat16"))),
    }
    assert is_advice(text_of(name, ADVICE[name], about_it.get(name, lambda: launch_bound)()))


@contextmanager
def a_group(folder: Path) -> Iterator[None]:
    """A group of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture
def settings_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The switches that remedies turn are as they were."""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "")
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark


@pytest.mark.torch
@pytest.mark.parametrize("name", AS_IT_IS)
@pytest.mark.usefixtures("settings_back")
def test_a_text_runs_as_it_is(name: str, launch_bound: Evidence, tmp_path: Path) -> None:
    text = text_of(name, AS_IT_IS[name], launch_bound)
    with a_group(tmp_path) if name in ("comm-overlap", "no-sync") else nullcontext():
        model = torch.nn.Linear(2, 2)
        if name == "no-sync":
            model = torch.nn.parallel.DistributedDataParallel(model)
        x = y = torch.ones(1, 2)
        given: dict[str, Any] = {
            "torch": torch, "model": model, "x": x, "y": y, "loss_fn": torch.nn.functional.mse_loss,
            "step": lambda: model(x), "cache": torch.zeros(1, 2, 3), "at": 1, "new": torch.ones(1, 2, 1),
        }  # fmt: skip
        exec(text, given)
        given["model"](x)


@pytest.mark.torch
@pytest.mark.parametrize("treatment", catalogue(), ids=lambda one: one.name)
def test_what_a_text_names_of_torch_is_there(treatment: Treatment, launch_bound: Evidence) -> None:
    plans = [treatment.predict(launch_bound, about(code, treatment.name)) for code in OWN[treatment.name]]
    for text in [treatment.code_to_paste, *(one.how for one in plans if one is not None)]:
        assert not unknown(text), text


@pytest.mark.torch
def test_what_ways_show_names_is_there() -> None:
    for text in codes():
        assert not unknown(text), text


DOTTED = re.compile(r"torch(\.\w+)+")
NEWER = {"torch.nn.functional.grouped_mm"}
"""Not in all versions of torch that are supported: the explanation says so."""


def unknown(text: str) -> list[str]:
    """What a text names of torch that this torch has not: names, and arguments by keyword."""
    found = []
    for node in ast.walk(ast.parse(text)):
        spelled = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if DOTTED.fullmatch(spelled) and spelled not in NEWER and of_torch(spelled) is None:
            found.append(spelled)
        function = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        thing = of_torch(function) if DOTTED.fullmatch(function) else None
        if isinstance(node, ast.Call) and thing is not None:
            found += [f"{function}({one.arg}=)" for one in node.keywords if not takes(thing, one.arg)]
    return found


def of_torch(spelled: str) -> Any:
    """What a dotted name of torch stands for; None where there is nothing of the name."""
    thing: Any = torch
    for part in spelled.split(".")[1:]:
        try:
            thing = getattr(thing, part)
        except AttributeError:
            try:
                thing = import_module(f"{thing.__name__}.{part}")
            except (AttributeError, ImportError):
                return None
    return thing


def takes(thing: Any, argument: str | None) -> bool:
    """Whether a function or a class has an argument; of what does not say so it is believed."""
    try:
        parameters = inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return True
    return argument in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


@pytest.mark.torch
@pytest.mark.parametrize(
    "text",
    [
        "y = torch.no_such(x)", "torch.optim.Lion(p)", "torch.compile(f, modus='x')", "with torch.cuda.nothing(): pass",
        "optimizer = torch.optim.RMSprop(..., fused=True)",
    ],
)  # fmt: skip
def test_what_is_not_there_is_seen(text: str) -> None:
    assert len(unknown(text)) == 1
