"""Python that asks for values: known where they follow from constants, else taken as something and named."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.cli import app  # noqa: E402
from gobrrr.errors import UsageError  # noqa: E402
from gobrrr.model.recording import Recording  # noqa: E402
from gobrrr.observe.static import record, recorder  # noqa: E402
from tests.spread import slow, spread  # noqa: E402

pytestmark = pytest.mark.torch

HERE = Path(__file__).name


def names(recording: Recording) -> list[str]:
    return [one.call.name for one in recording.calls]


def test_what_follows_from_constants_takes_the_true_branch() -> None:
    def step() -> None:
        mask = torch.ones(2, 8, dtype=torch.long, device="cuda")
        assert mask.bool().all()
        mask[0, :3] = 0
        assert not mask.bool().all()
        assert mask.sum(-1).tolist() == [5, 8]
        assert mask.cpu().numpy().sum() == 13
        assert torch.arange(5, device="cuda")[mask[0, :5].bool()].shape == (2,)
        counter = torch.zeros((), device="cuda")
        torch._foreach_add_([counter], 2.0)
        assert counter.item() == 2.0

    assert not record(step).assumptions


def test_data_are_finite() -> None:
    def step() -> None:
        x = torch.randn(2048, 1024, device="cuda")
        assert not torch.isnan(x).any()
        assert not torch.isinf(x).any()
        assert torch.isfinite(x).all()
        assert not (x != x).any()
        weight = torch.randn(4, 4, device="cuda", requires_grad=True)
        weight.sum().backward()
        nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)

    assert not record(step).assumptions


def test_tokens_are_not_the_constant_that_they_are_compared_with_and_that_is_noted() -> None:
    def step() -> None:
        tokens = torch.randint(0, 50, (2, 8), device="cuda")
        assert not (tokens == 3).any()
        assert (tokens != 3).all()
        assert not torch.isin(tokens, torch.tensor([1, 2], device="cuda")).any()

    found = record(step).assumptions
    assert {one.what for one in found} == {"whether data equal a constant, in a bool tensor"}
    assert all(one.source is not None and HERE in one.source for one in found)


def test_a_value_of_data_is_taken_as_one_and_named_with_its_line() -> None:
    def step() -> None:
        loss = torch.randn(4, device="cuda").sum()
        assert loss.item() == 1.0

    (found,) = record(step).assumptions
    assert (found.what, found.value) == ("the value of a float32 tensor", "1.0")
    assert found.source is not None
    assert HERE in found.source


def test_random_choices_are_drawn() -> None:
    def step() -> None:
        assert sorted(torch.randperm(16).tolist()) == list(range(16))
        assert 0.0 <= torch.rand(()).item() < 1.0

    assert not record(step).assumptions


@pytest.mark.parametrize("bound", ["error", "total", "flag"])
def test_loops_on_stand_ins_end(bound: str) -> None:
    def step() -> None:
        x = torch.randn(4, device="cuda")
        if bound == "error":
            while x.abs().max().item() > 1e-3:
                x.mul_(0.5)
        elif bound == "total":
            while x.sum().item() < 1e3:
                x.add_(1)
        else:
            while (x > 0).any():
                x.sub_(1)

    assert len(record(step).calls) < 200


def test_a_loop_that_no_stand_in_ends_is_refused_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_ASKED_WITHIN", 50)
    monkeypatch.setattr(recorder, "MOST_ASKED_EVER", 100)

    def step() -> None:
        x = torch.randint(0, 9, (3,), device="cuda")
        while int(x.sum()) != 77:
            x = x + 1

    with pytest.raises(UsageError, match=rf"{HERE}:\d+ has asked for .* times: a loop"):
        record(step)


REFUSED = {
    "a mask": "x = torch.randn(4, device='cuda')\n    return x[x > 0].sum()",
    "unique": "x = torch.randint(0, 5, (4,), device='cuda')\n    return torch.unique(x)",
    "shapes": "return torch.ones(3, 4, device='cuda') @ torch.ones(3, 4, device='cuda')",
    "exit": "raise SystemExit(3)",
    "import": "import there_is_no_such_module",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_the_command_line_says_in_one_line_where(body: str, tmp_path: Path) -> None:
    file = tmp_path / "work.py"
    file.write_text(f"import torch\n\n\ndef step():\n    {body}\n")
    result = CliRunner().invoke(app, ["predict", f"{file}:step", "--quiet"])
    assert isinstance(result.exception, UsageError)
    text = str(result.exception)
    assert "\n" not in text
    assert f"{file}:{4 + 1 + body.count(chr(10))}" in text


# -- Hugging Face models, tiny


def make(name: str, attention: str) -> tuple[Any, dict[str, Any]]:
    """(a model on the GPU, its inputs) of a family."""
    transformers = pytest.importorskip("transformers")
    small: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=1)
    elif name == "llama":
        config = transformers.LlamaConfig(**small, **heads, **ends)
    elif name == "bert":
        config = transformers.BertConfig(**small, num_attention_heads=2)
    elif name == "mixtral":
        config = transformers.MixtralConfig(**small, **heads, **ends, num_local_experts=4, output_router_logits=True)
    elif name == "t5":
        config = transformers.T5Config(
            d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=50, decoder_start_token_id=0
        )
    else:
        config = transformers.WhisperConfig(
            **{f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in WHISPER.items()},
            **ends, d_model=16, vocab_size=50, max_source_positions=10, num_mel_bins=8, decoder_start_token_id=3,
            suppress_tokens=None, begin_suppress_tokens=None,
        )  # fmt: skip
    config._attn_implementation = attention
    model = getattr(transformers, HEADS[name])(config).cuda()
    tokens = torch.randint(3, 50, (2, 8), device="cuda")
    if name == "whisper":
        return model, {"input_features": torch.randn(2, 8, 20, device="cuda"), "labels": tokens}
    return model, {"input_ids": tokens, "labels": tokens}


WHISPER = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
HEADS = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "bert": "BertForMaskedLM",
    "mixtral": "MixtralForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
}

pytest_ignored = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


@cache
def train(name: str, attention: str, mask: str | None = None, *, checkpoints: bool = False) -> Recording:
    """A training step, its model made beforehand."""
    from gobrrr.model.workload import Workload

    def made() -> Workload:
        model, inputs = make(name, attention)
        model.train()
        if checkpoints:
            model.gradient_checkpointing_enable()
        if mask is not None:
            inputs["attention_mask"] = torch.ones(2, 8, dtype=torch.long, device="cuda")
        if mask == "padded":
            inputs["attention_mask"][0, :3] = 0
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def step() -> None:
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(**inputs).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return Workload(step=step)

    return record(made)


@pytest_ignored
@pytest.mark.parametrize("attention", ["sdpa", slow("eager")])
@pytest.mark.parametrize("name", spread(list(HEADS), 6))
def test_training_steps_of_hugging_face_models_ask_for_nothing(name: str, attention: str) -> None:
    recording = train(name, attention)
    assert not recording.assumptions
    assert not any(one.waits or one.host_copy for one in recording.calls)
    assert {one.phase for one in recording.calls} == {"forward", "backward", "optimizer"}


@pytest_ignored
@pytest.mark.parametrize("name", spread(["bert", "llama"]))
def test_attention_masks_of_ones_are_dropped_and_padded_ones_kept(name: str) -> None:
    plain, ones, padded = (train(name, "sdpa", mask) for mask in (None, "ones", "padded"))
    flash = "aten::_scaled_dot_product_flash_attention"
    kernels = [[one for one in names(recording) if "scaled_dot_product" in one] for recording in (plain, ones, padded)]
    if name == "bert":
        assert flash in kernels[1]
    assert kernels[0] == kernels[1] or ones.assumptions == ()
    assert flash not in kernels[2]
    assert not padded.assumptions


@pytest_ignored
@pytest.mark.parametrize("name", spread(list(HEADS), 6))
def test_checkpoints_recompute_what_they_drop(name: str) -> None:
    recording = train(name, "sdpa", checkpoints=True)
    repeated = [one for one in recording.calls if one.recomputed]
    assert repeated
    assert all(one.phase == "backward" for one in repeated)
    assert not any(one.recomputed for one in train(name, "sdpa").calls)


@pytest_ignored
@pytest.mark.parametrize("name", spread(["gpt2", "llama", "t5", "mixtral"]))
def test_two_tokens_are_generated_with_a_cache(name: str) -> None:
    widths: list[int] = []

    def step() -> None:
        model, inputs = make(name, "sdpa")
        model.eval()
        inner = model.get_decoder() if name == "t5" else model
        inner.register_forward_pre_hook(
            lambda _, __, given: widths.append(given["input_ids"].shape[1]), with_kwargs=True
        )
        model.generate(inputs["input_ids"], max_new_tokens=2, do_sample=False, pad_token_id=2)

    recording = record(step)
    assert widths == ([1, 1] if name == "t5" else [8, 1])
    assert all(one.source is not None and HERE in one.source for one in recording.assumptions)
