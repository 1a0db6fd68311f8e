"""Lets a step ask for a GPU where there is none: "cuda" becomes the stand-in device, and that is remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import torch.utils._device as default_device
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from gobrrr.observe.static.attention import attend
from gobrrr.observe.static.autocast import PLAIN, widened
from gobrrr.observe.static.fused import rms_norm
from gobrrr.observe.static.recorder import Recorder
from gobrrr.observe.static.recurrent import MODES, layers
from gobrrr.observe.static.sides import Side

GPUS = ("cuda", "hip", "xpu", "mps")
GPU = torch.device("cuda", 0)
_GET_DEVICE = torch.Tensor.device.__get__
_IS_CUDA = torch.Tensor.is_cuda.__get__
_IS_CPU = torch.Tensor.is_cpu.__get__
_HOP = getattr(torch._C, "_skip_one_hop_torch_function", None)  # torch 2.13 has it; 2.6 has not
_PYTHON = ("torch.nn.functional", "torch.functional")  # methods of Tensor may call namesakes of theirs in C++
_CONSTRUCTORS = default_device._device_constructors()


def gpu(value: Any) -> bool:
    """Whether a device argument names a GPU."""
    if isinstance(value, torch.device):
        return value.type in GPUS
    return isinstance(value, str) and value.partition(":")[0] in GPUS


def _is_meta(value: Any) -> bool:
    return bool((value.type if isinstance(value, torch.device) else value) == "meta")


class Virtual(TorchFunctionMode):
    """Redirects devices, routes attention to the kernel that a GPU takes, applies CUDA's autocast policy."""

    def __init__(self, recorder: Recorder, stand_in: str, keep: Callable[[Any], None]) -> None:
        super().__init__()
        self.recorder = recorder
        self.keep = keep  # a tensor, before the program changes what belongs to it
        self.stand_in = torch.device(stand_in)
        self.gpu_autocast = 0  # regions of autocast("cuda") that are open
        self.inside = 0  # of torch functions: while one runs, the mode is off

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.inside += 1
        try:
            return self._called(func, types, args, kwargs or {})
        finally:
            self.inside -= 1

    def _called(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, args, kwargs)
        if self.gpu_autocast and torch.is_autocast_enabled("cuda"):
            args, kwargs = widened(func, args, kwargs)
            if func in PLAIN:
                with torch.autocast("cuda", enabled=False):
                    return func(*args, **kwargs)
        if self.recorder.sides.native:
            return func(*args, **kwargs)
        if _HOP is not None and isinstance(func, FunctionType) and func.__module__ in _PYTHON:
            with self.again():  # a function written in Python: what it calls is redirected too
                return _HOP(func, types, args, kwargs)
        return self._redirected(func, args, kwargs)

    def _redirected(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Device arguments as the stand-in's; which side they meant is kept for what is made here."""
        named = [kwargs.get("device"), *(argument for argument in args if isinstance(argument, torch.device))]
        named = [one for one in named if one is not None and not _is_meta(one)]
        if not named:
            named = self._default(func)
        if not named:
            with self.recorder.sides.within(args if isinstance(func, FunctionType) else ()):
                return func(*args, **kwargs)
        wanted: Side = "device" if any(gpu(one) or isinstance(one, int) for one in named) else "host"
        args = tuple(
            self.stand_in if isinstance(argument, torch.device) and not _is_meta(argument) else argument
            for argument in args
        )
        if kwargs.get("device") is not None or func in _CONSTRUCTORS:
            kwargs = {**kwargs, "device": self.stand_in}
        with self.recorder.sides.forced(wanted):
            return func(*args, **kwargs)

    def _default(self, func: Any) -> list[Any]:
        """The device that `torch.set_default_device` or `with torch.device(...)` names, for what makes a tensor."""
        wanted = default_device.CURRENT_DEVICE
        return [wanted] if wanted is not None and gpu(wanted) and func in _CONSTRUCTORS else []

    @contextmanager
    def again(self) -> Iterator[None]:
        """The mode is on in the block, which is inside of a torch function."""
        inside, self.inside = self.inside, 0
        try:
            if not inside:
                yield
                return
            with self:
                yield
        finally:
            self.inside = inside

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Fake tensors that stand for the GPU's say so, to the program alone; default devices are looked up here."""
        plain = FakeTensor.device
        sides, inner = self.recorder.sides, torch._C._is_torch_function_enabled

        def device(tensor: Any) -> Any:
            found = plain.fget(tensor)
            if self.inside or not inner() or found.type == "meta":
                return found
            return GPU if sides.of(tensor) == "device" else found

        def defaulted(context: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            redirected = torch._C._len_torch_function_stack() > 0  # this mode is below, and on
            if func in _CONSTRUCTORS and kwargs.get("device") is None and (redirected or not gpu(context.device)):
                kwargs = {**kwargs, "device": context.device}
            return func(*args, **kwargs)

        with ExitStack() as stack:
            stack.enter_context(patch.object(FakeTensor, "device", property(device, plain.fset)))
            stack.enter_context(patch.object(default_device.DeviceContext, "__torch_function__", defaulted))
            yield

    def attention(self, *args: Any, **kwargs: Any) -> Any:
        """`scaled_dot_product_attention`, also where it is called within a torch function."""
        return _attention(self, attend, args, kwargs)

    def listed(self, tensor: Any) -> Any:
        """`tolist`, which fake tensors have of their own."""
        return _listed(self, None, (tensor,), {})

    def moved(self, tensor: Any, side: Side, dtype: Any = None, *, waits: bool = True, **how: Any) -> Any:
        """The tensor on `side`: itself if it is there, else a copy over the link; then in `dtype`.

        `waits`: the host waits until the copy is done, as it does unless the program says `non_blocking`.
        """
        sides = self.recorder.sides
        if sides.of(tensor) != side:
            with sides.forced(side), self.recorder.copying(waits=waits):
                tensor = tensor.clone()
        return tensor if dtype is None and not how else tensor.to(dtype=dtype, **how) if dtype else tensor.to(**how)


def _to(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tensor.to` in all its spellings: (device), (dtype), (other), (device, dtype)."""
    if mode.recorder.sides.native:
        return func(*args, **kwargs)
    sides = mode.recorder.sides
    tensor, device, dtype, rest = args[0], kwargs.get("device"), kwargs.get("dtype"), list(args[1:])
    other = rest[0] if rest and isinstance(rest[0], torch.Tensor) else kwargs.get("other")
    if other is not None:
        device, dtype, rest = (GPU if sides.of(other) == "device" else other.device), other.dtype, rest[1:]
    elif rest and isinstance(rest[0], torch.dtype):
        dtype, rest = rest[0], rest[1:]
    elif rest:
        device, dtype, rest = rest[0], rest[1] if len(rest) > 1 else dtype, rest[2:]
    non_blocking = bool(rest[0] if rest else kwargs.get("non_blocking"))
    copy = bool(rest[1] if len(rest) > 1 else kwargs.get("copy"))
    how = {"memory_format": kwargs["memory_format"]} if kwargs.get("memory_format") is not None else {}
    if device is not None and (_is_meta(device) or tensor.device.type == "meta"):
        return func(*args, **kwargs)
    side = sides.of(tensor) if device is None else "device" if gpu(device) or isinstance(device, int) else "host"
    if copy and sides.of(tensor) == side:
        return tensor.to(dtype=dtype or tensor.dtype, copy=True, **how)
    return mode.moved(tensor, side, dtype, waits=not non_blocking, **how)


def _cuda(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tensor.cuda(device, non_blocking)`."""
    if mode.recorder.sides.native:
        return func(*args, **kwargs)
    return mode.moved(args[0], "device", waits=not (args[2] if len(args) > 2 else kwargs.get("non_blocking")))


def _cpu(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs) if mode.recorder.sides.native else mode.moved(args[0], "host")


def _from_data(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.tensor([...], device="cuda")`: made on the host and copied to the device."""
    if mode.recorder.sides.native:
        return func(*args, **kwargs)
    device = kwargs.get("device")
    if device is None and (func is not torch.as_tensor or not isinstance(args[0] if args else None, torch.Tensor)):
        device = GPU if mode._default(func) else None
    side: Side = "device" if gpu(device) or isinstance(device, int) else "host"
    if device is None and func is torch.Tensor.new_tensor:
        side = mode.recorder.sides.of(args[0])
    elif device is None or _is_meta(device):
        return func(*args, **kwargs)
    tracked = kwargs.get("requires_grad", False)
    kwargs = {**kwargs, "device": mode.stand_in} | ({"requires_grad": False} if tracked else {})
    with mode.recorder.sides.forced(None if func in (torch.as_tensor, torch.asarray) else "host"):
        made = func(*args, **kwargs)
    made = mode.moved(made, side)
    return made.requires_grad_() if tracked else made


def _type(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Tensor.type()`, whose words name the device ("torch.cuda.FloatTensor")."""
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    if mode.recorder.sides.native or isinstance(wanted, torch.dtype):
        return func(*args, **kwargs)
    tensor = args[0]
    side = mode.recorder.sides.of(tensor)
    if wanted is None:
        return func(tensor).replace("torch.", "torch.cuda." if side == "device" else "torch.")
    if isinstance(wanted, type):
        wanted = f"{wanted.__module__}.{wanted.__name__}"
    there: Side = "device" if wanted.startswith("torch.cuda.") else "host"
    return mode.moved(func(tensor, wanted.replace(".cuda.", ".")), there)


def _get_device(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return 0 if mode.recorder.sides.of(args[0]) == "device" else func(*args, **kwargs)


def _is_cpu(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs) and mode.recorder.sides.of(args[0]) == "host"


def _deepcopy(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy of a fake tensor; torch's own asks for the address of its data."""
    tensor, memo = args[0], args[1] if len(args) > 1 else kwargs["memo"]
    if not isinstance(tensor, FakeTensor) or not tensor.is_leaf or isinstance(tensor, torch.nn.Parameter):
        return func(*args, **kwargs)
    if id(tensor) not in memo:
        memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return memo[id(tensor)]


def _device(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    plain = func(*args, **kwargs)
    if mode.recorder.sides.native or plain.type == "meta":
        return plain
    return GPU if mode.recorder.sides.of(args[0]) == "device" else plain


def _is_cuda(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return mode.recorder.sides.of(args[0]) == "device" and args[0].device.type != "meta"


def _as_said(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.device(device)`, which makes no tensor: a program and `with torch.device("cuda")` get what they named."""
    return func(*args, **kwargs)


def _recurrent(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """LSTM, GRU and the plain one: cuDNN's call where they are on the GPU."""
    on_gpu = bool(args) and not mode.recorder.sides.native and mode.recorder.sides.of(args[0]) == "device"
    if on_gpu and not kwargs and not _is_meta(args[0].device):
        made = layers(func, args, mode.recorder)
        if made is not None:
            return made
    return mode._redirected(func, args, kwargs)


def _changed(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    mode.keep(args[0])
    return func(*args, **kwargs)


def _itself(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _attention(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Attention in the dtype that autocast sets, by the kernel that a GPU takes."""
    if mode.gpu_autocast and torch.is_autocast_enabled("cuda"):
        low = torch.get_autocast_dtype("cpu")

        def cast(value: Any) -> Any:
            lowered = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
            return value.to(low) if lowered else value

        args, kwargs = tuple(map(cast, args)), {key: cast(one) for key, one in kwargs.items()}
    with mode.recorder.sides.within(args or tuple(kwargs.values())):
        return attend(*args, **kwargs, needing=mode.recorder.needing)


def _array(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`numpy`: the values where they are known, else an array of stand-ins that takes no memory."""
    import numpy

    tensor = mode.recorder.doubles.of(args[0])
    if mode.recorder.sides.of(tensor) == "device":
        raise TypeError("can't convert a cuda tensor to numpy: use Tensor.cpu() first")
    if tensor.requires_grad and not kwargs.get("force"):
        raise RuntimeError("can't call numpy() on a tensor that requires grad: use tensor.detach().numpy()")
    value = mode.recorder.values.of(tensor)
    if value is not None:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return value.numpy().copy()
    stand_in = mode.recorder.assume(tensor)
    kind = numpy.dtype(str(tensor.dtype).removeprefix("torch."))
    return numpy.broadcast_to(numpy.asarray(stand_in, dtype=kind), tuple(tensor.shape))


def _shown(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`print(tensor)`: its values come to the host."""
    mode.recorder.waited(args[0], counted=True)
    with torch._C.DisableTorchFunction():
        return func(*args, **kwargs)


def _formatted(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`f"{loss:.3f}"`: one number comes to the host."""
    return format(mode.recorder.asked(args[0]), args[1]) if args[0].dim() == 0 else repr(args[0])


def _listed(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`tolist`: each element as `.item()` would give it, and one wait for the device."""
    tensor = mode.recorder.doubles.of(args[0])
    value = mode.recorder.values.of(tensor)
    if value is not None:
        mode.recorder.waited(tensor, counted=True)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return value.tolist()
    stand_in = mode.recorder.asked(tensor)
    shape = tuple(tensor.shape)
    result: Any = stand_in
    for size in reversed(shape):
        result = [result] * size
    return result


def _dropout(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Dropout as a GPU runs it, one kernel; a CPU draws the mask and multiplies with it."""
    given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
    p, training = given.get("p", 0.5), given.get("training", given.get("train", True))
    if not training or not 0 < p < 1 or given.get("inplace"):
        return func(*args, **kwargs)
    return torch.ops.aten.native_dropout(given["input"], p, True)[0]


def _rms_norm(mode: Virtual, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """RMS norm as a GPU runs it, one kernel where torch has one (2.8 and newer)."""
    given = dict(zip(("input", "normalized_shape", "weight", "eps"), args, strict=False)) | kwargs
    weight = given.get("weight")
    if not hasattr(torch.ops.aten, "_fused_rms_norm") or weight is None or weight.dtype != given["input"].dtype:
        return func(*args, **kwargs)
    return rms_norm(given["input"], weight, list(given["normalized_shape"]), given.get("eps"), mode.recorder)


_HANDLERS: dict[Any, Any] = {
    torch.device: _as_said,
    F.dropout: _dropout,
    torch.dropout: _dropout,
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    **dict.fromkeys(MODES, _recurrent),
    torch.Tensor.pin_memory: _itself,
    torch.Tensor.new_tensor: _from_data,
    torch.tensor: _from_data,
    torch.as_tensor: _from_data,
    torch.asarray: _from_data,
    torch.Tensor.type: _type,
    torch.Tensor.get_device: _get_device,
    torch.Tensor.__deepcopy__: _deepcopy,
    _IS_CPU: _is_cpu,
    torch.Tensor.grad.__set__: _changed,
    torch.Tensor.requires_grad.__set__: _changed,
    torch.Tensor.requires_grad_: _changed,
    torch.Tensor.numpy: _array,
    torch.Tensor.__array__: _array,
    torch.Tensor.__repr__: _shown,
    torch.Tensor.__format__: _formatted,
    _GET_DEVICE: _device,
    _IS_CUDA: _is_cuda,
    F.scaled_dot_product_attention: _attention,
    torch._C._nn.scaled_dot_product_attention: _attention,
}

__all__ = ["GPU", "Virtual", "gpu"]
