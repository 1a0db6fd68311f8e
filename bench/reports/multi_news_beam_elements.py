"""A beam search that looks at its tokens one by one."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/Alex-Fabbri/Multi-News/pull/24"
MECHANISM = 6
CAUSE = "`if tokens[i] == eos` for each element: an operation and a read each, instead of one list"
REPORTED = "24 h of decoding to 2 h"
NAMES = r"\breads?\b|is_nonzero|\bitem\b|tolist|value of a tensor|waits? for"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 50)).to(device)
    hidden = torch.randn(160, 64, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            tokens = model(hidden).argmax(dim=-1)
            ended = []
            for at, token in enumerate(tokens if sick else tokens.tolist()):  # cause
                if token == 3:  # cause
                    ended.append(at)
            return torch.tensor(ended)

    return Workload(model=model, step=step, name="a step of a beam search")
