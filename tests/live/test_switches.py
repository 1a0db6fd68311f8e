from __future__ import annotations

import os
import pdb
import sys
import timeit
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.model.live import Switches  # noqa: E402
from gobrrr.observe.live.watches import tools  # noqa: E402
from gobrrr.observe.live.watches.calls_in_source import call_in_source  # noqa: E402
from gobrrr.observe.live.watches.lines import spelled  # noqa: E402
from gobrrr.observe.live.watches.switches import Precision, SwitchWatch  # noqa: E402

HEALTHY_STATUS = Path(os.devnull)


def observed(step: Callable[[], Any] = lambda: None, environment: dict[str, str] | None = None) -> Switches:
    watch = SwitchWatch(environment or {}, HEALTHY_STATUS)
    watch.open()
    try:
        step()
        watch.window_begins()
        step()
        watch.step(0)
        watch.window_ends(1)
    finally:
        watch.close()
    found = watch.found()
    assert found is not None
    return found


@contextmanager
def traced(hook: Any) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(hook)
    try:
        yield
    finally:
        sys.settrace(before)


def backward() -> None:
    torch.ones(2, requires_grad=True).sum().backward()


def test_a_program_with_everything_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # the default
    before = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        found = observed(backward)
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    assert found == Switches(matmul_precision="highest", matmul_tf32=False, conv_tf32=True, monitoring=found.monitoring)


def test_anomaly_detection_within_the_step_only() -> None:
    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly(check_nan=False):
                backward()

    found = observed(step)
    assert found.anomaly
    assert found.anomaly_at == spelled(__file__, step.__code__.co_firstlineno + 3, "step")
    assert not found.anomaly_checks_nan
    assert not torch.is_anomaly_enabled()


@pytest.mark.parametrize("on", [True, False])
def test_anomaly_detection_set_in_the_step(on: bool) -> None:
    def step() -> None:
        with torch.autograd.set_detect_anomaly(on):
            backward()

    found = observed(step)
    assert (found.anomaly, found.anomaly_checks_nan) == (on, on)
    assert (found.anomaly_at is not None) is on


def test_anomaly_detection_left_on_before() -> None:
    torch.autograd.set_detect_anomaly(True)
    try:
        found = observed(backward)
        assert found.anomaly
        assert found.anomaly_checks_nan
        assert torch.is_anomaly_enabled()
    finally:
        torch.autograd.set_detect_anomaly(False)


SWITCHED = """import torch

torch.autograd.set_detect_anomaly(False)


def main():
    torch.autograd.set_detect_anomaly(True)
"""


