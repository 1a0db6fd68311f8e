"""C08: products in 16 bits on a machine that is faster in float32; and on one that is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from gobrrr.analysis.answer.study import study
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.model.live import Switches
from gobrrr.model.machine import Machine
from gobrrr.observe.trace import read_trace
from tests.conditions.lives import live_of
from tests.conditions.makers import shipped
from tests.conditions.test_on_cpu import processor
from tests.evidence import certain, check, found, predict, watched
from tests.traces import Trace

PRODUCTS, SIDE, US = 10, 256, 6000.0
FLOOR_NS = 2 * SIDE**3 / 2e11 * 1e9  # in float32, by hand: multiply-adds at the peak
Body = Callable[[Trace], None]


def products(dtype: str = "bfloat16", us: float = US) -> Body:
    def body(trace: Trace) -> None:
        for _ in range(PRODUCTS):
            trace.op("aten::copy_", [[SIDE, SIDE]] * 2, 20.0, dtypes=[dtype, "float32"], host_us=5.0)
            trace.op("aten::mm", [[SIDE, SIDE]] * 2, us, dtype=dtype, host_us=5.0)

    return body


def on(machine: Machine, folder: Path, body: Body, autocast: str | None = "bfloat16") -> Evidence:
    trace = Trace()
    for number in range(3):
        with trace.step(number):
            body(trace)
    seen = certain(study(read_trace(str(trace.write(folder))).ranks[0], machine).evidence[0])
    live = structs.replace(live_of(switches=Switches(autocast=autocast), dispatch_ns=2e3), kind="cpu")
    return watched(seen, live=live)


SLOW = processor(bfloat16=1e9)
"""200 times as slow in bfloat16 as in float32."""


def test_products_that_float32_makes_sooner(tmp_path: Path):
    seen = on(SLOW, tmp_path, products())
    finding = found("C08", seen)
    least, most = (PRODUCTS * (US * 1e3 - one) for one in (2 * FLOOR_NS + 2e3, FLOOR_NS))
    assert finding.at_stake_ns == pytest.approx((least, most), rel=0.01)
    assert finding.treatments == ["no-autocast"]
    given = predict("no-autocast", seen, finding)
    assert given is not None
    assert given.predicted_saving_ns[1] == pytest.approx(most, rel=0.01)


def test_the_conversions_name_the_same_remedy(tmp_path: Path):
    seen = on(SLOW, tmp_path, products(us=100.0))
    assert found("M04", seen).treatments[0] == "no-autocast"


def test_a_model_in_16_bits_is_told_without_autocast(tmp_path: Path):
    finding = found("C08", on(SLOW, tmp_path, products(), autocast=None))
    assert finding.treatments == []
    assert "model.float()" in finding.evidence[-1]


def test_a_peak_that_is_only_known_from_below_promises_nothing_for_certain(tmp_path: Path):
    peaks = SLOW.matrix_flop_per_s
    bound = {**peaks, "bfloat16": structs.replace(peaks["bfloat16"], at_least="other processes had the processor")}
    finding = found("C08", on(structs.replace(SLOW, matrix_flop_per_s=bound), tmp_path, products()))
    assert finding.certainty == "low"
    assert finding.at_stake_ns[0] == 0


@pytest.mark.parametrize(("bfloat16", "dtype"), [(4e11, "bfloat16"), (1e9, "float32")])
def test_where_16_bits_are_faster_or_not_used_nothing_is_said(bfloat16: float, dtype: str, tmp_path: Path):
    assert check("C08", on(processor(bfloat16), tmp_path, products(dtype))) is None


def test_a_machine_without_a_peak_in_16_bits_tells_nothing(tmp_path: Path):
    only = {"float32": SLOW.matrix_flop_per_s["float32"]}
    assert check("C08", on(structs.replace(SLOW, matrix_flop_per_s=only), tmp_path, products())) is None


def test_small_products_that_take_as_long_in_float32_are_none(tmp_path: Path):
    """At their floors in float32 already, whatever the peaks are."""
    assert check("C08", on(SLOW, tmp_path, products(us=FLOOR_NS / 1e3 * 0.9))) is None


def test_a_gpu_is_faster_in_16_bits():
    assert check("C08", shipped("gpt2_b8_s1024.fwd")) is None
