"""Modules that are called with one more row in each turn of a loop, and compute all earlier rows again.

A sample of each row that a module was given and returned is kept. Where the next call has more rows, and the earlier
rows of both input and output are the same, the call has computed these again. Where the input's are the same and the
output's are not, later rows contribute to earlier ones: then nothing was computed twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from gobrrr.observe.live.ops.readings import readable

MOST_MODULES = 512
MOST_LENGTH = 4096
MOST_BESIDE = 4
"""How many modules are looked at, rows are compared, and entries of each other dimension. Chosen, not measured."""
SAME_ROWS_TOLERANCE = 1e-3
"""Rows are the same where they differ by at most this share of their largest value: a product of more rows rounds in
another order. A later row that contributes makes a larger difference. Chosen, not measured."""


class GrownCall(NamedTuple):
    """One call of a module with more rows than its last call.

    `same`: a tensor on the device, whether the earlier rows are the same.
    """

    invocation: int
    before: int
    now: int
    same: Any


class _Last(NamedTuple):
    """A module's last call; holding the module keeps its id unique."""

    module: Any
    given: _Sample
    returned: _Sample


class Prefixes:
    """Call `see` after each call of a module."""

    def __init__(self) -> None:
        self.grown: list[GrownCall] = []
        self._last: dict[int, _Last] = {}

    def wants(self, module: Any, args: tuple[Any, ...], output: Any) -> bool:
        """Whether `see` needs this call of a module: not where it has as many rows as the last one."""
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
        first_input, first_output = _first(args), _first(output)
        with readable(first_input) as can_read:
            if not can_read or (len(self._last) >= MOST_MODULES and id(module) not in self._last):
                return
            last = self._last.get(id(module))
            given, returned = _Sample(first_input), _Sample(first_output)
            if last is not None:
                self._compare(last, given, returned, invocation)
            self._last[id(module)] = _Last(module, given, returned)

    def again(self) -> dict[int, tuple[int, int]]:
        """(rows before, rows now) of each call that computed rows again; empty where rows of any longer call differ."""
        found = {grown.invocation: (grown.before, grown.now) for grown in self.grown if bool(grown.same)}
        return found if len(found) == len(self.grown) else {}

    def _compare(self, last: _Last, given: _Sample, returned: _Sample, invocation: int) -> None:
        along, out = given.longer_along(last.given), returned.longer_along(last.returned)
        if along is None or out is None or given.shape[along] != returned.shape[out]:
            return
        same_input = given.same_rows(last.given, along)
        if same_input is None or not bool(same_input):
            return  # another sequence that happens to be longer
        same = returned.same_rows(last.returned, out)
        if same is not None:
            self.grown.append(GrownCall(invocation, last.given.shape[along], given.shape[along], same))


class _Sample:
    """Some entries of a tensor, once for each dimension that may be the one of the rows."""

    def __init__(self, tensor: Any) -> None:
        self.shape = tuple(map(int, tensor.shape))
        self.parts = [self._rows(tensor.detach(), along) for along in range(len(self.shape))]

    def longer_along(self, last: _Sample) -> int | None:
        """The only dimension that has changed, where it has become longer; else None."""
        if len(self.shape) != len(last.shape):
            return None
        changed = [at for at, (now, before) in enumerate(zip(self.shape, last.shape, strict=True)) if now != before]
        return changed[0] if len(changed) == 1 and self.shape[changed[0]] > last.shape[changed[0]] > 0 else None

    def same_rows(self, last: _Sample, along: int) -> Any:
        """Whether the earlier rows are the same, as a tensor; None where that can't be told."""
        before, now = last.parts[along], self.parts[along]
        if before is None or now is None or before.dtype != now.dtype or before.device != now.device:
            return None
        now = now.narrow(along, 0, before.shape[along])
        if not now.is_floating_point():
            return (now == before).all()
        most = before.abs().max()
        return ((now - before).abs().max() <= SAME_ROWS_TOLERANCE * most) & (most > 0)

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
