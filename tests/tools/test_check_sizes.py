"""The size check passes what is short and names what is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_sizes import FILE_LINES, FUNCTION_LINES, main, too_long


def test_a_long_function_is_named(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("def fine():\n    pass\n\n\ndef endless():\n" + "    pass\n" * FUNCTION_LINES)
    assert list(too_long(path)) == [f"{path}:5: endless has {FUNCTION_LINES + 1} lines, at most {FUNCTION_LINES}"]


def test_a_long_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "long.py").write_text("x = 1\n" * (FILE_LINES + 1))
    assert main([str(tmp_path)]) == 1
    assert f"{FILE_LINES + 1} lines" in capsys.readouterr().out


def test_the_limits_themselves_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text(
        "def full():\n" + "    pass\n" * (FUNCTION_LINES - 1) + "x = 1\n" * (FILE_LINES - FUNCTION_LINES)
    )
    assert main([str(tmp_path)]) == 0
