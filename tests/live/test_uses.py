"""What a step's values and tensors tell: each use sick and healthy, its shares by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gobrrr.model.live import TensorUse  # noqa: E402
from gobrrr.observe.live.ops import readings  # noqa: E402
from gobrrr.observe.live.ops.dispatch import watch  # noqa: E402
from gobrrr.observe.live.watches.sync_mode import set_sync_mode  # noqa: E402

pytestmark = pytest.mark.torch

BF16 = torch.bfloat16


def uses(step: Any, kind: str, *inputs: Any) -> list[TensorUse]:
    return [one for one in watch(step, inputs).uses if one.kind == kind]


def one(step: Any, kind: str, *inputs: Any) -> TensorUse:
    (found,) = uses(step, kind, *inputs)
    return found


# -- weight casts

LAYERS, WIDTH = 3, 8
WEIGHTS = LAYERS * (WIDTH * WIDTH + WIDTH)


def mlp(**kind: Any) -> Any:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, **kind) for _ in range(LAYERS)))


def test_autocast_converts_the_weights_of_inference_in_every_call() -> None:
    model, x = mlp(), torch.randn(4, WIDTH)

    def step() -> None:
        with torch.inference_mode(), torch.autocast("cpu", dtype=BF16):
            for _ in range(2):
                model(x)

    found = one(step, "weight_cast")
    assert (found.op, found.count, found.total) == ("autocast", 2, 2 * 2 * LAYERS)
    assert found.bytes == 2 * WEIGHTS * (4 + 2)
    assert found.share == 1.0  # none of it is needed: the module could be converted once
    assert found.module == "Linear"
    assert "[8, 8] float32 -> bfloat16" in found.shapes
    assert "test_uses.py" in (found.source or "")


def test_a_module_converted_once_is_not_converted_again() -> None:
    model, x = mlp(dtype=BF16), torch.randn(4, WIDTH, dtype=BF16)

    def step() -> None:
        with torch.inference_mode(), torch.autocast("cpu", dtype=BF16):
            model(x)

    assert uses(step, "weight_cast") == []


def test_one_conversion_of_a_step_is_the_price_of_training_under_autocast() -> None:
    model, x = mlp(), torch.randn(4, WIDTH)

    def step() -> None:
        with torch.autocast("cpu", dtype=BF16):
            loss = model(model(x)).sum()  # the second use finds the first's in autocast's cache
        loss.backward()

    found = one(step, "weight_cast")
    assert (found.count, found.total, found.share) == (1, 2 * LAYERS, 0.0)


def test_each_micro_batch_in_a_region_of_its_own_converts_the_weights_again() -> None:
    model, x = mlp(), torch.randn(4, WIDTH)

    def step() -> None:
        for _ in range(4):
            with torch.autocast("cpu", dtype=BF16):
                loss = model(x).sum()
            loss.backward()

    found = one(step, "weight_cast")
    assert (found.count, found.total, found.share) == (4, 4 * 2 * LAYERS, 0.75)


def test_a_second_conversion_at_another_line_is_a_second_conversion() -> None:
    model, x = mlp(), torch.randn(4, WIDTH)

    def step() -> None:
        with torch.autocast("cpu", dtype=BF16):
            model(x)
        with torch.autocast("cpu", dtype=BF16):
            loss = model(x).sum()
        loss.backward()

    found = uses(step, "weight_cast")
    assert [(use.count, use.total, use.share) for use in found] == [(2, 2 * LAYERS, 0.5)] * 2


def test_frozen_weights_are_converted_again_in_training_too() -> None:
    model, head, x = mlp().requires_grad_(False), nn.Linear(WIDTH, 1), torch.randn(4, WIDTH)

    def step() -> None:
        with torch.autocast("cpu", dtype=BF16):
            loss = head(model(model(x))).sum()
        loss.backward()

    found = one(step, "weight_cast")
    learning = 6 * (WIDTH + 1)
    frozen = 2 * 6 * WEIGHTS  # autocast keeps only those that want a gradient
    assert found.bytes == learning + frozen
    assert found.share == pytest.approx(frozen / (learning + frozen))


class Norm(nn.Module):
    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, dtype=dtype))

    def forward(self, x: Any) -> Any:
        return x.float() * self.weight.float()


@pytest.mark.parametrize(("dtype", "found"), [(BF16, [(1, 1, 1.0)]), (torch.float32, [])])
def test_a_norm_that_converts_its_weight_in_each_forward(dtype: Any, found: list[Any]) -> None:
    norm, x = Norm(dtype), torch.randn(4, WIDTH)
    seen = uses(lambda: norm(x).sum().backward(), "weight_cast")
    assert [(use.count, use.total, use.share) for use in seen] == found
    assert all(use.op == "aten::_to_copy" and use.module == "Norm_0" for use in seen)


def test_a_view_of_a_parameter_is_a_parameter_and_data_are_none() -> None:
    layer, x = nn.Linear(WIDTH, WIDTH), torch.randn(4, WIDTH)

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            self.layer(x)
            return x.to(BF16) @ layer.weight.t().to(BF16)

    with torch.no_grad():
        found = one(Tied(), "weight_cast", x)
    assert (found.total, found.bytes) == (1, WIDTH * WIDTH * 6)


# -- padding


def test_ids_that_are_the_embedding_s_padding() -> None:
    table = nn.Embedding(100, 4, padding_idx=0)
    ids = torch.tensor([[5, 6, 0, 0], [7, 0, 0, 0]])
    found = one(table, "padding", ids)
    assert (found.op, found.share, found.total, found.module) == ("aten::embedding", 5 / 8, 8, "Embedding_0")
    assert uses(table, "padding", torch.ones_like(ids)) == []


def rows(*lengths: int, size: int = 16, pad: int = 99, left: bool = False) -> Any:
    ids = torch.full((len(lengths), size), pad)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.arange(1, length + 1) + row
    return ids.flip(1) if left else ids


@pytest.mark.parametrize("left", [False, True])
def test_padding_that_nobody_declared(left: bool) -> None:
    ids = rows(16, 10, 4, left=left)
    found = one(nn.Embedding(100, 4), "padding", ids)
    assert (found.share, found.total) == ((6 + 12) / 48, 48)


def test_what_is_no_padding() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(100, 4)
    segments = torch.cat((torch.zeros(4, 8), torch.ones(4, 8)), 1).long()
    for ids in (
        torch.zeros(4, 16, dtype=torch.long),  # made up
        torch.randint(100, (4, 16)),
        torch.arange(16).expand(4, 16),  # positions
        segments,
        rows(16, 14, 15),  # ends that happen to be equal
    ):
        assert uses(table, "padding", ids) == []
    assert uses(nn.Embedding(2, 4), "padding", segments) == []


BATCH, HEADS, KEYS = 2, 3, 16
LENGTHS = (16, 4)


def seen_keys() -> Any:
    """[B, S]: True for a key that is there; the second row's last 12 are padding."""
    return torch.arange(KEYS) < torch.tensor(LENGTHS)[:, None]


