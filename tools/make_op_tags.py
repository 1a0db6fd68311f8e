"""Write src/gobrrr/cost/data/op_tags.json: which of torch's operations are pointwise and which only make a view.

    python tools/make_op_tags.py        needs torch; the file says which version it was made from

Pointwise: torch.Tag.pointwise on an overload. View: every output of an overload aliases an input and none is written.
Counting reads the file, so that it needs no torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parent.parent / "src" / "gobrrr" / "cost" / "data" / "op_tags.json"
NAMESPACES = ("aten", "prims")

# Their schemas say "alias"; they copy when they must (another type, device or layout, or no view of that shape).
_MAY_COPY = (
    "aten::_autocast_to_full_precision aten::_autocast_to_reduced_precision aten::coalesce aten::contiguous aten::data "
    "aten::flatten aten::ravel aten::reshape aten::resolve_conj aten::resolve_neg aten::reshape_as aten::to "
    "aten::type_as aten::_sparse_broadcast_to"
)
MAY_COPY = frozenset(_MAY_COPY.split())


def overloads() -> dict[str, list[Any]]:
    """Every overload of each operation, by the operation's name ("aten::add")."""
    import torch

    found: dict[str, list[Any]] = {}
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), name, None) if namespace in NAMESPACES else None
        if packet is not None and hasattr(packet, overload or "default"):
            found.setdefault(f"{namespace}::{name}", []).append(getattr(packet, overload or "default"))
    return found


def is_pointwise(overload: Any) -> bool:
    import torch

    return torch.Tag.pointwise in overload.tags


def is_view(overload: Any) -> bool:
    """Whether all that the overload returns are aliases that it doesn't write."""
    returns = overload._schema.returns
    return bool(returns) and all(
        returned.alias_info is not None and not returned.alias_info.is_write for returned in returns
    )


def table() -> dict[str, Any]:
    """What the file holds."""
    import torch

    found = overloads()
    pointwise = [name for name, group in found.items() if any(map(is_pointwise, group))]
    views = [name for name, group in found.items() if any(map(is_view, group)) and name not in MAY_COPY]
    return {"torch": torch.__version__.partition("+")[0], "pointwise": pointwise, "view": views}


def main() -> int:
    content = table()
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")
    print(f"{PATH}: {len(content['pointwise'])} pointwise, {len(content['view'])} views, torch {content['torch']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
