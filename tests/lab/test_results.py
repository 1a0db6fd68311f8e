"""The pure half of each experiment: the H100's own numbers, and times made up to hold or to fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gobrrr.lab import (
    activations,
    article,
    fusion,
    intensity,
    operators,
    overhead,
    remat,
    scaling,
    tensorcores,
    utilization,
)
from gobrrr.lab.catalogue import EXPERIMENTS
from gobrrr.lab.counting import class_of, flop_by_class, time_by_class
from gobrrr.lab.tables import columns
from gobrrr.model.experiment import ArticleClaim, Experiment, LabColumn
from gobrrr.model.work import OpCall, Tensor
from tests.conftest import ROOT
from tests.lab.samples import h100_sweep, q

SEEDS = ROOT.parent / "shared" / "seeds"


def verdicts(one: Experiment) -> dict[str, str]:
    return {each.claim.number: each.verdict for each in one.judgements}


def test_every_claim_has_a_number_of_its_own() -> None:
    claims = [one for one in vars(article).values() if isinstance(one, ArticleClaim)]
    numbers = [one.number for one in claims]
    assert len(set(numbers)) == len(numbers) == 23
    assert {number[:1] for number in numbers} == {str(at + 1) for at in range(len(EXPERIMENTS))}


def test_the_quotes_are_the_articles() -> None:
    found = sorted(SEEDS.glob("000_*.txt")) if SEEDS.is_dir() else []
    if not found:
        pytest.skip("the article's text is not beside this checkout")
    text = plain(found[0].read_text(encoding="utf-8"))
    for one in (one for one in vars(article).values() if isinstance(one, ArticleClaim)):
        if one.number == "4b":  # a table, in words
            continue
        for part in re.split(r"\s*\[[^\]]*\]\s*", one.quote):
            assert plain(part) in text, one.number


def plain(text: str) -> str:
    return " ".join(re.sub(r"[*_`\"\u201c\u201d]", "", text).replace("\u2019", "'").split()).lower()


def test_intensity_on_the_h100() -> None:
    points = [intensity.Point(int(repeat), 2**26, took) for repeat, took in h100_sweep()]
    found = intensity.result(points, q(3.0185e12), 66.9e12, {})
    assert verdicts(found) == {"1a": "holds", "1b": "holds", "1c": "holds", "1d": "holds"}
    # the arithmetic of the article's own formulas, against the H100 script's figures
    for point, row in zip(points, article.h100()["sweep"], strict=True):
        assert point.flop_per_s.value == pytest.approx(row[2] * 1e12, rel=1e-9)
        assert point.bytes_per_s.value == pytest.approx(row[3] * 1e9, rel=1e-9)
    assert found.plots[0].marks[0][0] == "knee at 86"


def test_intensity_where_it_does_not_hold() -> None:
    steep = [intensity.Point(repeat, 2**20, q(1e-3 * repeat)) for repeat in intensity.GPU_REPEATS]
    found = verdicts(intensity.result(steep, q(1e13), None, {}))
    assert found["1a"] == "does not hold"
    assert found["1c"] == "does not hold"
    assert found["1d"] == "can't tell"
    few = intensity.result(steep[:2], q(1e13), None, {})
    assert verdicts(few)["1a"] == "can't tell"


def runs(*seconds: float | None) -> list[fusion.Run]:
    names = ["cos, eager", "cos, fused", "cos.cos, eager", "cos.cos, fused", "chain of 8, eager", "chain of 8, fused"]
    accesses = [2, 2, 4, 2, 16, 2]
    return [
        fusion.Run(name, count, None if took is None else q(took), 2**26)
        for name, count, took in zip(names, accesses, seconds, strict=True)
    ]


def test_fusion() -> None:
    there = article.h100()
    ms = [there[key] for key in ("cos_eager", "cos_fused", "coscos_eager", "coscos_fused")]
    assert verdicts(fusion.result(runs(*ms, 1.46, 0.183), "", {})) == {"2a": "holds", "2b": "holds"}
    assert verdicts(fusion.result(runs(1, 0.2, 2, 0.44, 8, 1), "", {})) == {
        "2a": "does not hold",
        "2b": "does not hold",
    }
    unfused = fusion.result(runs(1, None, 2, None, 8, None), "torch.compile needs Triton", {})
    assert verdicts(unfused) == {"2a": "can't tell", "2b": "can't tell"}
    assert unfused.notes == ("not fused: torch.compile needs Triton",)
    assert [row[1] for row in unfused.tables[1].rows] == [1, 2, 8]  # the accesses predict what nobody measured


def test_activations() -> None:
    there = {name: q(article.h100()[name] * 1e-3) for name in ("relu", "gelu", "silu", "tanh")}
    copy = {"copy": q(0.18e-3)}
    assert verdicts(activations.result({**copy, **there}, 2**26, {})) == {"3a": "holds"}
    slow = {**copy, **there, "mish": q(3e-3)}
    assert verdicts(activations.result(slow, 2**26, {})) == {"3a": "does not hold"}
    noisy = {**copy, "relu": q(1e-3, 0.4), "gelu": q(1.1e-3, 0.4)}
    assert verdicts(activations.result(noisy, 2**26, {})) == {"3a": "can't tell"}


SHARES = {name: share for name, (share, _) in article.OPERATOR_SHARES.items()}
TIMES = {name: share for name, (_, share) in article.OPERATOR_SHARES.items()}


def test_operators_on_the_articles_own_table() -> None:
    found = operators.result(SHARES, TIMES, q(1.0), (), {})
    assert verdicts(found) == {"4a": "holds", "4b": "holds", "4c": "holds", "4d": "holds"}
    gaps = [operators.gap(SHARES, TIMES, name) for name in SHARES]
    assert gaps[0] == 1
    assert gaps[1] == pytest.approx(250, rel=0.05)  # the article's 250x and 700x from its own table
    assert gaps[2] == pytest.approx(700, rel=0.06)


def test_operators_without_a_count_and_for_another_step() -> None:
    assert set(verdicts(operators.result({}, {}, q(1.0), (), {})).values()) == {"can't tell"}
    assert operators.result(SHARES, TIMES, q(1.0), (), {}, bert=False).judgements == ()


def test_classes_of_ops() -> None:
    assert class_of("aten::addmm") == "tensor contraction"
    assert class_of("aten::native_layer_norm") == "statistical normalization"
    assert class_of("aten::_softmax") == "statistical normalization"
    assert class_of("aten::gelu") == "element-wise"
    assert class_of("aten::view") == "other"
    assert class_of("nobody::knows") == "other"
    assert time_by_class({"aten::mm": 1.0, "aten::bmm": 2.0, "x": 4.0}) == {"tensor contraction": 3.0, "other": 4.0}
    matrix = Tensor((4, 4), "float32", (4, 1))
    flop, unknown = flop_by_class([OpCall(name="aten::mm", inputs=(matrix, matrix)), OpCall(name="nobody::knows")])
    assert flop == {"tensor contraction": 2.0 * 4 * 4 * 4}
    assert unknown == ["nobody::knows"]


def rungs(*seconds: float) -> dict[str, object]:
    return {name: q(took) for name, took in zip(overhead.LADDER, seconds, strict=True)}


def test_overhead() -> None:
    ladder = rungs(6e-6, 3.6e-6, 3e-6, 2.5e-6, 1e-9)
    ahead = [overhead.Ahead("tiny", q(7e-4), q(7.2e-4)), overhead.Ahead("large", q(7e-4), q(5e-3))]
    found = overhead.result(q(1 / 32e6), ladder, ahead, 19.5e12, {})  # type: ignore[arg-type]
    assert set(verdicts(found).values()) == {"holds"}
    assert found.tables[0].rows[0][4] == pytest.approx(19.5e12 / 32e6)
    on_cpu = verdicts(overhead.result(q(1 / 300e6), ladder, [], None, {}))  # type: ignore[arg-type]
    assert (on_cpu["5a"], on_cpu["5d"], on_cpu["5e"]) == ("does not hold", "can't tell", "can't tell")


def test_a_rung_is_no_wider_than_the_one_it_stands_in() -> None:
    frames = overhead.flame(rungs(5, 4, 4.5, 3, 0.1)).frames  # type: ignore[arg-type]
    assert [one.duration_s for one in frames] == [5, 4, 4, 3, 0.1]
    assert [one.depth for one in frames] == [0, 1, 2, 3, 4]


def traps(*seconds: float) -> list[scaling.Trap]:
    return [scaling.Trap(2**at, 4096, 4, q(took)) for at, took in enumerate(seconds)]


def test_scaling() -> None:
    points = [(float(2**at), q(max(1e-3, 2**at * 2e-5))) for at in range(12)]
    found = scaling.result(points, traps(1e-3, 1.02e-3, 1.05e-3), q(1e-5), {})
    assert verdicts(found) == {"6a": "holds", "6b": "holds"}
    assert [row[3] for row in found.tables[0].rows].count("overhead-bound") == 6
    slow_host = scaling.result(points, traps(1e-3, 1.02e-3), q(2e-3), {})
    assert verdicts(slow_host)["6b"] == "does not hold"  # flat because of the host: that is overhead, not the trap
    noisy = scaling.result([(x, q(took.value, 1.0)) for x, took in points], traps(1e-3), q(1e-5), {})
    assert verdicts(noisy) == {"6a": "can't tell", "6b": "can't tell"}


def test_the_traps_arithmetic_by_hand() -> None:
    trap = scaling.Trap(2, 4, 4, q(1.0))
    assert trap.flop == 2 * 2 * 4 * 4
    assert trap.bytes == 4 * (16 + 2 * 8)
    assert trap.intensity == pytest.approx(0.5)


def loads(*meters: float | None) -> list[utilization.Load]:
    return [utilization.Load(f"load {at}", 1e9, 1e6, q(1e-3), meter, meter) for at, meter in enumerate(meters)]


def test_utilization() -> None:
    assert verdicts(utilization.result(loads(1.0, 0.99, 0.3), False, (1e12, 1e12), {})) == {
        "7a": "holds",
        "7b": "holds",
    }
    high = utilization.result(loads(1.0, 1.0, 1.0), False, (None, None), {})
    assert verdicts(high)["7b"] == "does not hold"
    assert high.tables[0].rows[0][3:] == (None, None)  # no peak, no share
    assert set(verdicts(utilization.result(loads(1.0, None, 0.3), False, (None, None), {})).values()) == {"can't tell"}
    assert set(verdicts(utilization.result(loads(1.0, 1.0, 0.5), True, (None, None), {})).values()) == {"can't tell"}


def ways(stored: float, again: float, stored_bytes: float, again_bytes: float) -> list[remat.Way]:
    return [
        remat.Way("stored, fused", remat.STORED_ACCESSES, q(stored), stored_bytes),
        remat.Way("recomputed, fused", remat.RECOMPUTED_ACCESSES, q(again), again_bytes),
    ]


def test_remat() -> None:
    assert verdicts(remat.result(ways(2, 1, 10, 5), False, {})) == {"8a": "holds", "8b": "holds"}
    assert verdicts(remat.result(ways(1, 2, 10, 5), False, {})) == {"8a": "does not hold", "8b": "does not hold"}
    assert verdicts(remat.result(ways(2, 1, 5, 5), False, {}))["8b"] == "does not hold"


def rates(**tera: float | None) -> list[tensorcores.Rate]:
    return [tensorcores.Rate(name, 8192, None if one is None else q(one * 1e12)) for name, one in tera.items()]


def test_tensorcores() -> None:
    found = tensorcores.result(rates(float32=51.6, bfloat16=729.2, float16=681.0), [], 60e12, False, {})
    assert verdicts(found) == {"9a": "holds"}
    cpu = tensorcores.result(rates(float32=0.2, bfloat16=0.9), [], None, True, {})
    assert verdicts(cpu) == {"9a": "does not hold"}
    assert verdicts(tensorcores.result(rates(float32=None, bfloat16=0.9), [], None, True, {})) == {"9a": "can't tell"}
    assert [tensorcores.alignment(n) for n in (1023, 1026, 1032, 1040, 1088, 4096)] == [1, 2, 8, 16, 64, 64]


def test_columns() -> None:
    assert columns("repeat", "time [s]", "") == (
        LabColumn(name="repeat"),
        LabColumn(name="time", unit="s"),
        LabColumn(name=""),
    )


def test_one_file_an_experiment() -> None:
    folder = Path(intensity.__file__).parent
    assert all((folder / f"{name}.py").is_file() for name in EXPERIMENTS)
