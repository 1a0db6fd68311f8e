"""A denoiser that keeps its weights in half precision and converts them in each layer of each step."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/AUTOMATIC1111/stable-diffusion-webui/pull/15820"
MECHANISM = 8
CAUSE = "conversions of weights and activations during inference, where one type throughout needs none"
REPORTED = "about 50 ms of an iteration"
NAMES = r"\bcasts?\b|conver(?:t|sion)|_to_copy|one type|same type"


class _Cast(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))  # cause


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(layer for _ in range(24) for layer in (_Cast(64, 64) if sick else torch.nn.Linear(64, 64), torch.nn.SiLU()))
    ).to(device)
    if sick:
        model.half()
    x = torch.randn(4, 64, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    return Workload(model=model, step=step, name="denoising")
