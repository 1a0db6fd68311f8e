"""Small profiler traces made by hand: a host that issues, one stream that runs in order, waits that wait."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LAUNCH_US = 5.0
LATENCY_US = 4.0
SHORT_TO_LONG = {
    "bfloat16": "c10::BFloat16", "float16": "c10::Half", "float32": "float", "float64": "double", "int64": "long int",
    "bool": "bool",
}  # fmt: skip
H100 = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017493504,
    "computeMajor": 9, "computeMinor": 0, "numSms": 132,
}  # fmt: skip

Shape = Sequence[int]


class Trace:
    """Times in microseconds. `now` is the host's clock, `free` the instant at which the stream has done everything."""

    def __init__(self, *, device: str = "NVIDIA H100 80GB HBM3", shapes: bool = True) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 1000.0
        self.free = 0.0
        self.shapes = shapes
        self.device = {**H100, "name": device}
        self._ids = 100

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """A ProfilerStep around what is issued inside."""
        begin = self.now
        yield
        self._add("user_annotation", f"ProfilerStep#{number}", begin, self.now - begin)

    @contextmanager
    def inside(self, name: str, host_us: float = 2.0, shapes: Sequence[Shape] = ()) -> Iterator[None]:
        """An operation around others; `host_us` of its own before them."""
        begin = self.now
        self.now += host_us
        yield
        arguments = {"Input Dims": [list(shape) for shape in shapes]} if shapes else {}
        self._add("cpu_op", name, begin, self.now - begin, arguments)

    @contextmanager
    def annotated(self, name: str) -> Iterator[None]:
        """An annotation (`Optimizer.step#...`) around what is issued inside."""
        begin = self.now
        yield
        self._add("user_annotation", name, begin, self.now - begin)

    def op(self, name: str, shapes: Sequence[Shape], us: float, *, dtype: str = "bfloat16", host_us: float = 20.0,
           kernel: str = "kernel", concrete: Sequence[str] | None = None, dtypes: Sequence[str] | None = None,
           strides: Sequence[Shape] | None = None) -> None:  # fmt: skip
        """One operation that launches one kernel of `us`; `dtypes` where the arguments differ in type."""
        begin = self.now
        self.now += host_us - LAUNCH_US
        self._launch("cudaLaunchKernel", "kernel", kernel, us, {})
        arguments: dict[str, Any] = {}
        if self.shapes:
            arguments = {
                "Input Dims": [list(shape) for shape in shapes],
                "Input type": [
                    SHORT_TO_LONG[one] if len(shape) else "Scalar"
                    for shape, one in zip(shapes, dtypes or [dtype] * len(shapes), strict=True)
                ],
                "Concrete Inputs": list(concrete or [""] * len(shapes)),
                **({"Input Strides": [list(one) for one in strides]} if strides else {}),
            }
        self._add("cpu_op", name, begin, self.now - begin, arguments)

    def item(self, outer: str = "aten::item") -> None:
        """Read a scalar: a copy to the host and a wait until the stream has done everything."""
        with self.inside(outer), self.inside("aten::_local_scalar_dense"):
            self._launch("cudaMemcpyAsync", "gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 1.5, {"bytes": 4})
            self.synchronize("cudaStreamSynchronize")

    def synchronize(self, name: str = "cudaDeviceSynchronize") -> None:
        """Wait until the stream has done everything."""
        begin = self.now
        self.now = max(self.now + 3.0, self.free + 3.0)
        self._add("cuda_runtime", name, begin, self.now - begin, {"correlation": self._next()})

    def host(self, name: str, us: float) -> None:
        """An operation that computes on the host."""
        self._add("cpu_op", name, self.now, us)
        self.now += us

    def view(self, name: str, shape: Shape, concrete: Sequence[str], host_us: float = 4.0) -> None:
        """An operation that launches nothing, called with scalars: `x[t]`."""
        dims = [list(shape), *([] for _ in concrete)]
        types = [SHORT_TO_LONG["float32"], *("Scalar" for _ in concrete)]
        given = {"Input Dims": dims, "Input type": types, "Concrete Inputs": ["", *concrete]}
        self._add("cpu_op", name, self.now, host_us, given)
        self.now += host_us

    def collective(self, us: float, elements: int, *, stream: int = 20, after: float = 0.0) -> float:
        """An all-reduce of float32 on its own stream that begins when it is launched, or at `after`; its end."""
        correlation = self._next()
        self._add("cuda_runtime", "cudaLaunchKernelExC", self.now, LAUNCH_US, {"correlation": correlation})
        begin = max(self.now + LATENCY_US, after)
        self.now += LAUNCH_US
        record = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": elements,
                  "Out msg nelems": elements, "Group size": 2}  # fmt: skip
        arguments = {"device": 0, "stream": stream, "correlation": correlation, **record}
        given = {"Input Dims": [[[elements]]], "Input type": ["TensorList"]}
        self._add("cpu_op", "c10d::allreduce_", self.now - LAUNCH_US - 2, LAUNCH_US + 2, given)
        self._add("cpu_op", "record_param_comms", self.now - LAUNCH_US - 1, LAUNCH_US + 1, {**record, **given})
        self._add("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, us, arguments, pid=0, tid=stream)
        return begin + us

    def load(self, us: float) -> None:
        """A batch from a DataLoader in this thread."""
        self._add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", self.now, us)
        self.now += us

    def copy_in(self, bytes_: int, us: float, *, pinned: bool) -> None:
        """A batch to the device; from pageable memory the host is blocked until it is there."""
        with self.inside("aten::to"):
            kind = "Pinned" if pinned else "Pageable"
            end = self._launch(
                "cudaMemcpyAsync", "gpu_memcpy", f"Memcpy HtoD ({kind} -> Device)", us, {"bytes": bytes_}
            )
            self.now = self.now if pinned else end

    def write(self, folder: Path, name: str = "trace.json") -> Path:
        """The file that the profiler would write."""
        path = folder / name
        text = {"schemaVersion": 1, "deviceProperties": [self.device], "traceEvents": self.events}
        path.write_text(json.dumps({**text, **({"record_shapes": 1} if self.shapes else {})}), encoding="utf-8")
        return path

    def _launch(self, call: str, category: str, name: str, us: float, extra: dict[str, Any]) -> float:
        correlation = self._next()
        self._add("cuda_runtime", call, self.now, LAUNCH_US, {"correlation": correlation})
        begin = max(self.now + LATENCY_US, self.free + 1.0)
        self.now += LAUNCH_US
        self.free = begin + us
        arguments = {"device": 0, "stream": 7, "correlation": correlation, **extra}
        self._add(category, name, begin, us, arguments, pid=0, tid=7)
        return self.free

    def _add(self, category: str, name: str, ts: float, dur: float, args: dict[str, Any] | None = None,
             *, pid: int = 1, tid: int = 1) -> None:  # fmt: skip
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args or {}}
        )

    def _next(self) -> int:
        self._ids += 1
        return self._ids
