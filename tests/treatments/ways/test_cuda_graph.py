"""CUDA graphs, with a graph that runs the step again where there is no device."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gobrrr.treatments.framework import applying, capturing
from gobrrr.treatments.framework.way import NotApplicable
from tests.treatments.ways.making import (
    Net,
    OfTheStep,
    closure,
    inference,
    restores,
    run,
    state_of,
    torch,
    trained,
    training,
    untouched,
    way_of,
    why_not,
)

NAMES = ("cuda-graph", "cuda-graph:forward")


class Side:
    def wait_stream(self, other):
        return None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch):
    """A graph that holds the callable that was captured, and runs it again on the very same tensors."""
    captured = []
    modes = []

    class Graph:
        def replay(self):
            again, own = self.step
            for one, new in zip(applying.tensors_of(self.result), applying.tensors_of(again(*own)), strict=True):
                one.data.copy_(new.detach())

    @contextmanager
    def graph(made, pool=None):
        captured.append(made)
        yield
        return

    own_step = applying.whole_step

    def whole_step(workload):
        step, inputs = own_step(workload)

        def called(*given):
            result = step(*given)
            if modes and modes[-1] == "error" and getattr(step, "waits", False):
                raise RuntimeError("called a synchronizing CUDA operation")
            if captured and not hasattr(captured[-1], "step"):
                captured[-1].step, captured[-1].result = (step, given), result
            return result

        return called, inputs

    monkeypatch.setattr(applying, "whole_step", whole_step)
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "Stream", Side)
    monkeypatch.setattr(torch.cuda, "current_stream", Side)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    # the check of a real Adam that it is captured on a device with which it can be
    monkeypatch.setattr(torch.optim.Optimizer, "_cuda_graph_capture_health_check", lambda self: None)
    return captured


def fits(workload):
    """As if its tensors were on the device."""
    from gobrrr.treatments import cuda_graph

    return SimpleNamespace(apply=cuda_graph._step) if workload else None


def plain_sgd():
    return training(kind=torch.optim.SGD, momentum=0.9)


@pytest.mark.parametrize("make", [plain_sgd, lambda: closure(plain_sgd())])
@pytest.mark.parametrize("before", [0, 2])
def test_replays_train_as_steps_do(device, make, before: int):
    plain, treated = make(), make()
    run(plain, before)
    run(treated, before)
    expected, kept, losses = trained(plain, steps=4), {}, []
    for _ in range(2):
        with fits(treated).apply(treated, kept) as graphed:
            losses += [float(one) for one in run(graphed, 2)]
    assert losses == pytest.approx(expected[0])
    for one, other in zip(treated.model.parameters(), expected[1], strict=True):
        torch.testing.assert_close(one.detach(), other)
    assert len(device) == 1


def test_steps_between_two_visits_are_seen_by_the_graph(device):
    plain, treated, kept = plain_sgd(), plain_sgd(), {}
    expected = trained(plain, steps=3)
    with fits(treated).apply(treated, kept) as graphed:
        run(graphed)
    run(treated)
    with fits(treated).apply(treated, kept) as graphed:
        run(graphed)
    for one, other in zip(treated.model.parameters(), expected[1], strict=True):
        torch.testing.assert_close(one.detach(), other)


@pytest.mark.parametrize("stepped", [0, 2])
def test_capturing_leaves_the_workload_as_it_was(device, stepped: int):
    workload = plain_sgd()
    run(workload, stepped)
    workload.model.head.weight.grad = torch.ones_like(workload.model.head.weight)
    kept = {}
    random = torch.get_rng_state()
    before = state_of(workload)
    with fits(workload).apply(workload, kept):
        pass
    after = state_of(workload)
    if not stepped:  # the state that the first step would have made is there, and zero
        assert not any(one.any() for state in workload.optimizer.state.values() for one in state.values())
        workload.optimizer.state.clear()
        after = state_of(workload)
    assert after == before
    assert torch.equal(torch.get_rng_state(), random)
    run(workload)
    with untouched(workload), pytest.raises(OfTheStep), fits(workload).apply(workload, kept):
        raise OfTheStep


def test_a_result_outlives_the_next_replay_and_inputs_are_copied_in(device):
    workload = inference()
    with fits(workload).apply(workload, {}) as graphed:
        first = run(graphed)[0]
        other = torch.randn(4, 8)
        second = graphed.step(other)
        torch.testing.assert_close(first, workload.model(workload.inputs[0]))
        torch.testing.assert_close(second, workload.model(other))
    restores(fits(workload), workload, steps=False)


def test_the_optimizer_is_capturable_inside_and_counts_where_it_counted(device):
    workload = training()
    run(workload)
    group, weight = workload.optimizer.param_groups[0], workload.model.head.weight
    step = workload.optimizer.state[weight]["step"]
    with applying.ExitStack() as stack:
        capturing.capturable(stack, workload.optimizer)
        assert group["capturable"]
    assert not group["capturable"]
    assert workload.optimizer.state[weight]["step"] is step


def test_what_a_replay_would_not_do_is_refused(device):
    workload = plain_sgd()
    optimizer, inner = workload.optimizer, closure(workload)

    def scheduled(x, y):
        loss = inner.step(x, y)
        optimizer.param_groups[0]["lr"] *= 0.5
        return loss

    def noisy(x, y):
        return inner.step(x + torch.rand(1), y)

    def writes(x, y):
        return inner.step(x.add_(1), y)

    for step, why in ((scheduled, "learning rate"), (noisy, "random numbers"), (writes, "writes into its inputs")):
        broken = replace(inner, step=step)
        with (
            untouched(broken),
            pytest.raises(NotApplicable, match=why),
            fits(broken).apply(broken, {}),
        ):
            pass


def test_a_step_that_waits_for_the_device_is_not_captured(device):
    def step(x):
        return x

    step.waits = True
    workload = replace(inference(), step=step)
    why = r"waits for the device inside it \(test_cuda_graph.py:\d+\)"
    with untouched(workload), pytest.raises(NotApplicable, match=why):
        fits(workload).apply(workload, {}).__enter__()
    assert not device


def test_what_can_not_be_captured_says_so_in_one_line(device):
    def step(x):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    workload = replace(inference(), step=step)
    with pytest.raises(NotApplicable, match=r"can't be captured: RuntimeError: operation not permitted[^\n]*$"):
        fits(workload).apply(workload, {}).__enter__()


def test_graphs_need_cuda_and_inputs_on_it(monkeypatch: pytest.MonkeyPatch):
    for name in NAMES:
        assert "CUDA" in why_not(name, training())
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    for name in NAMES:
        assert "on the host" in why_not(name, training())
        assert "loader" in why_not(name, replace(training(), inputs=(), targets=(), loader=[(1, 2)]))
    bare = replace(closure(training()), inputs=())
    assert way_of(NAMES[0], bare).conflicts == {"compile:reduce-overhead", NAMES[1]}
    assert "does not name" in why_not(NAMES[0], replace(bare, optimizer=None))
    alone = replace(bare, step=lambda: bare.model)
    assert "not known" in why_not(NAMES[0], replace(alone, optimizer=object()))
    adagrad = torch.optim.Adagrad(bare.model.parameters())
    assert "Adagrad" in why_not(NAMES[0], replace(alone, optimizer=adagrad))
    damped = torch.optim.SGD(bare.model.parameters(), lr=0.1, momentum=0.9, dampening=0.1)
    assert "dampening" in why_not(NAMES[0], replace(alone, optimizer=damped))
    assert "which model" in why_not(NAMES[1], replace(bare, model=None))
    assert "only the forward pass" in why_not(NAMES[1], replace(inference(), inputs=()))


def graphed_callables(model, given, allow_unused_input=False):
    own = model.forward
    model.forward = lambda *args: own(*args)


def test_the_forward_is_captured_in_place(device, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", graphed_callables)
    from gobrrr.treatments import cuda_graph

    way = SimpleNamespace(apply=cuda_graph._forward)
    workload = closure(training())
    with untouched(workload), way.apply(workload, {}):
        assert "forward" in vars(workload.model)
    restores(way, workload)


def test_a_forward_that_a_graph_can_not_stand_for_is_refused(device, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", graphed_callables)
    from gobrrr.treatments import cuda_graph

    class Keyed(Net):
        def forward(self, x, scale=1):
            return super().forward(x) * scale

    model = Keyed().eval()
    cases = (
        (lambda x: model(model(x) @ torch.ones(3, 8)), "2 times"),
        (lambda x: model(x, scale=2), "keywords"),
        (lambda x: model(x, 2), "not tensors"),
    )
    for step, why in cases:
        workload = replace(inference(model), step=step)
        with untouched(workload), pytest.raises(NotApplicable, match=why), cuda_graph._forward(workload, {}):
            pass
