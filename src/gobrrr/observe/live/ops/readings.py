"""What the values of a tensor say: shares of padding, of repeats, of a table's rows. Each reading waits for the device.

No random number is drawn, no gradient is followed and nothing is written. None: too large to read, or nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

MOST_READ = 1 << 24
"""Elements of a tensor that is compared with a number."""
MOST_SORTED = 1 << 22
"""Elements of a tensor that is sorted to find those that repeat."""

MASKED = -9_000.0
"""An additive mask's entry at or below this hides its key: programs write -inf, the dtype's least, or -10000."""
LEAST_KEYS = 8

LEAST_ROWS, LEAST_RUN, LEAST_KINDS = 64, 4, 8
"""For padding that nobody declared: rows of the table, ids in a row's run, different ids beside it."""


@contextmanager
def readable(tensor: Any) -> Iterator[bool]:
    """Whether values can be read now (not while a CUDA graph is captured), with torch's alarm for waits off."""
    if tensor.device.type != "cuda":
        with torch.no_grad():
            yield tensor.device.type != "meta"
        return
    if torch.cuda.is_current_stream_capturing():
        yield False
        return
    alarm = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(0)
    try:
        with torch.no_grad():
            yield True
    finally:
        torch.cuda.set_sync_debug_mode(alarm)


def equal_to(tensor: Any, value: int) -> int | None:
    """How many entries equal `value`."""
    if tensor.numel() > MOST_READ:
        return None
    return int((tensor == value).sum())


def run_ends(ids: Any, rows: int) -> int | None:
    """Ids [B, S] that pad their row at its end or begin, as far as that is clear without being told; None if not.

    One id fills the end (or begin) of rows to different lengths and stands nowhere else; the table has `rows` rows.
    """
    if ids.dim() != 2 or ids.shape[0] < 2 or ids.shape[1] < LEAST_KEYS or rows < LEAST_ROWS:
        return None
    if ids.numel() > MOST_SORTED:
        return None
    return _trailing(ids) or _trailing(ids.flip(1)) or None


def _trailing(ids: Any) -> int:
    pad = ids[:, -1].mode().values
    other = ids != pad
    places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    filled = (other * places).amax(dim=1)  # up to the last id that is no padding
    runs = ids.shape[1] - filled
    padding = int(runs.sum())
    elsewhere = int(ids.numel() - other.sum()) - padding
    clear = int(runs.amax()) >= LEAST_RUN and int(runs.amin()) < int(runs.amax()) and int(filled.amin()) > 0
    if not clear or elsewhere or int(torch.unique(ids).numel()) <= LEAST_KINDS:
        return 0
    return padding


def hidden_keys(mask: Any, *, hides: bool = False) -> tuple[int, int] | None:
    """(keys that no query of their sequence sees, keys) of a mask [..., queries, keys].

    A mask of numbers is added to the scores; one of bools says who is seen, or with `hides` who is not.
    """
    if mask.dim() < 3 or mask.shape[-1] < LEAST_KEYS:
        return None
    mask = _once(mask)
    if mask.numel() > MOST_READ:
        return None
    hidden = (mask if hides else ~mask) if mask.dtype is torch.bool else mask <= MASKED
    hidden = hidden.all(dim=-2)
    while hidden.dim() > 2:
        hidden = hidden.all(dim=1)
    return int(hidden.sum()), hidden.numel()


def _once(mask: Any) -> Any:
    """A mask without what it repeats."""
    for place in range(mask.dim()):
        if mask.shape[place] > 1 and mask.stride(place) == 0:
            mask = mask.narrow(place, 0, 1)
    return mask


def flagged(mask: Any) -> tuple[int, int] | None:
    """(scores that are seen, scores) of a mask [..., queries, keys] that hides nothing or what `is_causal` hides."""
    mask = _once(mask)
    if mask.dim() < 2 or mask.shape[-1] < LEAST_KEYS or mask.numel() > MOST_READ:
        return None
    hidden = ~mask if mask.dtype is torch.bool else mask <= MASKED
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
    """(places that repeat an earlier one, places) of x[indices] with integer indices into dimensions of `shape`.

    `indices`: one tensor or None a dimension. None where there is a mask among them.
    """
    given = [(index, size) for index, size in zip(indices, shape, strict=False) if index is not None]
    if not given or any(one.dtype is torch.bool or one.dtype is torch.uint8 for one, _ in given):
        return None
    tensors = torch.broadcast_tensors(*(one for one, _ in given))
    if not 0 < tensors[0].numel() <= MOST_SORTED:
        return None
    flat = torch.zeros_like(tensors[0], dtype=torch.int64)
    for tensor, (_, size) in zip(tensors, given, strict=True):
        flat = flat * size + tensor % size  # negative indices count from the end
    return _repeated(flat)


def scattered(index: Any, dim: int) -> tuple[int, int] | None:
    """(places that repeat an earlier one, places) of a scatter along `dim`: entries of other coordinates are apart."""
    dim %= max(index.dim(), 1)
    for place in range(index.dim()):
        if place != dim and index.shape[place] > 1 and index.stride(place) == 0:
            index = index.narrow(place, 0, 1)  # the same rows for every column
    if not 0 < index.numel() <= MOST_SORTED:
        return None
    flat, size = index.to(torch.int64), int(index.max()) + 1
    for place in range(index.dim()):
        if place != dim and index.shape[place] > 1:
            apart = [-1 if at == place else 1 for at in range(index.dim())]
            flat = flat + size * torch.arange(index.shape[place], device=index.device).view(apart)
            size *= index.shape[place]
    return _repeated(flat)


def _repeated(flat: Any) -> tuple[int, int]:
    total = int(flat.numel())
    return total - int(torch.unique(flat).numel()), total
