"""What the cases of the op sweep (`op_cases.py`) are made of."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

SHORT = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
WIDEST_COLD_BYTES = 50 << 20
"""An H100's L2 cache; operands beyond it are never found there."""


class Where:
    """The device that the cases' tensors are made on ("cuda", or "meta" to try them)."""

    device = "cuda"


@dataclass(frozen=True)
class Case:
    """One case; `make` allocates and returns the call."""

    name: str
    make: Callable
    cold: bool = False
    tf32: bool = False


def randn(*shape, dtype="fp32", grad=False):
    x = torch.randn(*shape, device=Where.device, dtype=torch.float32 if Where.device == "meta" else None).to(
        SHORT[dtype]
    )
    return x.requires_grad_(grad)


def trained(function, *inputs):
    """A call of the forward pass and of the gradients of all `inputs` that want one."""
    out = function(*inputs)
    grad = torch.randn_like(out)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]

    def call():
        torch.autograd.grad(function(*inputs), wanted, grad)

    return call


def both(name, make, nbytes, **extra):
    """The case hot, and cold as well where its operands fit the cache."""
    yield Case(name + " hot", make, **extra)
    if nbytes < WIDEST_COLD_BYTES:
        yield Case(name + " cold", make, cold=True, **extra)


def reduced(rows, wide, dtype, function):
    x = randn(rows, wide, dtype=dtype)
    return lambda: function(x)


def applied(make, function):
    """The call of `function` on what `make` allocates."""
    x = make()
    return lambda: function(x)
