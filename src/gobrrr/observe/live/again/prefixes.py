"""Modules that are called with one row more in each turn, and compute the rows before it again.

What a module was given and returned is remembered as a sample of each row. Where it is called next with more rows and
those before are the same, on both sides, the turn has computed them again. Where the rows that it returns are others,
later rows have a part in earlier ones: then nothing was computed twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from gobrrr.observe.live.ops.readings import readable

MOST_MODULES = 512
MOST_LENGTH = 4096
"""Rows that are compared."""
MOST_BESIDE = 4
"""Entries of each other dimension that are compared."""
CLOSE = 1e-3
"""Rows of a larger product are rounded in another order; what another row has a part in differs by more than this."""


class Grown(NamedTuple):
    """One call of a module with more rows than the one before. `same`: on the device, whether those before it are."""

    invocation: int
    before: int
    now: int
    same: Any


class _Last(NamedTuple):
    module: Any  # so that its id stays its own
    given: Any
    returned: Any


class Prefixes:
    """Told of each call of a module, behind it."""

    def __init__(self) -> None:
        self.grown: list[Grown] = []
        self._last: dict[int, _Last] = {}

    def wants(self, module: Any, args: tuple[Any, ...], output: Any) -> bool:
        """Whether a call of a module that has returned is to be seen: one of the size of the call before has no row
        more, and its rows stand for the same."""
        given, returned = _first(args), _first(output)
        if given is None or returned is None:
            return False
        with torch._C.DisableTorchFunction():
            shapes = tuple(given.shape), tuple(returned.shape)
        last = self._last.get(id(module))
        return all(shapes) and (last is None or (last.given.shape, last.returned.shape) != shapes)

    def see(self, module: Any, args: tuple[Any, ...], output: Any, invocation: int) -> None:
        """A call of a module has returned."""
        if not self.wants(module, args, output):
            return
        given, returned = _first(args), _first(output)
        with readable(given) as yes:
            if not yes or (len(self._last) >= MOST_MODULES and id(module) not in self._last):
                return
            last = self._last.get(id(module))
            inputs, outputs = _Sample(given), _Sample(returned)
            if last is not None:
                self._compared(last, inputs, outputs, invocation)
            self._last[id(module)] = _Last(module, inputs, outputs)

    def again(self) -> dict[int, tuple[int, int]]:
        """(rows before, rows now) of each call that computed rows again; none where rows of a longer call differ."""
        found = {grown.invocation: (grown.before, grown.now) for grown in self.grown if bool(grown.same)}
        return found if len(found) == len(self.grown) else {}

    def _compared(self, last: _Last, given: _Sample, returned: _Sample, invocation: int) -> None:
        along, out = given.longer_along(last.given), returned.longer_along(last.returned)
        if along is None or out is None or given.shape[along] != returned.shape[out]:
            return
        inputs = given.same_rows(last.given, along)
        if inputs is None or not bool(inputs):
            return  # another sequence, which is longer
        same = returned.same_rows(last.returned, out)
        if same is not None:
            self.grown.append(Grown(invocation, last.given.shape[along], given.shape[along], same))


class _Sample:
    """Some entries of a tensor: of each dimension the first ones, up to what may be the rows of any."""

    def __init__(self, tensor: Any) -> None:
        self.shape = tuple(map(int, tensor.shape))
        self.parts = [self._rows(tensor.detach(), along) for along in range(len(self.shape))]

    def longer_along(self, last: _Sample) -> int | None:
        """The one dimension that has become longer, while all others stay."""
        if len(self.shape) != len(last.shape):
            return None
        other = [at for at, (now, before) in enumerate(zip(self.shape, last.shape, strict=True)) if now != before]
        return other[0] if len(other) == 1 and self.shape[other[0]] > last.shape[other[0]] > 0 else None

    def same_rows(self, last: _Sample, along: int) -> Any:
        """Whether the rows that were there are the same, as a tensor; None where that can't be told."""
        before, now = last.parts[along], self.parts[along]
        if before is None or now is None or before.dtype != now.dtype or before.device != now.device:
            return None
        now = now.narrow(along, 0, before.shape[along])
        if not now.is_floating_point():
            return (now == before).all()
        most = before.abs().max()
        return ((now - before).abs().max() <= CLOSE * most) & (most > 0)

    @staticmethod
    def _rows(tensor: Any, along: int) -> Any:
        if tensor.is_complex() or tensor.layout is not torch.strided:
            return None
        sizes, strides = list(tensor.shape), list(tensor.stride())
        for at, size in enumerate(sizes):
            if at == along:
                sizes[at] = min(size, MOST_LENGTH)
            elif size > MOST_BESIDE:
                sizes[at], strides[at] = MOST_BESIDE, strides[at] * (size // MOST_BESIDE)
        return tensor.as_strided(sizes, strides).clone()


def _first(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output
    values = list(output.values()) if isinstance(output, dict) else output
    if isinstance(values, list | tuple):
        return next((value for value in values if isinstance(value, torch.Tensor)), None)
    return None
