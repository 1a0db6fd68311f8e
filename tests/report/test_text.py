from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gobrrr.report.text import clean_lines, sanitise, short_name, shorten, to_ascii, wrap


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("cut \x1b[", "cut"),
        ("a\r\n\tb", "a b"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("x\u202ey", "x\ufffdy"),
        ("x\u200by", "x\ufffdy"),
        ("x\ud800y", "x\ufffdy"),
        ("x\x00\x07\x9by", "x\ufffd\ufffd\ufffdy"),
        ("x\u2028y", "x\ufffdy"),
        ("模型 é", "模型 é"),
        ("", ""),
    ],
)
def test_sanitise_makes_one_safe_line(hostile: str, shown: str) -> None:
    assert sanitise(hostile) == shown


@given(st.text(alphabet=st.characters()))
def test_sanitised_text_holds_no_control_and_can_be_written(text: str) -> None:
    clean = sanitise(text)
    assert "\x1b" not in clean
    assert "\n" not in clean
    clean.encode("utf-8")
    assert sanitise(clean) == clean


def test_megabytes_are_cut_before_they_are_looked_at() -> None:
    assert len(sanitise("x" * 10_000_000)) == 4096


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten::addmm", "aten::addmm"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "autograd::engine::evaluate_function: AddmmBackward0"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("triton_poi_fused_add_gelu_0", "triton_poi_fused_add_gelu_0"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
            "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
            "vectorized_elementwise_kernel",
        ),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<float, 10>(float*)", "softmax_warp_forward"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_gemm>(Params)", "cutlass_80_tensorop_bf16_gemm"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(Storage<4096ul>)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"),
        ("void k<unbalanced", "k"),
        ("void <<<<", "void <<<<"),
        (">>>)", ">>>)"),
    ],
)
def test_kernel_names_lose_their_decoration(name: str, shown: str) -> None:
    assert short_name(name) == shown


@given(st.text())
def test_every_name_has_a_short_one(name: str) -> None:
    assert bool(short_name(name)) == bool(sanitise(name))


@given(st.text(alphabet="ab模 ", max_size=40), st.integers(8, 30))
def test_shortened_text_fits(text: str, width: int) -> None:
    assert cell_len(shorten(text, width)) <= width


@given(st.text(alphabet="ab模 ", max_size=90), st.integers(8, 30))
def test_wrapped_text_fits_and_loses_nothing_but_spaces(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_code_keeps_its_lines_and_indentation() -> None:
    assert clean_lines("\n\nwith x:\n    y\x1b[0m\n\n") == ["with x:", "    y"]
    assert clean_lines("\tf('a  b')  # c\r\n\x07") == ["    f('a  b')  # c", "\ufffd"]


def test_ascii_replaces_what_it_lacks() -> None:
    assert to_ascii("é→x") == "??x"


def test_a_number_stays_with_its_unit() -> None:
    assert wrap("backward 33 %; of that 1.5 GB/s, 20 more", 25) == ["backward 33 %; of that", "1.5 GB/s, 20 more"]
    assert wrap("backward 33 %; of", 12) == ["backward", "33 %; of"]
    assert wrap("takes 25 to 101 ms in all", 15) == ["takes 25 to", "101 ms in all"]
    assert wrap("there are 33 small ones", 12) == ["there are 33", "small ones"]