def scores() -> tuple[Any, Any]:
    return torch.randn(BATCH, HEADS, KEYS, 8), torch.randn(BATCH, HEADS, KEYS, KEYS)


def additive(low: float) -> Any:
    return torch.zeros(BATCH, 1, 1, KEYS).masked_fill(~seen_keys()[:, None, None], low)


LOW = float("-inf"), -10_000.0, torch.finfo(torch.float32).min


@pytest.mark.parametrize("mask", ["bool", "causal too", *LOW])
def test_keys_that_an_attention_mask_hides_from_all(mask: Any) -> None:
    query, _ = scores()
    if isinstance(mask, float):
        given = additive(mask)
    else:
        given = seen_keys()[:, None, None, :].expand(BATCH, 1, KEYS, KEYS)
        if mask == "causal too":
            given = given & torch.ones(KEYS, KEYS, dtype=torch.bool).tril()
    found = one(lambda: F.scaled_dot_product_attention(query, query, query, attn_mask=given), "padding")
    assert (found.share, found.total) == (12 / 32, 32)
    assert "attention" in found.op


@pytest.mark.parametrize("grad", [False, True])
def test_attention_by_hand_with_a_mask_added_or_filled_in(grad: bool) -> None:
    _, by_hand = scores()
    by_hand.requires_grad_(grad)
    added, hidden = additive(-10_000.0), ~seen_keys()[:, None, None]
    for step in (
        lambda: by_hand + added,
        lambda: by_hand.masked_fill(hidden, float("-inf")),
        lambda: by_hand.masked_fill(hidden, torch.finfo(torch.float32).min),
    ):
        found = one(step, "padding")
        assert (found.share, found.total, found.count) == (12 / 32, 32, 1)


