"""A zoo of workloads with random weights: public architectures as one step callable a mode.

    python -m bench.models            # lists the names, parameters and modes

`ZOO[name](device)` builds one on any device, "meta" and fake tensors too: nothing is downloaded, no data is read. The
first five are those of `data/h100/labels.json`, rebuilt so that their ops, shapes and dtypes are those of the traces
there. Those with `library` set are classes of the library transformers; the others need torch alone.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from bench import networks, vision
from bench.networks import tokens

Tensor = Any
Mode = Literal["fwd", "fwdbwd", "train"]
Policy = Literal["bf16", "fp32", "tf32", "amp"]
"""bf16: weights and inputs in bf16. amp: fp32 weights under bf16 autocast. tf32, fp32: fp32 with TF32 allowed or not
in matmuls and convolutions."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model with inputs: `loss` runs the forward pass; mode "train" steps `optimizer`, None where undefined."""

    model: Any
    loss: Callable[[], Tensor]
    policy: Policy
    device: str
    optimizer: Callable[[Any], Any] | None = None
    modes: tuple[Mode, ...] = ("fwd", "fwdbwd")

    def step(self, mode: Mode) -> Callable[[], Tensor]:
        """fwd: forward in eval mode without gradients. fwdbwd: forward, loss, backward, gradients set to None.
        train: the same with an optimizer step. Each returns the loss (fwd: the loss of a forward pass)."""
        self.model.train(mode != "fwd")
        optimizer = self.optimizer(self.model.parameters()) if mode == "train" and self.optimizer else None

        def forward() -> Tensor:
            with torch.no_grad(), self._rules():
                return self.loss()

        def backward() -> Tensor:
            with self._rules():
                with torch.autocast(self._kind(), torch.bfloat16, enabled=self.policy == "amp"):
                    loss = self.loss()
                loss.backward()
                if optimizer is not None:
                    optimizer.step()
            self.model.zero_grad(set_to_none=True)
            return loss

        if mode == "fwd" and self.policy == "amp":
            return lambda: self._autocast(forward)
        return forward if mode == "fwd" else backward

    def _autocast(self, call: Callable[[], Tensor]) -> Tensor:
        with torch.autocast(self._kind(), torch.bfloat16):
            return call()

    def _kind(self) -> str:
        return "cpu" if self.device == "meta" else self.device.partition(":")[0]

    @contextlib.contextmanager
    def _rules(self) -> Iterator[None]:
        """TF32 for matmuls and convolutions as the policy says; what was set before is set again."""
        if self.policy not in ("fp32", "tf32"):
            yield
            return
        matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, convolution.allow_tf32
        matmul.allow_tf32 = convolution.allow_tf32 = self.policy == "tf32"
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32 = before


@dataclass(frozen=True)
class Recipe:
    """How a workload is built: `make(**full)`, or with `tiny` over it for a machine without an accelerator."""

    make: Callable[..., tuple[Any, Callable[[], tuple[Any, ...]], Callable[..., Tensor]]]
    full: dict[str, Any]
    tiny: dict[str, Any]
    policy: Policy = "bf16"
    optimizer: Callable[[Any], Any] | None = None
    modes: tuple[Mode, ...] = ("fwd", "fwdbwd")
    channels_last: bool = False
    library: bool = False

    def __call__(self, device: str, policy: Policy | None = None, *, tiny: bool = False) -> Workload:
        """The workload on `device` under `policy` (None: its own); `tiny`: few and small layers."""
        policy = policy or self.policy
        dtype = torch.bfloat16 if policy == "bf16" else torch.float32
        torch.manual_seed(0)
        with torch.device(device):
            model, inputs, loss = self.make(**{**self.full, **(self.tiny if tiny else {})})
            given = tuple(inputs())
        given = tuple(converted(tensor, dtype, self.channels_last) for tensor in given)
        convert(model, dtype, self.channels_last)
        return Workload(
            model=model, loss=lambda: loss(model, *given), policy=policy, device=str(device),
            optimizer=self.optimizer, modes=self.modes,
        )  # fmt: skip


def converted(x: Tensor, dtype: Any, channels_last: bool) -> Tensor:
    """`x` in `dtype` if it is of floats; images and filters in channels-last layout if so wished."""
    x = x.detach().to(dtype) if torch.is_floating_point(x) else x
    return x.contiguous(memory_format=torch.channels_last) if channels_last and x.dim() == 4 else x


