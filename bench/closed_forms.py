"""Nine public architectures with their FLOPs by hand: what a counter must give, forward and forward + backward.

A closed form counts contractions only (linear layers, convolutions, attention), 2 FLOP a multiply-add, from the
architecture's sizes; none of gobrrr's code is used. Attention of a causal model counts the pairs that its mask leaves,
S (S + 1) / 2; `square` counts all S x S, as most counters do. In the backward pass each contraction needs two, but for
those whose input needs no gradient.

`python -m bench.closed_forms` counts each on the CPU's stand-in and on meta and writes bench/results/closed_forms.json
(torch and transformers needed; weights are random, nothing is downloaded).
"""

# mypy: allow-subclassing-any
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench import pages

RESULTS = pages.RESULTS / "closed_forms.json"
DEVICES = ("cpu", "meta")
PASSES = ("forward", "training")
Built = tuple[Any, tuple[Any, ...]]
"""(a module, its inputs): the module gives a loss, the sum of the model's output."""


@dataclass(frozen=True)
class Form:
    """FLOPs of one forward pass: linear layers and convolutions, attention over all pairs, the causal part of it.

    `attention` is that of pairs without a mask, `causal` that of the whole square under a causal mask, which needs
    `causal_share` of it. `no_gradient`: contractions whose input needs no gradient, counted once in the backward pass.
    """

    linear: float
    attention: float = 0.0
    causal: float = 0.0
    causal_share: float = 1.0
    no_gradient: float = 0.0

    @property
    def forward(self) -> float:
        """What the maths of a forward pass needs."""
        return self.linear + self.attention + self.causal * self.causal_share

    @property
    def square(self) -> float:
        """The same with every attention over all pairs."""
        return self.linear + self.attention + self.causal

    @property
    def training(self) -> float:
        """Forward and backward."""
        return 3 * self.forward - self.no_gradient

    @property
    def square_training(self) -> float:
        """Forward and backward with every attention over all pairs."""
        return 3 * self.square - self.no_gradient


@dataclass(frozen=True)
class Case:
    """One architecture at one size (`what`); `build()` makes it, with random weights, on torch's default device."""

    name: str
    what: str
    form: Form
    build: Callable[[], Built]


def triangle(rows: int) -> float:
    """Share of the square that a causal mask leaves."""
    return (rows + 1) / (2 * rows)


def transformer(width: int, inner: int, tokens: int, layers: int, *, gated: bool = False, kv: float = 1.0) -> float:
    """Linear FLOPs of a stack: query and result, key and value of `kv` times the width, and the MLP."""
    each = width * width * (2 + 2 * kv) + (3 if gated else 2) * width * inner
    return 2.0 * tokens * layers * each


def pairs(batch: int, queries: int, keys: int, width: int, layers: int) -> float:
    """Attention FLOPs over all pairs: two products."""
    return 4.0 * batch * queries * keys * width * layers


class Summed(nn.Module):
    """A model whose result is the sum of one field of its output: a loss."""

    def __init__(self, model: Any, field: str, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.model, self.field, self.names = model, field, names

    def forward(self, *inputs: Any) -> Any:
        """Inputs by the model's `names` for them, else by their places."""
        output = self.model(**dict(zip(self.names, inputs, strict=True))) if self.names else self.model(*inputs)
        return getattr(output, self.field).float().sum()


def _made(kind: str, config: dict[str, Any], *, home: str = "transformers", **options: Any) -> Any:
    """A class of the library transformers with the sizes of `config`, in training mode."""
    library = importlib.import_module("transformers")
    settings = getattr(library, f"{kind.removesuffix('Encoder').partition('For')[0].removesuffix('LMHeadModel')}Config")
    return getattr(importlib.import_module(home), kind)(settings(**config), **options).train()


def _ids(vocabulary: int, *shape: int) -> Any:
    return torch.randint(0, vocabulary, shape)


def bert(batch: int = 8) -> Case:
    """BERT-base at 512 tokens."""

    def build() -> Built:
        library = importlib.import_module("transformers")
        model = library.BertModel(library.BertConfig(), add_pooling_layer=False).train()
        return Summed(model, "last_hidden_state"), (_ids(30522, batch, 512),)

    form = Form(transformer(768, 3072, batch * 512, 12), pairs(batch, 512, 512, 768, 12))
    return Case("BERT-base", f"b{batch} s512", form, build)


def gpt2() -> Case:
    """GPT-2 at 1024 tokens, with its head."""

    def build() -> Built:
        return Summed(_made("GPT2LMHeadModel", {}), "logits"), (_ids(50257, 1, 1024),)

    linear = transformer(768, 3072, 1024, 12) + 2.0 * 1024 * 768 * 50257
    form = Form(linear, causal=pairs(1, 1024, 1024, 768, 12), causal_share=triangle(1024))
    return Case("GPT-2", "b1 s1024", form, build)


def llama(tokens: int = 2048) -> Case:
    """Llama-3.2-1B's sizes, with its head."""
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256}

    def build() -> Built:
        model = _made("LlamaForCausalLM", {**sizes, "num_attention_heads": 32, "num_key_value_heads": 8})
        return Summed(model, "logits"), (_ids(128256, 1, tokens),)

    linear = transformer(2048, 8192, tokens, 16, gated=True, kv=0.25) + 2.0 * tokens * 2048 * 128256
    form = Form(linear, causal=pairs(1, tokens, tokens, 2048, 16), causal_share=triangle(tokens))
    return Case("Llama-1B", f"b1 s{tokens}", form, build)


