"""gobrrr says whether a step is bound by compute, memory bandwidth or overhead, finds causes, and predicts treatments.

    import gobrrr
    print(gobrrr.diagnose("trace.json.gz"))

The names below are imported on first use: `import gobrrr` alone takes a few milliseconds and never imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gobrrr.api import calc as calc
    from gobrrr.api import codes as codes
    from gobrrr.api import count as count
    from gobrrr.api import diagnose as diagnose
    from gobrrr.api import explain as explain
    from gobrrr.api import html as html
    from gobrrr.api import load as load
    from gobrrr.api import machine as machine
    from gobrrr.api import predict as predict
    from gobrrr.api import read_trace as read_trace
    from gobrrr.api import run as run
    from gobrrr.api import save as save
    from gobrrr.api import treat as treat
    from gobrrr.api import watch as watch
    from gobrrr.api import what_if as what_if
    from gobrrr.cost.registry import rule as rule
    from gobrrr.doors.changes import Prediction as Prediction
    from gobrrr.errors import EmptyTraceError as EmptyTraceError
    from gobrrr.errors import GobrrrError as GobrrrError
    from gobrrr.errors import InputError as InputError
    from gobrrr.errors import NotATraceError as NotATraceError
    from gobrrr.errors import UnknownDeviceError as UnknownDeviceError
    from gobrrr.errors import UsageError as UsageError
    from gobrrr.model.diagnosis import Diagnosis as Diagnosis
    from gobrrr.model.envelope import Envelope as Envelope
    from gobrrr.model.machine import Machine as Machine
    from gobrrr.model.profile import Profile as Profile
    from gobrrr.model.work import OpCall as OpCall
    from gobrrr.model.work import Work as Work
    from gobrrr.model.workload import Workload as Workload

    __version__: str

_HOME = {
    "calc": "gobrrr.api",
    "codes": "gobrrr.api",
    "count": "gobrrr.api",
    "diagnose": "gobrrr.api",
    "explain": "gobrrr.api",
    "html": "gobrrr.api",
    "load": "gobrrr.api",
    "machine": "gobrrr.api",
    "predict": "gobrrr.api",
    "read_trace": "gobrrr.api",
    "run": "gobrrr.api",
    "save": "gobrrr.api",
    "treat": "gobrrr.api",
    "watch": "gobrrr.api",
    "what_if": "gobrrr.api",
    "Prediction": "gobrrr.doors.changes",
    "rule": "gobrrr.cost",
    "EmptyTraceError": "gobrrr.errors",
    "GobrrrError": "gobrrr.errors",
    "InputError": "gobrrr.errors",
    "NotATraceError": "gobrrr.errors",
    "UnknownDeviceError": "gobrrr.errors",
    "UsageError": "gobrrr.errors",
    "Diagnosis": "gobrrr.model.diagnosis",
    "Envelope": "gobrrr.model.envelope",
    "Machine": "gobrrr.model.machine",
    "Profile": "gobrrr.model.profile",
    "OpCall": "gobrrr.model.work",
    "Work": "gobrrr.model.work",
    "Workload": "gobrrr.model.workload",
}

__all__ = [
    "Diagnosis",
    "EmptyTraceError",
    "Envelope",
    "GobrrrError",
    "InputError",
    "Machine",
    "NotATraceError",
    "OpCall",
    "Prediction",
    "Profile",
    "UnknownDeviceError",
    "UsageError",
    "Work",
    "Workload",
    "__version__",
    "calc",
    "codes",
    "count",
    "diagnose",
    "explain",
    "html",
    "load",
    "machine",
    "predict",
    "read_trace",
    "rule",
    "run",
    "save",
    "treat",
    "watch",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """The installed distribution's version: pyproject.toml is the one place that says it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gobrrr")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