def convert(model: Any, dtype: Any, channels_last: bool) -> None:
    """What `model.to` does, one parameter at a time (shared ones once): `to` can't swap those of fake tensors."""
    done: dict[int, tuple[Any, Any]] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if id(parameter) not in done:
                done[id(parameter)] = parameter, torch.nn.Parameter(converted(parameter, dtype, channels_last))
            setattr(module, name, done[id(parameter)][1])
        for name, buffer in list(module.named_buffers(recurse=False, remove_duplicate=False)):
            module._buffers[name] = converted(buffer, dtype, channels_last)


def library(kind: str, loss: Callable[..., Tensor], inputs: Callable[..., Any], shape: Any, **config: Any) -> Any:
    """A class of the library transformers with random weights."""
    home = importlib.import_module("transformers")
    stem = kind.partition("For")[0]
    stem = "Whisper" if stem.startswith("Whisper") else stem
    settings = getattr(home, f"{stem}Config")(**config)
    where = "transformers.models.whisper.modeling_whisper" if stem == "Whisper" else "transformers"
    return getattr(importlib.import_module(where), kind)(settings), lambda: inputs(*shape), loss


def _causal(model: Any, ids: Tensor) -> Tensor:
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def _pairs(model: Any, ids: Tensor, labels: Tensor) -> Tensor:
    return model(input_ids=ids, labels=labels, use_cache=False).loss


def _hidden(model: Any, x: Tensor) -> Tensor:
    return model(x).last_hidden_state.float().mean()


def adamw_foreach(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-4, foreach=True)


def adamw_fused(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=True)


_MOBILE = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
           (6, 320, 1, 1, 3))  # fmt: skip
_EFFICIENT = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
              (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))  # fmt: skip
_LLAMA = {"kind": "LlamaForCausalLM", "loss": _causal, "inputs": lambda *shape: (tokens(1000, *shape),)}
_MIXTRAL = {**_LLAMA, "kind": "MixtralForCausalLM"}
_T5 = {
    "kind": "T5ForConditionalGeneration", "loss": _pairs,
    "inputs": lambda b, s, t: (tokens(32128, b, s), tokens(32128, b, t)),
}  # fmt: skip
_WHISPER = {"kind": "WhisperEncoder", "loss": _hidden, "inputs": lambda *shape: (torch.randn(*shape),)}
_TRAINED: tuple[Mode, ...] = ("fwd", "fwdbwd", "train")
_TINY_VIT = {"width": 64, "layers": 1, "heads": 1, "batch": 1}
_TINY_TEXT = {"width": 64, "layers": 1, "heads": 2, "batch": 2, "seq": 16}
_TINY_LLAMA = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
               "num_key_value_heads": 2, "shape": (1, 16)}  # fmt: skip
_VIT_S = {"width": 384, "layers": 12, "heads": 6}
_MLP = {"width": 4096, "layers": 8, "batch": 8192}