def resnet(batch: int = 8) -> Case:
    """ResNet-50 at 224 x 224."""

    def build() -> Built:
        model = _made("ResNetForImageClassification", {"num_labels": 1000})
        return Summed(model, "logits"), (torch.randn(batch, 3, 224, 224),)

    total, stem = _resnet50(batch)
    return Case("ResNet-50", f"b{batch} 224", Form(total, no_gradient=stem), build)


def _resnet50(batch: int) -> tuple[float, float]:
    """(FLOPs of ResNet-50 at 224 x 224, of its first convolution)."""
    stem = 2.0 * batch * 112 * 112 * 64 * 3 * 49
    total, channels = stem, 64
    for blocks, middle, size in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            before = size * 2 if block == 0 and middle > 64 else size  # the 3x3 convolution strides
            total += 2.0 * batch * before**2 * channels * middle
            total += 2.0 * batch * size**2 * (9 * middle * middle + middle * 4 * middle)
            if block == 0:
                total += 2.0 * batch * size**2 * channels * 4 * middle
            channels = 4 * middle
    return total + 2.0 * batch * 2048 * 1000, stem


def vit(batch: int = 8) -> Case:
    """ViT-B/16 at 224 x 224: 196 patches and a class token."""

    def build() -> Built:
        model = _made("ViTForImageClassification", {"num_labels": 1000})
        return Summed(model, "logits"), (torch.randn(batch, 3, 224, 224),)

    patches = 2.0 * batch * 196 * 768 * 768
    linear = transformer(768, 3072, batch * 197, 12) + patches + 2.0 * batch * 768 * 1000
    form = Form(linear, pairs(batch, 197, 197, 768, 12), no_gradient=patches)
    return Case("ViT-B/16", f"b{batch} 224", form, build)


def t5(batch: int = 4) -> Case:
    """T5-small, 512 tokens to 128, with its head.

    Its attention adds a bias to the scores and masks them by values: the whole square is computed.
    """
    sizes = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "vocab_size": 32128}

    def build() -> Built:
        model = Summed(_made("T5ForConditionalGeneration", sizes), "logits", ("input_ids", "decoder_input_ids"))
        return model, (_ids(32128, batch, 512), _ids(32128, batch, 128))

    linear = (
        transformer(512, 2048, batch * 512, 6)
        + 2.0 * 6 * (batch * 128) * (6 * 512**2 + 2 * 512 * 2048)  # self-attention, the cross-attention's query, result
        + 2.0 * 6 * (batch * 512) * 2 * 512**2  # the cross-attention's key and value, over the encoder's tokens
        + 2.0 * (batch * 128) * 512 * 32128
    )
    attention = sum(pairs(batch, rows, keys, 512, 6) for rows, keys in ((512, 512), (128, 128), (128, 512)))
    return Case("T5-small", f"b{batch}, 512 to 128", Form(linear, attention), build)


