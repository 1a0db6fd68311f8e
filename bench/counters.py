"""Counting against hardware counters: the results of bench/gpu/counters.py beside `price` and the traffic model.

    python -m bench.counters        print the table that the docs show
    python -m bench.counters ADD    print the rows whose case starts so, with reads and writes

A row is one op of a case: the DRAM bytes and tensor-core operations that Nsight Compute counted over its kernels, each
from an emptied cache, and what gobrrr says of the same call from its arguments and kernel names.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench import pages
from gobrrr.cost import parse_inputs, price
from gobrrr.cost.executed import tensor_flop
from gobrrr.cost.kernels import element_type
from gobrrr.cost.traffic import dram
from gobrrr.model.work import Argument, OpCall, Tensor, TensorList, Work

RESULTS = pages.RESULTS / "h100_counters.json"
LEAST_NS = 50_000  # the bar: kernels shorter than that are not held to it
NEAR, FAR = 0.10, 0.25
FLOP_TOLERANCE = 0.02
VECTOR_DTYPES = ("float32", None)

MISSES: dict[str, str] = {
    "efficient.fp32": "the kernel spills registers to memory: 208 MB written for a result of 34 MB",
    "mm.fp32.8192x2048x8192.nt": "a kernel of Ampere's, tiles in plain order and two blocks a processor",
    "mm.fp32.4096x4096x16384.nt": "a kernel of Ampere's, tiles in plain order and two blocks a processor",
    "mm.fp16.32768x2048x8192.nt": "the cache keeps a wave's panels to a later group of tiles",
    "foreach_addcmul_.fp32": "the trace doesn't tell three lists from two: counted as the fewest bytes",
}
"""Ops off by more than FAR, with the reason as far as it is known."""


@dataclass(frozen=True)
class Row:
    """One op: measured and modelled bytes and FLOPs. `before`: what the model said when this was still held out."""

    case: str
    op: str
    work: Work
    mode: str
    held_out: bool
    time_ns: float
    kernels: int
    read: float
    written: float
    flop: float
    model_read: float
    model_written: float
    model_flop: float
    unnamed: float
    before: float | None
    cache_bytes: float

    @property
    def measured(self) -> float:
        """DRAM bytes read and written, by the counters."""
        return self.read + self.written

    @property
    def error(self) -> float:
        """Of the model, relative to the counter."""
        return (self.model_read + self.model_written) / self.measured - 1

    @property
    def counted_error(self) -> float:
        """Of `price`: every operand once."""
        return (self.work.bytes or 0.0) / self.measured - 1

    @property
    def held_to(self) -> bool:
        """Whether the issue's bar applies: over 50 us, and data that exceed the cache."""
        return self.time_ns > LEAST_NS and (self.work.bytes or 0.0) > self.cache_bytes

    @property
    def passes(self) -> str:
        """Forward, or backward with the optimizers."""
        return "backward" if "bwd" in self.case or self.case.startswith("adamw") else "forward"

    @property
    def family(self) -> str:
        """The rule's family."""
        return self.work.family or "unknown"


def load(path: Path = RESULTS) -> dict[str, Any]:
    """The measured results."""
    return dict(pages.read(path))


def call_of(op: dict[str, Any]) -> OpCall:
    """The call as the profiler recorded it."""
    fields = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    raw = [msgspec.json.encode(op["inputs"][key]) if op["inputs"].get(key) is not None else None for key in fields]
    names = tuple(kernel["name"] for kernel in op["kernels"])
    return OpCall(name=op["name"], inputs=parse_inputs(*raw), kernels=names)


def without_names(call: OpCall) -> OpCall:
    """The call as a static run knows it: no kernels, but lists with their element types."""
    kind = element_type(call.kernels)

    def typed(value: Argument) -> Argument:
        if not isinstance(value, TensorList):
            return value
        return TensorList(tuple(Tensor(item.shape, item.dtype or kind, item.strides) for item in value.items))

    return msgspec.structs.replace(call, inputs=tuple(typed(argument) for argument in call.inputs), kernels=())


def rows(results: dict[str, Any]) -> list[Row]:
    """Every op with counted kernels and a count of ours."""
    found = []
    for case in results["cases"]:
        for place, op in enumerate(case["ops"]):
            row = _row(results, case, place, op)
            if row is not None:
                found.append(row)
    return found


def _row(results: dict[str, Any], case: dict[str, Any], place: int, op: dict[str, Any]) -> Row | None:
    kernels = [kernel for kernel in op["kernels"] if "counters" in kernel]
    call = call_of(op)
    work = price(call)
    if not kernels or work.bytes is None:
        return None
    device = results["device"]
    cache_bytes, processors = float(device["cache_bytes"]), int(device["processors"])
    traffic = dram(call, work, cache_bytes=cache_bytes, processors=processors)
    nameless = without_names(call)
    unnamed = dram(nameless, price(nameless), cache_bytes=cache_bytes, processors=processors)
    before = results.get("predicted_before", {}).get(case["name"])

    def total(metric: str) -> float:
        return float(sum(kernel["counters"].get(metric, 0) for kernel in kernels))

    return Row(
        case=case["name"],
        op=op["name"],
        work=work,
        mode=case["mode"],
        held_out=case["held_out"],
        time_ns=total("gpu__time_duration.sum"),
        kernels=len(kernels),
        read=total("dram__bytes_read.sum"),
        written=total("dram__bytes_write.sum"),
        flop=sum(total(metric) for metric in results["metrics"] if metric.startswith("sm__ops_path_tensor")),
        model_read=traffic.read_bytes or 0.0,
        model_written=traffic.written_bytes or 0.0,
        model_flop=tensor_flop(call, work) or 0.0,
        unnamed=(unnamed.read_bytes or 0.0) + (unnamed.written_bytes or 0.0),
        before=float(sum(before[place])) if before else None,
        cache_bytes=cache_bytes,
    )


