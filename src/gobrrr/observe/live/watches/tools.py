"""Other tools that watch the program: debuggers, tracers, profilers, coverage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

TRACER_STATUS = Path("/proc/self/status")
_KNOWN = {
    "_lsprof": "cProfile",
    "_pydevd_bundle": "pydevd",
    "_pydevd_frame_eval": "pydevd",
    "_pydevd_sys_monitoring": "pydevd",
    "bdb": "pdb",
}
_TOOLS = 6
"""How many tools sys.monitoring has room for (PEP 669)."""


def named(hook: Any) -> str | None:
    """The package of a trace or profile function, by the name that its users know; None for no hook, and for ours."""
    if hook is None:
        return None
    owner = getattr(hook, "__self__", None)  # of a method: the class of its object says more than where it was written
    for candidate in (hook, owner, type(owner) if owner is not None else None, type(hook)):
        module = getattr(candidate, "__module__", None)
        if isinstance(module, str) and module not in ("builtins", "types", ""):
            top = module.partition(".")[0]
            if top == "gobrrr":
                return None
            return _KNOWN.get(top, top) if top != "__main__" else getattr(hook, "__qualname__", top)
    return type(hook).__name__


def monitoring() -> tuple[str, ...]:
    """Tools that have registered with sys.monitoring and want events; none before Python 3.12."""
    registry = getattr(sys, "monitoring", None)
    if registry is None:
        return ()
    names = [registry.get_tool(number) for number in range(_TOOLS)]
    return tuple(
        str(name) for number, name in enumerate(names) if name not in (None, "gobrrr") and registry.get_events(number)
    )


def debugger(status: Path = TRACER_STATUS) -> str | None:
    """The debugger that is attached to this process: a connected Python debugger, or a native one (gdb, strace)."""
    debugpy = sys.modules.get("debugpy")
    connected = getattr(debugpy, "is_client_connected", None)
    if connected is not None and connected():
        return "debugpy"
    constants = sys.modules.get("_pydevd_bundle.pydevd_constants")
    holder = getattr(constants, "GlobalDebuggerHolder", None)
    if getattr(holder, "global_dbg", None) is not None:
        return "pydevd"
    return _native(status)


def _native(status: Path) -> str | None:
    """The process that traces this one, according to Linux."""
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    number = next((line.split()[1] for line in lines if line.startswith("TracerPid:") and len(line.split()) > 1), "0")
    if number == "0":
        return None
    try:
        return Path(f"/proc/{number}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"process {number}"
