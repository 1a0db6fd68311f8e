"""The cases of the op sweep: every family's ops over sizes, dtypes and layouts. `op_sweep.py` runs them."""

from bench.gpu import op_cases_contraction as contraction
from bench.gpu import op_cases_traffic as traffic
from bench.gpu.case import Case, Where


def families(device: str) -> dict[str, list[Case]]:
    """Every family's cases, those that models need most first."""
    Where.device = device
    every = (
        contraction.matmuls, contraction.convolutions, contraction.attention, traffic.norms, traffic.softmaxes,
        traffic.pointwise, traffic.reductions, traffic.movement, traffic.indexing, traffic.optimizers,
        traffic.pooling, contraction.recurrent, contraction.low_precision, traffic.transfers,
    )  # fmt: skip
    return {family.__name__: list(family()) for family in every}
