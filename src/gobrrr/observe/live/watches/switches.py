"""Settings that cost or save time: those of torch, Python and the environment while the steps run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gobrrr.model.live import Switches
from gobrrr.observe.live.clock import on_gpu
from gobrrr.observe.live.watches.calls_in_source import call_in_source
from gobrrr.observe.live.watches.lines import user_line
from gobrrr.observe.live.watches.tools import TRACER_STATUS, debugger, monitoring, named
from gobrrr.observe.live.watches.variables import slowing

_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING")

ANOMALY = ("set_detect_anomaly", "detect_anomaly", "set_anomaly_enabled")
"""torch's functions that switch anomaly detection on."""

DETERMINISTIC = "use_deterministic_algorithms"
"""torch's function that switches deterministic algorithms on."""


class SwitchWatch:
    """Reads the settings at both ends of the window: a setting that is on at either end was on in some steps.

    Anomaly detection may be on only within a step (`with torch.autograd.detect_anomaly():`). All its forms call
    `torch.set_anomaly_enabled`, which is replaced until `close` by one that also notes the program's line.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ, status: Path = TRACER_STATUS) -> None:
        self._environment = environment
        self._status = status
        self._plain: Any = None
        self._noting: Any = None
        self._in_window = False
        self._anomaly = False
        self._checks_nan = False
        self._at: str | None = None
        self._read: list[Switches] = []

    def open(self) -> None:
        """Note anomaly detection from here on."""
        if self._plain is not None:
            return
        self._plain = plain = torch.set_anomaly_enabled

        def noting(mode: bool, check_nan: bool = True) -> None:
            plain(mode, check_nan)
            if mode:
                self._at = user_line(sys._getframe(1)) or self._at
            if mode and self._in_window:
                self._anomaly = True
                self._checks_nan |= check_nan

        self._noting = noting
        torch.set_anomaly_enabled = noting

    def window_begins(self) -> None:
        """Read what is set now."""
        self._in_window = True
        self._read.append(self._now())

    def step(self, index: int) -> None:
        """Does nothing: settings do not change from one step to the next."""

    def window_ends(self, steps: int) -> None:
        """Read what is set by now."""
        if self._in_window:
            self._read.append(self._now())
        self._in_window = False

    def close(self) -> None:
        """Restore torch's function, unless somebody else has replaced it since."""
        self._in_window = False
        if self._plain is not None and torch.set_anomaly_enabled is self._noting:
            torch.set_anomaly_enabled = self._plain
        self._plain = None

    def found(self) -> Switches | None:
        """The settings; where the two ends of the window differ, what costs time counts as on."""
        if not self._read:
            return None
        first, last = self._read[0], self._read[-1]
        anomaly = self._anomaly or first.anomaly or last.anomaly
        deterministic = first.deterministic or last.deterministic
        return Switches(
            anomaly=anomaly,
            anomaly_at=(self._at or call_in_source(*ANOMALY)) if anomaly else None,
            anomaly_checks_nan=self._checks_nan or first.anomaly_checks_nan or last.anomaly_checks_nan,
            launch_blocking=first.launch_blocking,
            deterministic=deterministic,
            deterministic_at=call_in_source(DETERMINISTIC) if deterministic else None,
            sync_debug=first.sync_debug or last.sync_debug,
            tracer=first.tracer or last.tracer,
            profiler=first.profiler or last.profiler,
            monitoring=tuple(dict.fromkeys((*first.monitoring, *last.monitoring))),
            debugger=first.debugger or last.debugger,
            cudnn_benchmark=last.cudnn_benchmark,
            cudnn_deterministic=first.cudnn_deterministic or last.cudnn_deterministic,
            matmul_precision=last.matmul_precision,
            matmul_tf32=last.matmul_tf32,
            conv_tf32=last.conv_tf32,
            environment=first.environment,
        )

    def _now(self) -> Switches:
        anomaly = bool(torch.is_anomaly_enabled())
        precision = Precision.now()
        return Switches(
            anomaly=anomaly,
            anomaly_checks_nan=anomaly and bool(torch.is_anomaly_check_nan_enabled()),
            launch_blocking=any(self._environment.get(name, "0") not in ("", "0") for name in _BLOCKING),
            deterministic=bool(torch.are_deterministic_algorithms_enabled()),
            sync_debug=on_gpu() and bool(torch.cuda.get_sync_debug_mode()),  # which would start CUDA itself
            tracer=named(sys.gettrace()),
            profiler=named(sys.getprofile()),
            monitoring=monitoring(),
            debugger=debugger(self._status),
            cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
            cudnn_deterministic=bool(torch.backends.cudnn.deterministic),
            matmul_precision=precision.name,
            matmul_tf32=precision.matmul,
            conv_tf32=precision.conv,
            environment=slowing(self._environment),
        )


@dataclass(frozen=True)
class Precision:
    """How float32 products are computed: "highest", "high" or "medium"; on a GPU in TF32 or not. None: not known."""

    name: str | None = None
    matmul: bool | None = None
    conv: bool | None = None

    @staticmethod
    def now() -> Precision:
        """Read without a warning: torch's older names refuse to answer where its newer ones (2.9) were used to set."""
        read = getattr(torch._C, "_get_fp32_precision_getter", None)
        if read is not None:
            try:
                return _of(read("cuda", "matmul"), read("cuda", "conv"), read("mkldnn", "matmul"))
            except (RuntimeError, TypeError):
                return Precision()
        return Precision(
            name=str(torch.get_float32_matmul_precision()),
            matmul=bool(torch.backends.cuda.matmul.allow_tf32),
            conv=bool(torch.backends.cudnn.allow_tf32),
        )


def _of(matmul: str, conv: str, onednn: str) -> Precision:
    """From the settings of cuBLAS, cuDNN and oneDNN; "medium" is bfloat16 products, which only oneDNN has."""
    name = "medium" if onednn == "bf16" else "high" if "tf32" in (matmul, onednn) else "highest"
    return Precision(name, matmul == "tf32", conv == "tf32")
