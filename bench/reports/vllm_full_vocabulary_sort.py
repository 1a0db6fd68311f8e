"""Top-k and top-p sampling that sorts the whole vocabulary, of which k tokens are kept."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/vllm-project/vllm/pull/32234"
MECHANISM = 2
CAUSE = "the whole vocabulary is sorted where the k largest are enough"
REPORTED = "5 to 8 times on the sampler"
NAMES = r"\bsort"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    head = torch.nn.Linear(128, 32_000).to(device)
    hidden = torch.randn(8, 128, device=device)

    def kept(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if sick:
            values, tokens = logits.sort(dim=-1, descending=True)  # cause
            return values[:, :100], tokens[:, :100]
        values, tokens = logits.topk(100, dim=-1)
        return values, tokens

    def step() -> torch.Tensor:
        with torch.no_grad():
            values, tokens = kept(head(hidden))
            shares = values.softmax(dim=-1)
            shares = shares.masked_fill(shares.cumsum(dim=-1) - shares > 0.9, 0.0)
            return tokens.gather(1, shares.argmax(dim=-1, keepdim=True))

    return Workload(model=head, step=step, name="sampling")
