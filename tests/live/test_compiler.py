from __future__ import annotations

import logging
import re
import subprocess
import sys
import textwrap
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.model.live import Compiled  # noqa: E402
from gobrrr.observe.live.watches.compiler import CompilerWatch  # noqa: E402
from tests.live import program  # noqa: E402

Step = Callable[[int], Any]
WARNINGS = logging.getLogger("torch._dynamo")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    level = WARNINGS.level
    yield
    WARNINGS.setLevel(level)
    torch._dynamo.reset()


def observed(step: Step, warmup: int = 2, window: int = 12) -> Compiled:
    watch = CompilerWatch()
    watch.open()
    try:
        for at in range(warmup):
            step(at)
        watch.window_begins()
        for at in range(window):
            step(warmup + at)
            watch.step(at)
        watch.window_ends(window)
    finally:
        watch.close()
    return watch.found()


def at(mark: str, function: str) -> str:
    return f"{program.__file__}({program.line_of(mark)}): {function}"


def compiled(function: Any, **settings: Any) -> Any:
    return torch.compile(function, backend="eager", **settings)


def test_a_branch_on_item_breaks_the_graph_at_the_users_line() -> None:
    x = torch.ones(4)
    step = compiled(program.branches)
    found = observed(lambda _: step(x))
    assert [(one.source, one.count) for one in found.breaks] == [(at("item", "branches"), 1)]
    assert "item" in found.breaks[0].reason
    torch._dynamo.reset()
    told = torch._dynamo.explain(program.branches)(x)
    assert sum(one.count for one in found.breaks) == told.graph_break_count
    assert found.graphs == told.graph_count
    assert found.steady_compiles == 0
    assert found.recompiles == ()
    assert not found.limit_hit


def test_a_print_breaks_the_graph_at_the_users_line() -> None:
    step = compiled(program.prints)
    found = observed(lambda _: step(torch.ones(4)))
    assert [one.source for one in found.breaks] == [at("print", "prints")]
    assert "print" in found.breaks[0].reason
    assert found.graphs == 2


def test_a_break_in_a_loop_leaves_the_function_alone() -> None:
    step = compiled(program.prints_in_a_loop)
    found = observed(lambda _: step(torch.ones(4)))
    assert found.graphs == 0
    assert [one.source for one in found.breaks] == [at("loop", "prints_in_a_loop")]
    assert "no graph at all" in found.breaks[0].reason


def test_shapes_that_change_are_compiled_until_the_limit() -> None:
    step = compiled(program.scaled, dynamic=False)
    found = observed(lambda at: step(torch.ones(2 + at)))
    limit = torch._dynamo.config.recompile_limit
    assert found.graphs == limit
    assert found.limit_hit
    assert found.steady_compiles == limit - 2
    assert [(one.function, one.source, one.count) for one in found.recompiles] == [
        ("scaled", at("scaled", "scaled"), limit - 1)
    ]
    assert "size mismatch at index 0" in found.recompiles[0].reason


def test_a_limit_hit_in_warm_up_is_told_with_its_function() -> None:
    step = compiled(program.scaled, dynamic=False)
    found = observed(lambda at: step(torch.ones(2 + at)), warmup=12, window=3)
    assert found.limit_hit
    assert found.steady_compiles == 0
    assert [one.function for one in found.recompiles] == ["scaled"]


def test_an_int_that_the_module_changes_is_the_guard_that_fails() -> None:
    step = compiled(program.Counting())
    found = observed(lambda _: step(torch.ones(3)))
    assert found.limit_hit
    assert [one.source for one in found.recompiles] == [at("counting", "forward")]
    assert "calls ==" in found.recompiles[0].reason
    assert "HINT" not in found.recompiles[0].reason


def test_dynamic_shapes_are_compiled_once_more_and_then_no_more() -> None:
    step = compiled(program.scaled)
    found = observed(lambda at: step(torch.ones(2 + at)))
    assert found.graphs == 2
    assert found.steady_compiles == 0
    assert not found.limit_hit
    assert found.recompiles == ()


def test_a_healthy_step_with_its_backward_pass() -> None:
    model = torch.nn.Linear(4, 4)
    step = torch.compile(model, backend="aot_eager")
    found = observed(lambda _: step(torch.ones(2, 4)).sum().backward())
    assert found == Compiled(graphs=1)


def test_a_step_that_is_not_compiled() -> None:
    assert observed(lambda _: program.plain(torch.ones(4))) == Compiled(graphs=0)