def whisper() -> Case:
    """The encoder of Whisper-small on 30 s of sound."""
    sizes = {"d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072}

    def build() -> Built:
        model = _made(
            "WhisperEncoder", {**sizes, "num_mel_bins": 80}, home="transformers.models.whisper.modeling_whisper"
        )
        return Summed(model, "last_hidden_state"), (torch.randn(1, 80, 3000),)

    first, second = 2.0 * 3000 * 80 * 3 * 768, 2.0 * 1500 * 768 * 3 * 768
    linear = transformer(768, 3072, 1500, 12) + first + second
    form = Form(linear, pairs(1, 1500, 1500, 768, 12), no_gradient=first)
    return Case("Whisper-small enc.", "b1, 30 s", form, build)


def mixtral() -> Case:
    """Four layers of Mixtral's kind at width 1024: two of eight experts a token."""
    sizes = {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 4, "vocab_size": 32000}

    def build() -> Built:
        model = _made("MixtralForCausalLM", {**sizes, "num_attention_heads": 16, "num_key_value_heads": 4})
        return Summed(model, "logits"), (_ids(32000, 1, 512),)

    experts = 2.0 * 512 * 4 * (1024 * 8 + 2 * 3 * 1024 * 3584)  # the router, and two of eight experts
    linear = 2.0 * 512 * 4 * 1024 * 1024 * 2.5 + experts + 2.0 * 512 * 1024 * 32000
    form = Form(linear, causal=pairs(1, 512, 512, 1024, 4), causal_share=triangle(512))
    return Case("Mixtral-mini", "b1 s512", form, build)


class DitBlock(nn.Module):
    """A block of DiT-XL/2: adaptive layer norm from a condition, width 1152, 16 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(1152, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(1152, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(1152, 3456), nn.Linear(1152, 1152)
        self.up, self.down = nn.Linear(1152, 4608), nn.Linear(4608, 1152)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(1152, 6 * 1152))

    def forward(self, x: Any, condition: Any) -> Any:
        """x: [B, S, 1152], condition: [B, 1152] -> [B, S, 1152]."""
        a, b, c, d, e, f = self.modulation(condition).unsqueeze(1).chunk(6, -1)
        parts = self.qkv(self.norm1(x) * (1 + a) + b).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (16, 72)).transpose(1, 2) for part in parts)
        x = x + c * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + d * self.down(F.gelu(self.up(self.norm2(x) * (1 + e) + f), approximate="tanh"))


class Dit(nn.Module):
    """Four blocks; the result is summed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DitBlock() for _ in range(4))

    def forward(self, x: Any, condition: Any) -> Any:
        """x: [B, S, 1152], condition: [B, 1152] -> a loss."""
        for block in self.blocks:
            x = block(x, condition)
        return x.float().sum()


def dit(batch: int = 8) -> Case:
    """Four blocks of DiT-XL/2 with adaptive layer norm: 256 tokens."""
    modulation = 4 * 2.0 * batch * 1152 * 6 * 1152  # its input, the condition, needs no gradient
    linear = transformer(1152, 4608, batch * 256, 4) + modulation
    form = Form(linear, pairs(batch, 256, 256, 1152, 4), no_gradient=modulation)
    return Case(
        "DiT-XL/2 x 4",
        f"b{batch}, 256 tokens",
        form,
        lambda: (Dit().train(), (torch.randn(batch, 256, 1152), torch.randn(batch, 1152))),
    )


CASES = (bert(), gpt2(), llama(), resnet(), vit(), t5(), whisper(), mixtral(), dit())
SMALL = (bert(1), gpt2(), llama(256), resnet(1), vit(1), t5(1), whisper(), mixtral(), dit(1))
"""The same at batch 1, and Llama with fewer tokens: for counters that compute what they count."""


def on_device(name: str) -> AbstractContextManager[Any]:
    """Where a model is built: on the CPU or its stand-in, or on meta."""
    context: AbstractContextManager[Any] = nullcontext() if name == "cpu" else torch.device(name)
    return context


def counted(case: Case, where: str, *, training: bool) -> Any:
    """gobrrr's count of one case: a `Counted`."""
    import gobrrr

    def workload() -> Any:
        with on_device(where):
            model, inputs = case.build()

        def step() -> None:
            with torch.set_grad_enabled(training):
                loss = model(*inputs)
            if training:
                loss.backward()

        return gobrrr.Workload(step=step, name=case.name)

    return gobrrr.count(workload)


def row_of(case: Case) -> dict[str, Any]:
    """One case, counted on each device, forward and training; FLOPs, and how many calls are unknown by operation."""
    form = case.form
    row: dict[str, Any] = {"model": case.name, "what": case.what, "forward": form.forward, "square": form.square}
    row |= {"training": form.training, "attention": form.attention + form.causal}
    for where in DEVICES:
        for name in PASSES:
            found = counted(case, where, training=name == "training")
            row[f"{where}_{name}"] = found.flop_contraction
            row[f"{where}_{name}_unknown"] = found.unknown
    return row


def main() -> int:
    """Count every case and write the table's data."""
    transformers = importlib.import_module("transformers")
    rows = []
    for case in CASES:
        row = row_of(case)
        rows.append(row)
        ratios = (f"{where} {name} {row[f'{where}_{name}'] / row[name]:.4f}" for where in DEVICES for name in PASSES)
        print(f"{case.name:20s}", *ratios, flush=True)
    results = {
        "command": "python -m bench.closed_forms",
        "date": pages.today(),
        "device": "none (fake tensors)",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "rows": rows,
    }
    pages.write(RESULTS, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
