"""The reproductions of what people hit, each sick and healthy, run and diagnosed on this CPU.

A shared machine can stall any one step: what the first run does not say, two more have to. In CI the first run has
short windows, some cases are smaller, and of the cases of one condition the quickest is taken; at night all have the
usual ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bench.live_cases import in_its_own_process, names  # noqa: E402
from gobrrr.model.diagnosis import Diagnosis  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.live.look import codes, diagnosed  # noqa: E402
from tests.live.test_parity import kept_machine  # noqa: E402
from tests.spread import slow  # noqa: E402

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


SHORT: Mapping[str, int] = {"warmup": 2, "most_warmup": 8, "window": 4, "profiled": 2}
USUAL: Mapping[str, int] = {}
NOT_IN_CI = (
    "c01_item_branches", "h03_anomaly_detection", "l04_rnn_cell_loop", "m03_rope_round_trips", "m12_attention_weights",
    "m08_int8_dequantised", "l13_autocast_inference",
)  # fmt: skip
"""Another case of the same condition is quicker, or (M03) its condition has one that needs no compiler."""

SMALLER: Mapping[str, Mapping[str, int]] = {
    "d01_slow_items": {"TURNS": 2},
    "kv01_rows_again": {"TOKENS": 4},
    "l05_optimizer_loop": {"LAYERS": 30},
    "l09_ema_loop": {"LAYERS": 30},
    "m17_dense_embedding_gradient": {"ROWS": 40_000},
    "p11_checkpointing": {"BLOCKS": 2},
    "padding_waste": {"LONGEST": 128},
}
"""Sizes with which the case is quicker and its fault as large."""

Says = Callable[[Mapping[str, int]], bool]


def mostly(says: Says, first: Mapping[str, int] = USUAL) -> bool:
    """Whether the first run says it, or two of three do."""
    return says(first) or (says(USUAL) and says(USUAL))


def in_ci(names: Sequence[str]) -> list[Any]:
    """The cases as parameters, those of `NOT_IN_CI` for the night."""
    return [slow(name) if name in NOT_IN_CI else name for name in names]


def case(name: str) -> ModuleType:
    return import_module(f"bench.cases.{name}")


NEGATIVE = [one for one in names("cpu") if getattr(case(one), "NEGATIVE", False)]
FAULTS = [one for one in names("cpu") if one not in NEGATIVE]


def named_where_it_is(name: str, first: Mapping[str, int]) -> None:
    one = case(name)
    assert mostly(lambda windows: one.CODE in codes(diagnosed(one.faulty(), **windows)), first)
    assert mostly(lambda windows: one.CODE not in codes(diagnosed(one.fixed(), **windows)), first)


@pytest.mark.parametrize("name", in_ci(FAULTS))
def test_the_fault_is_named_where_it_is_and_only_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, value in SMALLER.get(name, {}).items():
        monkeypatch.setattr(case(name), size, value)
    named_where_it_is(name, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named_where_it_is_in_the_usual_windows(name: str) -> None:
    named_where_it_is(name, USUAL)


def promised(found: Diagnosis, tempting: tuple[str, ...]) -> float:
    """The least that the tempting treatments promise, as a share of the step."""
    wall = found.unprofiled_wall_ns.value or 1.0
    named = [one for one in found.prescriptions if one.treatment in tempting or one.finding in tempting]
    return max((one.predicted_saving_ns[0] / wall for one in named), default=0.0)


def promised_little(name: str, first: Mapping[str, int]) -> None:
    one = case(name)
    for form in (one.faulty, one.fixed):
        assert mostly(
            lambda windows, form=form: promised(diagnosed(form(), **windows), one.TEMPTING) <= LARGEST_PROMISE, first
        )


@pytest.mark.parametrize("name", NEGATIVE)
def test_where_the_obvious_treatment_gives_little_little_is_promised(name: str) -> None:
    promised_little(name, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEGATIVE)
def test_little_is_promised_in_the_usual_windows(name: str) -> None:
    promised_little(name, USUAL)


def test_attention_weights_that_nobody_reads_need_not_be_asked_for() -> None:
    found = next(one for one in diagnosed(case("m12_attention_weights").faulty()).findings if one.code == "M02")
    assert found.treatments == ["need-weights-false"]
    assert "m12_attention_weights.py" in (found.where[0].source or "")


@pytest.mark.slow  # eight processes that load torch
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

    assert mostly(lambda _: case(name).CODE in said("faulty"))
    assert mostly(lambda _: case(name).CODE not in said("fixed"))
