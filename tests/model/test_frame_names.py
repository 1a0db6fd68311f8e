"""Whose code a Python frame is, by its name alone."""

from __future__ import annotations

import pytest

from gobrrr.model.frame_names import is_users, marked, users_function

GENERATED = "/tmp/torchinductor_me/ab/c" + "a2" * 25 + "b.py"


@pytest.mark.parametrize(
    ("frame", "mine"),
    [
        ("train.py(12): step", True),
        ("/home/me/gobrrr_tests/train.py(12): step", True),
        ("/home/me/gobrrr/train.py(12): step", True),
        ("/home/me/torch/train.py(12): step", True),
        ("/home/me/pytorch/examples/mnist/main.py(12): train", True),
        ("/home/me/site-packages-notes/train.py(12): step", True),
        ("/home/me/my-dist-packages/train.py(12): step", True),
        ("/usr/src/app/train.py(12): step", True),
        ("/home/me/run (2)/train.py(12): <lambda>", True),
        ("pytorch/train.py(12): step", True),
        ("./torch/train.py(12): step", True),  # as a live run spells it
        ("gobrrr/trials/bench.py(52): look", False),
        ("gobrrr/doors/live.py(12): profile_of", False),
        ("gobrrr/lab/example.py(20): step", True),  # the demonstration's program stands for a user's
        ("/opt/venv/lib/python3.12/site-packages/gobrrr/lab/example.py(20): step", True),
        ("torch/nn/modules/linear.py(12): forward", False),
        ("site-packages/einops/einops.py(3): rearrange", False),
        ("/usr/lib/python3/dist-packages/yaml/reader.py(3): read", False),
        ("/usr/lib/python3.10/threading.py(3): run", False),
        ("<built-in method relu>", False),
        ("<string>(1): __init__", False),
        ("nn.Module: train.py_0", False),
        (f"{GENERATED}(12): call", False),
    ],
)
def test_whose_a_frame_is(frame: str, mine: bool) -> None:
    assert is_users(frame) is mine
    assert (users_function(frame) is not None) is mine


@pytest.mark.parametrize(
    ("frame", "users", "expected"),
    [
        ("train.py(12): step", True, "train.py(12): step"),
        ("torch/train.py(12): step", True, "./torch/train.py(12): step"),
        ("gobrrr/torch/train.py(12): step", True, "./gobrrr/torch/train.py(12): step"),
        ("/home/me/site-packages/train.py(12): step", True, "./train.py(12): step"),
        ("einops/einops.py(3): rearrange", False, "site-packages/einops/einops.py(3): rearrange"),
        ("torch/_ops.py(3): __call__", False, "torch/_ops.py(3): __call__"),
        ("<built-in method relu>", True, "<built-in method relu>"),
    ],
)
def test_a_name_that_would_say_otherwise_is_changed(frame: str, users: bool, expected: str) -> None:
    assert marked(frame, users=users) == expected
    assert is_users(expected) is (users and not frame.startswith("<"))