def test_masks_that_hide_no_key_from_all() -> None:
    query, by_hand = scores()
    causal = torch.ones(KEYS, KEYS, dtype=torch.bool).tril()
    for step in (
        lambda: F.scaled_dot_product_attention(query, query, query, is_causal=True),
        lambda: F.scaled_dot_product_attention(query, query, query, attn_mask=causal[None, None]),
        lambda: by_hand.masked_fill(~causal, float("-inf")),
        lambda: by_hand.masked_fill(~causal, 0.0),
        lambda: by_hand + torch.randn(1, HEADS, 1, KEYS),  # a bias
    ):
        assert uses(step, "padding") == []


@pytest.mark.parametrize("kind", ["bool", "added", "nothing hidden"])
def test_a_mask_that_hides_what_a_flag_hides(kind: str) -> None:
    query, _ = scores()
    causal = torch.ones(KEYS, KEYS, dtype=torch.bool).tril()
    given = {"bool": causal, "added": torch.where(causal, 0.0, float("-inf")), "nothing hidden": causal | True}[kind]
    found = one(lambda: F.scaled_dot_product_attention(query, query, query, attn_mask=given), "flagged_mask")
    assert found.share == (1.0 if kind == "nothing hidden" else (KEYS + 1) / (2 * KEYS))


def test_masks_that_no_flag_replaces() -> None:
    query, _ = scores()
    causal = torch.ones(KEYS, KEYS, dtype=torch.bool).tril()
    window, bias = causal & causal.T.roll(4, 1), torch.randn(KEYS, KEYS)
    for given in (seen_keys()[:, None, None], window, bias, bias.masked_fill(~causal, float("-inf")), causal.T):
        step = partial(F.scaled_dot_product_attention, query, query, query, attn_mask=given)
        assert uses(step, "flagged_mask") == []


def test_the_same_mask_in_each_layer_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    query, _ = scores()
    given, reads = additive(float("-inf")), []
    plain = readings.hidden_keys
    monkeypatch.setattr(readings, "hidden_keys", lambda *args, **kw: reads.append(1) or plain(*args, **kw))

    def step() -> None:
        for _ in range(3):
            F.scaled_dot_product_attention(query, query, query, attn_mask=given)

    with torch.no_grad():
        found = one(step, "padding")
    assert (found.count, found.share, found.total) == (3, 12 / 32, 96)
    assert len(reads) == 1


def test_targets_that_the_loss_ignores() -> None:
    logits, target = torch.randn(8, 5), torch.tensor([1, 2, -100, 3, -100, -100, 4, 0])
    found = one(lambda: F.cross_entropy(logits, target), "padding")
    assert (found.op, found.share, found.total) == ("aten::nll_loss_forward", 3 / 8, 8)
    assert uses(lambda: F.cross_entropy(logits, target.clamp(min=0)), "padding") == []


# -- repeats and rows


def test_a_gradient_added_to_few_rows_again_and_again() -> None:
    table, few = torch.randn(100, 4, requires_grad=True), torch.arange(1000) % 4
    found = one(lambda: table[few].sum().backward(), "duplicates")
    assert (found.share, found.total) == (996 / 1000, 1000)
    assert "index_put" in found.op
    assert "test_uses.py" in (found.source or "")
    assert uses(lambda: table[torch.arange(100)].sum().backward(), "duplicates") == []


