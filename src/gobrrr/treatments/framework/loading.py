"""Other forms of a loader: the same dataset with other workers, and batches that are copied ahead."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from gobrrr.treatments.framework import applying


def plain(loader: Any) -> bool:
    """Whether a loader is exactly torch's DataLoader, which can be made again with other settings."""
    from torch.utils.data import DataLoader

    return type(loader) is DataLoader


def rebuilt(loader: Any, **changes: Any) -> Any:
    """A DataLoader of the same dataset, samples and batches, with some settings changed.

    It draws the same random numbers as the original, so that both use the same order of samples in an epoch.
    """
    from torch.utils.data import IterableDataset

    given: dict[str, Any] = {
        name: getattr(loader, name)
        for name in ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator")
    }
    if given["num_workers"]:
        given |= {name: getattr(loader, name) for name in ("prefetch_factor", "persistent_workers")}
        given["multiprocessing_context"] = loader.multiprocessing_context
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        given["batch_size"] = loader.batch_size
        if not isinstance(loader.dataset, IterableDataset):
            given["sampler"] = loader.sampler
        else:
            given["drop_last"] = loader.drop_last
    else:
        given["batch_sampler"] = loader.batch_sampler
    return _drawing()(loader.dataset, **{**given, **changes})


@functools.cache
def _drawing() -> Any:
    """A DataLoader class with persistent workers that draws a seed at each epoch.

    torch's DataLoader draws it at the first epoch only if its workers are persistent, else at each epoch, before the
    sampler draws.
    """
    import torch
    from torch.utils.data import DataLoader

    class Drawing(DataLoader):  # type: ignore[type-arg,misc,unused-ignore]
        """Draws random numbers at each epoch as a loader without workers does."""

        def __iter__(self) -> Any:
            if self.persistent_workers and self.num_workers > 0 and self._iterator is not None:
                torch.empty((), dtype=torch.int64).random_(generator=self.generator)
            return super().__iter__()

    return Drawing


class PrefetchedBatches:
    """The batches of a loader on a device, each copied from pinned memory while the previous step runs.

    `ahead`: how many batches may be ready before they are asked for.
    """

    def __init__(self, loader: Any, device: Any) -> None:
        import torch

        self.loader, self.device = loader, device
        self.ahead = 1 + int(getattr(loader, "num_workers", 0)) * int(getattr(loader, "prefetch_factor", None) or 2)
        self.stream = torch.cuda.Stream(device)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        import torch

        ahead: tuple[Any, Any] | None = None
        for batch in self.loader:
            with torch.cuda.stream(self.stream):
                copied = applying.mapped(batch, self._copied)
                done = self.stream.record_event()
            if ahead is not None:
                yield self._ready(*ahead)
            ahead = copied, done
        if ahead is not None:
            yield self._ready(*ahead)

    def _copied(self, tensor: Any) -> Any:
        if tensor.device.type != "cpu":
            return tensor
        pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
        return pinned.to(self.device, non_blocking=True)

    def _ready(self, batch: Any, done: Any) -> Any:
        """The batch for the stream that the step runs on."""
        import torch

        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(done)
        for tensor in applying.tensors_of(batch):
            if tensor.device.type == "cuda":
                tensor.record_stream(stream)
        return batch
