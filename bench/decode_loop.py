"""A launch-heavy trace, generated: a model of 24 layers decodes tokens one at a time, with a cache that grows.

    python -m bench.decode_loop OUT [--tokens 39]

The trace has the layout of torch.profiler's. Each token launches some 700 short kernels and ends with a wait for its
value, so that most of the file is the host's events. The times are made up, and the same in each run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LAYERS = 24
WIDTH, HEADS, INNER, WORDS = 1024, 16, 2816, 32_000
PROMPT = 128
TOKENS = 39

Dims = Sequence[Sequence[Any]]
"""Of each argument: sizes; of a list of tensors those of each."""

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85017493504,
      "computeMajor": 9, "computeMinor": 0, "numSms": 132
    }
  ],
  "record_shapes": 1,
  "cuda_runtime_version": 13000,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
TAIL = '\n  ],\n  "traceName": "decode_loop.json"\n}\n'


class _Loop:
    """The loop, one event after the other. Times in us: `now` is the host's clock, `free` when the device is done."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.now, self.free = 1_000_000.0, 0.0
        self.ids = 0
        self.lines: list[str] = []

    def token(self, number: int) -> list[str]:
        """The events of one token."""
        self.lines, start = [], self.now
        self.after(40)
        self.gather()
        for _ in range(LAYERS):
            self.layer(PROMPT + number)
        self.norm()
        self.linear(WIDTH, WORDS)
        self.pointwise("aten::argmax", [[1, WORDS]])
        self.wait()
        self.after(20)
        name = f"ProfilerStep#{number}"
        args = {"External id": self.new_id(), "Record function id": 0}
        step = _event("user_annotation", name, 7, 7, start, self.now - start, args)
        return [step, *self.lines]

    def layer(self, length: int) -> None:
        self.norm()
        for _ in range(3):
            self.linear(WIDTH, WIDTH)
            self.view("aten::view", [[1, 1, WIDTH]])
            self.view("aten::transpose", [[1, 1, HEADS, WIDTH // HEADS]])
        for _ in range(2):
            self.rotate()
        cache = [[1, HEADS, length, WIDTH // HEADS], [1, HEADS, 1, WIDTH // HEADS]]
        self.cat(cache)
        self.cat(cache)
        self.attention(length + 1)
        self.view("aten::reshape", [[1, 1, HEADS, WIDTH // HEADS]])
        self.linear(WIDTH, WIDTH)
        self.pointwise("aten::add", [[1, 1, WIDTH], [1, 1, WIDTH]])
        self.norm()
        self.linear(WIDTH, INNER)
        self.pointwise("aten::silu", [[1, 1, INNER]])
        self.linear(WIDTH, INNER)
        self.pointwise("aten::mul", [[1, 1, INNER], [1, 1, INNER]])
        self.linear(INNER, WIDTH)
        self.pointwise("aten::add", [[1, 1, WIDTH], [1, 1, WIDTH]])

    def gather(self) -> None:
        self.pointwise("aten::embedding", [[WORDS, WIDTH], [1, 1]], ("c10::BFloat16", "long int"))

    def norm(self) -> None:
        wide, single = [1, 1, WIDTH], [1, 1, 1]
        self.pointwise("aten::pow", [wide])
        self.pointwise("aten::mean", [wide])
        self.pointwise("aten::add", [single])
        self.pointwise("aten::rsqrt", [single])
        self.pointwise("aten::mul", [wide, single])
        self.pointwise("aten::mul", [wide, [WIDTH]])

    def rotate(self) -> None:
        head, half = [1, HEADS, 1, WIDTH // HEADS], [1, HEADS, 1, WIDTH // HEADS // 2]
        self.view("aten::slice", [head])
        self.pointwise("aten::neg", [half])
        self.cat([half, half])
        self.pointwise("aten::mul", [head, [1, 1, 1, WIDTH // HEADS]])
        self.pointwise("aten::mul", [head, [1, 1, 1, WIDTH // HEADS]])
        self.pointwise("aten::add", [head, head])

    def linear(self, wide: int, out: int) -> None:
        with self.op("aten::linear", [[1, 1, wide], [out, wide]]):
            self.view("aten::t", [[out, wide]])
            with self.op("aten::matmul", [[1, 1, wide], [wide, out]]):
                self.view("aten::_unsafe_view", [[1, wide]])
                with self.op("aten::mm", [[1, wide], [wide, out]]):
                    floor_us = 2e6 * wide * out / 3.35e12
                    self.launch("gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16>", 1.3 * floor_us + 2)

    def attention(self, length: int) -> None:
        keys = [1, HEADS, length, WIDTH // HEADS]
        dims = [[1, HEADS, 1, WIDTH // HEADS], keys, keys]
        names = ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_flash_attention_forward")
        outer, middle, inner = (self.op(f"aten::{name}", dims) for name in names)
        with outer, middle, inner:
            self.launch("void flash::flash_fwd_splitkv_kernel<64, 64, 256, 4>", 4 + length / 100)

    def pointwise(self, name: str, dims: Dims, types: tuple[str, ...] = ()) -> None:
        with self.op(name, dims, types):
            self.launch(f"void at::native::{name[6:]}_kernel<c10::BFloat16>(int, std::array<char*, 3ul>)", 1.6)

    def cat(self, dims: Dims) -> None:
        self.pointwise("aten::cat", [dims, []], ("TensorList", "Scalar"))

    def view(self, name: str, dims: Dims) -> None:
        with self.op(name, dims), self.op("aten::as_strided", dims):
            pass

    def wait(self) -> None:
        """The value of the token, copied to the host."""
        types = ("long int",)
        with self.op("aten::item", [[1]], types), self.op("aten::_local_scalar_dense", [[1]], types):
            self.launch("Memcpy DtoH (Device -> Pinned)", 1.2, "cudaMemcpyAsync")
            start = self.now
            self.now = max(self.now, self.free) + 4
            args = {"External id": self.ids, "cbid": 131, "correlation": self.new_id()}
            self.lines.append(_event("cuda_runtime", "cudaStreamSynchronize", 7, 7, start, self.now - start, args))

    def op(self, name: str, dims: Dims, types: tuple[str, ...] = ()) -> _Op:
        return _Op(self, name, dims, types or ("c10::BFloat16",) * len(dims))

    def launch(self, kernel: str, lasts_us: float, call: str = "cudaLaunchKernel") -> None:
        """A call, its kernel, and the arrow between the two."""
        external, own = self.ids, self.new_id()
        self.after(2)
        start = self.now
        self.after(5)
        begin = max(start + 6, self.free + 0.9)
        self.free = begin + lasts_us * self.random.uniform(0.97, 1.03)
        args = {"External id": external, "cbid": 211, "correlation": own}
        self.lines.append(_event("cuda_runtime", call, 7, 7, start, self.now - start, args))
        self.lines.append(_arrow("s", own, 7, 7, start))
        on_device: dict[str, object]
        on_device = {"External id": external, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": own}
        if call == "cudaLaunchKernel":
            on_device |= {"registers per thread": 32, "shared memory": 0, "grid": [8, 1, 1], "block": [128, 1, 1]}
            kind = "kernel"
        else:
            on_device |= {"bytes": 8, "memory bandwidth (GB/s)": 0.006}
            kind = "gpu_memcpy"
        self.lines.append(_event(kind, kernel, 0, 7, begin, self.free - begin, on_device))
        self.lines.append(_arrow("f", own, 0, 7, begin))

    def after(self, us: float) -> None:
        """The host goes on for about so long."""
        self.now += us * self.random.uniform(0.8, 1.25)

    def new_id(self) -> int:
        self.ids += 1
        return self.ids


class _Op:
    """An operation, open while those within it run."""

    def __init__(self, loop: _Loop, name: str, dims: Dims, types: tuple[str, ...]) -> None:
        self.loop, self.name, self.dims, self.types = loop, name, dims, types

    def __enter__(self) -> None:
        self.loop.after(3)
        self.start, self.id, self.place = self.loop.now, self.loop.new_id(), len(self.loop.lines)
        self.loop.lines.append("")
        self.loop.after(0.5)

    def __exit__(self, *_: object) -> None:
        self.loop.after(0.8)
        args = {
            "External id": self.id, "Record function id": 0, "Concrete Inputs": [""] * len(self.dims),
            "Input type": list(self.types), "Input Strides": [_strides(dims) for dims in self.dims],
            "Input Dims": self.dims, "Ev Idx": self.id,
        }  # fmt: skip
        event = _event("cpu_op", self.name, 7, 7, self.start, self.loop.now - self.start, args)
        self.loop.lines[self.place] = event


def _strides(dims: Sequence[Any]) -> list[Any]:
    """Of a tensor without gaps; of a list of tensors those of each; a scalar has none."""
    if not dims or isinstance(dims[0], list):
        return [_strides(each) for each in dims]
    strides = [1]
    for size in dims[:0:-1]:
        strides.append(strides[-1] * size)
    return strides[::-1]


def _event(kind: str, name: str, process: int, thread: int, start: float, lasts: float, args: object) -> str:
    where = f'"pid": {process}, "tid": {thread},\n    "ts": {start:.3f}, "dur": {lasts:.3f}'
    return (
        f'  {{\n    "ph": "X", "cat": "{kind}", "name": "{name}", {where},\n'
        f'    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }}'
    )


def _arrow(phase: str, number: int, process: int, thread: int, at: float) -> str:
    ends = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {process}, "tid": {thread}, "ts": {at:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g"{ends}\n  }}'
    )


def events(tokens: int) -> Iterator[str]:
    """The events of the loop, each as it is written."""
    loop = _Loop()
    for number in range(tokens):
        yield from loop.token(number)


def write_loop(out: Path, tokens: int = TOKENS) -> int:
    """Write the trace; returns the number of its events."""
    lines = list(events(tokens))
    out.write_text(HEAD + ",\n".join(lines) + TAIL, encoding="utf-8")
    return len(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    options = parser.parse_args(arguments)
    count = write_loop(options.out, options.tokens)
    print(f"{options.out}: {count:,} events, {options.out.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
