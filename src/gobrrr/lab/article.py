"""What the article claims, word for word, and what an H100 gave for the same experiments.

The quotes are from https://horace.io/brrr_intro.html; "1a" is the first claim that experiment 1 looks at.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from gobrrr.model.experiment import ArticleClaim

URL = "https://horace.io/brrr_intro.html"
H100 = "H100 80GB HBM3, torch 2.11.0+cu130, Triton 3.6.0 (gobrrr/data/h100/article.json)"


def _claim(number: str, quote: str) -> ArticleClaim:
    return ArticleClaim(number=number, quote=quote, source=URL)


FLAT = _claim("1a", "the runtime doesn't increase noticeably at all until we're performing 64 multiplications [A100]")
LINEAR = _claim("1b", "As we double the compute intensity, this number grows linearly, until we get close to our peak")
NEAR_PEAK = _claim(
    "1c",
    "our memory bandwidth achieved starts out near the peak, and as we increase our compute intensity it starts to "
    "drop",
)
FOOTNOTE = _claim(
    "1d", "for fully general purpose computation, an A100 actually only achieves 9.75 teraflops [of 19.5]"
)
TWICE = _claim("2a", "we only need 2 global memory reads and writes! So operator fusion will speed it up by 2x")
SAME = _claim("2b", "a fused x.cos().cos() will take nearly the exact same time as calling x.cos() by itself")
ACTIVATIONS = _claim(
    "3a",
    "activation functions are nearly all the same cost, despite gelu obviously consisting of many more operations than "
    "relu",
)
ROUNDING = _claim("4a", "altogether, our non-matmul ops only make up 0.2% of our FLOPS")
RUNTIME = _claim(
    "4b", "% Runtime: tensor contraction 61.0, statistical normalization 25.5, element-wise 13.5 [39 outside matmuls]"
)
NORMALIZATION = _claim("4c", "the normalization [...] ops actually achieve 250x less FLOPS [...] than our matmuls")
POINTWISE = _claim("4d", "[...] pointwise ops actually achieve [...] 700x less FLOPS than our matmuls")
PYTHON = _claim("5a", "Python can perform 32 million additions in one second")
FRAMEWORK = _claim(
    "5b", "If you perform the same experiment with PyTorch, we can only get 280 thousand operations per second"
)
ONE_BOX = _claim(
    "5c", "That box right there? That's what's performing the actual computation. Everything else is pure overhead."
)
AHEAD = _claim(
    "5d",
    'as long as PyTorch can "run ahead" of the CUDA kernels, most of the framework overhead gets completely hidden!',
)
STARVED = _claim(
    "5e",
    "if our GPU operators are too small, then our GPU is going to spend most of its time as an expensive paperweight",
)
DOUBLING = _claim(
    "6a", "if you double your batch size but your runtime only increases by 10%, you're likely overhead bound"
)
TRAP = _claim(
    "6b",
    "If B is less than D [...] you might negligibly increase your total memory bandwidth, while doubling your compute",
)
UTIL = _claim(
    "7a", "GPU-Util [...] is basically measuring what percentage of the bottom row is actually running a GPU kernel"
)
UTIL_OVERHEAD = _claim("7b", "So that's another good way of eyeballing overhead.")
REMAT_TIME = _claim("8a", "doing extra recomputation might lead to less memory-bandwidth, and thus less runtime")
REMAT_BOTH = _claim("8b", "we can lower both memory and runtime through rematerialization")
TENSOR_CORES = _claim(
    "9a",
    "if you aren't doing matrix multiplication, you'll only be able to achieve 19.5 teraflops instead of the stated "
    "312",
)

A100_KNEE = (32.0, 64.0)
"""Repeats between which the article's A100 turns from memory-bound to compute-bound."""
A100_PEAK_RATIO = 312 / 19.5
PYTHON_ADDS_PER_S = 32e6
TORCH_ADDS_PER_S = 280e3
OPERATOR_SHARES = {
    "tensor contraction": (0.9980, 0.610),
    "statistical normalization": (0.0017, 0.255),
    "element-wise": (0.0003, 0.135),
}
"""The article's table for BERT: share of FLOP, share of runtime."""
OPERATOR_GAPS = {"statistical normalization": 250.0, "element-wise": 700.0}


@cache
def h100() -> dict[str, Any]:
    """The same experiments on an H100, as they were measured; empty where the data is not installed."""
    path = files("gobrrr").joinpath("data/h100/article.json")
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