@pytest.mark.parametrize("add", ["scatter_add_", "index_add_"])
def test_places_that_are_added_to_twice(add: str) -> None:
    index, values = torch.tensor([0, 1, 1, 2, 1, 0]), torch.ones(6, 3)
    place = index[:, None].expand(6, 3) if add == "scatter_add_" else index
    found = one(lambda: getattr(torch.zeros(9, 3), add)(0, place, values), "duplicates")
    assert (found.share, found.total) == (3 / 6, 6)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_scatter_repeats_only_within_its_own_line(dim: int) -> None:
    """Against a count in plain Python."""
    torch.manual_seed(0)
    index = torch.randint(3, (4, 5))
    places = [
        tuple(index[i, j].item() if at == dim % 2 else (i, j)[at] for at in (0, 1)) for i in range(4) for j in range(5)
    ]
    assert readings.scattered(index, dim) == (20 - len(set(places)), 20)


def test_pairs_of_indices_repeat_as_pairs() -> None:
    left, right = torch.tensor([0, 0, 1, -1]), torch.tensor([0, 1, 0, 0])
    assert readings.repeats([left, right], (3, 2)) == (0, 4)
    assert readings.repeats([left, right], (2, 2)) == (1, 4)  # -1 is row 1
    assert readings.repeats([None, left], (7, 3)) == (1, 4)
    assert readings.repeats([torch.tensor([True, False])], (2,)) is None


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_a_table_that_have_a_gradient(sparse: bool) -> None:
    table, ids = nn.Embedding(2000, 4, sparse=sparse), torch.arange(60) % 20
    found = {one.op: one for one in uses(lambda: table(ids).sum().backward(), "rows")}
    assert (found["aten::embedding"].share, found["aten::embedding"].total) == (20 / 2000, 2000)
    dense = found.get("aten::embedding_dense_backward")
    assert (dense is None) == sparse
    if dense is not None:
        assert (dense.share, dense.total, dense.bytes, dense.module) == (20 / 2000, 2000, 2000 * 4 * 4, "Embedding_0")


# -- growth


def test_a_cache_grown_by_cat() -> None:
    def step() -> None:
        caches = [torch.zeros(1, 2, 4, 8) for _ in range(2)]
        for _ in range(5):
            for layer in range(2):
                caches[layer] = torch.cat((caches[layer], torch.zeros(1, 2, 1, 8)), dim=2)

    found = one(step, "cat_growth")
    # of five calls a layer, the first grows a tensor that no cat made
    assert (found.op, found.count, found.total) == ("aten::cat", 8, 9)
    lengths = (6, 7, 8, 9)
    assert found.bytes == 2 * 2 * sum(lengths) * 2 * 8 * 4
    assert found.share == pytest.approx(sum(length - 1 for length in lengths) / sum(lengths))


def test_cats_that_grow_nothing() -> None:
    def step() -> None:
        cache = torch.zeros(1, 2, 9, 8)
        for at in range(5):
            cache[:, :, at : at + 1] = 1
            torch.cat((torch.zeros(2), torch.zeros(2)))

    assert uses(step, "cat_growth") == []


# -- care


def test_what_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "MOST_READ", 4)
    monkeypatch.setattr(readings, "MOST_SORTED", 4)
    table = nn.Embedding(100, 4, padding_idx=0)
    seen = watch(lambda: table(torch.zeros(2, 8, dtype=torch.long)).sum().backward())
    assert seen.uses == ()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch's alarm for waits needs a GPU")
def test_reading_does_not_ring_torch_s_alarm_for_waits() -> None:
    table, ids = nn.Embedding(100, 4, padding_idx=0).cuda(), torch.zeros(2, 8, dtype=torch.long, device="cuda")
    set_sync_mode("error")
    try:
        seen = watch(lambda: table(ids).sum().backward())
        assert torch.cuda.get_sync_debug_mode() == 2
    finally:
        set_sync_mode("default")
    assert {one.kind for one in seen.uses} == {"padding", "rows"}


def test_what_can_not_be_read_is_counted_and_not_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: Any) -> None:
        raise RuntimeError("no values here")

    monkeypatch.setattr(readings, "kinds", unreadable)
    table, ids = torch.nn.Embedding(8, 4), torch.tensor([1, 2])
    found = watch(lambda: table(ids))
    assert found.unread == 1
    assert found.uses == ()
