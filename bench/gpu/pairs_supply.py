"""Pairs about what the device is given: waits for its values, copies, input, batches, and work done a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from bench.gpu.pairs_form import Recipe, Setting, Step, training
from bench.gpu.pairs_models import Language, Patches, layers

# Waits


def read_once(setting: Setting, item: bool) -> Step:
    """A training step that keeps the device busy; the loss is read at its end, or stays there."""
    width = setting.size(2048, 64)
    model = layers(setting, width, setting.size(3, 1), setting.size(16, 2), causal=True)
    x = setting.randn(setting.size(4, 2), setting.size(1024, 16), width)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    train = training(setting, lambda: model(x).float().square().mean(), optimizer)
    total = torch.zeros((), device=setting.device)

    def step() -> None:
        loss = train()
        if item:
            loss.item()
        else:
            total.add_(loss.detach())

    return step


def watched(setting: Setting, item: bool) -> Step:
    """A small training step that checks each layer's output and logs the norm of each gradient."""
    width = setting.size(256, 32)
    model = layers(setting, width, setting.size(3, 1), setting.size(4, 2))
    x = setting.randn(setting.size(16, 2), setting.size(64, 8), width)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, fused=True)

    def read(value: torch.Tensor) -> float | torch.Tensor:
        return value.item() if item else value

    def step() -> list[float | torch.Tensor]:
        seen, y = [], x
        with setting.autocast():
            for layer in model:
                y = layer(y)
                seen.append(read(torch.isfinite(y).all()))
            loss = y.float().square().mean()
        loss.backward()
        seen += [read(weight.grad.norm()) for weight in weights]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return [*seen, read(loss.detach())]

    return step


# Copies


class Prefetched:
    """Batches from pinned memory, the next one copied on a stream of its own while the step runs."""

    def __init__(self, host: list[torch.Tensor]) -> None:
        self.host, self.stream, self.number = [batch.pin_memory() for batch in host], torch.cuda.Stream(), 0
        self.next = self._copy()

    def _copy(self) -> torch.Tensor:
        with torch.cuda.stream(self.stream):
            batch = self.host[self.number % len(self.host)].to("cuda", non_blocking=True)
        self.number += 1
        return batch

    def __call__(self) -> torch.Tensor:
        """The next batch."""
        batch, now = self.next, torch.cuda.current_stream()
        now.wait_stream(self.stream)
        batch.record_stream(now)
        self.next = self._copy()
        return batch


