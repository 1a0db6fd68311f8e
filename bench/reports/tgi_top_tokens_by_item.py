"""A text server that takes each of the most probable tokens out of its tensor by .item()."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/huggingface/text-generation-inference/issues/604"
MECHANISM = 6
CAUSE = ".item() for each top token in a loop"
REPORTED = "the author takes it for a part of what ten top tokens a token cost"
NAMES = r"\breads?\b|\bitem\b|tolist|_local_scalar_dense|value of a tensor"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    head = torch.nn.Linear(64, 1_000).to(device)
    hidden = torch.randn(32, 64, device=device)

    def rows(values: torch.Tensor, tokens: torch.Tensor) -> list[list[tuple[int, float]]]:
        if not sick:
            return [list(zip(*row, strict=True)) for row in zip(tokens.tolist(), values.tolist(), strict=True)]
        result = []
        for ids, scores in zip(tokens, values, strict=True):
            result.append([(token.item(), score.item()) for token, score in zip(ids, scores, strict=True)])  # cause
        return result

    def step() -> torch.Tensor:
        with torch.no_grad():
            values, tokens = head(hidden).log_softmax(dim=-1).topk(5)
            return torch.tensor([row[0][0] for row in rows(values, tokens)])

    return Workload(model=head, step=step, name="top tokens")
