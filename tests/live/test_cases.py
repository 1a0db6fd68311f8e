"""The reproductions of what people hit, each sick and healthy, run and diagnosed on this CPU.

A shared machine can stall any one step: what the first run does not say, two more have to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from bench.live_cases import in_its_own_process, names  # noqa: E402
from gobrrr.model.diagnosis import Diagnosis  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.live.look import codes, diagnosed  # noqa: E402
from tests.live.test_parity import kept_machine  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of torch's own compiler
LARGEST_PROMISE = 0.05
"""No more of the step than this may be promised on a negative case."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, unless the case is about threads; and nothing that a case sets stays."""
    threads, tracer = torch.get_num_threads(), sys.gettrace()
    torch.set_num_threads(1)
    yield
    sys.settrace(tracer)
    torch.set_num_threads(threads)


def mostly(says: Callable[[], bool]) -> bool:
    """Whether the first run says it, or two of three do."""
    return says() or (says() and says())


def case(name: str) -> ModuleType:
    return import_module(f"bench.cases.{name}")


@pytest.mark.parametrize("name", [one for one in names("cpu") if not getattr(case(one), "NEGATIVE", False)])
def test_the_fault_is_named_where_it_is_and_only_there(name: str) -> None:
    one = case(name)
    assert mostly(lambda: one.CODE in codes(diagnosed(one.faulty())))
    assert mostly(lambda: one.CODE not in codes(diagnosed(one.fixed())))


def promised(found: Diagnosis, tempting: tuple[str, ...]) -> float:
    """The least that the tempting treatments promise, as a share of the step."""
    wall = found.unprofiled_wall_ns.value or 1.0
    named = [one for one in found.prescriptions if one.treatment in tempting or one.finding in tempting]
    return max((one.predicted_saving_ns[0] / wall for one in named), default=0.0)


@pytest.mark.parametrize("name", [one for one in names("cpu") if getattr(case(one), "NEGATIVE", False)])
def test_where_the_obvious_treatment_gives_little_little_is_promised(name: str) -> None:
    one = case(name)
    for form in (one.faulty, one.fixed):
        assert mostly(lambda form=form: promised(diagnosed(form()), one.TEMPTING) <= LARGEST_PROMISE)


def test_attention_weights_that_nobody_reads_need_not_be_asked_for() -> None:
    found = next(one for one in diagnosed(case("m12_attention_weights").faulty()).findings if one.code == "M02")
    assert found.treatments == ["need-weights-false"]
    assert "m12_attention_weights.py" in (found.where[0].source or "")


@pytest.mark.parametrize("name", list(names("ranks")))
def test_what_needs_two_ranks_is_named_and_its_healthy_form_is_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_machine(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def said(form: str) -> list[str]:
        found = in_its_own_process(name, form, "cpu")
        assert "error" not in found, found
        return list(found["codes"])

    assert mostly(lambda: case(name).CODE in said("faulty"))
    assert mostly(lambda: case(name).CODE not in said("fixed"))
