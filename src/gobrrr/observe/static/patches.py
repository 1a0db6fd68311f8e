"""What a program asks torch about its GPU, answered as a machine with one would; undone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import torch.optim.optimizer as optimizers
import torch.utils._foreach_utils as foreach
import torch.utils.checkpoint as checkpoints
from torch._subclasses.fake_tensor import FakeTensor

from gobrrr.observe.static.gpu import answering
from gobrrr.observe.static.hidden import Hidden
from gobrrr.observe.static.virtual import GPU, Virtual, gpu


@contextmanager
def patched(virtual: Virtual) -> Iterator[None]:
    """torch as a program on a GPU machine finds it, for the length of the block."""
    with ExitStack() as stack:
        if not virtual.recorder.sides.native:
            stack.enter_context(answering(virtual))
            stack.enter_context(virtual.answering())
            stack.enter_context(_autocast(virtual))
            stack.enter_context(_checkpoints())
            # recurrent layers ask it whether to pack their weights anew, and it warns where torch has no cuDNN
            stack.enter_context(patch.object(torch.backends.cudnn, "is_acceptable", lambda *_: False))
        stack.enter_context(patch.object(torch.utils, "swap_tensors", _swapped))
        stack.enter_context(patch.object(torch._subclasses, "FakeTensor", Hidden))
        stack.enter_context(patch.object(torch, "save", _unsaved))
        stack.enter_context(patch.object(F, "scaled_dot_product_attention", virtual.attention))
        stack.enter_context(patch.object(FakeTensor, "tolist", lambda tensor: virtual.listed(tensor)))
        stack.enter_context(_engine(virtual))
        stack.enter_context(_foreach())
        stack.enter_context(_grouped(virtual))
        stack.enter_context(_eager())
        yield


def _unsaved(*_: Any, **__: Any) -> None:
    """`torch.save` of tensors without data: a file that is there is better left alone."""


def _swapped(target: Any, source: Any) -> None:
    """`module.to(dtype)` on fake parameters: torch refuses to swap tensors that its own caches refer to."""
    target.data = source.detach()


@contextmanager
def _autocast(virtual: Virtual) -> Iterator[None]:
    """`autocast("cuda")` as the CPU's, with CUDA's list of float32 operations on top (virtual.py)."""
    begin, enter, leave = torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__
    enabled, kind = torch.is_autocast_enabled, torch.get_autocast_dtype

    def init(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        on_gpu = gpu(device_type)
        begin(self, "cpu" if on_gpu else device_type, dtype or (torch.float16 if on_gpu else None), *args, **kwargs)
        self._gobrrr_gpu = on_gpu

    def entering(self: Any) -> Any:
        on_gpu = getattr(self, "_gobrrr_gpu", False)  # not there where the region was made before this recording
        self._gobrrr_idle = self.device == "cpu" and not on_gpu and virtual.gpu_autocast > 0
        if self._gobrrr_idle:  # the CPU's state stands for the GPU's here
            return self
        with patch.object(torch, "is_autocast_enabled", enabled):  # it asks for the stand-in's state, to restore it
            entered = enter(self)
        virtual.gpu_autocast += int(on_gpu)
        return entered

    def leaving(self: Any, *args: Any) -> Any:
        if self._gobrrr_idle:
            return None
        virtual.gpu_autocast -= int(getattr(self, "_gobrrr_gpu", False))
        return leave(self, *args)

    def is_enabled(device_type: str | None = None) -> bool:
        on_gpu = device_type is None or gpu(device_type)
        return bool(enabled("cpu" if on_gpu else device_type)) and on_gpu == (virtual.gpu_autocast > 0)

    def dtype_of(device_type: str) -> Any:
        return kind("cpu" if gpu(device_type) else device_type)

    with (
        patch.object(torch.autocast, "__init__", init),
        patch.object(torch.autocast, "__enter__", entering),
        patch.object(torch.autocast, "__exit__", leaving),
        patch.object(torch, "is_autocast_enabled", is_enabled),
        patch.object(torch, "get_autocast_dtype", dtype_of),
        patch.object(torch, "get_autocast_gpu_dtype", lambda: kind("cpu")),
    ):
        yield


@contextmanager
def _engine(virtual: Virtual) -> Iterator[None]:
    """The backward pass: what the program does in it (checkpoints, hooks, its own functions) is redirected too.

    `loss.backward()` is a torch function, during which a torch function mode is off.
    """
    run = torch.autograd._engine_run_backward

    def again(*args: Any, **kwargs: Any) -> Any:
        with virtual.again():
            return run(*args, **kwargs)

    with patch.object(torch.autograd, "_engine_run_backward", again):
        yield


@contextmanager
def _checkpoints() -> Iterator[None]:
    """A checkpoint compares shapes and dtypes alone: what was saved says its stand-in's device, the rest the GPU's."""
    plain = {checkpoints._DEFAULT_DETERMINISM_MODE: lambda tensor: {"shape": tensor.shape, "dtype": tensor.dtype}}
    with patch.dict(checkpoints._allowed_determinism_checks_to_fns, plain):
        yield


@contextmanager
def _foreach() -> Iterator[None]:
    """Optimizers and gradient clipping choose their foreach versions, as they do for parameters on a GPU."""
    names = ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices")
    with ExitStack() as stack:
        for home in (optimizers, foreach):
            for name in names:
                if hasattr(home, name):
                    listed = [*getattr(home, name)(), "cpu", "meta"]
                    stack.enter_context(patch.object(home, name, lambda listed=listed: list(listed)))
        for home in (optimizers, foreach):
            types = [*home._foreach_supported_types, FakeTensor]
            stack.enter_context(patch.object(home, "_foreach_supported_types", types))
        yield


@contextmanager
def _grouped(virtual: Virtual) -> Iterator[None]:
    """Optimizers and gradient clipping group tensors by their device in C++, which sees the stand-in's."""
    plain = getattr(torch._C, "_group_tensors_by_device_and_dtype", None)
    if plain is None or virtual.recorder.sides.native:
        yield
        return
    side = virtual.recorder.sides.of

    def grouped(lists: Any, *args: Any, **kwargs: Any) -> Any:
        found = {}
        for (device, dtype), (given, indices) in plain(lists, *args, **kwargs).items():
            first = next((one for one in given[0] if one is not None), None)
            there = first is not None and side(first) == "device" and device is not None and device.type != "meta"
            found[GPU if there else device, dtype] = (given, indices)
        return found

    with patch.object(torch._C, "_group_tensors_by_device_and_dtype", grouped):
        yield


@contextmanager
def _eager() -> Iterator[None]:
    """Compiled functions run as they are written: the operations are the same, and nothing is compiled."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    with set_stance("force_eager") if set_stance else nullcontext():
        yield
