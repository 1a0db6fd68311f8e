"""Loops of the program as one step goes through them: their lines, their turns, and what those need of each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gobrrr.model.recording import RecordedLoop  # noqa: E402
from gobrrr.observe.live.ops.dispatch import watch  # noqa: E402
from gobrrr.observe.live.ops.flow import Region, overlap  # noqa: E402
from gobrrr.observe.live.ops.turns import _spans_of  # noqa: E402

pytestmark = pytest.mark.torch

WEIGHTS = [torch.randn(8, 8) for _ in range(6)]
ROWS = torch.randn(20, 8)
LINEAR, CELL, TABLE = nn.Linear(8, 8), nn.RNNCell(8, 8), nn.Embedding(16, 8)


def loops(step: Callable[[], Any]) -> list[RecordedLoop]:
    found = watch(step).loops
    assert found is not None
    return list(found)


def heads() -> None:
    """A comprehension."""
    torch.stack([torch.softmax(ROWS @ one, -1) for one in WEIGHTS])


def weighted() -> None:
    """Rows with the weights of one layer."""
    torch.stack([ROWS[at] @ WEIGHTS[0] for at in range(20)])


def generated() -> None:
    """A generator expression that is summed."""
    sum((ROWS @ one).sum() for one in WEIGHTS)


def rows_in_place() -> None:
    """Each turn writes a row of its own."""
    out = torch.zeros(20, 8)
    for at in range(20):
        out[at] = torch.relu(ROWS[at] * 2)


def columns_in_place() -> None:
    """Interleaved in memory, and apart."""
    out = ROWS.clone()
    for at in range(8):
        out[:, at] = torch.relu(out[:, at] * 2)


def scan() -> None:
    """Each turn reads the row before."""
    out = torch.zeros(20, 8)
    for at in range(1, 20):
        out[at] = out[at - 1] * 0.9 + ROWS[at]


def summed_losses() -> None:
    """A loss added up over samples."""
    total: Any = 0.0
    for one in ROWS:
        total = total + LINEAR(one).square().mean()
    total.backward()
    LINEAR.zero_grad()


def experts() -> None:
    """Rows that are taken out, and put back with something added."""
    chosen, out = torch.arange(20) % 6, torch.zeros(20, 8)
    for at, one in enumerate(WEIGHTS):
        mine = chosen == at
        out[mine] += ROWS[mine] @ one


def layers() -> None:
    """Each turn has a weight of its own."""
    hidden = ROWS
    for one in WEIGHTS:
        hidden = torch.tanh(hidden @ one)


def timesteps() -> None:
    """A recurrence."""
    hidden = torch.zeros(2, 8)
    for at in range(10):
        hidden = CELL(ROWS[at : at + 2], hidden)


def until_small() -> None:
    """A while loop, whose condition reads a number."""
    size, hidden = 1.0, ROWS
    while size > 1e-2:
        hidden = hidden * 0.5
        size = hidden.abs().max().item()


def residual() -> None:
    """What is added to is read as well."""
    hidden = ROWS
    for _ in range(6):
        hidden = hidden + torch.tanh(hidden @ WEIGHTS[0])


def decoding() -> None:
    """The next token goes through the program's own numbers."""
    token = 3
    with torch.no_grad():
        for _ in range(8):
            token = int((TABLE(torch.tensor([token])) @ WEIGHTS[0] @ ROWS[:16].T).argmax())


def norms() -> float:
    """A number is read in each turn, and comes back in none."""
    return float(sum(one.norm().item() ** 2 for one in WEIGHTS))


def counted_classes() -> list[int]:
    """The number of the turn is no number that was read."""
    return [int((ROWS.gt(at) & ROWS.ne(at)).sum()) for at in range(6)]


def listed_tokens() -> None:
    """The next token comes back through a list: reading it dispatches nothing on a CPU."""
    token = [3]
    with torch.no_grad():
        for _ in range(8):
            token = (TABLE(torch.tensor(token)) @ WEIGHTS[0] @ ROWS[:16].T).argmax(1).tolist()


def indexed_by_list() -> None:
    """The same through an index."""
    token = [3]
    for _ in range(8):
        token = (TABLE.weight.detach()[token] @ WEIGHTS[0] @ ROWS[:16].T).argmax(1).tolist()


