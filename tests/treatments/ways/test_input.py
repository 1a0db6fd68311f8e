"""Where the batches come from."""

from __future__ import annotations

from collections import UserDict
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import pytest

from gobrrr.model.workload import Workload
from gobrrr.treatments import dataloader_workers
from gobrrr.treatments.framework import applying, loading
from gobrrr.trials.pace import TrialTime
from gobrrr.trials.trial import run_trial
from tests.treatments.ways.making import bits, run, torch, training, way_of, why_not

nn = torch.nn
DataLoader, TensorDataset = torch.utils.data.DataLoader, torch.utils.data.TensorDataset


def fed(**options):
    """Training from a loader of four batches."""
    workload = training()
    data = TensorDataset(torch.randn(16, 8), torch.arange(16) % 3)
    return replace(workload, inputs=(), targets=(), loader=DataLoader(data, batch_size=4, **options))


def numbers(loader):
    return [[one.tolist() for one in batch] for batch in loader]


def test_the_same_batches_are_loaded_by_workers_that_stay():
    workload = fed()
    way, kept = way_of("dataloader-workers", workload), {}
    seen = []
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            assert treated.loader.persistent_workers
            assert treated.loader.num_workers == dataloader_workers._here(workload)
            assert numbers(treated.loader) == numbers(workload.loader)
            seen.append(treated.loader)
    assert seen[0] is seen[1]
    with pytest.raises(ZeroDivisionError), way.apply(workload, kept):
        1 / 0  # noqa: B018
    assert workload.loader.num_workers == 0


@pytest.mark.parametrize("options", [{"drop_last": True}, {"shuffle": True}, {"batch_sampler": [[0, 5], [3]]}])
def test_samples_and_batches_are_the_user_s(options):
    if "batch_sampler" in options:
        loader = DataLoader(TensorDataset(torch.arange(9)), **options)
    else:
        loader = DataLoader(TensorDataset(torch.arange(9)), batch_size=2, **options)
    again = loading.rebuilt(loader)
    assert again.batch_sampler is loader.batch_sampler
    torch.manual_seed(0)
    first = numbers(loader)
    torch.manual_seed(0)
    assert numbers(again) == first
    bare = DataLoader(TensorDataset(torch.arange(9)), batch_size=None)
    assert numbers(loading.rebuilt(bare)) == numbers(bare)


@pytest.mark.parametrize("own", [False, True])
def test_workers_that_stay_take_the_samples_in_the_same_order_each_epoch(own: bool):
    generator = torch.Generator() if own else None
    loader = DataLoader(TensorDataset(torch.arange(9)), batch_size=2, shuffle=True, generator=generator)
    again = loading.rebuilt(loader, num_workers=1, persistent_workers=True)
    seen = []
    for one in (loader, again, loader, again):
        torch.manual_seed(0)
        if generator is not None:
            generator.manual_seed(0)
        seen.append([numbers(one) for _ in range(3)])
    assert seen[1:] == seen[:1] * 3
    assert seen[0][0] != seen[0][1]


@pytest.mark.parametrize(
    ("usable", "threads", "device", "workers"),
    [(2, 2, "cpu", 1), (6, 2, "cpu", 4), (6, 2, "cuda", 5), (64, 2, "cpu", 8)],
)
def test_as_many_workers_are_tried_as_are_predicted(
    monkeypatch: pytest.MonkeyPatch, usable: int, threads: int, device: str, workers: int
):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(usable))
    monkeypatch.setattr("gobrrr.system.cgroup.quota", lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(applying, "device_of", lambda _: device)
    assert f"num_workers={workers}," in way_of("dataloader-workers", fed()).code


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from torch.randn(4, 8)


class Own(DataLoader):
    pass


def test_loaders_that_workers_do_not_suit_are_unfit():
    workload = fed()
    assert "no loader" in why_not("dataloader-workers", training())
    assert "already" in why_not("dataloader-workers", fed(num_workers=1))
    assert "iterable" in why_not("dataloader-workers", replace(workload, loader=DataLoader(Stream())))
    own = Own(TensorDataset(torch.arange(3)))
    assert "not torch.utils.data.DataLoader" in why_not("dataloader-workers", replace(workload, loader=own))


def test_copies_ahead_need_a_loader_and_a_device(monkeypatch: pytest.MonkeyPatch):
    assert "no device" in why_not("prefetch-pinned", fed())
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    assert "no loader" in why_not("prefetch-pinned", training())
    assert way_of("prefetch-pinned", fed()).as_if == ("prefetch-pinned",)


class Streams:
    """Counts what is recorded and waited for."""

    def __init__(self, *_):
        self.recorded = self.waited = 0

    def record_event(self):
        self.recorded += 1
        return self.recorded

    def wait_event(self, event):
        self.waited = event

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_each_batch_is_copied_before_the_one_ahead_of_it_is_used(monkeypatch: pytest.MonkeyPatch):
    step = Streams()
    monkeypatch.setattr(torch.cuda, "Stream", Streams)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: step)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "device", lambda *_: "cpu")
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    batches = [(torch.full((2,), float(at)), at) for at in range(3)]
    workload = replace(fed(), loader=batches)
    way, kept = way_of("prefetch-pinned", workload), {}
    for _ in range(2):
        with way.apply(workload, kept) as treated:
            assert treated.loader is kept["ahead"]
            ahead = iter(treated.loader)
            assert next(ahead)[1] == 0
            assert (treated.loader.stream.recorded, step.waited) in ((2, 1), (5, 4))  # the second is on its way
            assert [at for _, at in ahead] == [1, 2]
    assert len(kept["ahead"]) == 3
    assert kept["ahead"].ahead == 1
    assert workload.loader is batches


