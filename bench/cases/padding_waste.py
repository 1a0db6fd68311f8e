"""A batch of sequences of unequal lengths, padded to the longest."""

import torch

from gobrrr import Workload

CASE, CODE, RUNS_ON = "PADDING", "M11", "cpu"
BATCH, LONGEST, WIDTH, KINDS = 8, 256, 64, 1000


def _made(device: str, lengths: list[int]) -> Workload:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.0)
    model = torch.nn.Sequential(torch.nn.Embedding(KINDS, WIDTH, padding_idx=0), layer, torch.nn.Linear(WIDTH, KINDS))
    model = model.to(device)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(1, KINDS, (length,))
    ids = ids.to(device)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        scores = model(ids)
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten(), ignore_index=0).backward()

    return Workload(model=model, step=step, name="padded batch")


def faulty(device: str = "cpu") -> Workload:
    """One long sequence among short ones."""
    return _made(device, [LONGEST] + [LONGEST // 8] * (BATCH - 1))


def fixed(device: str = "cpu") -> Workload:
    """Sequences of about one length together."""
    return _made(device, [LONGEST // 8] * BATCH)
