"""FLOP/s of the vector units: chains of multiplications, and of fused multiply-adds, from the fusing compiler.

A fused multiply-add is 2 FLOP and one instruction; a multiplication alone is 1 FLOP and one instruction as well. That
is the article's footnote: 9.75 TFLOP/s where the datasheet says 19.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.hardware.measure.compiler import NoCompilerError, compiling, fused
from gobrrr.hardware.measure.timing import CallTimer
from gobrrr.model.measured import MeasuredFigure, Skipped

CHAINS = 8
"""Independent chains an element: enough to hide the latency of an instruction (4 cycles, two pipes)."""
CHAIN_STEPS = 64
"""Instructions of a chain: 512 a loaded element, so that memory is no bound."""
GPU_ELEMENTS, CPU_ELEMENTS = 2**24, 2**18
"""Of the tensor; on a CPU, for each thread."""
FLOP_OF = {"multiply": 1, "fma": 2}
"""FLOP of one instruction."""

Chain = Callable[[Any, Any, Any, Any], Any]


def chain(kind: str) -> Chain:
    """`kind` ("multiply" or "fma"), STEPS times on CHAINS independent values an element; their sum is stored."""

    def multiply(out: Any, x: Any, factor: Any, offset: Any) -> Any:
        values = [x + number for number in range(CHAINS)]
        for _ in range(CHAIN_STEPS):
            values = [value * factor for value in values]
        return out.copy_(sum(values[1:], values[0]))

    def fma(out: Any, x: Any, factor: Any, offset: Any) -> Any:
        values = [x + number for number in range(CHAINS)]
        for _ in range(CHAIN_STEPS):
            values = [value * factor + offset for value in values]
        return out.copy_(sum(values[1:], values[0]))

    return {"multiply": multiply, "fma": fma}[kind]


def measure_vector(bench: CallTimer, dtype: str, kind: str) -> MeasuredFigure | Skipped:
    """FLOP/s of `kind` on `dtype`; the additions that start and end the chains are counted too."""
    torch, device = bench.device.torch, bench.device
    what = f"vector units, {dtype}, {'fused multiply-add' if kind == 'fma' else 'multiply only'}"
    count = CPU_ELEMENTS * torch.get_num_threads() if device.is_cpu else GPU_ELEMENTS
    x = torch.rand(count, device=device.spec, dtype=getattr(torch, dtype)) + 1
    out = torch.empty_like(x)
    # Loaded, not literals: a compiler may not fold what it does not know. Just above 1: no overflow, no denormals.
    factor, offset = (torch.full_like(x[:1], value) for value in (1.0009765625, 0.001))
    try:
        with compiling(torch, **_contract(torch, device.is_cpu)):
            call = fused(device, chain(kind), out, x, factor, offset)
    except NoCompilerError as error:
        return Skipped(what=what, why=str(error))
    took = bench.time(lambda: call(out, x, factor, offset), budget_s=0.3)
    work = count * (CHAINS * CHAIN_STEPS * FLOP_OF[kind] + 2 * CHAINS - 1)
    return MeasuredFigure(
        group="vector", name=f"{dtype} {kind}", unit="FLOP/s", amount=took.rate(float(work)), at=f"{CHAINS} chains"
    )


def _contract(torch: Any, cpu: bool) -> dict[str, Any]:
    """Let the C++ compiler fuse a multiplication and an addition; Inductor forbids it by default, Triton does not."""
    import torch._inductor.config as config

    name = "enable_floating_point_contract_flag"
    if not cpu or not hasattr(config.cpp, name):
        return {}
    return {f"cpp.{name}": "fast" if isinstance(getattr(config.cpp, name), str) else True}
