"""One real step seen operation by operation: sites, phases and numbers, and a program that is as it was afterwards."""

from __future__ import annotations

import _thread
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.modules import module as hooks  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, _len_torch_dispatch_stack  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gobrrr.observe.live.ops.dispatch import DispatchedStep, GraphBook, OperationWatch, looking, watch  # noqa: E402
from gobrrr.observe.live.ops.mode import DispatchRecorder  # noqa: E402
from gobrrr.observe.live.ops.turns import LoopTurns  # noqa: E402
from gobrrr.observe.live.watches.calls import CallWatch  # noqa: E402
from gobrrr.observe.static import record  # noqa: E402
from gobrrr.observe.static.sites import Sites  # noqa: E402

pytestmark = pytest.mark.torch

HERE = Path(__file__).name


class Block(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def training(model: Any, x: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def names(seen: Any, phase: str | None = None) -> list[str]:
    return [one.call.name.removeprefix("aten::") for one in seen.calls if phase in (None, one.phase)]


def nothing_left() -> bool:
    from torch.optim import optimizer

    stages = (
        hooks._global_forward_hooks,
        hooks._global_forward_pre_hooks,
        optimizer._global_optimizer_pre_hooks,
        optimizer._global_optimizer_post_hooks,
    )
    return not any(stages) and not _len_torch_dispatch_stack()


def test_phases_and_sites_of_a_training_step() -> None:
    step = training(nn.Sequential(Block(), Block()), torch.randn(8, 16))
    seen = watch(step)
    assert seen.on_cpu
    assert names(seen, "forward").count("addmm") == 4
    assert names(seen, "backward").count("mm") == 8  # the gradients of four layers' inputs and of their weights
    assert names(seen, "optimizer") == ["_foreach_add_"]
    products = [one for one in seen.calls if one.phase == "backward" and one.call.name == "aten::mm"]
    modules = [seen.sites[one.site].modules[-2:] for one in products]
    # numbered in order of appearance, and gone through backwards
    linears = [("Block_1", "Linear_3"), ("Block_1", "Linear_2"), ("Block_0", "Linear_1"), ("Block_0", "Linear_0")]
    assert modules == [one for one in linears for _ in range(2)]
    assert {one.node for one in products} == {"AddmmBackward0"}
    assert all(HERE in (seen.sites[one.site].user or "") for one in products)


def test_the_same_calls_as_the_static_door_has() -> None:
    """But for what the CPU has kernels of its own for; a block of plain layers has none."""
    model, x = nn.Sequential(Block(), Block()), torch.randn(8, 16)
    step = training(model, x)
    step()
    live, static = watch(step), record(step)
    assert [(one.call.name, one.phase) for one in live.calls] == [(one.call.name, one.phase) for one in static.calls]
    assert [one.call for one in live.calls] == [one.call for one in static.calls]
    assert [live.sites[one.site] for one in live.calls] == [static.sites[one.site] for one in static.calls]


def test_inference_mode_takes_composite_operations_apart() -> None:
    model, x = Block(), torch.randn(8, 16)
    with torch.inference_mode():
        plain = model(x)
        with looking() as one:
            out = model(x)
    assert torch.equal(out, plain)
    assert one.seen is not None
    assert names(one.seen).count("addmm") == 2
    assert "linear" not in names(one.seen)


def test_a_checkpoint_runs_its_forward_pass_again() -> None:
    block = Block()
    x = torch.randn(8, 16, requires_grad=True)
    seen = watch(lambda: checkpoint(block, x, use_reentrant=False).sum().backward())
    again = [one.call.name for one in seen.calls if one.recomputed]
    assert again.count("aten::addmm") >= 1
    assert all(one.phase == "backward" for one in seen.calls if one.recomputed)


def test_numbers_and_random_numbers_are_those_of_a_run_that_nobody_looks_at() -> None:
    def run(look: bool) -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(100, 16, padding_idx=0), Block(), nn.Dropout(0.5))
        ids = torch.tensor([[5, 7, 0, 0], [9, 0, 0, 0]])
        step = training(model, ids)
        if look:
            watch(step)
        else:
            step()
        return [one.detach().clone() for one in model.parameters()], torch.rand(3)

    (looked, after), (plain, after_plain) = run(True), run(False)
    assert all(torch.equal(one, other) for one, other in zip(looked, plain, strict=True))
    assert torch.equal(after, after_plain)


def test_an_exception_passes_through_and_nothing_stays() -> None:
    class Mine(Exception):
        pass

    error = Mine("mine")

    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            raise error

    before, filters = torch.rand, list(warnings.filters)
    with pytest.raises(Mine) as caught:
        watch(nn.Sequential(nn.Linear(4, 4), Broken()), [torch.ones(2, 4)])
    assert caught.value is error
    assert nothing_left()
    assert torch.rand is before
    assert list(warnings.filters) == filters
    assert "replay" not in str(vars(torch.cuda.CUDAGraph)["replay"].__closure__)


def test_an_operation_in_a_thread_without_a_line_of_python_is_written_down() -> None:
    """As in the thread of autograd's own in which the backward pass of a GPU runs."""
    mode = DispatchRecorder(Sites(), turns=LoopTurns(CallWatch()))
    _thread.start_new_thread(mode.__torch_dispatch__, (torch.ops.aten.mul.Tensor, (), (torch.ones(2), 2)))
    ends = time.monotonic() + 30
    while not (mode.drafts or mode.failed) and time.monotonic() < ends:
        time.sleep(0.001)
    assert [one[0].call.name for one in mode.drafts] == ["aten::mul"]
    assert not mode.failed


def test_open_and_close_at_the_boundaries_of_a_loop() -> None:
    model, seen = nn.Linear(4, 4), None
    one = OperationWatch()
    for turn in range(3):
        if turn == 1:
            one.open()
            one.open()  # again: nothing
        if turn == 2:
            seen = one.close()
        model(torch.ones(2, 4))
    assert isinstance(seen, DispatchedStep)
    assert one.close() is seen
    assert names(seen).count("addmm") == 1
    assert one.found() == seen.recording()
    assert nothing_left()


def test_a_mode_that_the_program_puts_on_meanwhile_stays_on() -> None:
    class Counting(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            return func(*args, **(kwargs or {}))

    one, other = OperationWatch(), Counting()
    one.open()
    with other:
        torch.ones(2)
        one.close()
        assert _len_torch_dispatch_stack() == 1
        torch.ones(2)
    assert other.calls == 2
    assert nothing_left()


def test_a_compiled_module_is_run_as_it_is_written() -> None:
    compiled = torch.compile(Block(), backend="eager")
    x = torch.randn(8, 16)
    compiled(x)
    filters = list(warnings.filters)
    seen = watch(compiled, [x])
    assert seen.compiled
    assert names(seen).count("addmm") == 2
    assert any("Linear" in seen.sites[one.site].modules[-1] for one in seen.calls)
    assert list(warnings.filters) == filters
    from torch._dynamo import eval_frame

    assert eval_frame._stance.stance == "default"


def test_what_a_subclass_does_to_its_own_tensors_is_seen() -> None:
    class Wrapped(torch.Tensor):
        """A tensor in two halves, as a DTensor is in shards."""

        halves: list[Any]

        @staticmethod
        def __new__(cls, halves: list[Any]) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, (2 * halves[0].shape[0], *halves[0].shape[1:]))
            made.halves = halves
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return Wrapped([func(half, *args[1:]) for half in args[0].halves])

    both = Wrapped([torch.ones(4, 8), torch.ones(4, 8)])
    with torch.no_grad():
        seen = watch(lambda: torch.mm(both, torch.ones(8, 8)))
    products = [one.call for one in seen.calls if one.call.name == "aten::mm"]
    assert [one.inputs[0].shape for one in products] == [(4, 8), (4, 8)]


def test_operators_on_functions_run() -> None:
    from torch._higher_order_ops.out_dtype import out_dtype

    left = torch.ones(4, 4, dtype=torch.int8)
    found = []
    seen = watch(lambda: found.append(out_dtype(torch.ops.aten.mm.default, torch.int32, left, left)))
    assert torch.equal(found[0], torch.full((4, 4), 4, dtype=torch.int32))
    assert any("out_dtype" in name or name == "mm" for name in names(seen))


# -- CUDA graphs


class FakeGraph:
    """What torch.cuda.CUDAGraph looks like from outside; a replay dispatches nothing."""

    def __init__(self) -> None:
        self.replays = 0

    def capture_begin(self, pool: Any = None) -> str:
        return "begun"

    def capture_end(self) -> str:
        return "ended"

    def replay(self) -> str:
        self.replays += 1
        return "replayed"


def captured(book_open: bool = True) -> tuple[GraphBook, FakeGraph, Any]:
    book, model, x = GraphBook(FakeGraph), Block(), torch.randn(8, 16)
    if book_open:
        book.open()
    graph = FakeGraph()
    assert graph.capture_begin(pool=1) == "begun"
    with torch.no_grad():
        model(x)
    assert graph.capture_end() == "ended"
    return book, graph, lambda: model(x)


def test_a_replay_is_priced_by_its_capture() -> None:
    book, graph, eager = captured()
    with torch.no_grad():
        plain = watch(eager)
    with looking(book) as one:
        assert graph.replay() == "replayed"
        graph.replay()
    book.close()
    assert one.seen is not None
    assert (one.seen.replays, one.seen.unseen_replays, graph.replays) == (2, 0, 2)
    assert [call.call for call in one.seen.calls] == [call.call for call in plain.calls] * 2
    assert one.seen.sites[one.seen.calls[0].site].modules == ("Block_0", "LayerNorm_0")
    assert one.seen.whole
    assert nothing_left()


def test_a_replay_of_a_graph_that_was_captured_unseen_is_said_to_be_missing() -> None:
    book, graph, _ = captured(book_open=False)
    with looking(book) as one:
        graph.replay()
    assert one.seen is not None
    assert (one.seen.replays, one.seen.unseen_replays, one.seen.calls) == (0, 1, ())
    assert not one.seen.whole
    assert "whose capture was not seen" in one.seen.recording().notes[0]


def test_what_is_captured_within_the_step_did_not_run_in_it() -> None:
    book, model, x = GraphBook(FakeGraph), Block(), torch.randn(8, 16)
    graph = FakeGraph()
    book.open()
    with torch.no_grad(), looking(book) as one:
        graph.capture_begin()
        model(x)
        graph.capture_end()
        graph.replay()
    book.close()
    assert one.seen is not None
    assert names(one.seen).count("addmm") == 2


def test_the_book_leaves_the_class_as_it_was() -> None:
    plain = dict(vars(FakeGraph))
    book, graph, _ = captured()
    assert vars(FakeGraph)["replay"] is not plain["replay"]
    held = graph.replay
    book.close()
    assert dict(vars(FakeGraph)) == plain
    assert held() == "replayed"
    book.close()


def test_a_capture_that_fails_leaves_nothing_behind() -> None:
    book = GraphBook(FakeGraph)
    book.open()
    graph = FakeGraph()
    graph.capture_begin()
    book.close()
    assert nothing_left()
    assert book.of(graph) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")
def test_a_cuda_graph_of_a_training_step() -> None:
    book = GraphBook()
    book.open()
    try:
        model, x = Block().cuda(), torch.randn(8, 16, device="cuda")

        def step() -> None:
            model(x).square().mean().backward()

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.synchronize()
        model.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graph.replay()
        gradient = model.up.weight.grad.clone()
        with looking(book) as one:
            graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(model.up.weight.grad, gradient)
        model.zero_grad(set_to_none=True)
        plain = watch(step)
        assert one.seen is not None
        assert one.seen.whole
        assert [call.call.name for call in one.seen.calls] == [call.call.name for call in plain.calls]
        assert [call.phase for call in one.seen.calls] == [call.phase for call in plain.calls]
        found = [call for call in one.seen.calls if call.phase == "backward" and call.call.name == "aten::mm"]
        assert all("Linear" in one.seen.sites[call.site].modules[-1] for call in found)
    finally:
        book.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="waits need a GPU")
