"""Operations and the tensors between them, and which of them one kernel could do.

Traffic is counted from the dataflow: a kernel reads each storage that comes from outside once and writes what is used
outside. Alone, each operation is a kernel; fused, a kernel holds operations that hand their results on without DRAM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from gobrrr.cost import price
from gobrrr.cost.shapes import numel, read_bytes, write_bytes
from gobrrr.errors import UsageError
from gobrrr.model.work import Argument, OpCall, Scalar, Tensor, Work

Join = Literal["both", "before", "none"]
"""Which neighbours an operation can share a kernel with: those before and after it ("both": pointwise operations, and
what reduces or normalizes along a row that stays on the chip), those before it ("before": a reduction that a later
operation must wait for), or none (contractions)."""

Constant = int | float | bool | tuple[int, ...] | None


@dataclass(frozen=True)
class Value:
    """A tensor; two with the same `storage` are the same bytes (a transposed view)."""

    tensor: Tensor
    storage: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return self.tensor.shape


@dataclass(frozen=True)
class Node:
    """One operation: the call, what the registry makes of it, and what it reads and writes."""

    name: str
    work: Work
    inputs: tuple[Value, ...]
    output: Value
    join: Join


@dataclass(frozen=True)
class Piece:
    """One kernel, launched `calls` times: its name and the work of one call."""

    name: str
    work: Work
    calls: int = 1


class Graph:
    """A list of operations in the order of their execution; `outputs` are kept, all else is temporary."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[Value] = []
        self._storages = 0

    def tensor(self, shape: Sequence[int], dtype: str) -> Value:
        """A new tensor that nothing else shares."""
        self._storages += 1
        return Value(Tensor(tuple(shape), dtype), self._storages)

    def add(self, op: str, arguments: Iterable[Value | Constant], output: Tensor, join: Join, name: str = "") -> Value:
        """Append the operation `op` ("cos") with its schema's arguments. Raises UsageError if it can't be counted."""
        given = tuple(arguments)
        inputs = tuple(one for one in given if isinstance(one, Value))
        call = OpCall(name=f"aten::{op}", inputs=tuple(map(_argument, given)), kernels=_kernels(join, inputs))
        work = price(call)
        if not work.known:
            raise UsageError(f"{name or op}: {work.note or 'can not be counted'}")
        value = self.tensor(output.shape, output.dtype)
        self.nodes.append(Node(name or op, work, inputs, value, join))
        return value

    def largest(self) -> int:
        """Elements of the largest tensor that an operation reads or writes."""
        return max(numel(value.shape) for node in self.nodes for value in (*node.inputs, node.output))

    def alone(self) -> tuple[Piece, ...]:
        """A kernel for each operation."""
        readers = self._readers()
        return pieces(self._kernel([node], readers) for node in self.nodes)

    def fused(self) -> tuple[Piece, ...]:
        """Kernels as large as the dataflow allows; no value is computed twice."""
        readers = self._readers()
        return pieces(self._kernel(group, readers) for group in self._groups())

    def _readers(self) -> dict[int, set[int]]:
        """By storage, which operations read it (by identity; 0: it is kept)."""
        readers: dict[int, set[int]] = {value.storage: {0} for value in self.outputs}
        for node in self.nodes:
            for value in node.inputs:
                readers.setdefault(value.storage, set()).add(id(node))
        return readers

    def _groups(self) -> list[list[Node]]:
        """Operations of one stage that hand values on or run over the same tensor.

        A stage begins where a value must be complete first. Within one, every hand-over stays on the chip, so that no
        kernel waits for itself.
        """
        stages = self._stages()
        parent = list(range(len(self.nodes)))

        def root(index: int) -> int:
            while parent[index] != index:
                index = parent[index]
            return index

        made_by = {node.output.storage: index for index, node in enumerate(self.nodes)}
        readers: dict[tuple[int, int], int] = {}
        for index, node in enumerate(self.nodes):
            for value in node.inputs:
                before = made_by.get(value.storage)
                if before is not None and stages[before] == stages[index]:
                    parent[root(index)] = root(before)
                elif node.join != "none" and _is_largest(value, node):
                    parent[root(index)] = root(readers.setdefault((stages[index], value.storage), index))
        order = sorted(range(len(self.nodes)), key=lambda index: (stages[index], root(index), index))
        keyed = groupby(order, key=lambda index: (stages[index], root(index)))
        return [[self.nodes[index] for index in members] for _, members in keyed]

    def _stages(self) -> list[int]:
        """Each operation's stage: as early as possible, one later than a value that it can't share a kernel with."""
        stage_of: dict[int, tuple[int, Node]] = {}
        stages = []
        for node in self.nodes:
            before = [stage_of[value.storage] for value in node.inputs if value.storage in stage_of]
            stage = max((at + (0 if _joined(earlier, node) else 1) for at, earlier in before), default=0)
            stage_of[node.output.storage] = (stage, node)
            stages.append(stage)
        return stages

    @staticmethod
    def _kernel(group: Sequence[Node], readers: Mapping[int, set[int]]) -> Piece:
        made = {node.output.storage for node in group}
        outside = {value.storage: value for node in group for value in node.inputs if value.storage not in made}
        ours = set(map(id, group))
        read = read_bytes(*(value.tensor for value in outside.values())) + sum(map(_read_again, group))
        written = sum(map(_written_beside, group))
        written += sum(_size(node.output) for node in group if readers.get(node.output.storage, set()) - ours)
        return Piece(_title([node.name for node in group]), _joint(group, read, written))