def through_numpy() -> None:
    """And through an array."""
    hidden = ROWS.numpy()
    for _ in range(6):
        hidden = np.asarray(torch.tanh(torch.from_numpy(hidden) @ WEIGHTS[0]))


def written_by_numpy() -> None:
    """The memory of a tensor is the array's: what is written there is read in the next turn."""
    state = torch.zeros(8)
    for at in range(6):
        out = torch.tanh(state + ROWS[at])
        state.numpy()[:] = out.numpy()


def scalars_written_back() -> None:
    """A number that decides what is computed next."""
    scale = 2.0
    for at in range(6):
        scale = max((ROWS[at] * scale).tolist())


def kernels() -> None:
    """What a kernel of the program's own reads and writes is not known."""
    for one in WEIGHTS:
        run(torch.empty_like(one), one)


launcher: dict[str, Any] = {}
exec(compile("def run(*tensors): pass", os.path.join("triton", "runtime", "jit.py"), "exec"), launcher)
run = launcher["run"]


def collected() -> list[Any]:
    """Results that leave as lists, and come back in no turn."""
    return [torch.relu(ROWS @ one).sum(0).tolist() for one in WEIGHTS]


def arrays() -> list[Any]:
    """Results that leave as arrays."""
    return [torch.relu(ROWS @ one).numpy() for one in WEIGHTS]


def grown() -> None:
    """Results that are put behind the earlier ones."""
    out = ROWS[:0]
    for row in ROWS:
        out = torch.cat([out, torch.tanh(row[None] * 2)])


def largest() -> None:
    """A running maximum, which any order gives."""
    best = torch.full((8,), -1.0)
    for row in ROWS:
        best = torch.maximum(best, row.abs())


def normalised() -> None:
    """Sinkhorn's iteration."""
    plan = torch.exp(ROWS)
    for _ in range(6):
        plan = plan / plan.sum(0)
        plan = plan / plan.sum(1, keepdim=True)


def two_buffers() -> None:
    """Ping-pong: each turn writes where the next one reads."""
    one, other = ROWS.clone(), torch.empty_like(ROWS)
    for _ in range(6):
        torch.tanh(one, out=other)
        one, other = other, one


def cached() -> None:
    """Keys that earlier turns have put into a cache."""
    keys = torch.zeros(20, 8)
    for at in range(20):
        keys[at] = ROWS[at] * 2
        torch.softmax(keys[: at + 1] @ ROWS[at], 0)


def averaged() -> None:
    """An average out of place."""
    [mean * 0.9 + one * 0.1 for mean, one in zip(WEIGHTS, WEIGHTS[::-1], strict=True)]


def by_sample() -> None:
    """A gradient for each sample."""
    [torch.autograd.grad(LINEAR(row).square().sum(), LINEAR.weight) for row in ROWS]


def power() -> None:
    """A vector that is normalised in place."""
    vector = ROWS[0].clone()
    for _ in range(6):
        vector.copy_(WEIGHTS[0] @ vector)
        vector.div_(vector.norm())


@pytest.mark.parametrize(
    ("step", "turns", "depends"),
    [
        (heads, 6, "no"), (generated, 6, "sum"), (rows_in_place, 20, "no"), (columns_in_place, 8, "no"),
        (scan, 19, "yes"), (summed_losses, 20, "sum"), (experts, 6, "sum"), (layers, 6, "layers"),
        (timesteps, 10, "yes"), (residual, 6, "yes"), (decoding, 8, "unknown"), (norms, 6, "no"),
        (counted_classes, 6, "no"), (listed_tokens, 8, "unknown"), (indexed_by_list, 8, "unknown"),
        (through_numpy, 6, "unknown"), (written_by_numpy, 6, "unknown"), (scalars_written_back, 6, "unknown"),
        (kernels, 6, "unknown"), (collected, 6, "no"), (arrays, 6, "no"),
        (grown, 20, "sum"), (largest, 20, "sum"), (normalised, 6, "yes"), (two_buffers, 6, "yes"), (cached, 20, "yes"),
        (averaged, 6, "no"), (by_sample, 20, "no"), (power, 6, "yes"),
    ],
)  # fmt: skip
def test_a_loop_is_known_by_its_turns_and_what_they_need(step: Callable[[], Any], turns: int, depends: str) -> None:
    (one,) = loops(step)
    assert (len(one.turns) - 1, one.depends) == (turns, depends)


