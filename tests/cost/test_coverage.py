"""Every op of torch has a rule, a tag or a place in the list of those that are unknown on purpose."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from contextlib import suppress
from itertools import islice
from typing import Any
from unittest import mock

import pytest

from gobrrr.cost import price
from gobrrr.cost.registry import find
from gobrrr.cost.shapes import read_bytes
from gobrrr.cost.tags import tags
from gobrrr.model.work import Work
from tests.cost.dispatch import Seen, record, tensor_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

KEYS = (
    "CPU", "Meta", "CUDA", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "QuantizedCPU",
    "SparseCPU", "SparseCsrCPU", "MkldnnCPU", "NestedTensorCPU",
)  # fmt: skip
"""An op with a kernel for one of these reaches the dispatcher below autograd; the others are made of ops that do."""

_UNKNOWN = (
    # nested tensors: their sizes are data
    "_nested_from_padded _nested_from_padded_and_nested_example _nested_get_values_copy _nested_select_backward "
    "_nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list "
    "_nested_tensor_softmax_with_shape _nested_view_from_buffer_copy _nested_view_from_jagged_copy "
    # sparse tensors: index arithmetic, and results whose number of elements is data
    "_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _indices_copy _sparse_broadcast_to "
    "_sparse_broadcast_to_copy _sparse_csr_prod _sparse_csr_sum _sparse_sum_backward _spdiags _values_copy "
    "ccol_indices_copy col_indices_copy copy_sparse_to_sparse copy_sparse_to_sparse_ crow_indices_copy "
    "indices_copy resize_as_sparse row_indices_copy sparse_resize sparse_resize_and_clear values_copy "
    # weights packed once, before the step
    "_convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _cudnn_rnn_flatten_weight "
    "_dyn_quant_pack_4bit_weight "
    # quantized layers that keep their weights in an object
    "quantized_batch_norm quantized_gru quantized_lstm "
    # other devices' own, keys of random numbers, files
    "_lstm_mps lstm_mps_backward cudnn_affine_grid_generator_backward _fill_mem_eff_dropout_mask_ "
    "_philox_key_fold_in _philox_key_split from_file _compute_linear_combination __irshift__ "
    # torch's own tests
    "_foobar _test_autograd_multiple_dispatch _test_autograd_multiple_dispatch_view_copy _test_functorch_fallback "
    "_test_optional_filled_intlist _test_optional_floatlist _test_optional_intlist _test_warn_in_autograd"
)
UNKNOWN = frozenset(f"aten::{name}" for name in _UNKNOWN.split())
"""No rule, and none is meant to be there: they are reported as unknown. Take a name out when it gets a rule."""


def dispatched() -> set[str]:
    """Names of the ops that have a kernel of their own."""
    names = set()
    for full in torch._C._dispatch_get_all_op_names():
        name = full.partition(".")[0]
        exists = name.startswith("aten::") and hasattr(torch.ops.aten, name.removeprefix("aten::"))
        if exists and any(torch._C._dispatch_has_kernel_for_dispatch_key(full, key) for key in KEYS):
            names.add(name)
    return names


def test_every_op_with_a_kernel_is_counted_or_listed() -> None:
    known = tags().pointwise | tags().view
    without = {name for name in dispatched() if find(name) is None and name not in known}
    if torch.__version__.startswith(tags().torch):
        assert without == UNKNOWN
    else:
        assert without <= UNKNOWN | {name for name in without if name.startswith(("aten::_test", "aten::_nested"))}


def test_no_listed_op_has_a_rule() -> None:
    assert [name for name in sorted(UNKNOWN) if find(name) is not None] == []


# torch's own database of operators, with sample arguments for each -------------------------------------------------

UNKNOWN_ALWAYS = {"aten::linalg_matrix_exp"}
"""How many products it takes depends on the values."""
UNKNOWN_IN_A_TRACE = UNKNOWN_ALWAYS | {"aten::_to_sparse", "aten::index", "aten::repeat_interleave"}
"""Their results' sizes are data; what records outputs knows them."""
TWO_KERNELS = (
    "scatter diagonal_backward select_backward slice_backward unfold_backward diag_embed max_unpool put "
    "batch_norm _native_batch_norm_legit"
)
"""Counted exactly, and more than their outputs: zeros or a clone first, running statistics beside."""
WRITES_NOTHING_IT_READS = "zeros_like ones_like full_like fill zero rand new_ normal bernoulli uniform"


SAMPLES = 2
"""Of each operator: the first ones are the usual forms, and five take three times as long to tell the same."""