def unpriced(results: dict[str, Any]) -> list[str]:
    """Ops with kernels that `price` doesn't count."""
    return [
        f"{case['name']}: {op['name']}"
        for case in results["cases"]
        for op in case["ops"]
        if any("counters" in kernel for kernel in op["kernels"]) and price(call_of(op)).bytes is None
    ]


def on_matrix_units(row: Row) -> bool:
    """Whether the counters or the count say that the tensor cores ran."""
    return row.flop > 0 or (row.model_flop > 0 and row.work.matrix_dtype not in VECTOR_DTYPES)


def flop_error(row: Row) -> float:
    """Of the tensor-core FLOPs, relative to the counter."""
    return row.model_flop / row.flop - 1 if row.flop else float("inf")


def spread(errors: Iterable[float]) -> tuple[int, float, float, float]:
    """How many, the median of the sizes, and the parts within NEAR and FAR."""
    sizes = [abs(error) for error in errors]
    count = len(sizes)
    if not count:
        return 0, 0.0, 0.0, 0.0
    near, far = (sum(size <= limit for size in sizes) / count for limit in (NEAR, FAR))
    return count, statistics.median(sizes), near, far


def _summary(label: str, errors: Iterable[float]) -> str:
    count, median, near, far = spread(errors)
    return f"| {label} | {count} | {median:.1%} | {near:.0%} | {far:.0%} |"


def summary(found: Sequence[Row]) -> list[str]:
    """Errors of the count and of the model, over the first set, the one held out, and by family."""
    long = [row for row in found if row.held_to]
    first, held = [row for row in long if not row.held_out], [row for row in long if row.held_out]
    untyped = [row for row in long if row.unnamed > 0]
    lines = [
        *pages.heads(f"DRAM bytes | ops | median error | within {NEAR:.0%} | within {FAR:.0%}"),
        _summary("counted, every operand once", (row.counted_error for row in long)),
        _summary("**modelled**", (row.error for row in long)),
        _summary("of those: the model was chosen on them", (row.error for row in first)),
        _summary("of those: held out", (row.error for row in held)),
        _summary(
            "held out, as predicted before they were measured",
            (row.before / row.measured - 1 for row in held if row.before is not None),
        ),
        _summary("modelled without kernel names", (row.unnamed / row.measured - 1 for row in untyped)),
    ]
    for family in sorted({row.family for row in long}):
        lines.append(_summary(f"modelled, {family}", (row.error for row in long if row.family == family)))
    return lines


def misses(found: Sequence[Row]) -> list[str]:
    """The ops off by more than FAR."""
    off = sorted((row for row in found if row.held_to and abs(row.error) > FAR), key=lambda row: -abs(row.error))
    return [
        f"- `{row.case}`: {row.measured / 1e6:,.0f} MB measured, {row.error:+.0%}; "
        f"{MISSES.get(row.case, 'the reason is not known')}"
        for row in off
    ]


def _line(row: Row) -> str:
    flop = f"{flop_error(row):+.1%}" if on_matrix_units(row) and row.flop else ""
    held = " (held out)" if row.held_out else ""
    return (
        f"| {row.case}{held} | {row.op.removeprefix('aten::')[:44]} | {row.time_ns / 1e3:,.0f} | "
        f"{row.measured / 1e6:,.1f} | {row.counted_error:+.0%} | {row.error:+.1%} | {flop} |"
    )


def table(results: dict[str, Any] | None = None) -> str:
    """The Markdown that the docs show: summary, misses, tensor-core FLOPs, and every op measured."""
    results = load() if results is None else results
    found = rows(results)
    device, matrix = results["device"], [row for row in found if on_matrix_units(row)]
    exact = sum(abs(flop_error(row)) <= FLOP_TOLERANCE for row in matrix)
    modes = {mode: len({row.case for row in found if row.mode == mode}) for mode in ("eager", "compiled")}
    backward = len({row.case for row in found if row.passes == "backward"})
    lines = [
        f"{len({row.case for row in found})} cases ({modes['eager']} eager, {modes['compiled']} Inductor-compiled; "
        f"{backward} backward or optimizer), {sum(row.kernels for row in found)} kernels, on an {device['name']} with "
        f"{device['cache_bytes'] / 1e6:.1f} MB of L2, torch {results['torch']}, {results['date']}. The errors are over "
        f"ops of more than {LEAST_NS / 1e3:.0f} us whose data exceed the cache, bytes read and written together.",
        "",
        *summary(found),
        "",
        f"Tensor-core FLOPs: {exact} of {len(matrix)} ops within {FLOP_TOLERANCE:.0%} of the counter, the largest "
        f"error {max(abs(flop_error(row)) for row in matrix):.1%} (tiles filled up, as the kernels' names tell).",
        "",
        f"Off by more than {FAR:.0%}:",
        "",
        *misses(found),
        "",
        *pages.heads("case | op | us | DRAM MB | counted | modelled | FLOPs"),
        *(_line(row) for row in found if row.time_ns > LEAST_NS / 10),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(table())
        return 0
    for row in rows(load()):
        if row.case.startswith(tuple(arguments)):
            print(f"{row.case:42s} read {row.read / 1e6:9.1f} model {row.model_read / 1e6:9.1f} MB", end="  ")
            print(f"written {row.written / 1e6:9.1f} model {row.model_written / 1e6:9.1f} MB {row.error:+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
