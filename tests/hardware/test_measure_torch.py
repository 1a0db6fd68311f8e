"""The real measurement on this machine's CPU: it runs, in time, and leaves torch as it was."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gobrrr import cli
from gobrrr.errors import UsageError
from gobrrr.hardware.measure import CallTimer, device, find_device, host, matmul, memory, plan
from gobrrr.hardware.measure.compiler import NoCompilerError, fresh, fused
from gobrrr.hardware.measure.settings import flags, preserved, tf32
from gobrrr.model.measured import Quantity

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture
def cpu() -> CallTimer:
    return CallTimer(find_device("cpu"))


def state(torch: Any) -> dict[str, Any]:
    """Every setting that a measurement could leave behind."""
    switches = {name: getattr(*where) for name, where in flags(torch).items()}
    random = torch.get_rng_state().tolist()
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
    return {**switches, "threads": torch.get_num_threads(), "random": random, "modes": modes}


def change(torch: Any) -> None:
    tf32(torch, True)
    tf32(torch, False)
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    torch.set_default_dtype(torch.float64)
    torch.backends.cudnn.benchmark = True
    torch.rand(3)


def fail_after_changes(torch: Any) -> None:
    change(torch)
    raise ZeroDivisionError


@pytest.mark.parametrize("newer", [False, True], ids=["allow_tf32", "fp32_precision"])
def test_settings_are_restored_also_after_an_exception(cpu: CallTimer, newer: bool) -> None:
    torch = cpu.device.torch
    matmul_flags = torch.backends.cuda.matmul
    if newer and not hasattr(matmul_flags, "fp32_precision"):
        pytest.skip("this torch has no fp32_precision")
    if newer:
        matmul_flags.fp32_precision = "tf32"
    try:
        before = state(torch)
        with preserved(torch):
            change(torch)
        assert state(torch) == before
        with pytest.raises(ZeroDivisionError), preserved(torch):
            fail_after_changes(torch)
        assert state(torch) == before
    finally:
        if newer:
            matmul_flags.fp32_precision = "none"


def test_random_numbers_are_seeded(cpu: CallTimer) -> None:
    torch, found = cpu.device.torch, []
    for _ in range(2):
        with preserved(torch):
            found.append(torch.rand(4).tolist())
    assert found[0] == found[1]


def test_a_matmul_of_every_kind(cpu: CallTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "CPU_SIZES", (64, 128))
    with preserved(cpu.device.torch):
        for dtype in matmul.DTYPES:
            entry, curve, skipped = matmul.measure_matmul(cpu, dtype, cpu.now() + 5)
            assert (entry is None) == (curve is None) == (skipped is not None)
            if entry is not None:
                assert entry.amount.value > 1e6
    assert matmul.measure_matmul(cpu, "float32", cpu.now() - 1)[2] is not None


def test_matmul_flop_by_hand() -> None:
    assert matmul.flop(2, 3, 4) == 48  # 8 results of 3 multiply-adds


def test_memory(cpu: CallTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CPU_BYTES", 2**22)
    monkeypatch.setattr(memory, "CPU_CURVE", (2**13, 2**16))
    entries = memory.measure_dram(cpu)
    assert [one.name for one in entries] == ["copy", "scale", "read", "write"]
    assert all(1e8 < one.amount.value < 1e13 for one in entries)
    points = memory.measure_curve(cpu, None).points
    assert [one.x for one in points] == sorted(one.x for one in points)
    assert all(1e8 < one.y.value < 1e13 for one in points)


def test_on_a_busy_machine_memory_and_caches_end_with_their_time(
    cpu: CallTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took 25 s of the 30 beside two other processes, and no matmul had time."""
    monkeypatch.setattr(memory, "CPU_CURVE", (2**13, 2**16))
    monkeypatch.setattr(memory, "CPU_BYTES", 2**20)
    clock = iter(range(100))
    slow = CallTimer(cpu.device, lambda: float(next(clock)))
    monkeypatch.setattr(CallTimer, "host", lambda *_, **__: Quantity(value=1e-6, low=1e-6, high=1e-6, runs=5))
    assert len(memory.measure_curve(slow, None, 3.0).points) == 3
    assert [one.name for one in memory.measure_dram(slow, 5.0)] == ["copy", "scale"]


def test_a_repeated_copy_copies() -> None:
    memory.repeated_copy(1024, 4)()
    assert list(memory.sizes(64, 256)) == [64, 64, 128, 128, 256]


def test_host_costs(cpu: CallTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HOST_FIGURE_S", 0.01)
    python = {one.name: one.amount.value for one in host.measure_python(cpu)}
    assert python["empty loop"] > python["call"] > 1e5
    dispatch = host.measure_dispatch(cpu)
    assert len(dispatch) == len(host.dispatch_calls(cpu))
    assert all(1e-8 < one.amount.value < 1 for one in dispatch)


def test_the_compiler_says_why_not(cpu: CallTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoCompilerError, match="needs a C\\+\\+ compiler"):
        fused(cpu.device, lambda x: x)


def test_a_fresh_function_shares_no_code() -> None:
    def add(x: int, *, more: int = 2) -> int:
        return x + more

    copy = fresh(add)
    assert copy(1) == 3
    assert copy.__code__ is not add.__code__


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:1", "cuda:99"])
def test_a_device_that_is_not_there(name: str) -> None:
    with pytest.raises(UsageError, match="cpu"):
        find_device(name)


def test_the_environment_says_what_was_measured(cpu: CallTimer) -> None:
    env = cpu.device.environment()
    assert env.device_name == device.cpu_name()
    assert env.torch == str(cpu.device.torch.__version__)
    assert env.date.endswith("+00:00")


@pytest.mark.slow
def test_the_whole_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import json

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(plan, "VECTOR_FIGURES", plan.VECTOR_FIGURES[:1])  # each compiles for some seconds
    monkeypatch.setattr(matmul, "DTYPES", ("float32", "int8"))
    assert cli.main(["machine", "--device", "cpu", "--json", "--svg", str(tmp_path / "roof.svg")]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert found["measured"]["duration_s"] < 60
    assert {"matrix", "memory", "dispatch", "python"} <= {one["group"] for one in found["compared"]}
    assert (tmp_path / "roof.svg").read_text().startswith("<svg")
    assert cli.main(["machine", "--device", "cpu", "--last"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
