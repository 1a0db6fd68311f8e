"""The arguments of an operation, and the work that it must do: input and output of the counting rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import structs

Count = Literal["exact", "bounded", "view", "unknown"]
Link = Literal["memory", "host", "network"]


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor argument: `shape` and `strides` in elements, `dtype` by torch's short name ("bfloat16").

    `nnz`: how many elements a sparse tensor stores; None for a dense one, and where a trace does not say.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    nnz: int | None = None


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """A non-tensor argument as the profiler prints it ("0.5", "True", "[1, 1]"); "" where it was not recorded."""

    text: str = ""


class TensorList(msgspec.Struct, frozen=True, gc=False):
    """A list of tensors (`aten::cat`, the foreach family)."""

    items: tuple[Tensor, ...]


Argument = Tensor | Scalar | TensorList


class Collective(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A collective as the profiler records it. Element counts are per rank; None where not recorded."""

    name: str
    dtype: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    group_size: int | None = None


class OpCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One framework operation with its arguments, and the kernels that it launched.

    The profiler does not record outputs: a rule derives them from inputs and scalars. A recorder below autograd sees
    the outputs, but not the ops that an op calls inside itself: where `outputs` is given, the call includes those (the
    zeros for an embedding's gradient). `kernels`: the names of the kernels, a last resort for what the arguments do not
    say (was TF32 on?).
    """

    name: str
    inputs: tuple[Argument, ...] = ()
    kernels: tuple[str, ...] = ()
    copied_bytes: int | None = None  # what memcpy/memset events say they moved
    collective: Collective | None = None
    outputs: tuple[Tensor, ...] | None = None  # those of a tensor type, in the schema's order; None: not recorded

    @property
    def tensors(self) -> list[Tensor]:
        """The tensor arguments, lists flattened."""
        flat: list[Tensor] = []
        for argument in self.inputs:
            if isinstance(argument, Tensor):
                flat.append(argument)
            elif isinstance(argument, TensorList):
                flat.extend(argument.items)
        return flat

    def retyped(self, types: Mapping[str, str]) -> OpCall:
        """The same call with other element types. `types`: old type to new type; others stay."""

        def cast(tensor: Tensor) -> Tensor:
            return structs.replace(tensor, dtype=types.get(tensor.dtype, tensor.dtype))

        def recast(argument: Argument) -> Argument:
            if isinstance(argument, TensorList):
                return TensorList(tuple(map(cast, argument.items)))
            return cast(argument) if isinstance(argument, Tensor) else argument

        return structs.replace(self, inputs=tuple(map(recast, self.inputs)), outputs=None, kernels=())


class Work(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The work of an op. Works add up: FLOPs and bytes sum; the weaker certainty wins.

    `matrix_flop`: on the matrix units (tensor cores) where there are some for `matrix_dtype`; `vector_flop`: on the
    vector units. One fused multiply-add is 2 FLOP. `bytes_*`: DRAM bytes as run (each input read once, each output
    written once) for `link` "memory", else bytes over the link. None: not known, which never means 0.

    Three counts of FLOPs (docs/design.md, section 5): `flop`, the hardware FLOPs, is everything that the kernels
    execute; `executed_flop` leaves out recomputation; `needed_flop`, the model FLOPs, is what the maths needs. Model
    FLOP utilization uses the last, hardware FLOP utilization the first.
    """

    count: Count
    matrix_flop: float | None = None
    matrix_dtype: str | None = None
    vector_flop: float | None = None
    vector_dtype: str | None = None
    recomputed_flop: float = 0.0  # the part of matrix_flop that repeats an earlier product (attention's backward)
    model_flop: float | None = None  # what the maths needs, on both units, where that is less than executed
    bytes_read: float | None = None
    bytes_written: float | None = None
    link: Link = "memory"
    family: str = ""
    fusible: bool = False  # pointwise or reduction: a compiler may join it to its neighbours
    by_name: bool = False  # some figure rests on a kernel's name
    note: str = ""  # what is assumed, or why it is unknown

    @property
    def flop(self) -> float | None:
        """Hardware FLOPs: everything that the kernels execute, on both units; None if neither is known."""
        if self.matrix_flop is None and self.vector_flop is None:
            return None
        return (self.matrix_flop or 0.0) + (self.vector_flop or 0.0)

    @property
    def executed_flop(self) -> float | None:
        """FLOPs without recomputation inside a kernel; None if not known."""
        return None if self.flop is None else self.flop - self.recomputed_flop

    @property
    def needed_flop(self) -> float | None:
        """Model FLOPs: what the maths needs (a causal mask halves the pairs, whatever the kernel does)."""
        return self.executed_flop if self.model_flop is None else self.model_flop

    @property
    def bytes(self) -> float | None:
        """Bytes read and written; None if neither is known."""
        if self.bytes_read is None and self.bytes_written is None:
            return None
        return (self.bytes_read or 0.0) + (self.bytes_written or 0.0)

    @property
    def known(self) -> bool:
        """Whether a rule counted it."""
        return self.count != "unknown"


UNKNOWN_WORK = Work(count="unknown")
"""The work of an op without a rule."""

DTYPE_BYTES: dict[str, float] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "tf32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    "complex32": 4, "complex64": 8, "complex128": 16,
    "qint8": 1, "quint8": 1, "qint32": 4,
}  # fmt: skip
"""Bytes per element, by torch's dtype name."""
