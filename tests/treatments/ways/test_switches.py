"""Switches of the process and of an optimizer: the collector, threads, checks, cuDNN, foreach, zeros, fewer bits."""

from __future__ import annotations

import gc
import sys
import types
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gobrrr.treatments import limit_threads
from gobrrr.treatments import set_to_none as zeros
from gobrrr.treatments.framework import applying, quantizing
from tests.treatments.ways.making import (
    OfTheStep,
    Pictures,
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

swa = torch.optim.swa_utils


def visits(name, workload, inside, outside):
    """What holds inside and outside, in two visits and after an exception."""
    way, kept = way_of(name, workload), {}
    before = outside()
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            assert inside()
            run(treated)
        assert outside() == before
    with pytest.raises(OfTheStep), way.apply(workload, kept):
        raise OfTheStep
    assert outside() == before


def test_the_collector_is_off_and_what_lives_is_frozen():
    gc.unfreeze()  # tests/conftest.py has frozen what was collected
    visits(
        "gc-freeze", inference(), lambda: not gc.isenabled() and gc.get_freeze_count() > 0,
        lambda: (gc.isenabled(), gc.get_freeze_count() > 0),
    )  # fmt: skip
    gc.freeze()
    gc.disable()
    try:
        assert "off already" in why_not("gc-freeze", inference())
    finally:
        gc.enable()


def test_no_more_threads_than_processors(monkeypatch: pytest.MonkeyPatch):
    had = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        monkeypatch.setattr(limit_threads, "_processors", lambda: 3)
        visits("limit-threads", inference(), lambda: torch.get_num_threads() == 3, torch.get_num_threads)
        monkeypatch.setattr(limit_threads, "_processors", lambda: 8)
        assert "(2)" in way_of("limit-threads", inference()).code
        torch.set_num_threads(1)
        assert "one thread" in why_not("limit-threads", inference())
    finally:
        torch.set_num_threads(had)


def test_checks_that_are_on_are_off_inside():
    assert "no debug feature" in why_not("debug-off", training())
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
        try:
            workload = inference()
            assert len(way_of("debug-off", workload).code.splitlines()) == 3
            visits(
                "debug-off", workload,
                lambda: not (
                    torch.is_anomaly_enabled() or torch.are_deterministic_algorithms_enabled()
                    or torch.backends.cudnn.deterministic
                ),
                lambda: (
                    torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled(),
                    torch.are_deterministic_algorithms_enabled(),
                    torch.is_deterministic_algorithms_warn_only_enabled(), torch.backends.cudnn.deterministic,
                ),
            )  # fmt: skip
        finally:
            torch.use_deterministic_algorithms(False)
            torch.backends.cudnn.deterministic = False


def test_cudnn_times_its_algorithms_inside(monkeypatch: pytest.MonkeyPatch):
    workload = inference(Pictures(), torch.rand(2, 3, 6, 6))
    assert "CUDA" in why_not("cudnn-benchmark", workload)
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    visits("cudnn-benchmark", workload, lambda: torch.backends.cudnn.benchmark, lambda: torch.backends.cudnn.benchmark)
    assert "no convolutions" in why_not("cudnn-benchmark", inference())
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    assert "already" in why_not("cudnn-benchmark", workload)


clip_grad_norm_ = nn.utils.clip_grad_norm_


def clipping(**options):
    workload = training()
    model, optimizer, loss_of = workload.model, workload.optimizer, workload.loss

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        clip_grad_norm_(model.parameters(), 0.1, **options)
        optimizer.step()
        return loss.detach()

    return replace(closure(workload), step=step)


def test_clipping_takes_all_gradients_at_once(monkeypatch: pytest.MonkeyPatch):
    seen = []
    own = torch.nn.utils.clip_grad._get_total_norm

    def look(*args, **kwargs):
        seen.append(args[3] if len(args) > 3 else kwargs.get("foreach"))
        return own(*args, **kwargs)

    monkeypatch.setattr(torch.nn.utils.clip_grad, "_get_total_norm", look)
    workload = clipping(foreach=False)
    way, kept = way_of("foreach", workload), {}
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            run(treated)
    run(workload)
    assert seen == [True, True, False]
    assert clip_grad_norm_ is torch.nn.utils.clip_grad_norm_
    restores(way, workload)
    same_training("foreach", clipping)


def averaging(decay=0.5, avg_fn=None):
    workload = clipping()
    averaged = swa.AveragedModel(workload.model, avg_fn=avg_fn or swa.get_ema_avg_fn(decay))
    inner = workload.step

    def step(x, y):
        loss = inner(x, y)
        averaged.update_parameters(workload.model)
        return loss

    return replace(workload, step=step), averaged


def test_an_average_over_weights_is_taken_of_all_at_once():
    workload, averaged = averaging()
    way = way_of("foreach", workload)
    with way.apply(workload, {}) as treated:
        assert averaged.avg_fn is None
        run(treated, 3)
    assert averaged.avg_fn is not None
    assert averaged.multi_avg_fn is None
    plain, expected = averaging()
    run(plain, 3)
    for one, other in zip(averaged.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_nothing_to_do_at_once_is_unfit():
    assert "no clipping" in why_not("foreach", closure(training()))


def zeroing(*, none: bool = False):
    workload = training()
    model, optimizer, loss_of = workload.model, workload.optimizer, workload.loss

    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return replace(closure(workload), step=step)


def test_gradients_are_dropped_where_the_step_asks_for_zeros():
    workload = zeroing()
    way, kept = way_of("set-to-none", workload), {}
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            run(treated)
            weight = workload.model.head.weight
            weight.grad = marked = torch.ones_like(weight)
            workload.optimizer.zero_grad(set_to_none=False)
            assert weight.grad is None
            weight.grad = marked
            workload.model.zero_grad(False)
            assert weight.grad is None
    restores(way, workload)
    same_training("set-to-none", zeroing)
    assert "default" in why_not("set-to-none", closure(training()))
    assert "neither" in why_not("set-to-none", replace(workload, model=None, optimizer=None))


def test_zeros_are_worth_it_where_they_take_time():
    rows = [SimpleNamespace(op="aten::zero_", ns=5.0), SimpleNamespace(op="aten::mm", ns=95.0)]
    assert zeros._worth(SimpleNamespace(ops=rows)) == ""
    assert zeros._worth(SimpleNamespace(ops=rows[1:]))


@pytest.fixture
def torchao(monkeypatch: pytest.MonkeyPatch):
    """A library that rounds weights to eighths."""

    def quantize_(module, config):
        module.weight = nn.Parameter((module.weight.detach() * 8).round() / 8, requires_grad=False)

    made = types.ModuleType("torchao.quantization")
    made.quantize_ = quantize_
    made.Int8WeightOnlyConfig = made.Float8DynamicActivationFloat8WeightConfig = object
    monkeypatch.setitem(sys.modules, "torchao", types.ModuleType("torchao"))
    monkeypatch.setitem(sys.modules, "torchao.quantization", made)
    monkeypatch.setattr(quantizing, "installed", lambda: True)


def wide():
    return inference(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3)), torch.randn(2, 16))


