"""Ops by word against closed forms written out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import gobrrr
from gobrrr.envelope import read_shapes, read_sizes
from gobrrr.errors import UnknownDeviceError, UsageError

H100_BF16, H100_MEMORY = 989.4e12, 3.35e12


def calc(*arguments: Any, **options: Any) -> gobrrr.Envelope:
    return gobrrr.calc(*arguments, **{"on": "h100", **options})


def test_mm() -> None:
    m, n, k = 1024, 512, 256
    found = calc("mm", m, n, k, dtype="bf16")
    assert found.shapes == {"a": (m, k), "b": (k, n)}
    assert found.fused.matrix_flop == 2 * m * n * k
    assert found.fused.bytes == 2 * (m * k + k * n + m * n)
    assert found.unfused == found.fused
    assert (found.saved_bytes, found.saved_ns, found.speedup) == (0, 0, 1)
    assert found.balance is None


def test_a_large_product_is_compute_bound() -> None:
    found = calc("mm", 4096, 4096, 4096, dtype="bf16")
    assert found.fused.floor_ns == pytest.approx(2 * 4096**3 / H100_BF16 * 1e9)
    assert (found.fused.bound, found.fused.bound_share) == ("compute", 1)
    assert found.fused.flop_per_byte == pytest.approx(2 * 4096**3 / (3 * 2 * 4096**2))


def test_rows_from_which_compute_is_the_bound() -> None:
    """2 M N K / P = 2 (M K + K N + M N) / B with N = K: M = N / (N B / P - 2)."""
    n = 4096
    rows = n / (n * H100_MEMORY / H100_BF16 - 2)
    note = f"compute is the bound from M = {int(rows) + 1:,} on"
    assert any(note in one for one in calc("mm", 16, n, n, dtype="bf16").notes)
    assert any(note in one for one in calc("linear", 16, n, n, dtype="bf16").notes)
    assert calc("mm", int(rows), n, n, dtype="bf16").fused.bound == "memory"
    assert calc("mm", int(rows) + 1, n, n, dtype="bf16").fused.bound == "compute"


def test_a_narrow_product_never_is() -> None:
    assert any("whatever M is" in one for one in calc("mm", 16, 64, 64, dtype="bf16").notes)


def test_bmm_and_linear() -> None:
    assert calc("bmm", 8, 32, 64, 128, dtype="bf16").fused.flop == 2 * 8 * 32 * 64 * 128
    found = calc("linear", 32, 64, 128, dtype="bf16")
    assert found.shapes == {"x": (32, 64), "w": (128, 64)}
    assert found.fused.flop == 2 * 32 * 64 * 128


@pytest.mark.parametrize(("shared", "keys"), [(None, None), (4, None), (4, 1000), (1, 77)])
def test_attention(shared: int | None, keys: int | None) -> None:
    b, h, s, d = 2, 16, 512, 64
    groups, n = shared or h, keys or s
    found = calc("attention", b, h, s, d, dtype="bf16", kv_heads=shared, keys=keys)
    scores = b * h * s * n
    assert found.fused.matrix_flop == 4 * scores * d
    assert found.unfused.matrix_flop == 4 * scores * d
    tensors = 2 * b * h * s * d + 2 * b * groups * n * d
    assert found.fused.bytes == 2 * tensors + 4 * b * h * s  # the log-sum-exp of each row
    # the scores are written once and read once around each of scale and softmax
    assert found.unfused.bytes == 2 * tensors + 2 * scores * 6
    assert (found.unfused.launches, found.fused.launches) == (4, 1)
    assert found.unfused.vector_flop == 6 * scores  # 1 to scale, 5 for the softmax


def test_causal_attention_skips_half_when_fused() -> None:
    b, h, s, d = 2, 16, 512, 64
    found = calc("attention", b, h, s, d, dtype="bf16", causal=True)
    assert found.fused.matrix_flop == 4 * b * h * d * s * (s + 1) / 2
    assert found.unfused.matrix_flop == 4 * b * h * d * s * s
    assert found.unfused.launches == 5
    assert found.what == "attention 2 16 512 64 causal"


def test_conv2d() -> None:
    found = calc("conv2d", 8, 3, 224, 224, 64, 7, stride=2, padding=3, dtype="bf16")
    assert found.fused.matrix_flop == 2 * 8 * 64 * 112 * 112 * 3 * 49


def test_pointwise() -> None:
    n = 2**20
    found = calc("pointwise", ops=8, shape=n)
    assert found.unfused.bytes == 8 * 8 * n
    assert found.fused.bytes == 8 * n
    assert found.fused.flop == found.unfused.flop == 8 * n
    assert found.unfused.kernels[0].calls == 8
    assert found.speedup == pytest.approx(8)


def test_norms() -> None:
    rows, width = 1000, 768
    found = calc("layernorm", rows, width)
    assert found.fused.bytes == 4 * (2 * rows * width + 2 * width + 2 * rows)
    assert calc("softmax", rows, width).fused.bytes == 4 * 2 * rows * width


def test_embedding() -> None:
    found = calc("embedding", 100, 5000, 64, dtype="bf16")
    assert found.fused.bytes == 100 * 8 + 2 * 100 * 64 * 2
    assert (found.fused.kernels[0].count, found.fused.bound) == ("bounded", "memory")


def test_adam() -> None:
    """Fused: four tensors read, three written. Op by op, as torch.optim.AdamW runs it: 20 passes."""
    n = 10**8
    found = calc("adam", n)
    assert found.fused.bytes == 7 * 4 * n
    assert found.unfused.bytes == 20 * 4 * n
    assert found.unfused.launches == 8


def test_allreduce() -> None:
    """2 (n - 1) / n of the bytes out and as many in, over a link whose figure sums both directions."""
    found = calc("allreduce", 10**9, ranks=8)
    assert found.fused.bytes == 2 * 2 * 7 / 8 * 10**9
    assert found.fused.bound == "communication"
    assert found.fused.floor_ns == pytest.approx(2 * 7 / 8 * 10**9 / 450e9 * 1e9)


def test_copies() -> None:
    moved = calc("copy", 10**9, host=True)
    assert (moved.fused.bytes, moved.fused.bound) == (10**9, "transfer")
    assert moved.fused.floor_ns == pytest.approx(1e9 / (16 * 32e9 * 128 / 130 / 8) * 1e9)
    inside = calc("copy", 10**9)
    assert (inside.fused.bytes, inside.fused.bound) == (2 * 10**9, "memory")


def test_tf32_uses_its_units() -> None:
    plain, fast = calc("mm", 4096, 4096, 4096), calc("mm", 4096, 4096, 4096, dtype="tf32")
    assert plain.roofs[0].name == "float32 vector"
    assert any("--dtype tf32" in note for note in plain.notes)
    assert fast.roofs[0].name == "tf32 matrix"
    assert fast.fused.bytes == plain.fused.bytes
    assert fast.fused.floor_ns == pytest.approx(2 * 4096**3 / 494.7e12 * 1e9)


def test_a_missing_peak_is_unknown_not_zero() -> None:
    found = calc("mm", 4096, 4096, 4096, dtype="bf16", on="v100")  # has no bfloat16
    assert (found.fused.floor_ns, found.fused.bound, found.saved_ns, found.speedup) == (None, None, None, None)
    assert any("no such ceiling" in note for note in found.notes)


def test_what_fits_the_cache_is_noted_and_priced_from_dram() -> None:
    found = calc("softmax", 1000, 1000)
    assert any("fit the last cache" in note for note in found.notes)
    assert found.fused.floor_ns == pytest.approx(8e6 / H100_MEMORY * 1e9)
    assert not any("cache" in note for note in calc("softmax", 10000, 10000).notes)


def test_kernels_below_the_smallest_launch_are_noted() -> None:
    assert any("launching them decides" in note for note in calc("softmax", 10, 10).notes)
    assert not any("launching" in note for note in calc("softmax", 10000, 10000).notes)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("mm", 1, 2), {}, "mm takes 3 sizes, not 2: gobrrr calc mm M N K"),
        (("mm", 1, 2, 0), {}, "sizes are at least 1"),
        (("mm", 2**30, 2**30, 2**30), {}, "2^60"),
        (("mm", 1, 2, 3), {"causal": True}, "--causal is not an option of mm"),
        (("attention", 1, 8, 4, 4), {"kv_heads": 3}, "can't share 3"),
        (("attention", 1, 8, 4, 4), {"kv_heads": 0}, "at least 1"),
        (("pointwise",), {"ops": 3}, "--shape 67108864"),
        (("pointwise",), {"ops": 5000, "shape": 3}, "from 1 to 4,096"),
        (("allreduce", 5), {}, "--ranks 8"),
        (("conv2d", 1, 3, 2, 2, 4, 7), {}, "kernel is larger"),
        (("mm", 1, 2, 3), {"on": None}, "say which machine: --on"),
        (("mm", 1, 2, 3), {"dtype": "bf61"}, "unknown dtype"),
        (("nn", 1, 2, 3), {}, "is no op that takes sizes"),
        (("softmax", 1, 2), {"shape": {"x": 3}}, "no tensors to name"),
        (("x.cos()",), {"shape": 3, "ops": 4}, "the other options belong to ops"),
    ],
)
def test_mistakes(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        calc(*arguments, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_machine() -> None:
    with pytest.raises(UnknownDeviceError):
        calc("mm", 1, 2, 3, on="abacus")


def test_a_machine_of_ones_own() -> None:
    machine = gobrrr.machine("h100")
    assert calc("mm", 64, 64, 64, on=machine) == calc("mm", 64, 64, 64)


def test_shapes_as_typed() -> None:
    assert read_shapes(["8,1024", "w=3x4", " b = 1_000 "]) == {"": (8, 1024), "w": (3, 4), "b": (1000,)}
    assert read_shapes(None) == {}
    for wrong in ("", "x=", "=3", "3,-1", "three", "0", "1.5", "9" * 30):
        with pytest.raises(UsageError):
            read_shapes([wrong])
    with pytest.raises(UsageError):
        read_shapes(["3", "4"])


def test_sizes_as_typed() -> None:
    assert read_sizes(["4096", "1e9", "4_096"]) == (4096, 10**9, 4096)
    for wrong in ("0", "-3", "x", "1.5", "nan", "inf", "1e300"):
        with pytest.raises(UsageError):
            read_sizes([wrong])