def _joined(before: Node, after: Node) -> bool:
    return before.join == "both" and after.join in ("both", "before")


def _is_largest(value: Value, node: Node) -> bool:
    """Whether the operation runs over this input; those that run over the same one can share its read."""
    return numel(value.shape) == max(numel(one.shape) for one in node.inputs) > 1


def _argument(value: Value | Constant) -> Argument:
    if isinstance(value, Value):
        return value.tensor
    if value is None:
        return Scalar("")
    return Scalar(str(list(value)) if isinstance(value, tuple) else str(value))


def _kernels(join: Join, inputs: Sequence[Value]) -> tuple[str, ...]:
    """A product of float32 is taken as such: "sgemm" is how a kernel's name says that TF32 was off."""
    return ("sgemm",) if join == "none" and any(value.tensor.dtype == "float32" for value in inputs) else ()


def _size(value: Value) -> float:
    return write_bytes(value.shape, value.tensor.dtype)


def _read_again(node: Node) -> float:
    """What the operation reads beyond each argument once (statistics in a first pass)."""
    return (node.work.bytes_read or 0.0) - read_bytes(*(value.tensor for value in node.inputs))


def _written_beside(node: Node) -> float:
    """What it writes beside its result (the statistics of a norm)."""
    return (node.work.bytes_written or 0.0) - _size(node.output)


def _joint(group: Sequence[Node], read: float, written: float) -> Work:
    works = [node.work for node in group]
    matrix = [work.matrix_flop for work in works if work.matrix_flop is not None]
    vector = [work.vector_flop for work in works if work.vector_flop is not None]
    kinds = {work.vector_dtype for work in works if work.vector_flop}
    return Work(
        count="bounded" if any(work.count == "bounded" for work in works) else "exact",
        matrix_flop=sum(matrix) if matrix else None,
        matrix_dtype=next((work.matrix_dtype for work in works if work.matrix_dtype), None),
        vector_flop=sum(vector) if vector else None,
        vector_dtype=_vector_dtype(kinds) if vector else None,
        bytes_read=read,
        bytes_written=written,
        note="; ".join(dict.fromkeys(work.note for work in works if work.note)),
    )


def _vector_dtype(kinds: set[str | None]) -> str:
    """Where both widths occur, the faster one: what follows from it stays a lower bound."""
    return "float64" if kinds == {"float64"} else "float32"


def _title(names: Sequence[str]) -> str:
    runs = [(name, len(list(members))) for name, members in groupby(names)]
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in runs)


def pieces(made: Iterable[Piece]) -> tuple[Piece, ...]:
    """Consecutive pieces that are alike become one with `calls`."""
    out: list[Piece] = []
    for piece in made:
        if out and (out[-1].name, out[-1].work) == (piece.name, piece.work):
            out[-1] = Piece(piece.name, piece.work, out[-1].calls + piece.calls)
        else:
            out.append(piece)
    return tuple(out)
