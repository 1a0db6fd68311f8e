"""The workloads of the bench of treatments, one file a kind of network, and which of them are set aside.

A third is set aside before anything is fitted (`HELD_BACK`), by a rule that knows names alone: of each family (on a
CPU: of all) in the order of SHA-256 of the names, the second, the fifth, the eighth and so on. It is looked at once, at
the end. A workload that is added later may not be put into the list by hand: tests/bench/test_treatment_workloads.py
holds the list against the rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from bench.gpu.treatment_workloads import (
    audio,
    convolution,
    decoding,
    diffusion,
    graphs,
    language,
    loading,
    processor,
    recurrent,
    t5,
    tables,
)
from bench.gpu.treatment_workloads.form import ENTRIES, Entry
from bench.gpu.treatment_workloads.written import WRITTEN

__all__ = ["ENTRIES", "HELD_BACK", "KNOWN", "Entry", "set_aside"]

SOURCES = (
    convolution, language, t5, diffusion, recurrent, tables, graphs, audio, decoding, loading, processor,
)  # fmt: skip
"""Imported for their workloads, which stand in ENTRIES then."""

KNOWN = {**ENTRIES, **WRITTEN}
"""All of them by name, those that people write as scripts too."""

HELD_BACK = frozenset({
    "bert_serve_one", "conformer_train", "conv_convnext_train", "conv_resnet26_train", "cpu_decode_one",
    "cpu_dlrm_serve", "cpu_gpt_train", "cpu_moe_loop_serve", "cpu_rows_train", "cpu_wavenet_serve_one",
    "decode_cat", "dqn_train", "gat_train", "gpt_prompt_serve", "gru_cell_serve", "moe_loop_serve", "rows_train",
    "t5_encoder_serve", "tabular_serve", "unet_serve_one", "vit_small_train", "wide_and_deep_train",
})  # fmt: skip


def set_aside(entries: Iterable[Entry]) -> frozenset[str]:
    """The names that the rule sets aside."""
    strata: dict[str, list[str]] = {}
    for entry in entries:
        strata.setdefault("cpu" if entry.device == "cpu" else entry.family, []).append(entry.name)
    chosen: list[str] = []
    for names in strata.values():
        chosen += sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[1::3]
    return frozenset(chosen)
