"""What a recording says of a training step: memory against sizes by hand, phases, sites, optimizers, recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from gobrrr.cost import price  # noqa: E402
from gobrrr.model.recording import RecordedCall, Recording  # noqa: E402
from gobrrr.model.workload import Workload  # noqa: E402
from gobrrr.observe.static import record  # noqa: E402

pytestmark = pytest.mark.torch

HERE = Path(__file__).name
BATCH, WIDTH, HIDDEN = 64, 256, 512
WEIGHTS = WIDTH * HIDDEN + HIDDEN + HIDDEN * WIDTH + WIDTH
LEAST = 512
"""What the caching allocator gives for one number."""


def network(dtype: Any = torch.float32) -> Any:
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH)).to("cuda", dtype)


def made(make: Callable[[], Callable[[], Any]]) -> Recording:
    """The step that `make` returns, recorded without its making."""
    return record(lambda: Workload(step=make()))


def of(recording: Recording, phase: str) -> list[RecordedCall]:
    return [one for one in recording.calls if one.phase == phase]


def names(calls: Any) -> list[str]:
    return [one.call.name.removeprefix("aten::") for one in calls]


# -- memory


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_inference_holds_the_weights_and_two_layers_activations(dtype: Any, size: int) -> None:
    def make() -> Callable[[], Any]:
        model, x = network(dtype), torch.ones(BATCH, WIDTH, device="cuda", dtype=dtype)

        def step() -> Any:
            with torch.no_grad():
                return model(x)

        return step

    recording = made(make)
    start = size * (WEIGHTS + BATCH * WIDTH)
    assert recording.start_bytes == start
    # the hidden layer before and after ReLU; then the one after it and the result: the larger of the two
    assert recording.peak_bytes == start + size * 2 * BATCH * HIDDEN


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_training_holds_weights_moments_gradients_and_what_the_backward_pass_needs(dtype: Any, size: int) -> None:
    def make() -> Callable[[], Any]:
        model, x = network(dtype), torch.ones(BATCH, WIDTH, device="cuda", dtype=dtype)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    recording = made(make)
    # weights, two moments each, and a step counter for each of the four parameters; the input
    start = size * (3 * WEIGHTS + BATCH * WIDTH) + 4 * LEAST
    assert recording.start_bytes == start
    # at the product that makes the gradient of the second weight: the first layer's output was freed with ReLU's (its
    # result is what is kept), the gradient of the result is a number repeated, and nothing else is there; at its end,
    # before the gradient of the first weight, all gradients but that are
    gradients = size * WEIGHTS
    least, most = start + gradients, start + gradients + size * 3 * BATCH * HIDDEN
    assert least < recording.peak_bytes <= most


def peak(keep: bool) -> int:
    """Bytes above the start of twelve layers, with and without checkpoints."""

    def make() -> Callable[[], Any]:
        layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.GELU()) for _ in range(12)).cuda()
        x = torch.ones(4096, WIDTH, device="cuda", requires_grad=True)

        def step() -> None:
            y = x
            for layer in layers:
                y = layer(y) if keep else checkpoint(layer, y, use_reentrant=False)
            y.sum().backward()

        return step

    recording = made(make)
    return recording.peak_bytes - recording.start_bytes


def test_checkpoints_keep_one_activation_a_layer_and_recompute_one_layer() -> None:
    size = 4 * 4096 * WIDTH
    weights = 12 * 4 * (WIDTH * WIDTH + WIDTH)
    # kept: the input of each of three operations in a layer; with checkpoints the inputs of layers and one layer's own
    assert 36 * size <= peak(keep=True) <= 40 * size + weights
    assert 12 * size <= peak(keep=False) <= 17 * size + weights


def test_views_and_work_in_place_take_nothing_and_what_is_deleted_is_free() -> None:
    def step() -> None:
        x = torch.zeros(1024, device="cuda")  # 4 KiB
        x.view(32, 32).t().add_(1)
        x[:512].mul_(2)
        del x
        torch.zeros(1024, device="cuda")

    recording = record(step)
    assert (recording.start_bytes, recording.peak_bytes) == (0, 4096)


# -- phases and sites


def test_phases_modules_and_lines_of_forward_and_backward() -> None:
    def make() -> Callable[[], Any]:
        model, x = network(), torch.ones(BATCH, WIDTH, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            y = model(x)
            (y * y).sum().backward()
            optimizer.step()

        return step

    recording = made(make)
    sites = {id(one): recording.sites[one.site] for one in recording.calls}
    products = [one for one in recording.calls if one.call.name in ("aten::addmm", "aten::mm")]
    assert [(one.phase, sites[id(one)].modules[-1]) for one in products] == [
        ("forward", "Linear_0"),
        ("forward", "Linear_1"),
        ("backward", "Linear_1"),
        ("backward", "Linear_1"),
        ("backward", "Linear_0"),
    ]
    first = step_line(make)
    (squared,) = {
        sites[id(one)].user for one in recording.calls if one.call.name == "aten::mul" and one.phase == "forward"
    }
    assert squared == f"{__file__}({first + 1}): step"
    assert {sites[id(one)].user for one in products} == {f"{__file__}({first}): step"}
    assert names(of(recording, "optimizer")) == ["_foreach_add_"]
    assert recording.module_calls == 4


def step_line(make: Callable[[], Any]) -> int:
    """The line after "def step()" within `make`."""
    (step,) = (one for one in make.__code__.co_consts if getattr(one, "co_name", "") == "step")
    return int(step.co_firstlineno) + 1


# -- optimizers: how many calls of what, by torch/optim's own text


OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), {"_foreach_add_": 1}),
    "sgd fused": (lambda p: torch.optim.SGD(p, lr=0.1, fused=True), {"_fused_sgd_": 1}),
    "adamw fused": (lambda p: torch.optim.AdamW(p, fused=True), {"_fused_adamw_": 1, "_foreach_add_": 1}),
    "adam": (lambda p: torch.optim.Adam(p), {"_foreach_lerp_": 1, "_foreach_addcmul_": 1, "_foreach_addcdiv_": 1}),
    "adam one by one": (lambda p: torch.optim.Adam(p, foreach=False), {"lerp_": 4, "addcmul_": 4, "addcdiv_": 4}),
    "adam capturable": (lambda p: torch.optim.Adam(p, capturable=True), {"_foreach_lerp_": 1, "_foreach_pow": 2}),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU is virtual only where there is none")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_run_the_versions_that_they_run_on_a_gpu(name: str) -> None:
    make_optimizer, wanted = OPTIMIZERS[name]

    def make() -> Callable[[], Any]:
        model, x = network(), torch.ones(BATCH, WIDTH, device="cuda")
        optimizer = make_optimizer(model.parameters())

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    recording = made(make)
    found = Counter(names(of(recording, "optimizer")))
    assert {key: found[key] for key in wanted} == wanted
    assert not recording.assumptions
    assert not any(one.waits or one.host_copy for one in recording.calls)


def test_accumulation_clipping_schedules_and_averages() -> None:
    def make() -> Callable[[], Any]:
        model, average = network(), network()
        x = torch.ones(BATCH, WIDTH, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda turn: 1 / (turn + 1))

        def step() -> None:
            for _ in range(2):
                (model(x).sum() / 2).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.1)
            optimizer.zero_grad(set_to_none=False)

        return step

    recording = made(make)
    found = Counter(names(recording.calls))
    assert (found["_foreach_norm"], found["_foreach_mul_"] >= 1, found["zero_"]) == (1, True, 4)
    assert found["mm"] == 2 * 3
    assert found["add_"] == 4  # the second turn's gradients onto the first's
    assert not any(one.waits or one.host_copy for one in recording.calls)


# -- the backward pass


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_is_marked(reentrant: bool) -> None:
    def step() -> None:
        layer = nn.Sequential(nn.Linear(8, 8), nn.GELU()).cuda()
        x = torch.ones(2, 8, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16):
            y = checkpoint(layer, x * torch.arange(8, device="cuda"), use_reentrant=reentrant)
        y.float().sum().backward()

    recording = record(step)
    repeated = [one for one in recording.calls if one.recomputed]
    assert "addmm" in names(repeated)
    assert all(one.phase == "backward" for one in repeated)
    (product,) = (one for one in repeated if one.call.name == "aten::addmm")
    assert product.call.outputs[0].dtype == "bfloat16"
    assert recording.sites[product.site].modules[-1] == "Linear_0"


def test_a_second_derivative_is_no_recomputation() -> None:
    def step() -> None:
        layer = nn.Linear(8, 1).cuda()
        x = torch.ones(4, 8, device="cuda", requires_grad=True)
        (slope,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        (slope.norm(2, dim=1) - 1).pow(2).mean().backward()

    assert not any(one.recomputed for one in record(step).calls)


def test_the_program_s_own_code_in_the_backward_pass_is_on_the_gpu_too() -> None:
    seen: list[str] = []

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (x,) = ctx.saved_tensors
            return gradient * x * torch.full_like(x, 2.0) + torch.zeros(x.shape, device=x.device)

    def step() -> None:
        x = torch.ones(4, device="cuda", requires_grad=True)
        x.register_hook(lambda gradient: seen.append(gradient.device.type))
        Square.apply(x).sum().backward()

    assert {one.place for one in record(step).calls} == {"device"}
    assert seen == ["cuda"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which torch itself imports
def test_torch_func_and_compiled_modules_are_recorded() -> None:
    def step() -> None:
        with torch.device("cuda"):
            model, plain = torch.compile(network()), network()
        x = torch.ones(BATCH, WIDTH, device="cuda")
        model(x).sum().backward()
        weights = {name: one.detach() for name, one in plain.named_parameters()}

        def loss(weights: Any, x: Any) -> Any:
            assert x.device.type == "cuda"
            return torch.func.functional_call(plain, weights, (x,)).sum()

        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)

    recording = record(step)
    steps = [one for one in recording.calls if "addmm" in one.call.name or "bmm" in one.call.name]
    assert len(steps) >= 4
    assert {one.place for one in recording.calls} == {"device"}


def test_inference_mode_records_the_operations_that_run() -> None:
    def make() -> Callable[[], Any]:
        model, x = network(), torch.ones(BATCH, WIDTH, device="cuda")

        @torch.inference_mode()
        def step() -> Any:
            return F.softmax(model(x), -1)

        return step

    assert names(made(make).calls) == ["t", "addmm", "relu", "t", "addmm", "_softmax"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU is virtual only where there is none")
@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_are_one_call_of_cudnn_s_however_many_steps(kind: Any, gates: int) -> None:
    steps, batch, width, hidden = 300, 8, 16, 32

    def make() -> Callable[[], Any]:
        layer = kind(width, hidden, num_layers=2, batch_first=True, bidirectional=True).cuda()
        x = torch.ones(batch, steps, width, device="cuda")

        def step() -> None:
            with torch.autocast("cuda", torch.bfloat16):
                output, _ = layer(x)
            assert (output.shape, output.dtype) == ((batch, steps, 2 * hidden), torch.bfloat16)
            output.float().sum().backward()
            assert all(one.grad.shape == one.shape for one in layer.parameters())

        return step

    recording = made(make)
    calls = [one for one in recording.calls if "cudnn_rnn" in one.call.name]
    assert [(one.call.name, one.phase, one.place) for one in calls] == [
        ("aten::_cudnn_rnn", "forward", "device"),
        ("aten::_cudnn_rnn_backward", "backward", "device"),
    ]
    assert len(recording.calls) < 100
    # each weight meets each token: two directions of a layer on the input, two on both directions' states
    weights = 2 * gates * hidden * (width + hidden) + 2 * gates * hidden * (2 * hidden + hidden)
    assert price(calls[0].call).matrix_flop == 2 * batch * steps * weights
    assert price(calls[1].call).matrix_flop == 4 * batch * steps * weights
