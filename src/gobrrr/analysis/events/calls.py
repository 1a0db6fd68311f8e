"""What runtime calls and annotations do, by their names: launches, waits, allocations, input, compilation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gobrrr.model.frame_names import users_function

NAME_CHARACTERS = 512
"""How much of a name is searched: a name begins with what it is, and a template's arguments can be endless."""


class HostCall(IntEnum):
    """What the host does in a call."""

    OTHER = 0
    LAUNCH = 1
    COPY = 2
    WAIT = 3  # blocks until the device (a stream, an event) is done
    ALLOCATE = 4
    COMPILE = 5
    INPUT = 6
    COLLECT = 7  # garbage collection


# The first rule that matches a name decides.
_RULES: tuple[tuple[HostCall, re.Pattern[str]], ...] = (
    (HostCall.WAIT, re.compile(r"^(cuda|hip|cu|mtia|xpu)?_?(Device|Stream|Event|Ctx|Thread|Context)Synchronize")),
    (HostCall.WAIT, re.compile(r"^synchronize(Stream|Event|Device)?$")),  # MTIA
    (
        HostCall.LAUNCH,
        re.compile(r"^(cuda|hip|cu)\w*Launch|^runFunction|^(ze|ur|pi)\w*(Launch|Enqueue)\w*Kernel", re.I),
    ),
    (HostCall.COPY, re.compile(r"^(cuda|hip|cu)Mem(cpy|set)|^enqueueCommand memcpy", re.I)),
    (
        HostCall.ALLOCATE,
        re.compile(
            r"^(cuda|hip|cu)(Malloc|Free|HostAlloc|HostFree|HostMalloc|MemAlloc|MemFree|MemCreate|MemMap)", re.I
        ),
    ),
    (HostCall.COMPILE, re.compile(r"^(cuda|hip|cu)(Module|Library)(Load|GetFunction)|^cuLink|^hiprtc|^nvrtc", re.I)),
    (
        HostCall.COMPILE,
        re.compile(r"compile_inner|compile_fx|_compile\b|dynamo_timed|inductor_compile|triton_compile", re.I),
    ),
    (
        HostCall.INPUT,
        re.compile(
            r"DataLoader|DistributedSampler|\bcollate|pin_memory|prefetch.*batch|next_batch|get_batch|wait_for_batch|"
            r"\bload_batch",
            re.I,
        ),
    ),
    (HostCall.COLLECT, re.compile(r"^(gc|garbage)\b.*collect|^Python GC", re.I)),
)

_OF_FUNCTIONS = tuple(rule for rule in _RULES if rule[0] in (HostCall.COMPILE, HostCall.INPUT))
"""The rules for the program's own functions."""

_NO_COMPILER = re.compile(r"^(?!.*torch/_(dynamo|inductor|functorch)/).*\.py\(\d+\): (_compile|inner)$|^_compile$")
"""Python frames whose names look like a compiler's: of regular expressions, and of functions that dynamo skips."""

_LOADERS = re.compile(r"(^|[/\\])data_?loaders?\.py\(\d+\): ", re.I)
"""Frames of a file whose name says that it loads data."""

NOT_COMPILING = (
    "## Call CompiledFxGraph",
    "TorchDynamo Cache Lookup",
    "Torch-Compiled Region",
    "torch/_compile.py",  # Python frames of the wrapper that keeps the compiler out
    "torch/compiler/",
)
"""Names of the compiler's events in which nothing is compiled."""


def classify(names: Sequence[str]) -> NDArray[np.uint8]:
    """`HostCall` of each interned name; read-only, because the result is cached."""
    return _classified(tuple(names))


@lru_cache(maxsize=4)
def _classified(names: tuple[str, ...]) -> NDArray[np.uint8]:
    column = np.array([_call(name[:NAME_CHARACTERS]) for name in names], dtype=np.uint8)
    column.setflags(write=False)
    return column


def _call(name: str) -> int:
    function, rules = users_function(name), _RULES
    if _LOADERS.search(name):
        return int(HostCall.INPUT)
    if function is not None:  # the program's own folders and files may have any name
        name, rules = function, _OF_FUNCTIONS
    if name.startswith(NOT_COMPILING) or _NO_COMPILER.search(name):
        return int(HostCall.OTHER)
    for call, pattern in rules:
        if pattern.search(name):
            return int(call)
    return int(HostCall.OTHER)


_FREES = re.compile(r"^(cuda|hip)(Free|FreeHost|HostFree)$|^cuMem(Free|FreeHost)(_v2)?$")
"""Calls that free memory after the device has finished all issued work (CUDA's runtime API, cudaFree)."""


def frees(names: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each interned name is a call that frees memory and waits for the device first."""
    return np.array([_FREES.search(name[:NAME_CHARACTERS]) is not None for name in names], dtype=bool)


def compiles(names: tuple[str, ...]) -> bool:
    """Whether any event belongs to torch.compile: dynamo, inductor, a compiled region. Loading a module does not."""
    begins = (name[:NAME_CHARACTERS] for name in names)
    return any(_COMPILER.search(users_function(name) or name) for name in begins)


_COMPILER = re.compile(
    r"compile_inner|compile_fx|_compile\b|dynamo|inductor|triton_compile|CompiledFxGraph|Torch-Compiled Region", re.I
)
"""Names of torch.compile's events."""

COMMUNICATION = re.compile(
    r"nccl|rccl|mscclpp?|\bhccl|oneccl|nvshmem|rocshmem|deep_?ep|::ep::|multimem|all_?reduce|all_?gather|"
    r"reduce_?scatter|all_?to_?all|cross_device_reduce|symm_mem|quick_?reduce|sendrecv|two_shot|one_shot_all",
    re.IGNORECASE,
)
"""Kernels that move data between devices, by the names of libraries and of custom collectives."""


def communicates(names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Whether each interned name is a communication kernel's."""
    return np.array([bool(COMMUNICATION.search(name[:NAME_CHARACTERS])) for name in names], dtype=bool)
