"""Runs a script or a module as `python train.py ...` or `python -m pkg.train ...` would, while it is watched.

The process becomes the script's: `sys.argv`, `sys.path[0]` and `sys.modules["__main__"]` are set as Python sets them.
They stay so, because what runs when the interpreter ends (atexit, threads, finalizers) belongs to the script too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

from gobrrr.errors import InputError, UsageError
from gobrrr.observe.installed import Owner, owner
from gobrrr.observe.live.loops.arrival import ProgramWatcher

INTERRUPTED_STATUS = 130
"""The exit status after Ctrl-C: 128 + SIGINT, as a shell reports it."""


class Stopped(BaseException):
    """Raised at a step's boundary to end a script that is measured; its `finally` blocks run."""


@dataclass(frozen=True, kw_only=True)
class ScriptRun:
    """How a script ended.

    `status`: the exit status that Python would have ended with. `stopped`: we ended it early. `exited`: it ended
    itself, by sys.exit or what calls it (argparse). `found`: the eye's own record. `error`: the exception that ended
    the script, in one line; it has been printed already.
    """

    status: int
    stopped: bool = False
    exited: bool = False
    found: Any = None
    error: str | None = None


@dataclass
class _Program:
    """The code to run, and what Python sets for it."""

    code: CodeType
    argv0: str
    file: str
    loader: Any
    spec: ModuleSpec | None = None

    def main(self) -> ModuleType:
        """The `__main__` module that Python would make: multiprocessing's spawn reads its `__spec__` or `__file__`."""
        module = ModuleType("__main__")
        module.__dict__.update(
            __file__=self.file,
            __builtins__=sys.modules["builtins"],
            __annotations__={},
            __loader__=self.loader,
            __spec__=self.spec,
            __package__=self.spec.parent if self.spec is not None else None,
            __cached__=self.spec.cached if self.spec is not None else None,
        )
        return module


def run(
    target: str,
    arguments: Sequence[str] = (),
    *,
    is_module: bool = False,
    loop: ProgramWatcher,
    stop_after: bool = False,
) -> ScriptRun:
    """Run a script's path, or a module's name, to its end; with `stop_after`, until the eye has seen enough.

    Uncaught exceptions are printed as Python prints them, without our frames. Raises InputError or UsageError where
    there is nothing to run, before anything of the script runs. Ends a forked child of the script as Python would.
    """
    pid = os.getpid()
    before = (list(sys.argv), list(sys.path), sys.modules["__main__"])
    program = None if is_module else _script(target)
    loop.stop_after = stop_after
    try:
        sys.argv[:] = ["-m" if is_module else target, *arguments]
        _first_on_path(os.getcwd() if is_module else str(Path(target).resolve().parent))
        loop.open()
        ended = _Ended()
        if program is None:
            program = _module(target, ended)
        if program is not None:
            sys.argv[0] = program.argv0
            _execute(program, ended)
    except (InputError, UsageError):
        sys.argv[:], sys.path[:], sys.modules["__main__"] = before
        raise
    finally:
        loop.close()
    _flush()
    if os.getpid() != pid:  # the script forked, and this is its child: it ends here, without a report
        raise SystemExit(ended.status)
    return ScriptRun(
        status=ended.status, stopped=ended.stopped, exited=ended.exited, found=loop.found(), error=ended.error
    )


# -- what to run


