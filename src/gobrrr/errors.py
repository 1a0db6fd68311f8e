"""The error tree. Every error says what to do next; the command line prints it as one line and exits with `exit_code`.

GobrrrError
├── InputError           the target can't be read or holds no profile
│   ├── NotATraceError   the bytes are not a profiler trace
│   └── EmptyTraceError  a trace, but with nothing in it to diagnose
├── UnknownDeviceError   no datasheet row matches the device's name
├── UsageError           the call itself is wrong
└── CountingError        a counting rule was registered twice or broke its contract (a bug, not the user's)
"""

from __future__ import annotations


class GobrrrError(Exception):
    """The base: catch this to catch everything that gobrrr raises on purpose."""

    exit_code = 2


class InputError(GobrrrError):
    """The target can't be read, or what it holds can't be diagnosed."""


class NotATraceError(InputError):
    """The bytes are not a profiler trace in any dialect that gobrrr reads."""


class EmptyTraceError(InputError):
    """A trace without a single event that has a duration."""


class UnknownDeviceError(GobrrrError):
    """No datasheet row matches the name, or `several` do. `known`: the names that are known, or those that match."""

    def __init__(self, name: str, known: tuple[str, ...], *, several: bool = False) -> None:
        self.name = name
        self.known = known
        what = f"{name!r} may be any of" if several else f"unknown device {name!r}; known:"
        super().__init__(f"{what} {', '.join(known)}")


class UsageError(GobrrrError):
    """The call is wrong: an option's value, or two options that exclude each other."""


class CountingError(GobrrrError):
    """A counting rule broke the registry's contract."""
