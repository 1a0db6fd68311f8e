"""The constants of compiled and of captured code are what the shipped traces say."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.analysis.evidence import Evidence
from gobrrr.analysis.path import path_of
from gobrrr.analysis.regions import COMPILED_HOST, IN_GRAPH_NS, LEAN_HOST
from gobrrr.observe.trace import read_trace
from gobrrr.pipeline import evidence_of
from tests.conftest import H100

PAIRS = {
    "vit_b16_b64.fwd": "vit_b16_b64.fwd_compiled",
    "bert_base_b32_s512.fwd": "bert_base_b32_s512.fwd_compiled",
    "dit_adaln.faulty": "dit_adaln.fixed",
    "dit_xl_b8_s256.fwd": "dit_xl_b8_s256.fwd_compiled",
}
"""Eager and compiled forms of one step."""


def shipped(name: str) -> Evidence:
    return evidence_of(read_trace(str(H100 / f"{name}.json.gz")).ranks[0])[0]


def test_what_compiled_code_needs_of_the_host():
    shares = [path_of(shipped(then)).host / path_of(shipped(now)).host for now, then in PAIRS.items()]
    assert sorted(shares) == pytest.approx([0.37, 0.67, 0.88, 1.11], abs=0.01)
    assert np.mean(shares) == pytest.approx(COMPILED_HOST, abs=0.02)
    assert min(shares) == pytest.approx(LEAN_HOST, abs=0.01)


def test_what_passes_between_the_kernels_of_a_graph():
    seen = shipped("mlp_tiny.fixed")
    rows = seen.priced.links.device
    pauses = seen.events.start_ns[rows][1:] - seen.events.end_ns[rows][:-1]
    assert np.percentile(pauses, 50) <= IN_GRAPH_NS
    assert np.percentile(pauses, 75) == pytest.approx(IN_GRAPH_NS, rel=0.05)