def test_a_reset_of_the_compiler_in_between_is_no_harm() -> None:
    step = compiled(program.branches)

    def restarted(at: int) -> None:
        if at == 1:
            torch._dynamo.reset()
        step(torch.ones(4))

    found = observed(restarted)
    assert found.breaks[0].source == at("item", "branches")
    assert found.steady_compiles == 0


def test_what_was_compiled_before_does_not_count() -> None:
    step = compiled(program.branches)
    step(torch.ones(4))
    assert observed(lambda _: step(torch.ones(4))) == Compiled(graphs=0)


def test_cuda_graphs_that_were_skipped_are_told_with_the_reason() -> None:
    logger = logging.getLogger("torch._inductor.cudagraph_utils.__cudagraphs")
    handlers, propagate = list(logger.handlers), logger.propagate
    logger.handlers, logger.propagate = [logging.NullHandler()], False
    try:
        found = observed(lambda _: logger.warning("skipping cudagraphs due to mutated inputs (1 instances)"), 0, 3)
    finally:
        logger.handlers, logger.propagate = handlers, propagate
    assert found.cudagraph_skips == (("skipping cudagraphs due to mutated inputs (1 instances)", 3),)


def test_loggers_and_callbacks_are_as_they_were_after_an_exception() -> None:
    handler = torch._dynamo.callback.callback_handler
    callbacks = list(handler.end_callbacks)
    loggers = {
        name: (one.level, one.propagate, list(one.handlers), list(one.filters))
        for name, one in logging.Logger.manager.loggerDict.items()
        if isinstance(one, logging.Logger) and name.startswith("torch")
    }
    step = compiled(program.branches)
    with pytest.raises(ZeroDivisionError):
        observed(lambda at: (step(torch.ones(4)), 1 // (at - 1)))
    assert handler.end_callbacks == callbacks
    for name, before in loggers.items():
        one = logging.getLogger(name)
        assert (one.level, one.propagate, one.handlers, one.filters) == before


def test_a_step_costs_next_to_nothing() -> None:
    watch = CompilerWatch()
    watch.open()
    watch.window_begins()
    try:
        assert min(timeit.repeat(lambda: watch.step(0), number=1000, repeat=5)) / 1000 < 2e-6
    finally:
        watch.close()


def _run(folder: Path, watched: bool, logs: str) -> tuple[str, str]:
    root = Path(__file__).resolve().parents[2]
    script = folder / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            import torch
            from gobrrr.observe.live.watches.compiler import CompilerWatch

            def step(x):
                if x.sum().item() > 0:
                    x = x * 2
                return x + 1

            watch = CompilerWatch() if {watched} else None
            if watch:
                watch.open()
            assert "torch._dynamo" not in sys.modules
            if watch:
                early = CompilerWatch()
                early.open(); early.window_begins(); early.step(0); early.window_ends(1); early.close()
                assert early.found().graphs == 0 and early.compiles == 0
            assert "torch._dynamo" not in sys.modules
            fast = torch.compile(step, backend="eager", dynamic=False)
            for size in range(2, 14):
                fast(torch.ones(size))
            if watch:
                watch.window_begins(); watch.window_ends(1); watch.close()
                found = watch.found()
                assert found.limit_hit and found.recompiles, found
                assert {{one.source for one in found.breaks}} == {{__file__ + "(7): step"}}, found
            """
        )
    )
    env = {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    env |= {"TORCH_LOGS": logs} if logs else {}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    # times and process numbers differ from run to run
    return done.stdout, re.sub(r"(?m)^([A-Z])\d{4} [\d:.]+ \d+ ", r"\1 ", done.stderr)


@pytest.mark.slow  # four processes that load torch and its compiler
@pytest.mark.parametrize("logs", ["", "graph_breaks,recompiles"])
def test_a_compiler_that_is_imported_late_is_seen_and_says_what_it_says_without(tmp_path: Path, logs: str) -> None:
    assert _run(tmp_path, True, logs) == _run(tmp_path, False, logs)


@pytest.mark.slow
def test_more_compilations_than_the_compiler_remembers() -> None:
    functions: dict[str, Any] = {}
    for number in range(80):
        exec(f"def f{number}(x):\n    return x + {number}\n", functions)
    steps = [compiled(functions[f"f{number}"], dynamic=False) for number in range(80)]

    def step(at: int) -> None:
        for one in steps:
            one(torch.ones(2 + at))

    found = observed(step, warmup=1, window=1)
    assert found.graphs == 160
    assert found.steady_compiles == 80
    assert len(found.recompiles) == 80
