"""The text of each remedy runs where it is pasted into a program with its fault, and the results stay the same."""

from __future__ import annotations

import functools
import gc
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import structs

torch = pytest.importorskip("torch")

from gobrrr.analysis.answer.study import study  # noqa: E402
from gobrrr.analysis.findings.claims import ClaimedFinding  # noqa: E402
from gobrrr.analysis.findings.evidence import Evidence  # noqa: E402
from gobrrr.doors.pipeline import examine  # noqa: E402
from gobrrr.model.machine import Ceiling  # noqa: E402
from gobrrr.model.profile import Profile  # noqa: E402
from gobrrr.observe.live.options import WatchOptions  # noqa: E402
from gobrrr.observe.live.pull import pull  # noqa: E402
from gobrrr.observe.live.watcher import Watcher  # noqa: E402
from gobrrr.treatments import catalogue  # noqa: E402
from tests.evidence import claimed  # noqa: E402
from tests.live.look import CPU  # noqa: E402
from tests.treatments.remedies.examples import EXAMPLES, Example  # noqa: E402
from tests.treatments.remedies.on_gpu import EXAMPLES as ON_GPU  # noqa: E402
from tests.treatments.remedies.pasting import pasted  # noqa: E402

PROGRAM, TREATED = "program_with_fault.py", "program_treated.py"
SLOWER = structs.replace(
    CPU, matrix_flop_per_s={"float32": Ceiling(value=1e11, provenance="measured", source="written in a test"),
                            "bfloat16": Ceiling(value=4e11, provenance="measured", source="written in a test")},
)  # fmt: skip
"""A CPU whose float32 peak one thread of any machine comes near."""
FEW = {"warmup": 1, "most_warmup": 2, "window": 3, "profiled": 2}
"""Steps that are looked at: what is wrong with them is in each."""


@pytest.fixture
def no_code_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled takes the way through the compiler, and no C++ is built."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))


@pytest.fixture(autouse=True)
def settings_back() -> Iterator[None]:
    """What a program sets is its own."""
    precision = torch.get_float32_matmul_precision()
    threads, dtype, environment = torch.get_num_threads(), torch.get_default_dtype(), dict(os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision(precision)
    torch.autograd.set_detect_anomaly(False)
    os.environ.clear()
    os.environ.update(environment)
    for name in (PROGRAM, TREATED):
        sys.modules.pop(Path(name).stem, None)
    gc.enable()


def loaded(source: str, file: Path) -> dict[str, Any]:
    """The program's names after its file has run."""
    file.write_text(source, encoding="utf-8")
    linecache.checkcache(str(file))
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    exec(compile(source, str(file), "exec"), vars(module))
    return vars(module)


def told(example: Example, file: Path, evidence_of: Callable[[Profile], Evidence]) -> str:
    """The text that the program's evidence gives the treatment; a machine that stalls gets two more chances."""
    treatment = next(one for one in catalogue() if one.name == example.treatment)
    for _ in range(3):
        watcher = Watcher(options=WatchOptions(**FEW))
        pull(watcher, loaded(example.source, file)["step"], (), {})
        evidence = evidence_of(watcher.profile("step", "a CPU"))
        found = claimed(example.code, evidence) if example.code else None
        plan = treatment.predict(evidence, found) if isinstance(found, ClaimedFinding) else None
        if not example.code and treatment.unasked is not None:
            plan = treatment.unasked(evidence)
        if plan is not None:
            return plan.how
    raise AssertionError(f"{example.code} is not found")


def check(example: Example, file: Path, evidence_of: Callable[[Profile], Evidence]) -> None:
    """The text says what it is to say, runs where it is pasted, and changes no result beyond what is allowed."""
    how = told(example, file, evidence_of)
    assert example.says in how
    before = loaded(example.source, file)
    was = [before["step"]() for _ in range(2)][-1]
    after = loaded(pasted(example.source, how, file.name), file.with_name(TREATED))
    now = [after["step"]() for _ in range(2)][-1]
    if example.close is not None:
        apart = (now.double() - was.double()).abs().max() / was.abs().max()
        assert float(apart) <= example.close


@pytest.mark.torch
@pytest.mark.usefixtures("no_code_made")
@pytest.mark.parametrize("example", [one.marked() for one in EXAMPLES])
def test_a_remedy_runs_where_it_is_pasted(example: Example, tmp_path: Path) -> None:
    machine = SLOWER if example.code == "C01" else CPU
    check(example, tmp_path / PROGRAM, lambda seen: study(seen.ranks[0], machine).evidence[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
@pytest.mark.parametrize("example", [one.marked() for one in ON_GPU])
def test_a_remedy_runs_on_a_gpu(example: Example, tmp_path: Path) -> None:
    def evidence_of(profile: Profile) -> Evidence:
        evidence = examine(profile).evidence
        assert evidence is not None
        return evidence

    check(example, tmp_path / PROGRAM, evidence_of)
