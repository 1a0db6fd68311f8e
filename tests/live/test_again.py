"""Work that was done before, as two looks see it: each kind sick, and what looks like it and is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gobrrr.model.recording import RepeatedWork  # noqa: E402
from gobrrr.observe.live.again.leaves import MOST_READ_BYTES  # noqa: E402
from gobrrr.observe.live.ops.dispatch import watch  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, LENGTH = 16, 8
Step = Callable[[], Any]


@pytest.fixture(autouse=True)
def strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBRRR_STRICT", "1")


def again(step: Step) -> tuple[RepeatedWork, ...]:
    step()  # optimizers have their state, parameters their gradients
    seen = watch(step, twice=True)
    assert seen.again is not None
    return seen.again


def lines_of(step: Step) -> set[tuple[str, str, str | None]]:
    return {(one.kind, one.of, one.op) for one in again(step)}


def batches() -> Iterator[Any]:
    made = torch.Generator().manual_seed(0)
    while True:
        yield torch.randn(2, LENGTH, WIDTH, generator=made)


def inferring(model: Any, given: Any = None) -> Step:
    data = batches()

    def step() -> Any:
        with torch.no_grad():
            return model(next(data) if given is None else given)

    return step


def training(model: Any, extra: Callable[[], Any] = lambda: 0.0, given: Any = None) -> Step:
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-3)
    data = batches()

    def step() -> None:
        optimizer.zero_grad()
        loss = model(next(data) if given is None else given).pow(2).mean() + extra()
        loss.backward()
        optimizer.step()

    return step


class Masked(nn.Module):
    """Scores with a causal mask that is made by `make` in each call, or once."""

    def __init__(self, make: Callable[[], Any], kept: bool) -> None:
        super().__init__()
        self.own, self.make, self.kept = nn.Linear(WIDTH, WIDTH), make, kept
        self.register_buffer("mask", make(), persistent=False)

    def forward(self, x: Any) -> Any:
        x = self.own(x)
        scores = x @ x.transpose(-1, -2) + (self.mask if self.kept else self.make())
        return scores.softmax(-1) @ x


def by_triu() -> Any:
    return torch.full((LENGTH, LENGTH), float("-inf")).triu(1)


def in_place() -> Any:
    mask = torch.zeros(LENGTH, LENGTH)
    return mask.masked_fill_(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu_(1), -1e9)


@pytest.mark.parametrize("run", [inferring, training])
@pytest.mark.parametrize(("make", "op"), [(by_triu, "aten::triu"), (in_place, "aten::masked_fill_")])
def test_a_mask_that_each_layer_makes(run: Any, make: Any, op: str) -> None:
    (found,) = again(run(nn.Sequential(Masked(make, False), Masked(make, False))))
    assert (found.kind, found.of, found.op, found.times) == ("steps", "numbers", op, 2)
    assert "test_again.py" in (found.source or "")
    assert found.module == "Masked"
    assert again(run(nn.Sequential(Masked(make, True), Masked(make, True)))) == ()


def test_the_norm_of_a_constant_matrix() -> None:
    class Retrieval(nn.Module):
        def __init__(self, kept: bool) -> None:
            super().__init__()
            self.own, self.kept = nn.Linear(WIDTH, WIDTH), kept
            self.register_buffer("table", torch.randn(50, WIDTH))
            self.unit = F.normalize(self.table)

        def forward(self, x: Any) -> Any:
            return self.own(x) @ (self.unit if self.kept else F.normalize(self.table)).T

    (found,) = again(training(Retrieval(False)))
    assert (found.kind, found.of, found.op) == ("steps", "weights", "aten::div")
    assert again(training(Retrieval(True))) == ()


def test_statistics_of_the_whole_data_set() -> None:
    data = torch.randn(500, WIDTH)
    mean, deviation = data.mean(0), data.std(0)
    model = nn.Linear(WIDTH, 4)

    def run(kept: bool) -> Step:
        def step() -> None:
            x = data[torch.randint(len(data), (8,))]
            m, s = (mean, deviation) if kept else (data.mean(0), data.std(0))
            model((x - m) / s).sum().backward()

        return step

    (found,) = again(run(False))
    assert (found.kind, found.of, len(found.calls)) == ("steps", "tensors", 2)
    assert again(run(True)) == ()


def test_a_weight_that_is_put_together_in_each_call_of_an_inference() -> None:
    model = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
    (found,) = again(inferring(model, torch.randn(2, WIDTH)))
    assert (found.kind, found.of, found.whole, found.module) == ("steps", "weights", True, "ParametrizationList")
    assert again(training(model, given=torch.randn(2, WIDTH))) == ()  # it learns
    parametrize.remove_parametrizations(model, "weight")
    assert again(inferring(model, torch.randn(2, WIDTH))) == ()


def test_a_penalty_over_weights_that_do_not_learn() -> None:
    base, head = nn.Linear(WIDTH, WIDTH).requires_grad_(False), nn.Linear(WIDTH, 4)
    model = nn.Sequential(base, head)
    assert {kind for kind, *_ in lines_of(training(model, lambda: base.weight.pow(2).sum()))} == {"steps"}
    assert again(training(model, lambda: head.weight.pow(2).sum())) == ()


def test_a_prompt_that_every_turn_encodes() -> None:
    encoder = nn.Sequential(nn.Embedding(50, WIDTH), nn.Linear(WIDTH, WIDTH))
    denoiser, ids = nn.Linear(2 * WIDTH, WIDTH), torch.randint(50, (1, 4))

    def run(kept: bool) -> Step:
        def step() -> None:
            with torch.no_grad():
                x, once = torch.randn(1, WIDTH), encoder(ids)
                for _ in range(5):
                    x = x - denoiser(torch.cat([x, (once if kept else encoder(ids))[:, 0]], -1))

        return step

    (found,) = again(run(False))
    assert (found.kind, found.whole, found.module, found.times) == ("turns", True, "Sequential", 6)
    assert len(found.calls) == 5 * 2  # an embedding and a product, in each turn
    assert again(run(True)) == ()


def test_a_constant_is_known_as_such_where_the_data_are_others() -> None:
    adjacency = torch.rand(LENGTH, LENGTH)
    model = nn.Linear(WIDTH, WIDTH)
    rows = [np.random.default_rng(at).normal(size=(LENGTH, WIDTH)).astype(np.float32) for at in range(4)]
    turn = iter(rows)

    def step(data: Any = None) -> None:
        x = torch.from_numpy(next(turn)) if data is None else data
        scale = adjacency.sum(1).rsqrt()
        (scale[:, None] * adjacency * scale @ model(x)).sum().backward()

    assert lines_of(step) == {("steps", "tensors", "aten::sum"), ("steps", "tensors", "aten::mul")}
    x = torch.randn(LENGTH, WIDTH)
    assert again(lambda: step(x)) == ()  # for all that is known, it is this step's data as well


class Turns:
    """Decoding, with modules whose rows do or do not depend on later ones."""

    def __init__(self, causal: bool) -> None:
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True).eval()
        self.causal, self.prompt = causal, torch.randn(1, LENGTH, WIDTH)

    def all_rows(self) -> None:
        with torch.no_grad():
            rows = self.prompt
            for _ in range(4):
                size = rows.shape[1]
                mask = torch.ones(size, size, dtype=torch.bool).triu(1) if self.causal else None
                rows = torch.cat([rows, self.layer(rows, src_mask=mask)[:, -1:]], 1)

    def new_row(self) -> None:
        with torch.no_grad():
            rows = self.prompt
            for _ in range(4):
                rows = self.layer(rows[:, -1:])


def rows_of(step: Step) -> list[RepeatedWork]:
    return [one for one in again(step) if one.kind == "rows"]


def test_rows_that_every_turn_computes_again() -> None:
    (found,) = rows_of(Turns(causal=True).all_rows)
    assert found.module == "TransformerEncoderLayer"
    assert found.times == 3
    assert (found.rows[0], found.rows[-1]) == ((LENGTH, LENGTH + 1), (LENGTH + 2, LENGTH + 3))


def test_rows_that_later_rows_have_a_part_in_are_not_the_same() -> None:
    assert rows_of(Turns(causal=False).all_rows) == []
    assert rows_of(Turns(causal=True).new_row) == []


def test_longer_sequences_of_other_data_are_no_prefix() -> None:
    model, lengths = nn.Linear(WIDTH, WIDTH), (4, 6, 9)
    assert again(lambda: [model(torch.randn(1, length, WIDTH)).sum().backward() for length in lengths]) == ()


def test_a_constant_is_known_as_such_where_the_data_are_made_at_random() -> None:
    anchors, model = torch.randn(20, WIDTH), nn.Linear(WIDTH, WIDTH)
    x = torch.randn(2, LENGTH, WIDTH)

    def step(of_batch: Any) -> None:
        (model(x * 0.5 + torch.randn(2, LENGTH, WIDTH)) @ F.normalize(of_batch).sum(0)).sum().backward()

    assert {one.of for one in again(lambda: step(anchors))} == {"tensors"}
    assert again(lambda: step(x[0])) == ()  # the batch, with noise on it


# -- what stays silent


def silent() -> Iterator[tuple[str, Step]]:
    x, y = torch.randn(2, LENGTH, WIDTH), torch.randint(4, (2, LENGTH))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(LENGTH), nn.Dropout(0.1), nn.Linear(WIDTH, 4))
    yield "training on one batch", training(model, given=x)
    yield "inference on one batch", inferring(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)), x)
    head = nn.Linear(WIDTH, 4)

    def prepared() -> None:
        targets = F.one_hot(y, 4).float()
        F.mse_loss(head((x - x.mean()) / x.std()), targets).backward()

    yield "a batch that each step prepares", prepared
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(2))

    def checkpointed() -> None:
        rows = x
        for block in blocks:
            rows = checkpoint(block, rows, use_reentrant=False)
        rows.sum().backward()
        for one in blocks.parameters():
            one.data.sub_(1e-3 * one.grad)

    yield "checkpoints", checkpointed
    cell = nn.GRUCell(WIDTH, WIDTH)

    def recurrent() -> None:
        with torch.no_grad():
            state = torch.zeros(2, WIDTH)
            for at in range(LENGTH):
                state = cell(x[:, at], state)

    yield "a recurrence from zeros", recurrent
    memory = np.zeros((2, WIDTH), np.float32)
    shared, rng = torch.from_numpy(memory), np.random.default_rng(0)

    def written_elsewhere() -> None:
        memory[:] = rng.normal(size=memory.shape)
        with torch.no_grad():
            head((shared - shared.mean()) / shared.std())

    yield "a tensor whose memory numpy writes", written_elsewhere
    large = torch.zeros(MOST_READ_BYTES, WIDTH)

    def written_here() -> None:
        large[torch.randint(len(large), (4,))] += 1.0
        head(large.mean(0))

    yield "a tensor that the step writes", written_here

    def dropped() -> None:
        with torch.no_grad():
            kept = F.dropout(head.weight, 0.5)
            (F.dropout(head.weight, 0.5) + kept) @ torch.randn(WIDTH)

    yield "random numbers", dropped
    cache = torch.zeros(LENGTH, WIDTH)

    def buffered() -> None:
        with torch.no_grad():
            cache.zero_()
            cache[:4] = torch.randn(4, WIDTH)
            head(cache)

    yield "a buffer that is emptied and filled", buffered
    yield "everything the same on purpose", lambda: x @ x.transpose(1, 2)


@pytest.mark.parametrize("name", [name for name, _ in silent()])
def test_what_is_not_the_same_work_stays_silent(name: str) -> None:
    """The steps are made here: an optimizer that a list of cases held would live in all other tests, too."""
    assert again(dict(silent())[name]) == ()


def test_one_dimension_and_the_one_before_it_are_two_sums() -> None:
    """hash(-1) is hash(-2) in Python."""
    square = nn.Parameter(torch.randn(3, 3), requires_grad=False)
    seen = watch(lambda: square.sum(-1) @ torch.randn(3) + square.sum(-2) @ torch.randn(3), twice=True)
    assert {one.kind for one in seen.again or ()} == {"steps"}


def test_one_look_knows_what_a_step_does_twice_and_nothing_of_other_steps() -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(2, WIDTH)
    seen = watch(lambda: (model(x) + torch.randn(2, WIDTH)) @ model(x).T)
    assert [one.kind for one in seen.again or ()] == ["turns"]


class Plain:
    """Decoding without a module: functions over a dict of weights."""

    def __init__(self, causal: bool) -> None:
        self.causal, self.prompt = causal, torch.randn(1, LENGTH, WIDTH)
        self.weight = torch.randn(WIDTH, WIDTH) / WIDTH**0.5

    def layer(self, rows: Any) -> Any:
        mixed = torch.nn.functional.scaled_dot_product_attention(rows, rows, rows, is_causal=self.causal)
        return torch.tanh((rows + mixed) @ self.weight)

    def all_rows(self) -> None:
        rows = self.prompt
        for _ in range(4):
            rows = torch.cat([rows, self.layer(rows)[:, -1:]], 1)

    def new_row(self) -> None:
        rows, kept = self.prompt, self.prompt
        for _ in range(4):
            new = torch.tanh(scaled(kept)[:, -1:] @ self.weight)
            kept, rows = torch.cat([kept, new], 1), torch.cat([rows, new], 1)


def scaled(rows: Any) -> Any:
    return rows * 0.5


def test_rows_that_a_plain_function_computes_again() -> None:
    plain = Plain(causal=True)
    (found,) = rows_of(plain.all_rows)
    assert (found.module, found.op, found.times) == (None, "layer()", 3)
    line = plain.all_rows.__code__.co_firstlineno + 3
    assert found.source == f"{__file__}({line}): all_rows"
    assert (found.rows[0], found.rows[-1]) == ((LENGTH, LENGTH + 1), (LENGTH + 2, LENGTH + 3))


def test_a_function_whose_rows_depend_on_later_ones_or_that_lays_out_a_cache_is_none() -> None:
    assert rows_of(Plain(causal=False).all_rows) == []
    turns, plain = Turns(causal=False), Plain(causal=True)

    def mixed() -> None:
        turns.all_rows()  # a module whose rows differ
        plain.all_rows()

    assert rows_of(mixed) == []
    assert rows_of(Plain(causal=True).new_row) == []