@pytest.mark.parametrize(
    ("text", "line"), [(SWITCHED, "(7): main"), ("set_detect_anomaly = 1\n", None), ("set_detect_anomaly(", None)]
)
def test_the_line_that_switched_it_on_before_is_found_in_the_source(
    text: str, line: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.py"
    file.write_text(text, encoding="utf-8")
    module = ModuleType("train")
    module.__file__ = str(file)
    monkeypatch.setattr(sys, "modules", {"train": module})
    assert call_in_source("set_detect_anomaly") == (line and f"{file}{line}")


def test_anomaly_detection_in_warm_up_alone_costs_the_steps_nothing() -> None:
    calls = iter([True, False])

    def step() -> None:
        with torch.autograd.set_detect_anomaly(next(calls)):
            backward()

    assert not observed(step).anomaly


def test_torchs_function_is_back_after_an_exception() -> None:
    plain = torch.set_anomaly_enabled
    with pytest.raises(ZeroDivisionError):
        observed(lambda: 1 // 0)
    assert torch.set_anomaly_enabled is plain
    watch = SwitchWatch()
    watch.open()
    watch.open()
    watch.close()
    watch.close()
    assert torch.set_anomaly_enabled is plain
    assert watch.found() is None


def test_deterministic_algorithms() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        found = observed()
        assert found.deterministic
        assert found.deterministic_at is not None
        assert "test_switches.py" in found.deterministic_at
    finally:
        torch.use_deterministic_algorithms(False)


def test_cudnn_settings() -> None:
    with torch.backends.cudnn.flags(benchmark=True, deterministic=True):
        found = observed()
    assert (found.cudnn_benchmark, found.cudnn_deterministic) == (True, True)


@pytest.mark.parametrize(("name", "tf32"), [("highest", False), ("high", True), ("medium", True)])
def test_the_precision_of_products(name: str, tf32: bool) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        found = observed()
        assert (found.matmul_precision, found.matmul_tf32) == (name, tf32)
        assert torch.get_float32_matmul_precision() == name
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(not hasattr(torch._C, "_get_fp32_precision_getter"), reason="torch before 2.9 has no such setting")
def test_the_newer_names_of_the_precision_are_read_without_a_word() -> None:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, conv.fp32_precision
    try:
        matmul.fp32_precision, conv.fp32_precision = "tf32", "ieee"
        # warnings are errors here; torch's older names raise in this state
        assert Precision.now() == Precision("high", True, False)
    finally:
        matmul.fp32_precision, conv.fp32_precision = before


def test_the_trace_function_is_named_by_its_package() -> None:
    coverage = SimpleNamespace(__module__="coverage.pytracer")
    assert tools.named(coverage) == "coverage"
    assert tools.named(None) is None

    def dispatch(*_: Any) -> None:
        return None

    dispatch.__module__ = "_pydevd_bundle.pydevd_trace_dispatch"
    assert tools.named(dispatch) == "pydevd"
    assert tools.named(pdb.Pdb(nosigint=True).trace_dispatch) == "pdb"
    with traced(dispatch):
        assert observed().tracer == "pydevd"


def test_a_profiler_that_hangs_on_python() -> None:
    cProfile = pytest.importorskip("cProfile")
    before = sys.getprofile()
    profile = cProfile.Profile()
    try:
        if before is None and sys.version_info < (3, 12):
            profile.enable()
            assert observed().profiler == "cProfile"
    finally:
        profile.disable()
        sys.setprofile(before)

    def hook(*_: Any) -> None:
        return None

    sys.setprofile(hook)
    try:
        found = observed().profiler
    finally:
        sys.setprofile(before)
    assert found == "test_switches" or (found or "").startswith("tests")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is there from Python 3.12 on")
def test_a_tool_of_sys_monitoring() -> None:
    home = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    home.use_tool_id(3, "a tool")
    try:
        assert "a tool" not in tools.monitoring()
        home.set_events(3, home.events.PY_START)
        assert "a tool" in observed().monitoring
    finally:
        home.set_events(3, 0)
        home.free_tool_id(3)


def test_a_debugger_that_is_connected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connected = [False]
    fake: Any = ModuleType("debugpy")
    fake.is_client_connected = lambda: connected[0]
    monkeypatch.setitem(sys.modules, "debugpy", fake)
    assert observed().debugger is None
    connected[0] = True
    assert observed().debugger == "debugpy"


def test_a_debugger_of_the_operating_systems_kind(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nTracerPid:\t0\n")
    assert tools.debugger(status) is None
    status.write_text(f"Name:\tpython\nTracerPid:\t{os.getpid()}\n")
    assert tools.debugger(status) == Path("/proc/self/comm").read_text().strip()
    assert tools.debugger(tmp_path / "absent") is None


SICK = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "0",  # torch asks whether it is there
    "NCCL_DEBUG": "INFO",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "PYTHONDEVMODE": "1",
    "PYTHONTRACEMALLOC": "25",
    "TORCH_LOGS": "+dynamo",
    "MALLOC_PERTURB_": "165",
}
HEALTHY = {
    "CUDA_LAUNCH_BLOCKING": "0",
    "NCCL_DEBUG": "WARN",
    "TORCH_DISTRIBUTED_DEBUG": "OFF",
    "PYTHONDEVMODE": "",
    "PYTHONFAULTHANDLER": "1",
    "OMP_NUM_THREADS": "4",
    "PYTHONMALLOC": "pymalloc",
}


def test_variables_that_slow_a_program() -> None:
    found = observed(environment=SICK)
    assert dict(found.environment) == SICK
    assert found.launch_blocking


def test_variables_that_do_not() -> None:
    found = observed(environment=HEALTHY)
    assert found.environment == ()
    assert not found.launch_blocking


def test_a_step_costs_nothing() -> None:
    watch = SwitchWatch()
    assert min(timeit.repeat(lambda: watch.step(0), number=1000, repeat=5)) / 1000 < 2e-6
