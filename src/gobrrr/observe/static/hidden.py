"""Programs that ask whether a tensor is fake are told no: they would take the way of an exporter, not that of a run."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_TORCH = os.path.dirname(torch.__file__) + os.sep


class _Asking(type):
    """`isinstance` answers torch itself truly and everybody else no."""

    def __instancecheck__(cls, value: Any) -> bool:
        return sys._getframe(1).f_code.co_filename.startswith(_TORCH) and isinstance(value, FakeTensor)

    def __subclasscheck__(cls, kind: type) -> bool:
        return sys._getframe(1).f_code.co_filename.startswith(_TORCH) and issubclass(kind, FakeTensor)


class Hidden(metaclass=_Asking):
    """What `torch._subclasses.FakeTensor` is while a step runs."""