def test_weights_in_fewer_bits_are_swapped_in_and_the_own_ones_back(torchao: None):
    workload = wide()
    own = workload.model[0].weight
    way, kept = way_of("int8-weights", workload), {}
    seen = set()
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            assert workload.model[0].weight is not own
            assert workload.model[2].weight.requires_grad  # 3 is not a multiple of 16
            seen.add(id(workload.model[0].weight))
            run(treated)
        assert workload.model[0].weight is own
    assert len(seen) == 1
    restores(way, workload)


def test_fewer_bits_are_for_inference_and_products_that_fit(torchao: None):
    assert "trains" in why_not("int8-weights", training())
    assert "multiples of 16" in why_not("int8-weights", inference())
    assert "8.9" in why_not("fp8", wide())


def test_float8_of_inference_is_a_swap_of_weights(torchao: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    workload = wide()
    way = way_of("fp8", workload)
    own = workload.model[0].weight
    with way.apply(workload, {}):
        assert workload.model[0].weight is not own
    restores(way, workload)


def test_without_torchao_there_are_no_fewer_bits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quantizing, "installed", lambda: False)
    assert why_not("int8-weights", wide()) == why_not("fp8", wide()) == "torchao is not installed"


def test_fewer_bits_are_worth_it_for_what_products_are_bound_by():
    diagnosis = SimpleNamespace(ops=[SimpleNamespace(op=one, ns=50.0, bound="memory") for one in ("mm", "add")])
    assert quantizing.worth("memory")(diagnosis) == ""
    assert "compute-bound" in quantizing.worth("compute")(diagnosis)


def test_a_product_whose_roof_is_not_known_may_be_worth_fewer_bits():
    known, unknown = SimpleNamespace(op="aten::add", ns=1.0, bound="memory"), None
    diagnosis = SimpleNamespace(ops=[SimpleNamespace(op="aten::mm", ns=50.0, bound=unknown), known])
    assert quantizing.worth("memory")(diagnosis) == quantizing.worth("compute")(diagnosis) == ""
