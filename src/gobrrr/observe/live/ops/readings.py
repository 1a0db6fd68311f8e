"""Reads values of tensors: shares of padding, repeated indices, rows of a table. Each reading waits for the device.

Draws no random number, records no gradient and writes nothing. Returns None for what is too large to read, or where the
values say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gobrrr.observe.live.watches.sync_mode import set_sync_mode

MOST_READ = 1 << 24
"""The largest tensor, in elements, that is compared with a number. Chosen, not measured."""
MOST_SORTED = 1 << 22
"""The largest tensor, in elements, that is sorted to find repeated values. Chosen, not measured."""

MASK_THRESHOLD = -9_000.0
"""An additive mask hides a key whose entry is at or below this: programs write -inf, the dtype's least, or -10000."""
LEAST_KEYS = 8
"""The fewest keys of a mask, or ids of a row, that are looked at: shorter ones say little. Chosen, not measured."""

LEAST_TABLE_ROWS, LEAST_PADDING_RUN, LEAST_KINDS = 64, 4, 8
"""For padding that nobody declared, the fewest rows of the table and ids in the longest padding run, and the number
of different ids that must be exceeded. Chosen, not measured."""


@contextmanager
def readable(tensor: Any) -> Iterator[bool]:
    """Whether values can be read now (not while a CUDA graph is captured); torch does not warn of waits within."""
    if tensor.device.type != "cuda":
        with torch.no_grad():
            yield tensor.device.type != "meta"
        return
    if torch.cuda.is_current_stream_capturing():
        yield False
        return
    mode = torch.cuda.get_sync_debug_mode()
    if mode:
        set_sync_mode(0)
    try:
        with torch.no_grad():
            yield True
    finally:
        if mode:
            set_sync_mode(mode)


def equal_to(tensor: Any, value: int) -> int | None:
    """How many entries equal `value`."""
    if tensor.numel() > MOST_READ:
        return None
    return int((tensor == value).sum())


def run_ends(ids: Any, rows: int) -> int | None:
    """How many of the ids [B, S] pad their row at its end or start, where the program did not declare the padding id.

    None where that is not clear. It is clear where one id fills the end (or start) of rows to different lengths and
    occurs nowhere else. `rows`: rows of the embedding's table.
    """
    if ids.dim() != 2 or ids.shape[0] < 2 or ids.shape[1] < LEAST_KEYS or rows < LEAST_TABLE_ROWS:
        return None
    if ids.numel() > MOST_SORTED:
        return None
    return _trailing(ids) or _trailing(ids.flip(1)) or None


def _trailing(ids: Any) -> int:
    pad = ids[:, -1].mode().values
    content = ids != pad
    positions = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    lengths = (content * positions).amax(dim=1)  # up to the last id that is no padding
    runs = ids.shape[1] - lengths
    padding = int(runs.sum())
    elsewhere = int(ids.numel() - content.sum()) - padding
    clear = int(runs.amax()) >= LEAST_PADDING_RUN and int(runs.amin()) < int(runs.amax()) and int(lengths.amin()) > 0
    if not clear or elsewhere or int(torch.unique(ids).numel()) <= LEAST_KINDS:
        return 0
    return padding


def hidden_keys(mask: Any, *, hides: bool = False) -> tuple[int, int] | None:
    """(keys hidden from all queries of their sequence, all keys) of a mask [..., queries, keys].

    A mask of numbers is added to the scores. A mask of bools is True for what is seen; with `hides`, for what is not.
    """
    if mask.dim() < 3 or mask.shape[-1] < LEAST_KEYS:
        return None
    mask = _unexpanded(mask)
    if mask.numel() > MOST_READ:
        return None
    hidden = (mask if hides else ~mask) if mask.dtype is torch.bool else mask <= MASK_THRESHOLD
    hidden = hidden.all(dim=-2)
    while hidden.dim() > 2:
        hidden = hidden.all(dim=1)
    return int(hidden.sum()), hidden.numel()


def _unexpanded(tensor: Any, keep: int | None = None) -> Any:
    """The part of an expanded tensor that has memory of its own; dimension `keep` stays as it is."""
    for dim in range(tensor.dim()):
        if dim != keep and tensor.shape[dim] > 1 and tensor.stride(dim) == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def flagged(mask: Any) -> tuple[int, int] | None:
    """(visible scores, all scores) of a mask [..., queries, keys] that hides nothing, or just what `is_causal` hides.

    None for any other mask: a flag can't stand for it.
    """
    mask = _unexpanded(mask)
    if mask.dim() < 2 or mask.shape[-1] < LEAST_KEYS or mask.numel() > MOST_READ:
        return None
    hidden = ~mask if mask.dtype is torch.bool else mask <= MASK_THRESHOLD
    if mask.dtype is not torch.bool and bool(mask.masked_fill(hidden, 0.0).any()):
        return None  # a bias
    seen = hidden.numel() - int(hidden.sum())
    causal = torch.ones(hidden.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
    same = seen == hidden.numel() or torch.equal(hidden, causal.expand_as(hidden))
    return (seen, hidden.numel()) if same else None


def kinds(ids: Any) -> int | None:
    """How many different values there are."""
    return int(torch.unique(ids).numel()) if ids.numel() <= MOST_SORTED else None


def repeats(indices: Sequence[Any], shape: Sequence[int]) -> tuple[int, int] | None:
    """(places that repeat an earlier one, all places) of x[indices], with integer indices into dimensions of `shape`.

    `indices`: a tensor or None for each dimension. Returns None where one of them is a mask.
    """
    indexed = [(index, size) for index, size in zip(indices, shape, strict=False) if index is not None]
    if not indexed or any(index.dtype is torch.bool or index.dtype is torch.uint8 for index, _ in indexed):
        return None
    tensors = torch.broadcast_tensors(*(index for index, _ in indexed))
    if not 0 < tensors[0].numel() <= MOST_SORTED:
        return None
    flat = torch.zeros_like(tensors[0], dtype=torch.int64)
    for tensor, (_, size) in zip(tensors, indexed, strict=True):
        flat = flat * size + tensor % size  # negative indices count from the end
    return _repeated(flat)


def scattered(index: Any, dim: int) -> tuple[int, int] | None:
    """(places that repeat an earlier one, all places) of a scatter along `dim`.

    Entries that differ in another coordinate are different places.
    """
    dim %= max(index.dim(), 1)
    index = _unexpanded(index, keep=dim)  # the same rows for every column
    if not 0 < index.numel() <= MOST_SORTED:
        return None
    flat, size = index.to(torch.int64), int(index.max()) + 1
    for other in range(index.dim()):
        if other != dim and index.shape[other] > 1:
            along_other = [-1 if at == other else 1 for at in range(index.dim())]
            flat = flat + size * torch.arange(index.shape[other], device=index.device).view(along_other)
            size *= index.shape[other]
    return _repeated(flat)


def _repeated(flat: Any) -> tuple[int, int]:
    total = int(flat.numel())
    return total - int(torch.unique(flat).numel()), total