ZOO: dict[str, Recipe] = {
    "bert_base_b32_s512": Recipe(
        networks.bert, {"width": 768, "layers": 12, "heads": 12, "batch": 32, "seq": 512}, _TINY_TEXT
    ),
    "gpt2_b8_s1024": Recipe(
        networks.gpt2, {"width": 768, "layers": 12, "heads": 12, "batch": 8, "seq": 1024}, _TINY_TEXT
    ),
    "resnet50_b64_cl": Recipe(vision.resnet, {"batch": 64}, {"batch": 2, "side": 64}, channels_last=True),
    "vit_b16_b64": Recipe(vision.vit, {"width": 768, "layers": 12, "heads": 12, "batch": 64}, _TINY_VIT),
    "dit_xl_b8_s256": Recipe(
        vision.dit, {"width": 1152, "layers": 28, "heads": 16, "batch": 8, "seq": 256}, _TINY_TEXT
    ),
    "llama_1b_b1_s2048": Recipe(
        library,
        {**_LLAMA, "shape": (1, 2048), "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 8192,
         "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
        _TINY_LLAMA, library=True,
    ),
    "llama_small_b8_s1024": Recipe(
        networks.llama,
        {"batch": 8, "seq": 1024, "width": 768, "layers": 12, "heads": 12, "groups": 4, "hidden": 2048,
         "vocab": 32000, "cache": 0},
        {"batch": 1, "seq": 16, "width": 64, "layers": 1, "heads": 4, "groups": 2, "hidden": 128, "vocab": 1000},
        optimizer=adamw_fused, modes=_TRAINED,
    ),
    "llama_decode_b1_kv2048": Recipe(
        networks.llama,
        {"batch": 1, "seq": 1, "width": 2048, "layers": 16, "heads": 32, "groups": 8, "hidden": 8192, "vocab": 32000,
         "cache": 2048},
        {"width": 64, "layers": 1, "heads": 4, "groups": 2, "hidden": 128, "cache": 16}, modes=("fwd",),
    ),
    "mixtral_mini_b2_s1024": Recipe(
        library,
        {**_MIXTRAL, "shape": (2, 1024), "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3584,
         "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
         "experts_implementation": "grouped_mm"},
        _TINY_LLAMA, library=True,
    ),
    "t5_small_b16_s512": Recipe(
        library,
        # the version that was measured had no other attention; newer ones would take SDPA
        {**_T5, "shape": (16, 512, 128), "decoder_start_token_id": 0, "attn_implementation": "eager"},
        {"shape": (1, 16, 8), "num_layers": 1},
        library=True,
    ),
    "whisper_small_encoder_b8": Recipe(
        library,
        {**_WHISPER, "shape": (8, 80, 3000), "d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12,
         "encoder_ffn_dim": 3072},
        {"encoder_layers": 1, "encoder_attention_heads": 2, "shape": (1, 80, 3000), "d_model": 64,
         "encoder_ffn_dim": 128}, library=True,
    ),
    "bert_large_b8_s512_amp": Recipe(
        networks.bert, {"width": 1024, "layers": 24, "heads": 16, "batch": 8, "seq": 512}, _TINY_TEXT, "amp",
        adamw_fused, _TRAINED,
    ),
    "gpt2_medium_b4_s1024_amp": Recipe(
        networks.gpt2, {"width": 1024, "layers": 24, "heads": 16, "batch": 4, "seq": 1024}, _TINY_TEXT, "amp",
        adamw_foreach, _TRAINED,
    ),
    "bert_base_b1_s128": Recipe(
        networks.bert, {"width": 768, "layers": 12, "heads": 12, "batch": 1, "seq": 128}, _TINY_TEXT
    ),
    "convnext_tiny_b64": Recipe(
        vision.convnext, {"batch": 64, "depths": (3, 3, 9, 3), "widths": (96, 192, 384, 768)},
        {"batch": 1, "depths": (1, 1), "widths": (16, 32), "side": 32}, channels_last=True,
    ),
    "mobilenet_v2_b64": Recipe(
        vision.mbconv, {"batch": 64, "rows": _MOBILE, "excite": False}, {"batch": 2, "side": 32, "rows": _MOBILE[:2]},
        optimizer=sgd, modes=_TRAINED, channels_last=True,
    ),
    "efficientnet_b0_b64_amp": Recipe(
        vision.mbconv, {"batch": 64, "rows": _EFFICIENT, "excite": True},
        {"batch": 2, "side": 32, "rows": _EFFICIENT[:2]}, "amp", sgd, _TRAINED, channels_last=True,
    ),
    "unet_b4_s64": Recipe(
        vision.unet, {"batch": 4, "side": 64, "widths": (256, 512, 1024)},
        {"batch": 1, "side": 8, "widths": (32, 64)},
    ),
    "resnet50_b8_tf32": Recipe(vision.resnet, {"batch": 8, "labels": True}, {"batch": 2, "side": 64}, "tf32", sgd,
                               _TRAINED),
    "dlrm_b8192_tf32": Recipe(
        networks.dlrm, {"batch": 8192, "tables": 26, "rows": 200_000, "width": 64, "bag": 4},
        {"batch": 4, "tables": 3, "rows": 50}, "tf32", sgd, _TRAINED,
    ),
    "lstm_lm_b64_s128": Recipe(
        networks.lstm, {"batch": 64, "seq": 128, "vocab": 10_000, "width": 1024, "layers": 2},
        {"batch": 2, "seq": 4, "vocab": 50, "width": 16},
    ),
    "mlp_b8192_fp32": Recipe(networks.mlp, _MLP, {"batch": 4, "width": 32, "layers": 2}, "fp32"),
    "mlp_b8192_tf32": Recipe(networks.mlp, _MLP, {"batch": 4, "width": 32, "layers": 2}, "tf32"),
    "vit_s16_b32_fp32": Recipe(vision.vit, {**_VIT_S, "batch": 32}, _TINY_VIT, "fp32"),
    "vit_s16_b32_tf32": Recipe(vision.vit, {**_VIT_S, "batch": 32}, _TINY_VIT, "tf32"),
    "vit_s16_b1": Recipe(vision.vit, {**_VIT_S, "batch": 1}, _TINY_VIT),
}  # fmt: skip
"""Every workload by name."""


def main() -> None:
    """Print each workload's parameters, policy and modes."""
    for name, recipe in ZOO.items():
        work = recipe("meta")
        count = sum(parameter.numel() for parameter in work.model.parameters())
        print(f"{name:28} {count:>13,} {work.policy:5} {' '.join(work.modes)}")


if __name__ == "__main__":
    main()