def test_reads_that_dispatch_nothing_are_counted() -> None:
    assert loops(norms)[0].reads == 6
    assert loops(collected)[0].reads == 5  # the last may be behind the loop


def test_what_turns_read_again_is_counted() -> None:
    """The weights in 19 of 20 turns; the rows are each turn's own."""
    (found,) = loops(weighted)
    assert found.again_bytes == 19 * 8 * 8 * 4
    (own,) = loops(rows_in_place)
    assert own.again_bytes == 0


def test_a_loop_has_the_line_that_it_begins_at() -> None:
    line = scan.__code__.co_firstlineno + 3
    assert loops(scan)[0].source.endswith(f"test_host_loops.py({line}): scan")


def test_a_while_loop_needs_what_it_reads() -> None:
    (one,) = loops(until_small)
    assert one.depends == "yes"


def test_what_carries_a_recurrence_is_told_with_the_module_that_it_is_in() -> None:
    (one,) = loops(timesteps)
    assert one.within == "RNNCell"
    (one,) = loops(residual)
    assert (one.carried, one.within) == ("aten::mm", "")


def by_hand() -> None:
    """A recurrence whose input's product needs no other turn; with a bias, so that it is an addmm."""
    hidden = torch.zeros(2, 8)
    for at in range(10):
        hidden = torch.tanh(LINEAR(ROWS[at : at + 2]) + hidden @ WEIGHTS[0])


def fed_back() -> None:
    """A decoder: what a turn is given was made by the one before."""
    hidden = torch.zeros(2, 8)
    ids = torch.zeros(2, dtype=torch.int64)
    for _ in range(10):
        hidden = torch.tanh(LINEAR(TABLE(ids)) + hidden @ WEIGHTS[0])
        ids = hidden.argmax(-1)


def own_weights() -> None:
    """A weight for each turn, which no single product can have."""
    hidden = torch.zeros(2, 8)
    for weight in WEIGHTS:
        hidden = torch.tanh(ROWS[:2].clone() @ weight + hidden @ WEIGHTS[0])


def grown() -> None:
    """What a turn is given was put together from earlier ones."""
    rows = ROWS[:2]
    for _ in range(6):
        rows = torch.cat((rows, torch.tanh(LINEAR(rows[-2:]))))


@pytest.mark.parametrize(("step", "name"), [(by_hand, "aten::addmm"), (fed_back, ""), (own_weights, ""), (grown, "")])
def test_the_products_of_a_recurrence_that_need_no_other_turn(step: Callable[[], None], name: str) -> None:
    seen = watch(step)
    assert seen.loops is not None
    (one,) = seen.loops
    assert {seen.calls[at].call.name for at in one.free} == ({name} if name else set())
    assert len(one.free) == (len(one.turns) - 1 if name else 0)


def test_loops_within_each_other_are_told_apart() -> None:
    def step() -> None:
        for row in ROWS[:5]:
            hidden = row * 2
            for _ in range(7):
                hidden = torch.tanh(hidden @ WEIGHTS[0])

    outer, *inner = loops(step)
    assert (len(outer.turns) - 1, outer.depends) == (5, "no")
    assert [(len(one.turns) - 1, one.depends) for one in inner] == [(7, "yes")] * 5


def pairs() -> None:
    """Nothing is dispatched between the outer loop's turns."""
    out = torch.zeros(5, 6)
    for i in range(5):
        for j in range(6):
            out[i, j] = ROWS[i].sum() - ROWS[j].sum()


def one_instruction() -> None:
    """The same, with one instruction in all turns of both."""
    for one in WEIGHTS[:5]:
        for row in ROWS[:6].unbind():
            torch.dot(one[0], row)


def flattened() -> None:
    """Two loops of one comprehension."""
    torch.stack([torch.dot(one[0], row) for one in WEIGHTS[:5] for row in ROWS[:6].unbind()])


def counted() -> None:
    """Loops that count by themselves."""
    one = 0
    while one < 5:
        row = 0
        while row < 6:
            torch.dot(ROWS[one], ROWS[row])
            row += 1
        one += 1


