from __future__ import annotations

import pytest

from gobrrr.analysis.evidence import _is_user_code


@pytest.mark.parametrize(
    ("frame", "mine"),
    [
        ("train.py(12): step", True),
        ("/home/me/gobrrr_tests/train.py(12): step", True),
        ("gobrrr/treating/bench.py(52): look", False),
        ("gobrrr/treatments/compile.py(12): apply", False),
        ("gobrrr/live.py(12): profile_of", False),
        ("gobrrr/lab/example.py(20): step", True),  # the demonstration's program stands for a user's
        ("torch/nn/modules/linear.py(12): forward", False),
        ("<built-in method relu>", False),
    ],
)
def test_frames_of_gobrrr_itself_are_never_the_users_line(frame: str, mine: bool) -> None:
    assert _is_user_code(frame) is mine
