"""Nothing downstream of a profile asks which door it came through: it asks the device model, or for a part by name."""

from __future__ import annotations

import ast
from pathlib import Path

FLAGS = {"live", "on_cpu"}
"""`Live` is the record of a run; `on_cpu` was its test for a CPU."""

MAY = (
    "observe/",  # the doors
    "doors/live.py",
    "doors/prediction.py",
    "model/",  # the records, which give each part a name
    "report/page/live.py",  # prints the record of a run
)


def flags(source: str) -> list[str]:
    return sorted(
        node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in FLAGS)
        or (isinstance(node, ast.Name) and node.id == "on_cpu")
        or (isinstance(node, ast.arg) and node.arg == "on_cpu")
    )


def test_no_module_below_the_doors_asks_for_the_door(root: Path) -> None:
    package = root / "src" / "gobrrr"
    asked = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith(MAY) and (found := flags(path.read_text())):
            asked[name] = found
    assert asked == {}


def test_a_door_flag_is_seen() -> None:
    assert flags("if evidence.live is not None and evidence.on_cpu: pass") == ["live", "on_cpu"]
    assert flags("def judge(on_cpu): return on_cpu") == ["on_cpu", "on_cpu"]
    assert flags("import gobrrr.observe.live") == []
