"""Switches around everything: TF32 and bfloat16."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.treatments import tf32
from gobrrr.treatments.framework import applying
from tests.treatments.ways.making import (
    OfTheStep,
    closure,
    inference,
    restores,
    run,
    same_training,
    torch,
    training,
    way_of,
    why_not,
)


def switches() -> list[object]:
    found = [one.fp32_precision for one in tf32._owners()]
    try:
        old = [torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()]
        old.append(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        old = ["new"]
    return [*found, *old]


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch):
    """As on a device with TF32: the switches are there without one as well."""
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))


def test_tf32_is_on_inside_and_every_switch_as_before_outside(ampere: None):
    workload = training()
    way = way_of("tf32", workload)
    before, kept = switches(), {}
    for _ in range(2):
        with way.apply(workload, kept):
            assert torch.backends.cuda.matmul.allow_tf32
            assert torch.get_float32_matmul_precision() == "high"
        assert switches() == before
    with pytest.raises(OfTheStep), way.apply(workload, kept):
        raise OfTheStep
    assert switches() == before


def test_tf32_keeps_to_the_new_interface_where_the_program_uses_it(ampere: None):
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this torch has the old interface alone")
    before = matmul.fp32_precision
    try:
        torch.set_float32_matmul_precision("high")
        matmul.fp32_precision = "ieee"  # from here on the old switches can't be read
        found = switches()
        workload = training()
        with way_of("tf32", workload).apply(workload, {}):
            assert matmul.fp32_precision == "tf32"
        assert switches() == found
    finally:
        torch.set_float32_matmul_precision("highest")
        for one in tf32._owners():
            if one is not torch.backends.cudnn.conv and one is not torch.backends.cudnn.rnn:
                one.fp32_precision = before


def test_tf32_that_is_on_is_unfit(ampere: None):
    with tf32.switched():
        assert "already" in why_not("tf32", training())


def test_tf32_needs_a_device_that_has_it(ampere: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    assert "no TF32" in why_not("tf32", training())
    monkeypatch.undo()
    assert "CUDA" in why_not("tf32", training())


def test_autocast_is_put_around_forward_and_loss():
    workload = inference()
    way = way_of("bf16-autocast", workload)
    with way.apply(workload, {}) as treated:
        assert run(treated)[0].dtype == torch.bfloat16
    assert run(workload)[0].dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")
    restores(way, workload)


@pytest.mark.parametrize("make", [training, lambda: closure(training())])
def test_autocast_trains_to_losses_of_its_rounding(make):
    same_training("bf16-autocast", make, rtol=0.1, atol=0.05)


def test_autocast_needs_float32_parameters():
    workload = inference()
    workload.model.bfloat16()
    assert "float32" in why_not("bf16-autocast", replace(workload, inputs=(workload.inputs[0].bfloat16(),)))