def popped() -> None:
    """A loop that takes from a list as long as there is something."""
    waiting = [4, 3, 2, 1, 5]
    while one := waiting.pop() if waiting else None:
        for row in range(6):
            torch.dot(ROWS[one], ROWS[row])


def counted_early() -> None:
    """The outer one's counter changes in the middle of a turn: it tells not where a turn begins."""
    one = 0
    while one < 5:
        one += 1
        for row in range(6):
            torch.dot(ROWS[one], ROWS[row])


def stepped() -> None:
    """The outer one counts by itself: between its turns nothing is known, and its variable is changed within them."""
    for one in range(5):
        for row in range(6):
            one = one + row
            torch.dot(ROWS[one], ROWS[row])


@pytest.mark.parametrize("step", [pairs, one_instruction, flattened, counted, popped], ids=lambda one: one.__name__)
def test_loops_without_an_operation_between_them_are_told_apart(step: Callable[[], None]) -> None:
    """Each turn of the outer one has a loop of six turns in it."""
    counts = sorted(len(one.turns) - 1 for one in loops(step))
    assert counts == [5, 6, 6, 6, 6, 6]


@pytest.mark.parametrize("step", [stepped, counted_early], ids=lambda one: one.__name__)
def test_a_counter_that_the_turns_change_tells_nothing(step: Callable[[], None]) -> None:
    assert [len(one.turns) - 1 for one in loops(step)] == [30]


def test_what_handles_an_exception_is_no_loop() -> None:
    """Some versions of Python jump back from it to what follows."""

    def guarded(rows: Any, context: Any) -> None:
        with context:
            rows.sum()
        for row in rows:
            with context, context:
                row.sum()
            try:
                row.mean()
            except ValueError:
                row.max()
            row.min()

    async def waits(rows: Any) -> None:
        for row in rows:
            await row
            row.sum()

    first = guarded.__code__.co_firstlineno
    assert [(one.line - first, one.counter) for one in _spans_of(guarded.__code__)] == [(3, "")]
    assert len(_spans_of(waits.__code__)) == 1


def test_an_operator_that_dispatches_the_same_twice_is_one_turn() -> None:
    def step() -> None:
        for at in range(5):
            ROWS[at, 0] + ROWS[at, 1]

    (one,) = loops(step)
    assert len(one.turns) - 1 == 5


def test_loops_of_torch_are_none_of_the_program_s() -> None:
    gru = nn.GRU(8, 8)

    def step() -> None:
        gru(ROWS[:6, None])
        nn.Sequential(*[LINEAR] * 6)(ROWS)

    assert loops(step) == []


def test_what_listens_to_calls_keeps_its_place() -> None:
    """A profile function of the program's stays: then the loops are not known."""
    import sys

    def listening(*_: Any) -> None: ...

    sys.setprofile(listening)
    try:
        assert watch(heads).loops is None
        assert sys.getprofile() is listening
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (ROWS[0], ROWS[1], False), (ROWS[:, 0], ROWS[:, 1], False), (ROWS[:, :4], ROWS[:, 3], True),
        (ROWS[:, :4], ROWS[:, 4], False), (ROWS[::2], ROWS[1::2], False), (ROWS[2:6], ROWS[5], True),
        (ROWS[:4, :4], ROWS[3:, 3:], True), (ROWS[:4, :4], ROWS[4:, 4:], False), (ROWS.t()[0], ROWS[0], True),
        (ROWS[0, 0], ROWS[0, 0], True), (ROWS[0, 0], ROWS[0, 1], False),
    ],
)  # fmt: skip
def test_regions_share_what_their_indices_do(one: Any, other: Any, shared: bool) -> None:
    def region(tensor: Any) -> Region:
        dims = tuple(
            sorted(((step * 4, size) for step, size in zip(tensor.stride(), tensor.shape, strict=True)), reverse=True)
        )
        first = tensor.storage_offset() * 4
        return Region(0, first, first + 4 + sum(step * (size - 1) for step, size in dims), 4, dims)

    def elements(tensor: Any) -> set[int]:
        places = torch.arange(ROWS.numel()).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return set(places.flatten().tolist())

    assert bool(elements(one) & elements(other)) is shared
    assert overlap(region(one), region(other)) is overlap(region(other), region(one)) is shared
