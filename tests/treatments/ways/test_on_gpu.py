"""Every way on a device: it is entered twice, computes what the workload computes, and leaves it as it was."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace

import pytest

from gobrrr.treatments.framework.way import NotApplicable
from tests.treatments.ways.making import (
    Net,
    OfTheStep,
    Pictures,
    closure,
    inference,
    nn,
    run,
    state_of,
    torch,
    trained,
    training,
    way_of,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # the compiler's own, as it is loaded and traces
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def moved(workload):
    """The same on the device; its optimizer holds the very parameters, which stay the objects that they are."""
    device = torch.device("cuda")
    for one in [*workload.model.parameters(), *workload.model.buffers()]:
        one.data = one.data.to(device)
    on = {name: tuple(one.to(device) for one in getattr(workload, name)) for name in ("inputs", "targets")}
    return replace(workload, **on)


def trains():
    torch.manual_seed(0)
    return moved(training(Net(64, 3), torch.randn(4, 64)))


def trains_pictures():
    torch.manual_seed(0)
    return moved(training(Pictures(), torch.rand(4, 3, 32, 32)))


def trains_odd():
    torch.manual_seed(0)
    return moved(training(Net(64, 101), torch.randn(4, 64)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(64, 192)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (1, 64)).transpose(1, 2) for one in self.mix(x).chunk(3, -1))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(out.transpose(1, 2).flatten(2).mean(1))


def trains_attention():
    torch.manual_seed(0)
    workload = moved(training(Attention(), torch.randn(4, 16, 64)))
    return replace(workload, around=(lambda: torch.autocast("cuda", torch.bfloat16),))


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1))


def trains_asking():
    torch.manual_seed(0)
    return moved(training(Asking(), torch.randn(4, 16, 64)))


def trains_looped():
    """An optimizer that goes from one parameter to the next."""
    torch.manual_seed(0)
    return moved(training(Net(64, 3), torch.randn(4, 64), foreach=False))


def loads():
    workload = trains()
    data = torch.utils.data.TensorDataset(torch.randn(16, 64), torch.arange(16) % 3)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    return replace(workload, inputs=(), targets=(), loader=loader)


CASES = [
    ("compile", trains, 1e-3), ("compile:regional", trains, 1e-3), ("compile:max-autotune", trains, 1e-3),
    ("compile:reduce-overhead", trains, 1e-3), ("compile:max-autotune-graphs", trains, 1e-3),
    ("cuda-graph", trains, 1e-4), ("cuda-graph:forward", trains, 1e-4),
    ("bf16-autocast", trains, 5e-2), ("tf32", trains, 1e-2), ("channels-last", trains_pictures, 1e-2),
    ("cudnn-benchmark", trains_pictures, 1e-2), ("fused-optimizer", trains, 1e-4),
    ("fused-optimizer:foreach", trains_looped, 1e-4), ("pad-dimensions", trains_odd, 1e-3),
    ("sdpa:cudnn-first", trains_attention, 5e-2), ("sdpa:flash-first", trains_attention, 5e-2),
    ("sdpa:efficient-first", trains_attention, 5e-2), ("need-weights-false", trains_asking, 1e-3),
    ("checkpoint", trains, 1e-4), ("activation-budget", trains, 1e-3), ("prefetch-pinned", loads, 1e-4),
    ("dataloader-workers", loads, 1e-4), ("gc-freeze", trains, 1e-4),
]  # fmt: skip


@pytest.mark.parametrize("make", [lambda one: one, closure], ids=["loss", "step"])
@pytest.mark.parametrize(("name", "case", "rtol"), CASES, ids=[name for name, *_ in CASES])
def test_training_is_the_same_in_two_visits_and_everything_as_before(name, case, rtol, make):
    if make is closure and name.startswith(("compile:max-autotune", "compile:regional", "activation-budget")):
        pytest.skip("compiling takes time, and the closure sees it as it sees `compile`")
    plain, treated = case(), case()
    if plain.loader is None:
        plain, treated = make(plain), make(treated)
    elif make is closure:
        pytest.skip("a loader feeds the model and its loss here")
    losses, parameters = trained(plain, steps=4)
    way, kept, found = way_of(name, treated), {}, []
    for _ in range(2):
        with way.apply(treated, kept) as applied:
            found += [float(one.detach()) for one in run(applied, 2)]
    expected = losses if plain.loader is None else losses[:2] * 2
    assert found == pytest.approx(expected, rel=max(rtol, 1e-3), abs=rtol) or plain.loader is not None
    # Adam goes a step of lr whichever way a gradient of nothing but rounding points
    atol = 1e-3 if rtol < 1e-3 else 0.1
    for one, other in zip(treated.model.parameters(), parameters, strict=True):
        if plain.loader is None:
            torch.testing.assert_close(one.detach(), other, rtol=rtol, atol=atol)
    before = state_of(treated)
    with way.apply(treated, kept):
        pass
    assert state_of(treated) == before
    with pytest.raises(OfTheStep), way.apply(treated, kept):
        raise OfTheStep
    assert state_of(treated) == before


INFERENCE = [("compile", 1e-3), ("compile:reduce-overhead", 1e-3), ("compile:max-autotune-graphs", 1e-3),
             ("cuda-graph", 1e-5), ("bf16-cast", 5e-2),
             ("bf16-autocast", 5e-2), ("tf32", 1e-2), ("pad-dimensions", 1e-3)]  # fmt: skip


@pytest.mark.parametrize(("name", "rtol"), INFERENCE)
def test_inference_is_the_same_and_a_result_outlives_the_next_one(name: str, rtol: float):
    torch.manual_seed(0)
    workload = moved(inference(Net(64, 101), torch.randn(4, 64)))
    expected = run(workload)[0]
    way, kept = way_of(name, workload), {}
    for _ in range(2):
        before = state_of(workload)
        with way.apply(workload, kept) as treated:
            first, *_, last = run(treated, 4)
            for one in (first, last):
                torch.testing.assert_close(one.float(), expected, rtol=rtol, atol=rtol)
            assert first.data_ptr() != last.data_ptr()
        assert state_of(workload) == before


def test_random_numbers_go_on_in_a_graph():
    workload = moved(inference(nn.Dropout(0.5).train(), torch.ones(1000)))
    workload.model.train()
    workload = replace(workload, step=lambda x: workload.model(x))
    with way_of("cuda-graph", workload).apply(workload, {}) as treated:
        first, second = run(treated, 2)
    assert not torch.equal(first, second)


def test_a_step_that_waits_for_the_device_is_not_captured_and_left_as_it_was():
    workload = closure(trains())
    inner = workload.step

    def reads(x, y):
        loss = inner(x, y)
        return loss if loss.item() > 0 else loss * 2

    waiting = replace(workload, step=reads)
    run(waiting)
    before = state_of(waiting)
    with pytest.raises(NotApplicable, match="waits for the device"), way_of("cuda-graph", waiting).apply(waiting, {}):
        pass
    assert state_of(waiting) == before
    assert run(waiting)  # the device goes on


STACKS = [
    ("fused-optimizer", "cuda-graph"), ("compile", "cuda-graph"), ("bf16-autocast", "cuda-graph"),
    ("compile", "bf16-autocast"), ("bf16-autocast", "cuda-graph:forward"), ("fused-optimizer", "compile"),
]  # fmt: skip


@pytest.mark.parametrize("names", STACKS, ids=" + ".join)
def test_ways_stand_on_each_other(names):
    plain, treated = trains(), trains()
    losses, _ = trained(plain, steps=4)
    kept = [{}, {}]
    found = []
    for _ in range(2):
        ways = sorted((way_of(name, treated) for name in names), key=lambda one: one.rank)
        with ways[0].apply(treated, kept[0]) as one, ways[1].apply(one, kept[1]) as both:
            found += [float(loss.detach()) for loss in run(both, 2)]
    assert found == pytest.approx(losses, rel=5e-2)


@pytest.mark.parametrize("name", ["int8-weights", "fp8"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_weights_in_fewer_bits_are_swapped_in(name: str, compiled: bool):
    pytest.importorskip("torchao")
    workload = moved(inference(Net(64, 32), torch.randn(32, 64)))
    workload.model.to(torch.bfloat16)
    workload = replace(workload, inputs=tuple(one.to(torch.bfloat16) for one in workload.inputs))
    expected = run(workload)[0]
    own = copy.copy(workload.model.head._parameters)
    ways = [way_of(name, workload), *([way_of("compile", workload)] if compiled else [])]
    with contextlib.ExitStack() as stack:
        treated = workload
        for one in sorted(ways, key=lambda way: way.rank):
            treated = stack.enter_context(one.apply(treated, {}))
        out = run(treated)[0]
    assert not torch.equal(out, expected)  # a few bits less: it was applied
    torch.testing.assert_close(out, expected, rtol=0.1, atol=0.1)
    assert workload.model.head._parameters == own
    assert torch.equal(run(workload)[0], expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_training_in_float8_changes_the_very_parameters(compiled: bool):
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    workload = training(Net(64, 16), torch.randn(32, 64))
    workload = moved(replace(workload, targets=(torch.randint(0, 16, (32,)),)))
    workload = replace(workload, around=(lambda: torch.autocast("cuda", torch.bfloat16),))
    before = workload.model.head.weight.detach().clone()
    own = dict(workload.model.named_modules())
    ways = [way_of("fp8", workload), *([way_of("compile", workload)] if compiled else [])]
    with contextlib.ExitStack() as stack:
        treated = workload
        for one in sorted(ways, key=lambda way: way.rank):
            treated = stack.enter_context(one.apply(treated, {}))
        losses = [float(loss.detach()) for loss in run(treated, 4)]
    assert losses[-1] < losses[0]
    assert not torch.equal(workload.model.head.weight, before)
    assert dict(workload.model.named_modules()) == own
