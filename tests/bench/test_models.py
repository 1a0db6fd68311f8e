"""The zoo's workloads: their parameters by closed forms, and that each builds and runs on fake tensors and the CPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from bench.models import ZOO, Recipe  # noqa: E402
from bench.op_table import list_calls  # noqa: E402
from tests.spread import spread  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

LIBRARY = find_spec("transformers") is not None


def names() -> list[Any]:
    lacking = pytest.mark.skipif(not LIBRARY, reason="needs transformers")
    return [pytest.param(name, marks=lacking if recipe.library else ()) for name, recipe in ZOO.items()]


def encoder(d: int) -> int:
    """A layer of four projections, an MLP of 4 d and two norms, all with biases."""
    return 4 * (d * d + d) + (4 * d * d + 4 * d) + (4 * d * d + d) + 2 * 2 * d


def bert(d: int, layers: int) -> int:
    return (30522 + 512 + 2) * d + 2 * d + layers * encoder(d) + d * d + d


def gpt2(d: int, layers: int) -> int:
    return (50257 + 1024) * d + layers * encoder(d) + 2 * d


def vit(d: int, layers: int) -> int:
    return (3 * 16 * 16 * d + d) + d + 197 * d + layers * encoder(d) + 2 * d + 1000 * d + 1000


def llama(d: int, layers: int, heads: int, groups: int, hidden: int, vocab: int) -> int:
    attention = 2 * d * d + 2 * d * (d // heads) * groups
    return 2 * vocab * d + layers * (attention + 3 * d * hidden + 2 * d) + d


def mlp(d: int, layers: int) -> int:
    return layers * (d * d + d + 2 * d)


def mixtral(d: int, layers: int, heads: int, groups: int, hidden: int, experts: int, vocab: int) -> int:
    attention = 2 * d * d + 2 * d * (d // heads) * groups
    return 2 * vocab * d + layers * (attention + experts * (3 * d * hidden + d) + 2 * d) + d


PARAMETERS = {
    "bert_base_b32_s512": bert(768, 12),
    "bert_base_b1_s128": bert(768, 12),
    "bert_large_b8_s512_amp": bert(1024, 24),
    "gpt2_b8_s1024": gpt2(768, 12),
    "gpt2_medium_b4_s1024_amp": gpt2(1024, 24),
    "vit_b16_b64": vit(768, 12),
    "vit_s16_b32_fp32": vit(384, 12),
    "vit_s16_b32_tf32": vit(384, 12),
    "vit_s16_b1": vit(384, 12),
    "dit_xl_b8_s256": 28 * (18 * 1152**2 + (6 + 3 + 1 + 4 + 1) * 1152),
    "llama_1b_b1_s2048": llama(2048, 16, 32, 8, 8192, 32000),
    "llama_decode_b1_kv2048": llama(2048, 16, 32, 8, 8192, 32000),
    "llama_small_b8_s1024": llama(768, 12, 12, 4, 2048, 32000),
    "mixtral_mini_b2_s1024": mixtral(1024, 4, 16, 8, 3584, 8, 32000),
    "mlp_b8192_fp32": mlp(4096, 8),
    "mlp_b8192_tf32": mlp(4096, 8),
    "lstm_lm_b64_s128": 10_000 * 1024 + 2 * 4 * (2 * 1024**2 + 2 * 1024) + 10_000 * 1024 + 10_000,
    # T5 small (Raffel et al. 2020, arXiv 1910.10683): tied embeddings, no biases, a table of positions a stack
    "t5_small_b16_s512": 32128 * 512 + 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048)
    + 2 * 32 * 8 + (6 * 2 + 6 * 3 + 2) * 512,
    # the keys' projections have no bias
    "whisper_small_encoder_b8": (80 + 768) * 768 * 3 + 2 * 768 + 1500 * 768 + 12 * (encoder(768) - 768) + 2 * 768,
    "dlrm_b8192_tf32": 26 * 200_000 * 64 + 14 * 512 + 513 * 64 + (64 + 27 * 26 // 2 + 1) * 1024 + 1025 * 1024 + 1025,
    # torchvision's documentation of these models, "num_params"
    "resnet50_b64_cl": 25_557_032,
    "resnet50_b8_tf32": 25_557_032,
    "convnext_tiny_b64": 28_589_128,
    "mobilenet_v2_b64": 3_504_872,
    "efficientnet_b0_b64_amp": 5_288_548,
}  # fmt: skip


@pytest.mark.parametrize("name", spread(names()))
def test_a_model_on_meta_has_the_parameters_that_its_architecture_says(name: str) -> None:
    work = ZOO[name]("meta")
    count = sum(one.numel() for one in work.model.parameters())
    assert count == PARAMETERS.get(name, count)
    wanted = {torch.bfloat16} if work.policy == "bf16" else {torch.float32}
    assert {one.dtype for one in work.model.parameters()} == wanted
    assert all(one.is_meta for one in work.model.parameters())


def test_the_zoo_holds_the_handed_workloads_and_enough_others() -> None:
    assert len(ZOO) >= 16
    assert {"bert_base_b32_s512", "gpt2_b8_s1024", "resnet50_b64_cl", "vit_b16_b64", "dit_xl_b8_s256"} <= set(ZOO)
    assert {recipe.policy for recipe in ZOO.values()} == {"bf16", "fp32", "tf32", "amp"}


@pytest.mark.parametrize("name", spread(names()))
def test_a_full_size_workload_runs_on_fake_tensors(name: str) -> None:
    with FakeTensorMode():
        work = ZOO[name]("cpu")
        loss = work.step("fwd")()
    assert tuple(loss.shape) == ()
    assert not loss.requires_grad


@pytest.mark.parametrize("name", spread(names()))
def test_a_tiny_workload_steps_on_the_cpu_in_each_of_its_modes(name: str) -> None:
    recipe: Recipe = ZOO[name]
    for mode in recipe.modes:
        work = recipe("cpu", tiny=True)
        before = [one.detach().clone() for one in work.model.parameters()]
        loss = work.step(mode)()
        assert torch.isfinite(loss).all()
        assert work.model.training == (mode != "fwd")
        assert all(one.grad is None for one in work.model.parameters())
        moved = any(not torch.equal(a, b) for a, b in zip(before, work.model.parameters(), strict=True))
        assert moved == (mode == "train")


def test_tied_weights_stay_tied_and_channels_last_reaches_the_filters() -> None:
    model = ZOO["gpt2_b8_s1024"]("cpu", tiny=True).model
    assert model.head.weight is model.word.weight
    first = ZOO["resnet50_b64_cl"]("cpu", tiny=True).model[0].weight
    assert first.dtype == torch.bfloat16
    assert first.is_contiguous(memory_format=torch.channels_last)


def test_tf32_holds_within_a_step_alone() -> None:
    matmul, seen = torch.backends.cuda.matmul, []
    before = matmul.allow_tf32
    for policy in ("tf32", "fp32"):
        work = ZOO["mlp_b8192_fp32"]("cpu", policy, tiny=True)
        work.model.register_forward_hook(lambda *_: seen.append(matmul.allow_tf32))
        work.step("fwdbwd")()
    assert seen == [True, False]
    assert matmul.allow_tf32 == before


def test_autocast_runs_the_products_in_bfloat16() -> None:
    work, seen = ZOO["bert_large_b8_s512_amp"]("cpu", tiny=True), []
    work.model.layers[0].up.register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    for mode in work.modes:
        work.step(mode)()
    assert set(seen) == {torch.bfloat16}


def test_lists_of_tensors_are_found_with_their_types_the_backward_pass_included() -> None:
    halves = [torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
    found = list_calls(lambda: torch.stack([torch.cat(halves), torch.cat(halves)]).sum().backward())
    item = ["bfloat16", [2, 3]]
    assert found["aten::cat"][:2] == [[{"list": [[2, item]]}, "0"]] * 2
    assert found["aten::stack"] == [[{"list": [[2, ["bfloat16", [4, 3]]]]}, "0"]]
    many = [torch.ones(size) for size in (3, 2) * 20]
    (call,) = list_calls(lambda: torch._foreach_mul_(many, 2.0))["aten::_foreach_mul_"]
    assert call == [{"list": [[20, ["float32", [2]]], [20, ["float32", [3]]]]}, "2.0"]