def pageable(setting: Setting, host: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Batches from pageable memory, copied when they are asked for."""
    turn = [0]

    def batch() -> torch.Tensor:
        turn[0] += 1
        return host[turn[0] % len(host)].to(setting.device)

    return batch


def photographs(setting: Setting, prefetched: bool) -> Step:
    """A small vision transformer on large batches that come from the host."""
    model = Patches(setting, setting.size(384, 32), setting.size(2, 1), setting.size(6, 2))
    side = setting.size(224, 32)
    host = [torch.randn(setting.size(256, 2), 3, side, side) for _ in range(2)]
    batch = Prefetched(host) if prefetched else pageable(setting, host)
    classes = setting.tokens(1000, len(host[0]))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return training(setting, lambda: F.cross_entropy(model(batch()).float(), classes), optimizer)


def texts(setting: Setting, pinned: bool) -> Step:
    """A language model that keeps the device busy; its token numbers, 64 KB, come from the host."""
    vocabulary = setting.size(8192, 64)
    model = Language(setting, vocabulary, setting.size(1536, 32), setting.size(3, 1), setting.size(12, 2))
    ids = torch.randint(0, vocabulary, (setting.size(8, 2), setting.size(1024, 16)))
    if pinned:
        ids = ids.pin_memory()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def loss() -> torch.Tensor:
        batch = ids.to(setting.device, non_blocking=pinned)
        return model(batch, batch.roll(-1, 1))

    return training(setting, loss, optimizer)


# Input


class SlowTexts(torch.utils.data.Dataset):
    """Items that cost the host some 10,000 steps of Python, as a tokenizer written in it does."""

    def __init__(self, vocabulary: int, length: int, turns: int) -> None:
        self.vocabulary, self.length, self.turns = vocabulary, length, turns

    def __len__(self) -> int:
        """More than any run asks for."""
        return 10_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        """One text's token numbers."""
        state, ids = index + 1, []
        for turn in range(self.turns):
            state = (1103515245 * state + 12345) % 2147483648
            if turn < self.length:
                ids.append(state % self.vocabulary)
        return torch.tensor(ids)


def loaded(setting: Setting, workers: int) -> Step:
    """A small language model fed by a data loader."""
    vocabulary, length = setting.size(8192, 64), setting.size(128, 16)
    model = Language(setting, vocabulary, setting.size(512, 32), setting.size(2, 1), setting.size(8, 2))
    items = SlowTexts(vocabulary, length, setting.size(8192, 64))
    many = {"num_workers": workers, "persistent_workers": True} if workers else {}
    on_gpu = setting.device == "cuda"
    loader = torch.utils.data.DataLoader(
        items, batch_size=setting.size(32, 2), pin_memory=workers > 0 and on_gpu, **many
    )
    batches: Iterator[torch.Tensor] = iter(loader)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def loss() -> torch.Tensor:
        ids = next(batches).to(setting.device, non_blocking=workers > 0)
        return model(ids, ids.roll(-1, 1))

    return training(setting, loss, optimizer)


# Batches and repeated work

BATCHES = 4
"""The larger batch, in smaller ones."""


def batched(setting: Setting, times: int) -> Step:
    """A small transformer's training step on a batch, or on one that is larger."""
    width = setting.size(512, 32)
    model = layers(setting, width, setting.size(3, 1), setting.size(8, 2))
    x = setting.randn(times * setting.size(2, 1), setting.size(128, 8), width)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return training(setting, lambda: model(x).float().square().mean(), optimizer)


def activations(setting: Setting, kept: bool) -> Step:
    """A training step that computes each layer again in the backward pass, or keeps what it made."""
    width = setting.size(2048, 64)
    model = layers(setting, width, setting.size(2, 1), setting.size(16, 2), causal=True)
    x = setting.randn(setting.size(8, 2), setting.size(1024, 16), width)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def loss() -> torch.Tensor:
        y = x
        for layer in model:
            y = layer(y) if kept else checkpoint(layer, y, use_reentrant=False)
        return y.float().square().mean()

    return training(setting, loss, optimizer)


RECIPES = (
    Recipe(
        "loss_read_device_bound", "loss.item() in a step that keeps the device busy", "compute", ("O02",),
        ("remove-sync",), lambda s: read_once(s, item=True), lambda s: read_once(s, item=False), negative=True,
    ),
    Recipe(
        "values_read_host_bound", "40 values read in a small step", "overhead", ("O02",), ("remove-sync",),
        lambda s: watched(s, item=True), lambda s: watched(s, item=False),
    ),
    Recipe(
        "pageable_batches", "154 MB from pageable memory in each step", "transfer", ("D02",), ("prefetch-pinned",),
        lambda s: photographs(s, prefetched=False), lambda s: photographs(s, prefetched=True), needs_gpu=True,
    ),
    Recipe(
        "pageable_tokens", "64 KB from pageable memory in each step", "compute", (), ("prefetch-pinned",),
        lambda s: texts(s, pinned=False), lambda s: texts(s, pinned=True), negative=True, needs_gpu=True,
    ),
    Recipe(
        "slow_dataset", "a tokenizer in Python, in the training thread", "input", ("D01",),
        ("dataloader-workers", "prefetch-pinned"), lambda s: loaded(s, 0), lambda s: loaded(s, s.size(8, 2)), lead=24,
    ),
    Recipe(
        "small_batches", "a batch of two sequences", "overhead", ("O01",), ("larger-batch",),
        lambda s: batched(s, 1), lambda s: batched(s, BATCHES), fixed_work=float(BATCHES),
    ),
    Recipe(
        "checkpointed_layers", "all layers computed a second time, memory free", "compute", ("R01",),
        ("no-checkpoint",), lambda s: activations(s, kept=False), lambda s: activations(s, kept=True),
    ),
)  # fmt: skip
