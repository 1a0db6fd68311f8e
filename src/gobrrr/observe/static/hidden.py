"""Programs that ask whether a tensor is fake are told no: they would take the way of an exporter, not that of a run."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

from gobrrr.observe.installed import Owner, owner


def _by_torch(frame: FrameType | None) -> bool:
    """Without a frame it is a thread of autograd's own that asks."""
    return frame is None or owner(frame.f_code.co_filename) is Owner.TORCH


class _Asking(type):
    """`isinstance` answers torch itself truly and everybody else no."""

    def __instancecheck__(cls, value: Any) -> bool:
        return _by_torch(sys._getframe().f_back) and isinstance(value, FakeTensor)

    def __subclasscheck__(cls, kind: type) -> bool:
        return _by_torch(sys._getframe().f_back) and issubclass(kind, FakeTensor)


class Hidden(metaclass=_Asking):
    """What `torch._subclasses.FakeTensor` is while a step runs."""