def test_twice_the_batch_is_the_batch_with_itself_behind():
    workload = training()
    before = [bits(one) for one in (*workload.inputs, *workload.targets)]
    way, kept = way_of("larger-batch", workload), {}
    assert way.as_if == ("larger-batch=2",)
    assert (way.work, way.numerics) == (2.0, "statistics")
    losses = [float(run(training())[0].detach())]
    with way.apply(workload, kept) as treated:
        assert (treated.inputs[0].shape[0], treated.targets[0].shape[0]) == (8, 8)
        losses.append(float(run(treated)[0].detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    with way.apply(workload, kept) as again:
        assert again.inputs[0] is treated.inputs[0]
    assert [bits(one) for one in (*workload.inputs, *workload.targets)] == before


def test_what_is_no_batch_is_not_doubled():
    workload = training()
    assert "loader" in why_not("larger-batch", fed())
    assert "first dimension" in why_not("larger-batch", replace(workload, targets=(torch.zeros(3),)))
    assert "a gobrrr.Workload names its inputs" in why_not("larger-batch", replace(workload, model=None))


class Scaled(nn.Module):
    """As many weights as the batch has entries."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return x * self.scale


class Cached(nn.Module):
    """A step of decoding that writes into a cache of one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 16)
        self.register_buffer("keys", torch.zeros(1, 2, 8, 8))

    def forward(self, x):
        key = self.project(x).view(len(x), 2, 1, 8)
        self.keys.index_copy_(2, torch.tensor([3]), key)
        return key @ self.keys.transpose(2, 3)


class Short(nn.Module):
    def forward(self, x):
        if len(x) > 4:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return x


@pytest.mark.parametrize(
    ("model", "x", "says"),
    [(Scaled(64), torch.randn(64), "size of tensor"), (Cached(), torch.randn(1, 16), "same slice shapes")],
)
def test_a_model_made_for_its_batch_is_not_given_twice_of_it_and_no_trial_is_made_of_it(model, x, says):
    workload = Workload(model=model, inputs=(x,))
    before = {name: one.clone() for name, one in model.state_dict().items()}
    found = run_trial(workload, (), way_of("larger-batch", workload), allowed=TrialTime(seconds=1.0))
    assert (found.verdict, found.unapplied, found.timing) == ("inconclusive", True, None)
    assert found.why.startswith("larger-batch can't be applied: the step fails with it: RuntimeError: ")
    assert says in found.why
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_memory_that_is_short_before_compiling_is_no_refusal():
    workload = Workload(model=Short(), inputs=(torch.randn(4),))
    found = run_trial(workload, (), way_of("larger-batch", workload), allowed=TrialTime(seconds=1.0))
    assert not found.unapplied
    assert found.why.startswith("out of memory with larger-batch")


def test_other_kinds_of_batches_keep_their_kind():
    mapping = UserDict(a=torch.ones(1), b="text")
    made = applying.mapped(mapping, lambda one: one + 1)
    assert (type(made), made["a"].item(), made["b"], mapping["a"].item()) == (UserDict, 2, "text", 1)
    assert applying.mapped(MappingProxyType({"a": torch.ones(1)}), lambda one: one + 1)["a"].item() == 2
    change = {"a": [torch.ones(1)], "b": (1, torch.ones(1))}
    found = applying.mapped(change, lambda one: one + 1)
    assert found["a"][0].item() == found["b"][1].item() == 2
    assert isinstance(found["b"], tuple)
    assert list(applying.tensors_of(SimpleNamespace())) == []
