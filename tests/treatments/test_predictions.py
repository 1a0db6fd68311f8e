"""What every treatment owes: pure arithmetic, an interval, None where it does not apply."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from gobrrr.model.diagnosis import Finding, Place
from gobrrr.treatments import Treatment, catalogue
from gobrrr.treatments.base import treatment_of
from tests.evidence import certain, evidence_from, found, predict
from tests.traces import Trace

NAMES = {
    "cuda-graph", "compile", "remove-sync", "dataloader-workers", "prefetch-pinned", "sdpa", "tf32", "bf16-autocast",
    "grouped-matmul", "larger-batch", "batched-loop", "cast-once", "channels-last", "comm-overlap", "eager-trace",
    "fused-norm", "fused-optimizer", "keep-order", "pad-dimensions", "record-shapes", "static-shapes", "warm-up",
}  # fmt: skip


def test_the_catalogue_holds_them():
    assert {one.name for one in catalogue()} >= NAMES


OWN = [
    ("O03", "fused-optimizer", (2e6, 4e6)), ("O04", "batched-loop", (2e6, 4e6)), ("O05", "static-shapes", (0, 4e6)),
    ("M03", "fused-norm", (2e6, 4e6)), ("M05", "keep-order", (0, 4e6)), ("O05", "warm-up", (0, 4e6)),
    ("M04", "compile", (0, 4e6)), ("M05", "compile", (0, 4e6)), ("C02", "pad-dimensions", (2e6, 4e6)),
    ("C03", "bf16-autocast", (2e6, 4e6)), ("N01", "comm-overlap", (2e6, 4e6)), ("Q02", "record-shapes", (0, 0)),
    ("Q03", "eager-trace", (0, 0)),
    ("O07", "gc-freeze", (2e6, 4e6)), ("O08", "debug-off", (2e6, 4e6)), ("O10", "whole-graph", (0, 4e6)),
    ("O12", "log-less", (2e6, 4e6)), ("M06", "cast-once", (2e6, 4e6)), ("M07", "sparse-embedding", (2e6, 4e6)),
    ("M08", "gather-backward", (2e6, 4e6)), ("M09", "keep-order", (0, 4e6)), ("M10", "preallocate", (2e6, 4e6)),
    ("M11", "bucket-or-pack", (0, 4e6)), ("M02", "need-weights-false", (2e6, 4e6)), ("O11", "foreach", (2e6, 4e6)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "name", "saving"), OWN)
def test_what_a_treatment_promises_of_its_finding(code: str, name: str, saving: tuple[float, float], launch_bound):
    finding = Finding(code=code, title="", where=[], at_stake_ns=(2e6, 4e6), certainty="high", treatments=[name])
    given = predict(name, launch_bound, finding)
    assert given is not None
    assert given.finding == code
    assert given.predicted_saving_ns == saving
    assert given.how
    assert given.assumes


def test_every_treatment_that_a_condition_names_exists():
    known = {one.name for one in catalogue()}
    named = set()
    for path in (Path(__file__).parents[2] / "src" / "gobrrr" / "conditions").glob("*_*.py"):
        text = path.read_text(encoding="utf-8")
        listed_in_full = re.findall(r"treatments=(\[.*?\](?: if .*?\])?),$", text, flags=re.M)
        for listed in [*listed_in_full, *re.findall(r"^def _treatments.*?(?=\n\n\n|\Z)", text, flags=re.M | re.S)]:
            named |= set(re.findall(r'"([a-z0-9-]+)"', listed))
    assert {"sdpa", "compile", "fused-norm", "channels-last"} <= named <= known


@pytest.fixture(scope="module")
def launch_bound(tmp_path_factory: pytest.TempPathFactory):
    trace = Trace()
    for number in range(4):
        with trace.step(number):
            for _ in range(40):
                trace.op("aten::relu", [[64, 64]], 2.0, host_us=40.0)
    return certain(evidence_from(trace.write(tmp_path_factory.mktemp("trace"))))


@pytest.mark.parametrize("treatment", catalogue(), ids=lambda one: one.name)
def test_a_finding_that_is_none_of_its_business_gets_no_prescription(treatment: Treatment, launch_bound):
    other = Finding(
        code="Z99", title="", where=[], at_stake_ns=(0.0, launch_bound.wall_ns), certainty="low", treatments=[]
    )
    assert treatment.predict(launch_bound, other) is None


def test_overhead_treatments_never_promise_the_busy_time(launch_bound):
    finding = found("O01", launch_bound)
    idle = launch_bound.wall_ns - launch_bound.budget.busy_ns / launch_bound.steps.count
    for name in finding.treatments:
        given = predict(name, launch_bound, finding)
        assert given is not None
        assert given.predicted_saving_ns[1] <= idle


def test_a_larger_batch_promises_nothing_certain(launch_bound):
    given = predict("larger-batch", launch_bound, found("O01", launch_bound))
    assert given is not None
    assert given.predicted_saving_ns[0] == 0


def test_a_batch_that_is_hardly_larger_is_no_remedy(tmp_path: Path):
    def seen(kernel_us: float):
        trace = Trace()
        for number in range(4):
            with trace.step(number):
                for _ in range(40):
                    trace.op("aten::relu", [[64, 64]], kernel_us, host_us=40.0)
        return certain(evidence_from(trace.write(tmp_path)))

    finding = Finding(code="O01", title="", where=[], at_stake_ns=(0, 1e6), certainty="high", treatments=[])
    assert predict("larger-batch", seen(21.0), finding) is None
    given = predict("larger-batch", seen(0.5), finding)
    assert given is not None
    assert "more than 16 times" in given.how
    assert "throughput" in given.how


@pytest.mark.parametrize(
    ("op", "said"),
    [("aten::item", "keep the result of aten::item"), ("hipDeviceSynchronize", "take hipDeviceSynchronize out"),
     ("cudaMemcpyAsync", "pinned")],
)  # fmt: skip
def test_what_to_do_about_a_wait_depends_on_who_waits(op: str, said: str, launch_bound):
    finding = Finding(code="O02", title="", where=[Place(op=op)], at_stake_ns=(0, 1e5), certainty="high", treatments=[])
    given = predict("remove-sync", launch_bound, finding)
    assert given is not None
    assert said in given.how


def test_there_is_no_grouped_matmul_without_a_loop(launch_bound):
    assert predict("grouped-matmul", launch_bound, found("O01", launch_bound)) is None


def test_a_loop_over_experts_gets_one(tmp_path: Path):
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            for _ in range(16):
                with trace.inside("aten::nonzero"):
                    trace.item()
                for _ in range(6):
                    trace.op("aten::mm", [[64, 1024], [1024, 1024]], 3.0, host_us=40.0)
    seen = certain(evidence_from(trace.write(tmp_path)))
    given = predict("grouped-matmul", seen, found("O01", seen))
    assert given is not None
    assert "16" in given.how
    assert given.predicted_saving_ns[0] > 0.2 * seen.wall_ns


def _module(**given: object) -> ModuleType:
    module = ModuleType("gobrrr.treatments.some_thing", "Some thing.")
    form = {"NAME": "some-thing", "CODE": "pass", "NUMERICS": "none", "predict": lambda evidence, finding: None}
    for key, value in {**form, **given}.items():
        setattr(module, key, value)
    return module


def test_a_module_of_the_right_form_is_a_treatment():
    assert treatment_of(_module()).name == "some-thing"


@pytest.mark.parametrize(
    "given", [{"NAME": "other"}, {"CODE": None}, {"NUMERICS": "perhaps"}, {"predict": 1}, {"__doc__": None}]
)
def test_a_module_of_a_wrong_form_fails_with_its_name(given: dict[str, object]):
    with pytest.raises(TypeError, match=r"gobrrr\.treatments\.some_thing"):
        treatment_of(_module(**given))
