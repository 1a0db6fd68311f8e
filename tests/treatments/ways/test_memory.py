"""Ways that keep more or fewer activations."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest

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
    trained,
    training,
    way_of,
    why_not,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, as it loads its compiler
]

checkpoint = torch.utils.checkpoint.checkpoint


class Counting(Net):
    """Counts the forwards of its blocks, also those in the backward."""

    def __init__(self, *, again: bool = False) -> None:
        super().__init__()
        self.again = again
        self.count = [0]

    def block(self, block, x):
        self.count[0] += 1
        return block(x)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(self.block, block, x, use_reentrant=False) if self.again else self.block(block, x)
        return self.head(x)


class Counted(nn.Module):
    def __init__(self, inner, count) -> None:
        super().__init__()
        self.inner, self.count = inner, count

    def forward(self, x):
        self.count[0] += 1
        return self.inner(x)


def counting():
    workload = training()
    count = [0]
    workload.model.blocks = nn.ModuleList(Counted(one, count) for one in workload.model.blocks)
    return workload, count


def test_repeated_blocks_run_again_in_the_backward():
    workload, count = counting()
    with way_of("checkpoint", workload).apply(workload, {}) as treated:
        run(treated)
    assert count[0] == 4
    run(workload)
    assert count[0] == 6
    restores(way_of("checkpoint", workload), workload)


@pytest.mark.parametrize("make", [training, lambda: closure(training())])
def test_training_with_checkpoints_is_the_same_to_the_bit(make):
    same_training("checkpoint", make, rtol=0.0, atol=0.0)


def test_checkpointing_needs_blocks_and_a_backward():
    assert "no repeated blocks" in why_not("checkpoint", training(nn.Linear(8, 3)))
    assert "backward" in why_not("checkpoint", inference())


def test_it_is_worth_it_where_memory_is_short(monkeypatch: pytest.MonkeyPatch):
    assert "not known" in applying.memory_is_short(SimpleNamespace(memory_peak_bytes=None))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=100))
    assert applying.memory_is_short(SimpleNamespace(memory_peak_bytes=90)) == ""
    assert "memory, not time" in applying.memory_is_short(SimpleNamespace(memory_peak_bytes=30))


def again():
    torch.manual_seed(0)
    return training(Counting(again=True))


def test_without_checkpoints_nothing_runs_again():
    workload = again()
    run(workload)
    assert workload.model.count[0] == 4
    way, kept = way_of("no-checkpoint", workload), {}
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            run(treated)
    assert workload.model.count[0] == 8
    assert torch.utils.checkpoint.checkpoint is checkpoint
    assert Counting.forward.__globals__["checkpoint"] is checkpoint
    run(workload)
    assert workload.model.count[0] == 12
    restores(way, workload)


def test_training_without_checkpoints_is_the_same():
    same_training("no-checkpoint", again, rtol=0.0, atol=0.0)
    plain = again()
    plain.model.again = False
    assert trained(again())[0] == pytest.approx(trained(plain)[0])


class Flagged(Net):
    gradient_checkpointing = True


def test_a_library_s_flags_are_off_inside():
    workload = training(Flagged())
    way = way_of("no-checkpoint", workload)
    assert "gradient_checkpointing_disable" in way.code
    with way.apply(workload, {}):
        assert not workload.model.gradient_checkpointing
    assert workload.model.gradient_checkpointing
    restores(way, workload)


def test_what_has_no_checkpoints_can_not_do_without_them():
    assert "does not call" in why_not("no-checkpoint", training())
    assert "no backward pass" in why_not("no-checkpoint", inference())


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(applying, "BACKEND", "aot_eager_decomp_partition")


def test_the_compiler_s_budget_is_set_while_it_compiles(fast: None):
    config = torch._functorch.config
    before = config.activation_memory_budget
    workload = training()
    way, kept = way_of("activation-budget", workload), {}
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            assert config.activation_memory_budget == 0.5
            run(treated)
        assert config.activation_memory_budget == before
    assert {"compile", "checkpoint"} <= way.conflicts
    restores(way, workload)
    assert config.activation_memory_budget == before


def test_training_within_a_budget_is_the_same(fast: None):
    same_training("activation-budget", training)


def test_a_budget_needs_a_backward_and_a_model_that_is_not_compiled():
    assert "backward" in why_not("activation-budget", inference())
    workload = copy.copy(training())
    workload.model.compile(backend="eager")
    assert "already" in why_not("activation-budget", workload)
