"""O14: a hook on gradients that holds the step; cheap ones, torch's own, and functions with a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobrrr.model.diagnosis import NotChecked
from tests.conditions.lives import framed, ran
from tests.evidence import check, found, predict, watched
from tests.traces import Trace

SMALL = [[64, 64], [64, 64]]
ENGINE, ADDS = "autograd::engine::evaluate_function", "torch::autograd::AccumulateGrad"
NODE = f"{ENGINE}: {ADDS}"
OF_MODULES = "torch/utils/hooks.py(128): hook"
HOOK = "train.py(7): record"
PARAMETERS = 10


def backward(
    *around: str, hook: str = HOOK, us: float = 100.0, frames: tuple[str, ...] = ()
) -> Callable[[Trace], None]:
    """A step whose backward pass is in `hook` for `us` a parameter, within events and frames."""

    def within(trace: Trace, left: tuple[str, ...]) -> None:
        if left:
            with trace.inside(left[0]):
                within(trace, left[1:])
            return
        in_frames(trace, (*frames, hook))

    def in_frames(trace: Trace, left: tuple[str, ...]) -> None:
        if left:
            framed(trace, left[0], lambda: in_frames(trace, left[1:]))
            return
        trace.now += us
        trace.op("aten::sort", SMALL, 2.0, host_us=20.0)

    def step(trace: Trace) -> None:
        for _ in range(PARAMETERS):
            trace.op("aten::mm", SMALL, 2.0, host_us=20.0)
        for _ in range(PARAMETERS):
            within(trace, around)

    return lambda trace: framed(trace, "train.py(12): step", lambda: step(trace))


WAYS = {
    "on a tensor": backward(NODE),
    "behind the sum": backward(NODE, ADDS),
    "on a module": backward(f"{ENGINE}: BackwardHookFunctionBackward", frames=(OF_MODULES,)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_is_named_with_its_line_and_what_it_calls(way: str, tmp_path: Path):
    seen = ran(tmp_path, WAYS[way])
    finding = found("O14", seen)
    assert finding.where[0].source == HOOK
    assert finding.where[0].count == PARAMETERS
    assert finding.at_stake_ns[0] == 0
    assert 100e3 <= finding.at_stake_ns[1] / PARAMETERS <= 122e3  # 100 us, and an operation of at most 20 us
    assert "sort" in finding.evidence[0]
    given = predict("lighter-hook", seen, finding)
    assert given is not None
    assert given.how.startswith("# train.py:7 in record")


SILENT = {
    "cheap": backward(NODE, us=0.0, hook="train.py(7): clamp"),
    "torch's own": backward(NODE, hook="torch/distributed/fsdp/_runtime_utils.py(700): _post_backward_hook"),
    "a backward pass of the program's": backward(
        f"{ENGINE}: OwnBackward", "OwnBackward", frames=("torch/autograd/function.py(299): apply",)
    ),
    "what saved tensors are unpacked by": backward(f"{ENGINE}: MulBackward0", "MulBackward0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(SILENT)[1:])
def test_what_is_no_hook_of_the_programs_is_left_out(kind: str, tmp_path: Path):
    assert check("O14", ran(tmp_path, SILENT[kind])) is None


def test_a_cheap_hook_is_none(tmp_path: Path):
    def body(trace: Trace) -> None:
        trace.op("aten::mm", [[4096, 4096]] * 2, 20_000.0)
        SILENT["cheap"](trace)
        trace.item()

    assert check("O14", ran(tmp_path, body)) is None


def test_without_frames_it_is_not_known(tmp_path: Path):
    seen = watched(ran(tmp_path, WAYS["on a tensor"]), frames=False)
    assert isinstance(check("O14", seen), NotChecked)
