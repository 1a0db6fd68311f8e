"""Ops without a rule of their own that torch itself calls pointwise or a view: counted by that.

data/op_tags.json is made from torch's own tags and schemas by tools/make_op_tags.py; nothing here needs torch.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from gobrrr.cost.arguments import dtype, tensors
from gobrrr.cost.build import VIEW, made_bytes, vector
from gobrrr.cost.dtypes import floating, promote
from gobrrr.cost.registry import Uncounted, plain
from gobrrr.cost.shapes import broadcast, numel, read_bytes, write_bytes
from gobrrr.model.work import OpCall, Tensor, Work

TAGS_FILE = Path(__file__).with_name("data") / "op_tags.json"
"""The tags: made by tools/make_op_tags.py."""


class Tags(msgspec.Struct, frozen=True):
    """What torch says of its ops: their names ("aten::add"), and the version that said it."""

    torch: str
    pointwise: frozenset[str]
    view: frozenset[str]


@cache
def tags() -> Tags:
    """The table, read once."""
    return msgspec.json.decode(TAGS_FILE.read_bytes(), type=Tags)


def by_tag(call: OpCall) -> Work | None:
    """Work of an op that torch calls a view (free) or pointwise (1 FLOP an element); None for any other.

    Raises Uncounted when the arguments aren't recorded, or a view comes with kernels, which are then another op's.
    """
    name = plain(call.name)
    if name in tags().view:
        if call.kernels:
            raise Uncounted("a view makes no kernel: this one was launched outside of any op")
        return msgspec.structs.replace(VIEW, family="view")
    if name in tags().pointwise:
        return msgspec.structs.replace(_pointwise(call, name), family="pointwise")
    return None


def _pointwise(call: OpCall, name: str) -> Work:
    given = list(tensors(call))
    if not given:
        raise Uncounted("shapes are not recorded")
    shape = broadcast(*(tensor.shape for tensor in given))
    made = made_bytes(call)
    written = write_bytes(shape, _result(call, given, name)) if made is None else made
    return vector(flop=numel(shape), dtype=given[0].dtype, read=read_bytes(*given), written=written)


def _result(call: OpCall, given: list[Tensor], name: str) -> str:
    """In place: the first tensor's type. A conversion: the one asked for. Else that of a function of real numbers."""
    if name.endswith("_") or name.startswith("aten::__i"):
        return given[0].dtype
    if name == "prims::convert_element_type":
        return dtype(call, 1) or given[0].dtype
    widest = promote(call.inputs)
    return widest if name.startswith("prims::") else floating(widest)
