"""What users ask of what-ifs, on shipped traces: answers that were once wrong."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

from gobrrr import cli
from gobrrr.doors import changes
from gobrrr.doors.changes import Prediction
from gobrrr.doors.pipeline import diagnose
from gobrrr.model.diagnosis import WhatIf
from gobrrr.observe.trace import read_trace
from tests.conftest import H100, H100_EXTRA

HELD_OUT = H100_EXTRA / "holdout"


@cache
def asked(path: Path, names: tuple[str, ...] = (), on: str | None = None) -> Prediction:
    return changes.predict(read_trace(str(path)), names, on=on)


def ns(one: WhatIf, *lines: str) -> float:
    """Nanoseconds of some lines of its budget."""
    return sum(line.ns for line in one.lines if line.line in lines)


@pytest.mark.usefixtures("replay_alone")
def test_two_remedies_of_one_norm_leave_its_kernel_there():
    """By the timeline: what was fitted beside it differs by mechanism, and is no work of the device."""
    path = HELD_OUT / "rms_eager.json.gz"
    alone, both = (asked.__wrapped__(path, names).what_if for names in (("fused-norm",), ("fused-norm", "compile")))
    assert ns(both, "memory", "below_roof") == pytest.approx(ns(alone, "memory", "below_roof"), rel=0.15)


def test_of_two_types_for_the_same_products_one_counts():
    path = H100 / "gpt_fp32_notf32.faulty.json.gz"
    both, half = (asked(path, names).what_if for names in (("tf32", "bf16-autocast"), ("bf16-autocast",)))
    assert both.step_ns == pytest.approx(half.step_ns)
    assert any("stands for both" in one for one in both.assumes)


def test_products_in_sixteen_bits_have_the_floor_of_sixteen_bits():
    """989 over 67 TFLOP/s: no less than a fifteenth of the float32 floor; what the bytes bound then stays above it."""
    path = H100 / "gpt_fp32_notf32.faulty.json.gz"
    then, now = asked(path, ("bf16-autocast",)).what_if, asked(path).what_if
    assert 1.0 <= ns(then, "compute") / (ns(now, "compute") * 66.9 / 989.4) <= 1.6


def test_a_better_kernel_does_as_much_work():
    path = HELD_OUT / "odd_matmuls.json.gz"
    then, now = asked(path, ("pad-dimensions",)).what_if, asked(path).what_if
    assert then.step_ns < 0.5 * now.step_ns
    assert ns(then, "compute") == pytest.approx(ns(now, "compute"), rel=0.02)


@pytest.mark.parametrize("name", ["resnet50_b64_cl.fwd", "dit_xl_b8_s256.fwd", "mlp_tiny.faulty"])
def test_fusing_makes_no_step_longer_on_another_machine(name: str):
    path = H100 / f"{name}.json.gz"
    then, there = (asked(path, names, "a100-80gb").what_if for names in (("compile",), ()))
    assert then.step_ns <= there.step_ns * 1.001


def test_what_still_waits_for_its_loaders_says_so():
    path = HELD_OUT / "loader_workers_0.json.gz"
    then = asked(path, ("dataloader-workers", "prefetch-pinned")).what_if
    now = asked(path).what_if
    assert ns(then, "compute", "memory", "below_roof") <= ns(now, "compute", "memory", "below_roof") * 1.01
    assert then.regime == "input"


def test_a_larger_batch_takes_as_much_longer_to_load():
    found = asked(HELD_OUT / "loader_workers_0.json.gz", ("larger-batch",))
    workers = asked(HELD_OUT / "loader_workers_0.json.gz", ("dataloader-workers",)).what_if
    assert found.what_if.expected_ns < 0.2 * found.diagnosis.what_ifs[0].step_ns < workers.expected_ns


@pytest.mark.parametrize("path", [H100 / "dit_xl_b8_s256.fwd_compiled.json.gz", HELD_OUT / "compiled_training.json.gz"])
def test_a_compiled_step_is_not_told_to_compile(path: Path):
    given = [one for one in diagnose(read_trace(str(path))).prescriptions if one.finding == "O01"]
    assert given
    assert "compile" not in {one.treatment for one in given}


def test_an_interval_is_no_narrower_where_the_step_never_ran():
    here, there = (asked(H100 / "resnet_slow_loader.faulty.json.gz", (), on).what_if for on in (None, "b200"))
    assert there.low_ns / there.step_ns <= here.low_ns / here.step_ns + 1e-6
    assert there.high_ns / there.step_ns >= here.high_ns / here.step_ns - 1e-6


def test_its_own_machine_is_no_other_one():
    assert asked(H100 / "mlp_tiny.faulty.json.gz", ("compile",), "h100").what_if.machine is None


def test_printing_a_prediction_tells_the_change():
    text = str(asked(H100 / "pointwise_chain.faulty.json.gz", ("compile",)))
    assert "What if: compile" in text
    assert text.index("What to do") < text.index("What if: compile")


@pytest.mark.parametrize("option", ["--save", "--html", "--speedscope", "--replayed"])
def test_no_answer_is_written_over_the_trace(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trace = tmp_path / "in.json.gz"
    shutil.copy(H100 / "pointwise_chain.faulty.json.gz", trace)
    before = trace.read_bytes()
    assert cli.main(["diagnose", str(trace), option, str(trace)]) == 2
    assert trace.read_bytes() == before
    assert "would be overwritten" in capsys.readouterr().err


def test_two_answers_are_not_written_into_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "out.json")
    assert cli.main(["diagnose", str(H100 / "mlp_tiny.fixed.json.gz"), "--save", out, "--html", out]) == 2
    assert "named for two outputs" in capsys.readouterr().err


def test_none_is_the_step_as_it_is(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["diagnose", str(H100 / "pointwise_chain.faulty.json.gz"), "--what-if", "none", "--quiet"]) == 0
    assert "what if" in capsys.readouterr().out.lower()


def test_a_saved_what_if_is_told_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    saved = tmp_path / "saved.json"
    trace = str(H100 / "pointwise_chain.faulty.json.gz")
    assert cli.main(["diagnose", trace, "--what-if", "compile", "--save", str(saved)]) == 0
    told = capsys.readouterr().out
    assert cli.main(["report", str(saved)]) == 0
    assert capsys.readouterr().out == told
