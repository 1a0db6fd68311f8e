"""Counts against closed forms by hand: nine public architectures, and small nets of any size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import gobrrr  # noqa: E402
from bench.closed_forms import CASES, DEVICES, PASSES, SMALL, counted  # noqa: E402
from tests.spread import examples, spread  # noqa: E402

pytestmark = pytest.mark.torch

TOLERANCE = 0.005
SQUARE_GFLOP = {
    "BERT-base": 773.10, "GPT-2": 291.65, "Llama-1B": 5611.4, "ResNet-50": 65.43, "ViT-B/16": 281.02,
    "T5-small": 146.50, "Whisper-small enc.": 344.16, "Mixtral-mini": 138.81, "DiT-XL/2 x 4": 271.09,
}  # fmt: skip
"""Worked out by another hand, attention over all pairs."""
BY_NAME = {one.name: one for one in CASES}
SIZES = st.integers(1, 9)
QUICK = settings(max_examples=examples(25), deadline=None)


@pytest.mark.parametrize("name", SQUARE_GFLOP)
def test_the_closed_forms_are_those_of_another_hand(name: str) -> None:
    assert BY_NAME[name].form.square / 1e9 == pytest.approx(SQUARE_GFLOP[name], rel=1e-3)


EACH = [(name, "meta", passes) for name in BY_NAME for passes in PASSES]
OTHER = [(name, device, "training") for name in list(BY_NAME)[::3] for device in DEVICES if device != "meta"]
"""The same arithmetic on other devices, of every third: bench/closed_forms.py has all."""


@pytest.mark.parametrize(("name", "device", "passes"), spread([*EACH, *OTHER], 13))
def test_an_architecture(name: str, device: str, passes: str) -> None:
    case = BY_NAME[name]
    found = counted(case, device, training=passes == "training")
    expected = case.form.training if passes == "training" else case.form.forward
    assert found.flop_contraction == pytest.approx(expected, rel=TOLERANCE)
    assert found.unknown == {}
    assert found.flop_contraction <= found.flop_model <= found.flop_executed <= found.flop_hardware
    assert 0 < found.bytes_compulsory <= found.bytes_fused <= found.bytes_as_run


RESIZED = [one for one in SMALL if one.what != BY_NAME[one.name].what]


@pytest.mark.parametrize("case", spread(RESIZED, 6), ids=lambda one: one.name)
def test_an_architecture_at_another_size(case: Any) -> None:
    assert counted(case, "meta", training=True).flop_contraction == pytest.approx(case.form.training, rel=TOLERANCE)


def flop_of(model: Any, *inputs: Any, training: bool) -> float:
    """What is counted of a module on real tensors."""

    def step(*given: Any) -> None:
        with torch.set_grad_enabled(training):
            result = model(*given)
        if training:
            result.sum().backward()

    return float(gobrrr.count(step, *inputs).flop_contraction)


@QUICK
@given(batch=SIZES, widths=st.lists(SIZES, min_size=2, max_size=5), grad=st.booleans())
def test_a_stack_of_linear_layers(batch: int, widths: list[int], grad: bool) -> None:
    pairs = list(pairwise(widths))
    model = torch.nn.Sequential(*(torch.nn.Linear(into, out) for into, out in pairs))
    x = torch.randn(batch, widths[0], requires_grad=grad)
    forward = sum(2 * batch * into * out for into, out in pairs)
    first = 2 * batch * widths[0] * widths[1]
    assert flop_of(model, x, training=False) == forward
    assert flop_of(model, x, training=True) == 3 * forward - (0 if grad else first)


@QUICK
@given(
    batch=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 4]),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    size=st.integers(5, 9),
    transposed=st.booleans(),
)
def test_a_convolution(
    batch: int,
    groups: int,
    channels: tuple[int, int],
    kernel: int,
    stride: int,
    padding: int,
    size: int,
    transposed: bool,
) -> None:
    """Each output (of a transposed one: each input) meets kernel^2 elements of each channel of its group."""
    into, out = (groups * one for one in channels)
    kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    how = {"stride": stride, "padding": min(padding, kernel - 1), "groups": groups, "bias": False}
    model, x = kind(into, out, kernel, **how), torch.randn(batch, into, size, size, requires_grad=True)
    reached = size if transposed else (size + 2 * how["padding"] - kernel) // stride + 1
    forward = 2 * batch * reached**2 * kernel**2 * into * out // groups
    assert flop_of(model, x, training=False) == forward
    assert flop_of(model, x, training=True) == 3 * forward


@QUICK
@given(batch=st.integers(1, 3), heads=st.integers(1, 4), rows=SIZES, keys=SIZES, head=SIZES, causal=st.booleans())
def test_attention(batch: int, heads: int, rows: int, keys: int, head: int, causal: bool) -> None:
    """Two products forward and four backward, over the pairs that the mask leaves: row i sees keys 0 to i."""
    shapes = [(batch, heads, count, head) for count in (rows, keys, keys)]
    q, k, v = (torch.randn(shape, requires_grad=True) for shape in shapes)
    left = sum(min(row + 1, keys) for row in range(rows)) if causal else rows * keys
    forward = 4 * batch * heads * left * head

    def attend(*given: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)

    assert flop_of(attend, q, k, v, training=False) == forward
    assert flop_of(attend, q, k, v, training=True) == 3 * forward


@QUICK
@given(layers=st.integers(1, 3), batch=st.integers(1, 3))
def test_counts_add_over_layers_and_grow_with_the_batch(layers: int, batch: int) -> None:
    def model(count: int) -> Any:
        return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(count)))

    def total(count: int, rows: int) -> float:
        return float(gobrrr.count(model(count), torch.randn(rows, 8)).flop_model)

    assert total(layers, batch) == layers * total(1, batch)
    assert total(layers, batch) == batch * total(layers, 1)
