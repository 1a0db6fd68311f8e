"""A step written for a GPU, run where there is none: devices, copies over the link, waits, and CUDA's dtype policy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gobrrr.model.recording import Recording  # noqa: E402
from gobrrr.observe.static import record  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU is virtual only where there is none"),
]


def copies(recording: Recording) -> list[tuple[str, int, bool]]:
    """(direction, bytes, whether the host waits) of each copy over the link."""
    sizes = {"float32": 4, "bfloat16": 2, "int64": 8}
    found = []
    for one in recording.calls:
        if one.host_copy:
            written = one.call.outputs[0]
            count = 1
            for size in written.shape:
                count *= size
            found.append((one.host_copy, count * sizes[written.dtype], one.waits))
    return found


def names(recording: Recording, place: str | None = None) -> list[str]:
    return [one.call.name for one in recording.calls if place is None or one.place == place]


def test_a_program_that_asks_for_a_gpu_finds_one() -> None:
    def step() -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        layer = nn.Linear(8, 4).to(device)
        x = torch.ones(2, 8, device=device)
        assert (x.device, x.is_cuda, x.is_cpu, x.get_device()) == (torch.device("cuda", 0), True, False, 0)
        assert layer.weight.device == torch.device("cuda:0")
        assert layer(x).device.type == "cuda"
        assert torch.zeros(3, device=x.device).is_cuda
        assert x.new_zeros(2).is_cuda
        assert x.new_tensor([1.0]).is_cuda
        assert torch.zeros_like(x).is_cuda
        assert not torch.zeros_like(x, device="cpu").is_cuda
        assert torch.ones(2).to(x).is_cuda
        assert x.type() == "torch.cuda.FloatTensor"
        assert torch.randn(2, device="cuda", generator=torch.Generator("cuda")).is_cuda
        assert isinstance(torch.default_generator, torch.Generator)

    assert not record(step).on_cpu


def test_default_devices_and_their_contexts_are_the_gpu() -> None:
    def step() -> None:
        with torch.device("cuda"):
            assert nn.Linear(8, 4).weight.is_cuda
            assert torch.arange(3).is_cuda
        assert not torch.arange(3).is_cuda
        torch.set_default_device("cuda")
        assert torch.get_default_device() == torch.device("cuda", 0)
        assert nn.Linear(8, 4).bias.is_cuda
        assert F.one_hot(torch.tensor([1, 2]), 4).is_cuda

    record(step)
    assert torch.get_default_device() == torch.device("cpu")


def test_copies_over_the_link_with_their_bytes_and_waits() -> None:
    def step() -> None:
        x = torch.ones(4, 8).to("cuda")
        y = torch.ones(3, 8).pin_memory().cuda(non_blocking=True)
        x.to("cuda", torch.bfloat16)
        (x.sum() + y.sum()).cpu()
        torch.tensor([1, 2, 3], device="cuda")
        torch.empty(2, 8).copy_(x[:2])

    found = copies(record(step))
    assert found == [
        ("HtoD", 128, True),
        ("HtoD", 96, False),
        ("DtoH", 4, True),
        ("HtoD", 24, True),
        ("DtoH", 64, True),
    ]


def waits(step: Callable[[], Any]) -> int:
    return sum(one.waits for one in record(step).calls)


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.sum()),
        lambda x: bool(x.sum() > 0),
        lambda x: f"{x.sum():.3f}",
        lambda x: print(x),
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: x.cpu().numpy(),
        lambda x: torch.cuda.synchronize(),
        lambda x: torch.cuda.current_stream().synchronize(),
    ],
)
def test_each_way_to_ask_for_a_value_is_one_wait(ask: Callable[[Any], Any]) -> None:
    assert waits(lambda: ask(torch.randn(8, device="cuda"))) == 1


def test_streams_events_and_statistics_do_nothing_and_answer() -> None:
    def step() -> None:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.ones(1024, device="cuda")
        torch.cuda.current_stream().wait_stream(torch.cuda.Stream())
        end.record()
        assert begin.elapsed_time(end) == 0.0
        assert torch.cuda.memory_allocated() == x.numel() * 4
        torch.cuda.nvtx.range_push("x")
        torch.cuda.nvtx.range_pop()
        assert torch.cuda.get_device_properties(0).total_memory > 0

    assert names(record(step)) == ["aten::ones"]


def test_layouts_dtypes_and_tied_weights() -> None:
    def step() -> None:
        conv = nn.Conv2d(3, 8, 3).to("cuda", memory_format=torch.channels_last).to(torch.bfloat16)
        x = torch.ones(2, 3, 8, 8, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        assert conv(x).is_contiguous(memory_format=torch.channels_last)
        table, head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
        head.weight = table.weight
        both = nn.Sequential(table, head).to("cuda").half()
        assert both[0].weight is both[1].weight
        assert both[0].weight.dtype == torch.float16
        both.register_buffer("mask", torch.ones(4, device="cuda"))
        assert both.mask.is_cuda

    record(step)


def test_a_loader_s_batches_are_copied_in_the_step() -> None:
    data = torch.utils.data.TensorDataset(torch.randn(8, 16), torch.randint(0, 4, (8,)))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)

    def step() -> None:
        layer = nn.Linear(16, 4, device="cuda")
        for x, y in loader:
            F.cross_entropy(layer(x.to("cuda")), y.to("cuda")).backward()

    found = copies(record(step))
    assert found == [("HtoD", 4 * 16 * 4, True), ("HtoD", 4 * 8, True)] * 2


LOWER, WIDE = "bfloat16", "float32"


def low(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def full(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda")


def classes() -> Any:
    return torch.zeros(2, dtype=torch.long, device="cuda")


POLICY: dict[str, tuple[Callable[[], Any], str]] = {
    # https://docs.pytorch.org/docs/stable/amp.html: the lists for CUDA
    "matmul": (lambda: full(4, 4) @ full(4, 4), LOWER),
    "addmm": (lambda: torch.addmm(full(4), full(4, 4), full(4, 4)), LOWER),
    "mv": (lambda: torch.mv(full(4, 4), full(4)), LOWER),
    "baddbmm": (lambda: torch.baddbmm(full(2, 4, 4), full(2, 4, 4), full(2, 4, 4)), LOWER),
    "conv2d": (lambda: F.conv2d(full(1, 2, 8, 8), full(3, 2, 3, 3)), LOWER),
    "linear": (lambda: F.linear(full(2, 4), full(4, 4)), LOWER),
    "prelu": (lambda: F.prelu(full(2, 4), full(4)), LOWER),
    "lstm cell": (lambda: nn.LSTMCell(4, 4, device="cuda")(full(2, 4))[0], LOWER),
    "attention": (lambda: F.scaled_dot_product_attention(full(1, 2, 8, 8), full(1, 2, 8, 8), full(1, 2, 8, 8)), LOWER),
    "power": (lambda: low(4) ** 2, WIDE),
    "power of": (lambda: 2 ** low(4), WIDE),
    "reciprocal": (lambda: 1 / low(4), WIDE),
    "exp": (lambda: low(4).exp(), WIDE),
    "rsqrt": (lambda: torch.rsqrt(low(4)), WIDE),
    "sum": (lambda: low(4).sum(), WIDE),
    "cumsum": (lambda: low(4).cumsum(0), WIDE),
    "softmax": (lambda: low(4).softmax(-1), WIDE),
    "log_softmax": (lambda: F.log_softmax(low(4), -1), WIDE),
    "softplus": (lambda: F.softplus(low(4)), WIDE),
    "layer_norm": (lambda: F.layer_norm(low(2, 4), (4,)), WIDE),
    "group_norm": (lambda: F.group_norm(low(1, 4, 2), 2), WIDE),
    "norm": (lambda: low(4).norm(), WIDE),
    "normalize": (lambda: F.normalize(low(2, 4)), WIDE),
    "cross_entropy": (lambda: F.cross_entropy(low(2, 4), classes()), WIDE),
    "mse_loss": (lambda: F.mse_loss(low(4), low(4)), WIDE),
    "cdist": (lambda: torch.cdist(low(2, 4), low(2, 4)), WIDE),
    "relu": (lambda: F.relu(low(4)), LOWER),
    "gelu": (lambda: F.gelu(low(4)), LOWER),
    "mean": (lambda: low(4).mean(), LOWER),
    "division": (lambda: low(4) / 2, LOWER),
    "avg_pool3d": (lambda: F.avg_pool3d(low(1, 2, 4, 4, 4), 2), LOWER),
    "batch_norm": (lambda: nn.BatchNorm1d(4, device="cuda")(low(2, 4)), LOWER),
    "cat": (lambda: torch.cat([low(4), full(4)]), WIDE),
    "addcmul": (lambda: torch.addcmul(full(4), low(4), low(4)), WIDE),
    "dot": (lambda: torch.dot(full(4), low(4)), WIDE),
}


def test_autocast_is_cuda_s() -> None:
    found: dict[str, str] = {}

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            for name, (run, _) in POLICY.items():
                found[name] = str(run().dtype).removeprefix("torch.")

    record(step)
    assert found == {name: wanted for name, (_, wanted) in POLICY.items()}


def test_autocast_regions_nest_and_tell() -> None:
    def step() -> None:
        a = full(4, 4)
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") == torch.bfloat16
            assert not torch.is_autocast_enabled("cpu")
            with torch.autocast("cuda", enabled=False):
                assert (a @ a).dtype == torch.float32
                assert F.softmax(low(4), -1).dtype == torch.bfloat16
            with torch.autocast("cuda", torch.float16):
                assert (a @ a).dtype == torch.float16
            with torch.autocast("cpu", enabled=False):
                assert (a @ a).dtype == torch.bfloat16
            assert (a @ a).dtype == torch.bfloat16
        assert (a @ a).dtype == torch.float32

    record(step)
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_casts_each_weight_once() -> None:
    def step() -> None:
        layer = nn.Linear(4, 4, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            layer(layer(layer(full(2, 4))))

    assert names(record(step)).count("aten::_to_copy") == 3  # weight, bias, input


def test_custom_functions_take_part_in_autocast() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, x: Any) -> Any:
            assert x.dtype == torch.float32
            assert not torch.is_autocast_enabled("cuda")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * torch.full((), 2.0, device="cuda")

    def step() -> None:
        x = low(4).requires_grad_()
        with torch.autocast("cuda", torch.bfloat16):
            Twice.apply(x).sum().backward()

    recording = record(step)
    assert {one.place for one in recording.calls} == {"device"}


def test_tf32_is_as_the_program_sets_it() -> None:
    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        full(4, 4) @ full(4, 4)
        torch.set_float32_matmul_precision("high")
        full(4, 4) @ full(4, 4)

    before = torch.backends.cuda.matmul.allow_tf32
    units = [one.call.kernels for one in record(step).calls if one.call.name == "aten::mm"]
    assert units == [("sgemm",), ("tf32",)]
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_a_gradient_scaler_steps_and_waits_once() -> None:
    layer_of: list[Any] = []

    def step() -> None:
        layer = nn.Linear(8, 4, device="cuda")
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(layer(full(2, 8)), classes())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        layer_of.append(layer)

    recording = record(step)
    assert sum(one.waits for one in recording.calls) == 1  # of found_inf
    assert "optimizer" in {one.phase for one in recording.calls}
    assert not recording.assumptions


def test_warnings_of_ours_reach_nobody() -> None:
    def step() -> None:
        layer = torch.compile(nn.Linear(4, 4, device="cuda"))
        import copy

        copy.deepcopy(nn.BatchNorm1d(4, device="cuda"))
        layer(full(2, 4))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        record(step)
