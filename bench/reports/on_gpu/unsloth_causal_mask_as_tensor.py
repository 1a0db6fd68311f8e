"""A causal mask as a tensor, with heads of 256: the kernels that know what causal means don't take a mask."""

import torch

from bench.reports.on_gpu import DEVICE, REDUCED, sized
from gobrrr import Workload

SOURCE = "https://github.com/unslothai/unsloth/pull/11102"
MECHANISM = 2
CAUSE = "attn_mask is given to scaled_dot_product_attention where is_causal would do, with heads of 256"
REPORTED = "5.6 to 8.8 times the time of attention without a mask, on a B200"
NAMES = r"attn_mask|is_causal|\bmask"
HEADS, LENGTH, HEAD = sized(8, 2), sized(4096, 128), sized(256, 32)


def made(*, sick: bool) -> Workload:
    torch.manual_seed(0)
    width = HEADS * HEAD
    model = torch.nn.ModuleDict({
        "qkv": torch.nn.Linear(width, 3 * width, bias=False, device=DEVICE, dtype=REDUCED),
        "o": torch.nn.Linear(width, width, bias=False, device=DEVICE, dtype=REDUCED),
    })  # fmt: skip
    x = torch.randn(2, LENGTH, width, device=DEVICE, dtype=REDUCED)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=DEVICE).tril()

    def attend() -> torch.Tensor:
        q, k, v = model["qkv"](x).view(2, LENGTH, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        if sick:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=causal)  # cause
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def step() -> torch.Tensor:
        loss = model["o"](attend().transpose(1, 2).reshape(2, LENGTH, width)).float().square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return Workload(model=model, step=step, name="an attention layer")
