"""What a program asks `torch.cuda` and its kin about the GPU, answered as a machine with one would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from gobrrr.observe.static.virtual import Virtual, gpu

CAPABILITY = (9, 0)
"""Hopper's, for programs that choose a dtype or a kernel by it."""
MEMORY_BYTES = 80 * 2**30
PROCESSORS = 132


class _Nothing:
    """A stream, an event, a library: whatever is asked of it, nothing happens."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: 0.0 if name == "elapsed_time" else None

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Waiting(_Nothing):
    """A stream or an event, whose `synchronize` is a wait of the host."""

    virtual: Virtual

    def synchronize(self) -> None:
        """The host waits for the device."""
        self.virtual.recorder.waited(None)

    def query(self) -> bool:
        """Everything is done."""
        return True

    def is_capturing(self) -> bool:
        """No graph is being captured."""
        return False


class _AnyGenerator(type):
    """So that `isinstance(generator, torch.Generator)` holds for generators made before."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _GENERATOR)


_GENERATOR = torch.Generator


class _Generator(metaclass=_AnyGenerator):
    """`torch.Generator("cuda")` is one of the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _GENERATOR("cpu" if gpu(device) else device)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _answers(virtual: Virtual) -> dict[str, Any]:
    """torch.cuda's functions by name."""
    properties = SimpleNamespace(
        name="GPU",
        total_memory=MEMORY_BYTES,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        multi_processor_count=PROCESSORS,
        is_integrated=0,
        warp_size=32,
    )
    level = virtual.recorder.memory.device
    state = torch.zeros(16, dtype=torch.uint8)
    waiting = type("Stream", (_Waiting,), {"virtual": virtual})

    def waited(*_: Any, **__: Any) -> None:
        virtual.recorder.waited(None)

    doing_nothing = (
        "set_device empty_cache ipc_collect init manual_seed manual_seed_all seed seed_all set_rng_state set_stream",
        "set_rng_state_all reset_peak_memory_stats reset_max_memory_allocated reset_accumulated_memory_stats",
        "set_per_process_memory_fraction set_sync_debug_mode _lazy_init",
    )
    answers = {name: _always(None) for name in " ".join(doing_nothing).split()}
    answers |= {
        "is_available": _always(True),
        "is_initialized": _always(True),
        "is_bf16_supported": _always(True),
        "is_tf32_supported": _always(True),
        "is_current_stream_capturing": _always(False),
        "device_count": _always(1),
        "current_device": _always(0),
        "get_device_name": _always("GPU"),
        "get_device_capability": _always(CAPABILITY),
        "get_device_properties": _always(properties),
        "get_arch_list": _always(["sm_90"]),
        "get_rng_state": _always(state),
        "get_rng_state_all": _always([state]),
        "initial_seed": _always(0),
        "memory_stats": lambda *_, **__: defaultdict(int),
        "memory_summary": _always(""),
        "memory_allocated": lambda *_, **__: level.live,
        "max_memory_allocated": lambda *_, **__: level.peak,
        "memory_reserved": lambda *_, **__: level.live,
        "max_memory_reserved": lambda *_, **__: level.peak,
        "mem_get_info": lambda *_, **__: (MEMORY_BYTES - level.live, MEMORY_BYTES),
        "synchronize": waited,
        "device": lambda *_, **__: nullcontext(),
        "stream": lambda *_, **__: nullcontext(),
        "current_stream": lambda *_, **__: waiting(),
        "default_stream": lambda *_, **__: waiting(),
        "Stream": waiting,
        "Event": type("Event", (_Waiting,), {"virtual": virtual}),
    }
    return answers


def _accelerator(virtual: Virtual) -> dict[str, Any]:
    """torch.accelerator's functions by name."""
    stream = type("Stream", (_Waiting,), {"virtual": virtual})
    return {
        "is_available": _always(True),
        "device_count": _always(1),
        "current_stream": lambda *_, **__: stream(),
        "set_stream": _always(None),
        "memory_allocated": lambda *_, **__: virtual.recorder.memory.device.live,
        "max_memory_allocated": lambda *_, **__: virtual.recorder.memory.device.peak,
        "reset_peak_memory_stats": _always(None),
        "current_accelerator": _always(torch.device("cuda")),
        "current_device_index": _always(0),
        "current_device_idx": _always(0),
        "set_device_index": _always(None),
        "synchronize": lambda *_, **__: virtual.recorder.waited(None),
        "empty_cache": _always(None),
    }


@contextmanager
def answering(virtual: Virtual) -> Iterator[None]:
    """A GPU is there, for the length of the block."""
    homes = [
        (torch.cuda, _answers(virtual)),
        (getattr(torch, "accelerator", None), _accelerator(virtual)),
        (torch.cuda.nvtx, {"_nvtx": _Nothing()}),
        (torch.backends.cuda, {"is_built": _always(True)}),
        (torch.backends.cudnn, {"is_acceptable": _always(False), "is_available": _always(True)}),
        (torch, {"Generator": _Generator}),
    ]
    with ExitStack() as stack:
        for home, answers in homes:
            for name, answer in answers.items():
                if hasattr(home, name):
                    stack.enter_context(patch.object(home, name, answer))
        yield
