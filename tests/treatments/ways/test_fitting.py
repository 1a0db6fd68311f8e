"""Whether a model takes other inputs is told without running it on data."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
import torch
from torch import nn

import gobrrr
from gobrrr.treatments.fitting import refusal
from tests.treatments.ways.making import why_not


class Scaled(nn.Module):
    """As many weights as the batch has entries."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def copied(cache: torch.Tensor, at: torch.Tensor, key: torch.Tensor) -> None:
    cache.index_copy_(2, at, key)


def put(cache: torch.Tensor, at: torch.Tensor, key: torch.Tensor) -> None:
    cache[:, :, at] = key


class Cached(nn.Module):
    """A step of decoding that writes into a cache of so many sequences."""

    def __init__(self, write: Any = copied, size: int = 1) -> None:
        super().__init__()
        self.project, self.write = nn.Linear(16, 16), write
        self.register_buffer("keys", torch.zeros(size, 2, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = self.project(x).view(len(x), 2, 1, 8)
        self.write(self.keys, torch.tensor([3]), key)
        return key @ self.keys[: len(x)].transpose(2, 3)


class Reading(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.sum().item())]


class Locked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(4)


def twice(one: torch.Tensor) -> torch.Tensor:
    return torch.cat([one, one])


@pytest.mark.parametrize(
    ("model", "x"),
    [(Scaled(64), torch.randn(64)), (Cached(copied), torch.randn(1, 16)), (Cached(put), torch.randn(1, 16)),
     (Cached(put, 3), torch.randn(3, 16))],
    ids=["weights", "copied", "put", "put for three"],
)  # fmt: skip
def test_a_model_made_for_its_batch_is_not_given_twice_of_it(model: nn.Module, x: torch.Tensor):
    before = {name: one.clone() for name, one in model.state_dict().items()}
    state, logger = torch.get_rng_state(), logging.getLogger("torch._subclasses.fake_tensor")
    disabled = logger.disabled
    told = why_not("larger-batch", gobrrr.Workload(model=model, inputs=(x,)))
    assert told.startswith("the model does not take 2 times its inputs: ")
    assert "\n" not in told
    assert len(told) < 220
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert logger.disabled == disabled


def test_one_key_for_all_sequences_of_a_cache_is_a_broadcast():
    def one_for_all(cache: torch.Tensor, at: torch.Tensor, key: torch.Tensor) -> None:
        cache[:, :, at] = key.mean(0)

    assert refusal(Cached(one_for_all, 4), (torch.randn(2, 16),), twice) == ""


def test_a_model_that_takes_any_batch_is_not_changed_by_being_asked():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    state = torch.get_rng_state()
    assert refusal(model, (torch.ones(4, 3, 8, 8),), twice) == ""
    assert int(model[1].num_batches_tracked) == 0
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("model", [Reading(), Locked(), lambda x: x.view(4)], ids=["reads", "locked", "function"])
def test_where_it_can_not_be_told_nothing_is_refused(model: Any):
    assert refusal(model, (torch.ones(4),), twice) == ""


def test_hooks_see_no_stand_ins():
    model, seen = Scaled(4), []
    model.register_forward_hook(lambda module, args, out: seen.append(out))
    assert refusal(model, (torch.ones(4),), twice) == ""
    assert seen == []


def test_a_compiled_model_is_not_asked():
    model = Scaled(4)
    model._compiled_call_impl = lambda x: x  # as model.compile() sets it
    assert refusal(model, (torch.ones(4),), twice) == ""
