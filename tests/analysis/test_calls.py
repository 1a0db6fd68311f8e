"""Calls by their names, however long these are."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gobrrr.analysis.calls import Call, classify, communicates


def test_a_name_is_told_by_its_beginning():
    names = ("cudaMalloc" + "x" * 20_000, "a" * 20_000 + "DataLoader", "void nccl<" + "k" * 20_000 + ">")
    assert classify(names).tolist() == [Call.ALLOCATE, Call.OTHER, Call.OTHER]
    assert communicates(names).tolist() == [False, False, True]


def test_thousands_of_endless_names():
    names = tuple("k" * 20_000 + str(number) for number in range(3_000))
    begin = time.perf_counter()
    classify(names)
    communicates(names)
    assert time.perf_counter() - begin < 5


def test_the_answer_is_kept_and_nobody_can_change_it():
    names = ("cudaFree", "aten::mm")
    assert classify(names) is classify(list(names))
    with pytest.raises(ValueError, match="read-only"):
        classify(names)[0] = Call.WAIT
    assert np.array_equal(classify(names), [Call.ALLOCATE, Call.OTHER])