def test_waits_and_copies_on_a_gpu() -> None:
    model, x = Block().cuda(), torch.randn(8, 16)
    seen = watch(lambda: model(x.to("cuda")).sum().item())
    assert not seen.on_cpu
    assert [one.host_copy for one in seen.calls if one.host_copy] == ["HtoD"]
    assert [one.call.name for one in seen.calls if one.waits][-1] == "aten::_local_scalar_dense"
    assert all(one.place == "device" for one in seen.calls if one.call.name == "aten::addmm")


def test_a_module_is_where_the_program_says() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
            self.act = torch.nn.GELU()

        def forward(self, x: Any) -> Any:
            for one in self.layers:
                x = self.act(one(x))
            return x

    model, x = torch.nn.Sequential(Block(), Block()), torch.randn(2, 4)
    found = watch(lambda: model(x).sum().backward())
    paths = {found.sites[one.site].path for one in found.calls if one.call.name == "aten::addmm"}
    assert paths == {f"Sequential.{block}.layers.{layer}" for block in range(2) for layer in range(2)}
    backward = {found.sites[one.site].path for one in found.calls if one.call.name == "aten::gelu_backward"}
    assert backward == {"Sequential.0.act", "Sequential.1.act"}


def test_the_type_of_autocast_is_seen() -> None:
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    assert watch(lambda: model(x)).autocast is None

    def under() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            model(x)

    assert watch(under).autocast == "bfloat16"
