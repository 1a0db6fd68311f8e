"""The library's functions: the command line calls these. Each imports what it needs when it is called."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gobrrr.doors.targets import called, check_step, check_target, is_live
from gobrrr.errors import UsageError
from gobrrr.model import show
from gobrrr.model.diagnosis import Diagnosis
from gobrrr.model.envelope import Envelope
from gobrrr.report import json, terminal
from gobrrr.report.catalogues import codes as codes
from gobrrr.report.catalogues import explain as explain
from gobrrr.report.text import sanitise
from gobrrr.trials.door import diagnosis_of as diagnosis_of
from gobrrr.trials.door import ledger as ledger
from gobrrr.trials.door import treat as treat

if TYPE_CHECKING:
    from gobrrr.doors.changes import Prediction
    from gobrrr.doors.running import ScriptOutcome
    from gobrrr.model.counted import StepCounts
    from gobrrr.model.experiment import LabReport
    from gobrrr.model.machine import Machine
    from gobrrr.model.measured import Measurement
    from gobrrr.model.profile import Profile
    from gobrrr.model.recording import Recording
    from gobrrr.model.treated import Treated
    from gobrrr.model.workload import Workload

    Target = str | os.PathLike[str] | Profile
    Progress = Callable[[int, int | None], None]
    Stages = Callable[[str, int, int], None]


def _text(record: Diagnosis | Envelope | StepCounts | Treated) -> str:
    """What `print` shows of a record."""
    from gobrrr.model.counted import StepCounts
    from gobrrr.model.treated import Treated

    if isinstance(record, StepCounts):
        from gobrrr.report import counted

        return counted.for_print(record)
    if isinstance(record, Envelope):
        from gobrrr.report import calc as page

        return page.for_print(record)
    if isinstance(record, Treated):
        from gobrrr.report import treated

        return treated.for_print(record)
    return terminal.for_print(record)


def _html(record: Diagnosis) -> str:
    """What a notebook shows of a diagnosis."""
    from gobrrr.report import notebook

    return notebook.render(record)


show.register(text=_text, html=_html)


def diagnose(
    target: Target | Callable[..., Any] | Workload,
    *args: Any,
    on: str | None = None,
    python: bool = False,
    scale: bool = False,
    panel: bool = False,
    progress: Progress | None = None,
    stages: Stages | None = None,
    **kwargs: Any,
) -> Diagnosis:
    """What bounds the step, why, and what would help; printing the result prints the answer.

    `target` is a profiler trace (a path, a URL, "-" for standard input), a folder with one trace a rank, or a Profile
    that `read_trace` returned. Or it is a step that is run here: a callable, called as `target(*args, **kwargs)`, that
    runs one step or returns a Workload; a Workload; a module, called with the arguments; or the name of a callable,
    "file.py:callable" or "package.module:callable". The step runs some 25 times, 41 at most: it is timed without the
    profiler, and its budget is that of the unprofiled step. Its exceptions pass through. Afterwards the model, the
    optimizer, the schedule, the random states and the other state that the step was seen to change are restored; a note
    names what is not (docs/live.md).

    `on` names a machine ("b200"). If the step ran on another machine, the answer is a prediction for this one, by
    replay; if the step's machine is unknown, the ceilings are those of `on`. `panel` also replays combinations of
    treatments and machines (`what_ifs`), which the HTML page shows. `python` also reads a trace's Python frames.
    `progress` is called with the bytes read and their total; `stages` with the current stage of a live run or a replay,
    how much of it is done, and the total. `scale` also runs a Workload's step with 2 and 4 times its batch. Raises
    InputError (can't be read), UnknownDeviceError (`on`) or UsageError (not a target).
    """
    if on is not None:
        machine(on)  # a wrong name is refused before the work is done
    if is_live(target):
        from gobrrr.doors import live

        return live.diagnose(target, args, kwargs, on=on, scale=scale, panel=panel, stages=stages)
    if args or kwargs:
        raise UsageError("arguments are for a step that is run here; a trace takes none")
    if scale:
        raise UsageError("scaling the batch needs a step that can be run, as a Workload; a trace can't be run again")
    profile = _profile(target, python=python, progress=progress)  # type: ignore[arg-type]
    from gobrrr.doors import changes

    return changes.diagnose(profile, on=on, panel=panel, stages=stages)


def what_if(
    target: Target | Callable[..., Any] | Workload,
    treatments: str | Sequence[str] = (),
    *,
    on: str | None = None,
    args: Sequence[Any] = (),
    panel: bool = False,
    python: bool = False,
    progress: Progress | None = None,
    stages: Stages | None = None,
) -> Prediction:
    """Predict a step's time with treatments applied together, or on the machine `on`, without trying either.

        gobrrr.what_if("trace.json.gz", ["compile", "cuda-graph"], on="b200").what_if.step_ns

    `target` and `panel` are as in `diagnose` (`args` for a callable); `treatments` is one name or several. The result
    holds the numbers with their interval (`what_if`), the diagnosis of the step as it is, and the replayed timeline,
    which `save_trace(path)` writes for Perfetto. Raises UsageError if a treatment is unknown or the step can't be
    replayed, and InputError or UnknownDeviceError as `diagnose` does.
    """
    if on is not None:
        machine(on)
    from gobrrr.doors import changes

    names = (treatments,) if isinstance(treatments, str) else tuple(treatments)
    if is_live(target):
        from gobrrr.doors import live

        profile = live.profile_of(target, args, {}, stages=stages)
        profile = live.ready(profile, None, stages)
    else:
        profile = _profile(target, python=python, progress=progress)  # type: ignore[arg-type]
    return changes.predict(profile, names, on=on, panel=panel, stages=stages)


def watch(
    loop: Iterable[Any] | Callable[..., Any] | None = None,
    *,
    on: str | None = None,
    then: Callable[[Diagnosis], object] | None = None,
    **options: Any,
) -> Any:
    """Watch your loop: after warm-up, some steps are timed without the profiler and a few with it; the rest run alone.

        with gobrrr.watch(loader) as steps:      # any iterable
            for batch in steps:
                train(batch)
        print(steps.diagnosis)

    Without an iterable, call `steps.boundary()` where one step ends and the next begins. As a decorator, put
    `@gobrrr.watch` on the function that runs one step: each call is a step, and `function.diagnosis` can be read once
    enough steps have run. `then` is called with the diagnosis as soon as it can be made. `options` are those of
    `gobrrr.observe.live.watcher.Options` (warmup, window, profiled). Exceptions of the loop pass through. Reading
    `diagnosis` raises UsageError if the loop ended too early.
    """
    if on is not None:
        machine(on)
    from gobrrr.doors import live

    return live.watch(loop, on=on, then=then, options=options)


def run(
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    *,
    module: bool = False,
    on: str | None = None,
    stop_after: bool = False,
    steps: Literal["optimizer", "module", "line"] | None = None,
    told: Callable[[str], None] | None = None,
    stages: Stages | None = None,
) -> ScriptOutcome:
    """Run a script in this process as `python script arguments` would, watch its step loop, and diagnose it.

    `module`: as `python -m script`. The script runs to its end, or ends once enough steps were measured (`stop_after`).
    `steps` says what a step is if gobrrr finds the wrong loop: a step of the optimizer, a call of the outermost module,
    or a line of the program. `told` is called with a line on the progress while the script runs; `stages` afterwards,
    as by `diagnose`. The result holds the diagnosis, or why there is none, and the script's exit status. Raises
    InputError or UsageError if there is nothing to run.
    """
    if on is not None:
        machine(on)
    from gobrrr.doors import running

    return running.run(
        os.fsdecode(script), list(arguments), module=module, on=on, stop_after=stop_after, steps=steps,
        told=told, stages=stages,
    )  # fmt: skip


def _profile(target: Target, *, python: bool, progress: Progress | None) -> Profile:
    from gobrrr.model.profile import Profile

    if isinstance(target, Profile):
        return target
    return read_trace(target, python=python, progress=progress)


def read_trace(target: str | os.PathLike[str], *, python: bool = False, progress: Progress | None = None) -> Profile:
    """Read a profiler trace, or a folder of ranks, into columns of events.

    Raises InputError if the file can't be read or is not a trace, and UsageError if `target` is not a path or a URL.
    """
    name = check_target(target)
    from gobrrr.observe import trace

    return trace.read_trace(name, python=python, progress=progress)


def load(path: str | os.PathLike[str]) -> Diagnosis:
    """Read a diagnosis that `save` or `gobrrr diagnose --save` wrote. Raises InputError if the file holds none."""
    return json.load(path)


def save(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write a diagnosis as JSON (format 1), atomically. Raises UsageError if `path` can't be written."""
    json.save(diagnosis, path)


def html(diagnosis: Diagnosis) -> str:
    """The diagnosis as one HTML page that needs no network, about 1.3 MB with its charts."""
    from gobrrr.report import html as page

    return page.render(diagnosis)


def machine(name: str) -> Machine:
    """A machine's ceilings from the datasheet table ("h100", "NVIDIA H100 80GB HBM3").

    Raises UnknownDeviceError, which lists the known names.
    """
    from gobrrr.hardware import match

    return match.find(name)


def predict(
    step: Callable[..., Any] | str | Workload,
    *args: Any,
    on: str | Machine | Sequence[str | Machine] = "h100",
    calibrate: bool = False,
    host: float | None = None,
    **kwargs: Any,
) -> Diagnosis:
    """Predict a step's time, and what bounds it, on machines that need not be here.

    `step(*args, **kwargs)` runs one step (forward, or forward, backward and optimizer); or `step` is a Workload, or the
    name of either, "file.py:callable". The step runs on fake tensors: nothing is computed, no memory is taken, and
    models, optimizers and settings are restored (tensors that the step keeps in its own lists or dictionaries become
    stand-ins without data). `on` names one machine or several ("h100,a100-80gb"): the diagnosis is for the first, and
    `machines` holds a row for each. `calibrate` uses the ceilings and the host's dispatch times that `gobrrr machine`
    measured, if it measured one of these machines; `host` assumes a host that many times as slow as the reference
    (0.35: about the article's). Raises UnknownDeviceError, InputError or UsageError (torch is missing, or the step
    needs data).
    """
    machines = _machines(on)
    measured = _measured(machines) if calibrate else {}
    recorded = record(step, *args, **kwargs)
    from gobrrr.doors import prediction
    from gobrrr.hardware import dispatch
    from gobrrr.hardware.ceilings import machine_of

    hosts = dispatch.load() if host is None else dispatch.load().times(_positive(host))
    for measurement in measured.values():
        hosts = hosts.like(measurement)
    calibrated = [machine_of(measured[sheet.name], sheet) if sheet.name in measured else sheet for sheet in machines]
    return prediction.predict(recorded, calibrated, hosts=hosts)


def count(step: Callable[..., Any] | str | Workload, *args: Any, **kwargs: Any) -> StepCounts:
    """Count the FLOPs and bytes of one step, three ways each, without a device; what could not be counted is listed.

    Arguments and errors are those of `predict`.
    """
    recorded = record(step, *args, **kwargs)
    from gobrrr.analysis.pricing import tally

    return tally.count(recorded)


def record(step: Callable[..., Any] | str | Workload, *args: Any, **kwargs: Any) -> Recording:
    """Record every operation that one step dispatches, on fake tensors. Arguments and errors are those of `predict`."""
    from gobrrr.model.workload import Workload
    from gobrrr.observe import static

    if isinstance(step, str):
        if args or kwargs:
            raise UsageError(f"{sanitise(step)}: a named step takes no arguments; give it a Workload's inputs")
        check_step(step)
        return static.record_target(step)
    if isinstance(step, Workload):
        return static.record_workload(step)
    if not callable(step):
        raise UsageError(f"a step is a callable, a Workload or a name, not {type(step).__name__}")
    return static.record(step, args, keywords=kwargs, target=called(step))


def _machines(on: str | Machine | Sequence[str | Machine]) -> list[Machine]:
    """The machines that `on` names, each once, in its order."""
    from gobrrr.model.machine import Machine

    names = [on] if isinstance(on, Machine) else on.split(",") if isinstance(on, str) else list(on)
    machines = [
        name if isinstance(name, Machine) else machine(name.strip())
        for name in names
        if not isinstance(name, str) or name.strip()
    ]
    if not machines:
        raise UsageError("--on names no machine; gobrrr machine --list shows the known ones")
    return list({sheet.name: sheet for sheet in machines}.values())


def _positive(factor: float) -> float:
    if not 0.01 <= factor <= 100:
        raise UsageError(f"--host must be between 0.01 and 100 times the reference, not {factor:g}")
    return factor


def _measured(machines: Sequence[Machine]) -> dict[str, Measurement]:
    """The measurements of these machines that were made here, by name. Raises UsageError if there are none."""
    from gobrrr.hardware.cache import measured_as

    pairs = [(sheet.name, measured_as(sheet.name)) for sheet in machines]
    measurements = {name: measurement for name, measurement in pairs if measurement is not None}
    if not measurements:
        raise UsageError("none of these machines was measured here; run gobrrr machine on one of them first")
    return measurements


def calc(
    what: str,
    *sizes: int,
    on: str | Machine | None = None,
    shape: Any = None,
    dtype: str = "float32",
    **options: Any,
) -> Envelope:
    """Back-of-the-envelope FLOPs, bytes, intensity and least time of an expression or an op on a machine.

    `what` is an expression over tensors ("x.cos().cos()", with `shape` for all of them or a dictionary by name) or an
    op by its name and sizes ("mm", 4096, 4096, 4096). `on` is a machine or its name; "article" is the A100 with the
    article's rounded figures. `options` are those of the op: ops, causal, kv_heads, keys, stride, padding, ranks, host.
    Raises UsageError or UnknownDeviceError.
    """
    from gobrrr.envelope import calculate

    return calculate(what, *sizes, on=on, shape=shape, dtype=dtype, **options)


def devices(device: str | None = None) -> list[str]:
    """The devices that `measure` can measure here: one GPU of each name, else "cpu"; or just `device`.

    Raises UsageError if torch is missing.
    """
    from gobrrr.hardware.measure import each_device, need_torch

    need_torch()
    return each_device() if device is None else [device]


def measure(
    device: str | None = None, *, keep: bool = True, progress: Callable[[str, int, int], None] | None = None
) -> Measurement:
    """Measure this machine's ceilings ("cpu", "cuda:0"; by default the first GPU, else the CPU) in under a minute.

    `keep` stores the result in the user's cache, where `diagnose` finds it for traces of the same device; figures that
    an older measurement took on a quieter machine stay. `progress` is called with the current stage, how many stages
    are done, and how many there are. Raises UsageError if torch or the device is missing.
    """
    from gobrrr.hardware import cache
    from gobrrr.hardware.measure import measure as run

    measurement = run(device, progress=progress)
    return cache.keep(measurement) if keep else measurement


def last_measured(device: str | None = None) -> Measurement:
    """The newest measurement of this machine's device in the cache. Raises UsageError if there is none."""
    from gobrrr.hardware import cache
    from gobrrr.hardware.measure import find_device

    name = find_device(device).environment().device_name
    measurement, _ = cache.newest(name)
    if measurement is None:
        raise UsageError(f"{sanitise(name)} was not measured yet; measure it with: gobrrr machine")
    return measurement


def experiments() -> dict[str, str]:
    """The article's experiments: {name: title}."""
    from gobrrr.lab.catalogue import EXPERIMENTS

    return dict(EXPERIMENTS)


def lab(
    names: Sequence[str] | None = None,
    *,
    device: str | None = None,
    step: str | Callable[[], object] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> LabReport:
    """Run the article's experiments (all, or those named) on a device, and judge its claims there.

    `step` replaces BERT in the experiment `operators`: a callable, or "module:make" where make() returns one. Raises
    UsageError for an unknown name, or if torch or the device is missing.
    """
    from gobrrr.hardware.measure import need_torch
    from gobrrr.lab.catalogue import EXPERIMENTS, check, run

    chosen = tuple(names or EXPERIMENTS)
    check(chosen)
    need_torch()
    call = _made(step) if isinstance(step, str) else step
    return run(chosen, device=device, step=call, progress=progress)


def _made(step: str) -> Callable[[], object]:
    """The step that make() of "module:make" returns."""
    from importlib import import_module

    module, _, name = step.partition(":")
    try:
        call: Callable[[], object] = getattr(import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{sanitise(step)}: {sanitise(str(error))}; name it as package.module:make") from None
    if not callable(call):
        raise UsageError(f"{sanitise(step)}() must return a callable step, not {type(call).__name__}")
    return call