def sampled() -> list[Seen]:
    """Every call that torch's own samples make, forward and backward, in float32 or the type that there is."""
    pytest.importorskip("expecttest")
    try:
        # torch asks for the stack of callers 700 times, and `inspect` looks through all modules for each frame of it
        with warnings.catch_warnings(), mock.patch("inspect.getmodule", return_value=None):
            warnings.simplefilter("ignore")
            database = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
            return [seen for op in database if "jiterator" not in op.name for seen in _calls(op)]
    finally:
        # torch's own tests forbid setting torch.backends' flags for the rest of the process
        torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True


def _calls(op: Any) -> list[Seen]:
    dtypes = sorted(op.supported_dtypes("cpu"), key=lambda one: (one is not torch.float32, str(one)))
    if not dtypes:  # for other devices
        return []
    dtype = dtypes[0]
    seen: list[Seen] = []
    samples: list[Any] = []
    with suppress(RuntimeError, NotImplementedError, ImportError, AssertionError, ValueError):
        samples = list(islice(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd), SAMPLES))
    for sample in samples:
        with suppress(RuntimeError, NotImplementedError, TypeError, ValueError):  # needs another device or library
            seen += record(lambda sample=sample: _run(op, sample, op.supports_autograd))
    return seen


def _run(op: Any, sample: Any, grad: bool) -> None:
    from torch.utils._pytree import tree_leaves

    result = op(sample.input, *sample.args, **sample.kwargs)
    leaves = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor) and one.requires_grad]
    dense = [one for one in leaves if one.layout is torch.strided]
    if grad and dense:
        sum((one.real if one.is_complex() else one).sum() for one in dense).backward()


@pytest.fixture(scope="module")
def database() -> list[Seen]:
    return sampled()


@pytest.mark.slow
def test_every_sampled_call_is_counted(database: list[Seen]) -> None:
    assert len(database) > 10_000
    unknown = {seen.call.name for seen in database if not price(seen.with_outputs()).known}
    assert unknown == UNKNOWN_ALWAYS
    assert {seen.call.name for seen in database if not price(seen.call).known} <= UNKNOWN_IN_A_TRACE


@pytest.mark.slow
def test_exact_calls_write_their_outputs_without_having_seen_them(database: list[Seen]) -> None:
    """The outputs that rules derive from inputs and scalars are those that torch made."""
    wrong: Counter[str] = Counter()
    for seen in database:
        work = price(seen.call)
        if work.count == "exact" and seen.outputs and not any(word in seen.call.name for word in TWO_KERNELS.split()):
            wrong[seen.call.name] += work.bytes_written != sum(one.numel() * one.element_size() for one in seen.outputs)
    # The CPU saves a second tensor that GPUs don't; zeros-and-copy of a strided view isn't told apart.
    assert {name for name, count in wrong.items() if count} == {"aten::log_sigmoid_forward"}


@pytest.mark.slow
def test_pointwise_calls_read_their_inputs_once(database: list[Seen]) -> None:
    wrong: Counter[str] = Counter()
    for seen in database:
        work = price(seen.call)
        if _reads_all(work, seen):
            wrong[seen.call.name] += work.bytes_read != read_bytes(*map(tensor_of, seen.inputs))
    # A scalar mask value, and the noise that is written rather than read.
    assert {name for name, count in wrong.items() if count} <= {"aten::masked_fill", "aten::rrelu_with_noise"}


def _reads_all(work: Work, seen: Seen) -> bool:
    makes = any(word in seen.call.name for word in (*WRITES_NOTHING_IT_READS.split(), "_like", "cauchy_", "geometric_"))
    out = "out" in seen.call.name or len(seen.inputs) > len(seen.call.inputs)
    handed = bool(seen.outputs) and any(seen.outputs[0] is one for one in seen.inputs[1:])
    random = seen.call.name.rstrip("_").endswith(("exponential", "log_normal"))
    return work.count == "exact" and work.family == "pointwise" and not (makes or out or handed or random)


@pytest.mark.slow
def test_a_view_makes_no_storage(database: list[Seen]) -> None:
    for seen in database:
        if price(seen.call).count == "view" and "empty" not in seen.call.name and "zerotensor" not in seen.call.name:
            made = [one for one in seen.outputs if one.layout is torch.strided and one.numel()]
            known = {one.untyped_storage().data_ptr() for one in seen.inputs if one.layout is torch.strided}
            assert all(one.untyped_storage().data_ptr() in known for one in made), seen.call.name