def _script(target: str) -> _Program:
    """Raises InputError where there is no file, or where it is not Python."""
    path = Path(target)
    if path.is_dir():
        raise InputError(f"{target} is a folder: name the script in it, or run a module with -m")
    try:
        with io.open_code(str(path.absolute())) as file:
            source = file.read()
    except OSError as error:
        raise InputError(f"{target}: {error.strerror or error}") from None
    file_name = str(path.absolute())
    try:
        code = compile(source, file_name, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f" (line {error.lineno})" if error.lineno else ""  # none where it holds zero bytes
        raise InputError(f"{target} is not Python: {error.msg}{line}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{target} is not Python: {error}") from None
    return _Program(code, target, file_name, SourceFileLoader("__main__", file_name))


def _module(name: str, ended: _Ended) -> _Program | None:
    """The module behind `-m name`. None where importing a package above it ended the program."""
    if not name or name.startswith("."):
        raise UsageError(f"-m needs a module's full name, not {name!r}")
    try:
        return _located(name)
    except ImportError as error:
        missing = error.name
        if missing is not None and (name == missing or name.startswith(missing + ".")):
            raise InputError(
                f"no module named {missing!r} to run: is its folder the current one, or installed?"
            ) from None
        ended.by(error)
    except (InputError, UsageError):
        raise
    except BaseException as error:
        ended.by(error)
    return None


def _located(name: str) -> _Program:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(name, name=name)
    if spec.submodule_search_locations is not None:
        inner = f"{name}.__main__"
        spec = importlib.util.find_spec(inner)
        if spec is None:
            raise InputError(f"{name} is a package without a __main__: name the module in it")
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise InputError(f"{name} holds no Python code to run")
    file = spec.origin or name
    return _Program(code, file, file, loader, spec)


def _first_on_path(folder: str) -> None:
    """Set the folder that Python searches first: the script's, or the current one for a module; neither with -P."""
    if getattr(sys.flags, "safe_path", False):
        return
    if sys.path:
        sys.path[0] = folder
    else:
        sys.path.append(folder)


# -- how it ends


class _Ended:
    """The end of a program: its exit status and what was raised."""

    def __init__(self) -> None:
        self.status = 0
        self.stopped = self.exited = False
        self.error: str | None = None

    def by(self, error: BaseException) -> None:
        """The program ended with this exception: print what Python prints."""
        if any(isinstance(link, Stopped) for link in _chain(error)):
            self.stopped = True
        elif isinstance(error, SystemExit):
            self.exited, self.status = True, _exit_status(error)
        else:
            self.status = INTERRUPTED_STATUS if isinstance(error, KeyboardInterrupt) else 1
            self.error = traceback.format_exception_only(type(error), error)[-1].strip()
            _print(error)


def _execute(program: _Program, ended: _Ended) -> None:
    main = program.main()
    sys.modules["__main__"] = main
    raised: BaseException | None = None
    try:
        exec(program.code, main.__dict__)
    except BaseException as error:
        raised = error
    if raised is not None:  # after its `except` block, so that it is no context of what an excepthook raises
        ended.by(raised)


def _exit_status(error: SystemExit) -> int:
    """As the interpreter reads `SystemExit.code`: None is 0, a number itself, anything else is printed and 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code)
    _flush()
    print(error.code, file=sys.stderr)
    return 1


def _print(error: BaseException) -> None:
    """Through `sys.excepthook`, which the script may have replaced."""
    for link in _chain(error):
        link.__traceback__ = _without_us(link.__traceback__)
    _flush()
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception as broken:
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exception(type(broken), broken, _without_us(broken.__traceback__))
        print("\nOriginal exception was:", file=sys.stderr)
        traceback.print_exception(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception with all its causes and contexts, each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this package: they are not part of the program."""
    kept = []
    while trace is not None:
        if not _ours(trace.tb_frame) and not _import_of_module(trace):
            kept.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for entry in reversed(kept):
        entry.tb_next = following
        following = entry
    return following


def _import_of_module(trace: TracebackType) -> bool:
    """Whether this frame is importlib's, called from here to find the module of -m."""
    frame = trace.tb_frame
    importing = str(frame.f_globals.get("__name__")).partition(".")[0] == "importlib"
    return importing and frame.f_back is not None and _ours(frame.f_back)


def _ours(frame: FrameType) -> bool:
    return owner(frame.f_code.co_filename) is Owner.GOBRRR


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # none, closed, or its reader is gone: Python goes on as well
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def in_main_thread() -> bool:
    """Whether an exception raised here would reach the script's own code."""
    return threading.current_thread() is threading.main_thread()
