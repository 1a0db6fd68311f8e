"""A table of embeddings for each field of a row, looked up in a loop; one table with offsets does it at once."""

import torch

from gobrrr import Workload

SOURCE = "https://github.com/motefly/DeepGBM/issues/17"
MECHANISM = 5
CAUSE = "a loop over 64 embeddings, one a field, where one table with an offset a field is looked up once"
REPORTED = ""
NAMES = r"\bloop\b|turns|one batched operation|one table|offset"


def made(device: str = "cpu", *, sick: bool) -> Workload:
    torch.manual_seed(0)
    fields, values, width = 64, 50, 8
    tables = torch.nn.ModuleList(torch.nn.Embedding(values, width) for _ in range(fields)).to(device)
    table = torch.nn.Embedding(fields * values, width).to(device)
    with torch.no_grad():
        for layer, part in zip(tables, table.weight.chunk(fields), strict=True):
            layer.weight.copy_(part)
    head = torch.nn.Linear(fields * width, 1).to(device)
    rows = torch.randint(values, (256, fields), device=device)
    offsets = torch.arange(fields, device=device) * values

    def embedded() -> torch.Tensor:
        if sick:
            return torch.cat([layer(rows[:, at]) for at, layer in enumerate(tables)], dim=1)  # cause
        return table(rows + offsets).flatten(1)

    def step() -> torch.Tensor:
        loss = head(embedded()).square().mean()
        loss.backward()
        for layer in (tables, table, head):
            layer.zero_grad()
        return loss.detach()

    return Workload(model=tables if sick else table, step=step, name="a model of table rows")
