"""torch.compile in place: of the model, of its blocks, of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.model.workload import Workload
from gobrrr.treatments.framework import applying
from tests.treatments.ways.making import (
    Net,
    closure,
    inference,
    nn,
    restores,
    run,
    same_training,
    torch,
    training,
    way_of,
    why_not,
)

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

NAMES = ("compile", "compile:regional", "compile:max-autotune")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch):
    """Graphs are run as they are: inductor's kernels are its own matter."""
    monkeypatch.setattr(applying, "BACKEND", "eager")


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the graphs that are compiled."""
    made: list[int] = []

    def backend(graph, inputs):
        made.append(len(graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(applying, "BACKEND", backend)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_compiled_in_place_once_and_as_before_afterwards(name: str, graphs: list[int]):
    workload = inference()
    expected = run(workload)[0]
    way, kept = way_of(name, workload), {}
    for _ in range(3):
        with way.apply(workload, kept) as treated:
            torch.testing.assert_close(run(treated)[0], expected)
        assert workload.model._compiled_call_impl is None
    assert len(graphs) == 1  # two blocks share their code
    restores(way, workload)


@pytest.mark.parametrize("name", NAMES)
def test_a_closure_over_the_model_sees_it(name: str, graphs: list[int]):
    workload = closure(training())
    with way_of(name, workload).apply(workload, {}) as treated:
        run(treated)
    assert graphs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [training, lambda: closure(training())])
def test_training_gets_the_same_losses_and_parameters(name: str, make):
    same_training(name, make)


def test_two_arms_share_no_compiled_code(graphs: list[int]):
    """What one arm recompiles is not counted for the other."""
    workload = inference()
    way = way_of("compile", workload)
    for kept in ({}, {}):
        with way.apply(workload, kept) as treated:
            run(treated)
    assert len(graphs) == 2


def test_a_step_without_a_model_is_compiled_itself(graphs: list[int]):
    workload = Workload(step=lambda x: (x + 1).relu() * 2, inputs=(torch.randn(3),))
    way = way_of("compile", workload)
    with way.apply(workload, {}) as treated:
        torch.testing.assert_close(run(treated)[0], run(workload)[0])
    assert graphs
    assert "which model the step runs" in why_not("compile:regional", workload)


def test_a_callable_that_is_no_module_is_compiled(graphs: list[int]):
    workload = Workload(model=lambda x: x.sin().cos(), inputs=(torch.randn(3),))
    with way_of("compile", workload).apply(workload, {}) as treated:
        torch.testing.assert_close(run(treated)[0], run(workload)[0])
    assert graphs


def test_what_is_compiled_already_is_unfit():
    workload = inference()
    assert "already" in why_not("compile", replace(workload, model=torch.compile(Net(), backend="eager")))
    for block in workload.model.blocks:
        block.compile(backend="eager")
    assert "already" in why_not("compile:regional", workload)
    workload.model.compile(backend="eager")
    assert "already" in why_not("compile", workload)


def test_regions_need_blocks_that_repeat():
    assert "no repeated blocks" in why_not(
        "compile:regional", inference(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)))
    )
    assert "Block" in way_of("compile:regional", inference()).code


def test_cuda_graphs_need_cuda():
    assert "CUDA" in why_not("compile:reduce-overhead", inference())
    assert "CUDA" in why_not("compile:max-autotune-graphs", inference())
