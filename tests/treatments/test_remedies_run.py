"""The text of each remedy runs where it is pasted into a program with its fault, and the results stay the same."""

from __future__ import annotations

import functools
import gc
import linecache
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import structs

torch = pytest.importorskip("torch")

from gobrrr.analysis.claims import Found  # noqa: E402
from gobrrr.analysis.study import study  # noqa: E402
from gobrrr.model.machine import Ceiling  # noqa: E402
from gobrrr.observe.live.pull import pull  # noqa: E402
from gobrrr.observe.live.watcher import Options, Watcher  # noqa: E402
from gobrrr.treatments.base import catalogue  # noqa: E402
from tests.evidence import claimed  # noqa: E402
from tests.live.look import CPU  # noqa: E402
from tests.treatments.remedies.examples import EXAMPLES, Example  # noqa: E402
from tests.treatments.remedies.pasting import pasted  # noqa: E402

PROGRAM, TREATED = "program_with_fault.py", "program_treated.py"
SLOWER = structs.replace(
    CPU, matrix_flop_per_s={"float32": Ceiling(value=1e11, provenance="measured", source="written in a test"),
                            "bfloat16": Ceiling(value=4e11, provenance="measured", source="written in a test")},
)  # fmt: skip
"""A CPU whose float32 peak one thread of any machine comes near."""
PREDICT = {one.name: one.predict for one in catalogue()}
FEW = {"warmup": 1, "most_warmup": 2, "window": 3, "profiled": 2}
"""Steps that are looked at: what is wrong with them is in each."""


@pytest.fixture(autouse=True)
def settings_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a program sets is its own; what is compiled takes the way through the compiler, and no C++ is built."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    threads, dtype, environment = torch.get_num_threads(), torch.get_default_dtype(), dict(os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.autograd.set_detect_anomaly(False)
    os.environ.clear()
    os.environ.update(environment)
    for name in (PROGRAM, TREATED):
        sys.modules.pop(Path(name).stem, None)
    gc.unfreeze()
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


def told(example: Example, file: Path) -> str:
    """The text that the program's evidence gives the treatment; a machine that stalls gets two more chances."""
    machine = SLOWER if example.code == "C01" else CPU
    for _ in range(3):
        watcher = Watcher(options=Options(**FEW))
        pull(watcher, loaded(example.source, file)["step"], (), {})
        evidence = study(watcher.profile("step", "a CPU").ranks[0], machine).evidence[0]
        found = claimed(example.code, evidence)
        plan = PREDICT[example.treatment](evidence, found) if isinstance(found, Found) else None
        if plan is not None:
            return plan.how
    raise AssertionError(f"{example.code} is not found")


@pytest.mark.torch
@pytest.mark.parametrize("example", [one.marked() for one in EXAMPLES])
def test_a_remedy_runs_where_it_is_pasted(example: Example, tmp_path: Path) -> None:
    file = tmp_path / PROGRAM
    how = told(example, file)
    assert example.says in how
    before = loaded(example.source, file)
    was = [before["step"]() for _ in range(2)][-1]
    after = loaded(pasted(example.source, how, file.name), tmp_path / TREATED)
    now = [after["step"]() for _ in range(2)][-1]
    if example.close is not None:
        apart = (now.double() - was.double()).abs().max() / was.abs().max()
        assert float(apart) <= example.close
