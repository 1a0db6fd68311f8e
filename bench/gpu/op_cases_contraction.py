"""Cases of the op sweep whose ops multiply matrices: Linear, mm, bmm, convolution, attention, fp8, int8, recurrent."""

import itertools

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.gpu.case import SHORT, Case, Where, both, randn, trained


def linear(m, k, n, dtype, bias, train):
    def make():
        x, w = randn(m, k, dtype=dtype, grad=train), randn(n, k, dtype=dtype, grad=train)
        given = (x, w, randn(n, dtype=dtype, grad=train)) if bias else (x, w)
        return trained(F.linear, *given) if train else lambda: F.linear(*given)

    return make


def matmuls():
    pairs = [
        (64, 64), (256, 256), (512, 2048), (768, 768), (768, 2304), (768, 3072), (3072, 768), (1024, 1024),
        (1024, 4096), (4096, 1024), (2048, 2048), (2048, 8192), (8192, 2048), (4096, 4096), (4096, 14336),
        (8192, 8192),
    ]  # fmt: skip
    for (k, n), m in itertools.product(pairs, (128, 512, 1024, 4096, 8192, 16384)):
        yield Case(f"linear bf16 {m} {k} {n}", linear(m, k, n, "bf16", m != 1024, True))
    for (k, n), m in itertools.product(pairs, (1, 2, 4, 8, 16, 32, 64)):
        yield from both(f"linear bf16 {m} {k} {n}", linear(m, k, n, "bf16", m == 8, False), 2 * (m * k + k * n))
    for dtype in ("fp16", "fp32", "tf32"):
        for (k, n), m in itertools.product(pairs[1:14:2], (1, 16, 256, 4096)):
            yield Case(f"linear {dtype} {m} {k} {n}", linear(m, k, n, dtype, True, m > 1), tf32=dtype == "tf32")
    odd = [
        (768, 50257), (1024, 50257), (768, 50304), (2048, 32000), (4096, 32000), (4096, 128256), (13, 512),
        (415, 1024), (1023, 1023), (1000, 1001), (4097, 4096), (4096, 4097), (72, 72), (768, 1000), (2048, 1000),
        (1024, 1),
    ]  # fmt: skip
    for (k, n), m in itertools.product(odd, (1, 64, 1000, 8192)):
        if k * n * m < 1 << 42:
            yield Case(f"linear bf16 {m} {k} {n}", linear(m, k, n, "bf16", False, m > 1))
    for (k, n), m in itertools.product(odd[:1] + odd[6:10], (64, 4096)):
        yield Case(f"linear tf32 {m} {k} {n}", linear(m, k, n, "tf32", True, True), tf32=True)
    for n, dtype in itertools.product((64, 128, 256, 512, 1024, 2048, 4096, 6144, 8192, 16384), SHORT):
        if n <= 8192 or dtype in ("bf16", "fp16"):
            yield Case(f"mm {dtype} {n}", lambda n=n, d=dtype: square(n, d), tf32=dtype == "tf32")
    batched = [
        (96, 512, 64, 512), (96, 512, 512, 64), (96, 1024, 64, 1024), (96, 1024, 1024, 64), (384, 197, 64, 197),
        (16, 2048, 128, 2048), (16, 2048, 2048, 128), (8192, 27, 64, 27), (8, 1024, 1024, 1024), (128, 128, 128, 128),
        (32, 1, 128, 2048), (32, 1, 2048, 128), (128, 512, 64, 128), (4, 4096, 4096, 4096),
    ]  # fmt: skip
    for (b, m, k, n), dtype in itertools.product(batched, ("bf16", "tf32", "fp32")):
        yield Case(
            f"bmm {dtype} {b} {m} {k} {n}",
            lambda b=b, m=m, k=k, n=n, d=dtype: trained(
                torch.bmm, randn(b, m, k, dtype=d, grad=True), randn(b, k, n, dtype=d, grad=True)
            ),
            tf32=dtype == "tf32",
        )


def square(n, dtype):
    a, b = randn(n, n, dtype=dtype), randn(n, n, dtype=dtype)
    return lambda: a @ b


CONVOLUTIONS = [  # in, out, side, kernel, stride, groups
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 3, 1, 1),
    (128, 128, 28, 3, 1, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (128, 128, 56, 3, 2, 1),
    (256, 256, 28, 3, 2, 1),
    (64, 256, 56, 1, 1, 1),
    (256, 64, 56, 1, 1, 1),
    (256, 1024, 14, 1, 1, 1),
    (1024, 256, 14, 1, 1, 1),
    (512, 2048, 7, 1, 1, 1),
    (2048, 512, 7, 1, 1, 1),
    (256, 512, 56, 1, 2, 1),
    (512, 1024, 28, 1, 2, 1),
    (256, 256, 64, 3, 1, 1),
    (512, 512, 32, 3, 1, 1),
    (1024, 1024, 16, 3, 1, 1),
    (4, 256, 64, 3, 1, 1),
    (256, 4, 64, 3, 1, 1),
    (3, 768, 224, 16, 16, 1),
    (3, 96, 224, 4, 4, 1),
    (192, 384, 28, 2, 2, 1),
    (3, 32, 224, 3, 2, 1),
    (32, 32, 112, 3, 1, 32),
    (96, 96, 112, 3, 2, 96),
    (144, 144, 56, 3, 1, 144),
    (384, 384, 14, 3, 1, 384),
    (960, 960, 7, 3, 1, 960),
    (240, 240, 28, 5, 1, 240),
    (672, 672, 14, 5, 2, 672),
    (96, 96, 56, 7, 1, 96),
    (384, 384, 14, 7, 1, 384),
    (768, 768, 7, 7, 1, 768),
    (256, 256, 56, 3, 1, 32),
    (24, 144, 56, 1, 1, 1),
    (144, 24, 56, 1, 1, 1),
    (320, 1280, 7, 1, 1, 1),
]


def convolution(batch, wide, out, side, kernel, stride, groups, dtype, last, transposed=False):
    def make():
        layout = torch.channels_last if last else torch.contiguous_format
        x = randn(batch, wide, side, side, dtype=dtype).contiguous(memory_format=layout)
        shape = (wide, out // groups, kernel, kernel) if transposed else (out, wide // groups, kernel, kernel)
        w = randn(*shape, dtype=dtype).contiguous(memory_format=layout)
        x.requires_grad_(wide > 4)
        w.requires_grad_(True)
        pad = 0 if stride == kernel else kernel // 2
        if transposed:
            return trained(lambda x, w: F.conv_transpose2d(x, w, stride=stride, padding=(kernel - stride) // 2), x, w)
        return trained(lambda x, w: F.conv2d(x, w, stride=stride, padding=pad, groups=groups), x, w)

    return make


def convolutions():
    settings = (
        ("bf16", True, 64), ("bf16", True, 8), ("bf16", False, 16), ("tf32", True, 32), ("tf32", False, 8),
        ("fp32", False, 8), ("bf16", True, 1),
    )  # fmt: skip
    for (dtype, last, batch), shape in itertools.product(settings, CONVOLUTIONS):
        name = f"conv {dtype} {'cl' if last else 'nchw'} {batch} " + " ".join(map(str, shape))
        yield Case(name, convolution(batch, *shape, dtype, last), tf32=dtype == "tf32")
    for shape in ((512, 256, 32, 2, 2, 1), (256, 128, 32, 4, 2, 1), (1024, 512, 16, 2, 2, 1)):
        for dtype, last in (("bf16", True), ("bf16", False), ("tf32", False)):
            name = f"conv_transpose {dtype} {'cl' if last else 'nchw'} 8 " + " ".join(map(str, shape))
            yield Case(name, convolution(8, *shape, dtype, last, True), tf32=dtype == "tf32")
    for wide, out, length, stride in ((80, 768, 3000, 1), (768, 768, 3000, 2), (512, 512, 1024, 1)):
        yield Case(
            f"conv1d bf16 8 {wide} {out} {length} 3 {stride}",
            lambda a=wide, b=out, n=length, s=stride: trained(
                lambda x, w: F.conv1d(x, w, stride=s, padding=1),
                randn(8, a, n, dtype="bf16", grad=True),
                randn(b, a, 3, dtype="bf16", grad=True),
            ),
        )


def sdpa(
    b, h, s, d, dtype="bf16", groups=None, causal=False, mask=None, dropout=0.0, backend=None, query=None, train=True
):
    def make():
        q = randn(b, h, query or s, d, dtype=dtype, grad=train)
        k, v = (randn(b, groups or h, s, d, dtype=dtype, grad=train) for _ in range(2))
        bias = None
        if mask is not None:
            bias = torch.ones(b, 1, query or s, s, device=Where.device, dtype=torch.bool)
            bias = bias if mask == "bool" else randn(b, 1, query or s, s, dtype=dtype)

        def function(q, k, v):
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, is_causal=causal, dropout_p=dropout, enable_gqa=groups is not None
            )

        call = trained(function, q, k, v) if train else lambda: function(q, k, v)
        if backend is None:
            return call

        def chosen():
            with sdpa_kernel(backend):
                call()

        return chosen

    return make


def attention():
    sizes = [
        (64, 12, 128, 64), (32, 12, 256, 64), (64, 12, 197, 64), (32, 12, 512, 64), (8, 12, 1024, 64),
        (4, 16, 2048, 64), (2, 16, 4096, 64), (1, 16, 8192, 64), (16, 16, 512, 128), (4, 16, 2048, 128),
        (1, 32, 8192, 128), (8, 16, 256, 72), (8, 12, 1500, 64), (1, 12, 128, 64), (4, 8, 1024, 96),
        (2, 8, 1024, 256), (1, 6, 197, 64),
    ]  # fmt: skip
    flash, efficient, math = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
    for size, causal in itertools.product(sizes, (False, True)):
        name = " ".join(map(str, size)) + (" causal" if causal else "")
        yield Case(f"sdpa bf16 {name}", sdpa(*size, causal=causal))
        yield Case(f"sdpa flash bf16 {name}", sdpa(*size, causal=causal, backend=flash))
        if size[2] <= 4096:
            yield Case(f"sdpa efficient bf16 {name}", sdpa(*size, causal=causal, backend=efficient))
            yield Case(f"sdpa fp32 {name}", sdpa(*size, dtype="fp32", causal=causal))
        if size[2] <= 2048:
            yield Case(f"sdpa math bf16 {name}", sdpa(*size, causal=causal, backend=math))
    for size in sizes[:6]:
        name = " ".join(map(str, size))
        yield Case(f"sdpa bf16 dropout {name}", sdpa(*size, dropout=0.1))
        yield Case(f"sdpa bf16 bool mask {name}", sdpa(*size, mask="bool"))
        yield Case(f"sdpa bf16 float mask {name}", sdpa(*size, mask="float"))
        yield Case(f"sdpa fp32 bool mask {name}", sdpa(*size, dtype="fp32", mask="bool"))
    for b, s in ((1, 2048), (4, 1024), (1, 8192)):
        for causal in (False, True):
            yield Case(f"sdpa bf16 gqa 32/8 {b} {s} {causal}", sdpa(b, 32, s, 64, groups=8, causal=causal))
    for b, s, d in itertools.product((1, 16), (512, 2048, 8192), (64, 128)):
        yield Case(f"sdpa decode bf16 {b} 32 {s} {d}", sdpa(b, 32, s, d, query=1, train=False))
        yield Case(f"sdpa decode gqa bf16 {b} 32/8 {s} {d}", sdpa(b, 32, s, d, groups=8, query=1, train=False))


def low_precision():
    for m, (k, n) in itertools.product(
        (16, 64, 256, 1024, 4096, 16384), ((1024, 1024), (4096, 4096), (4096, 14336), (8192, 8192))
    ):
        yield Case(f"scaled_mm {m} {k} {n}", lambda m=m, k=k, n=n: scaled(m, k, n, False))
        yield Case(f"scaled_mm rowwise {m} {k} {n}", lambda m=m, k=k, n=n: scaled(m, k, n, True))
        yield Case(f"int_mm {m} {k} {n}", lambda m=m, k=k, n=n: integers(m, k, n))
    for tokens, (k, n), experts in itertools.product(
        (512, 4096, 16384), ((1024, 7168), (3584, 1024), (2048, 2048)), (8, 64)
    ):
        yield Case(f"grouped_mm {tokens} {k} {n} {experts}", lambda t=tokens, k=k, n=n, e=experts: grouped(t, k, n, e))


def scaled(m, k, n, rowwise):
    a = randn(m, k).to(torch.float8_e4m3fn)
    b = randn(n, k).to(torch.float8_e4m3fn).t()
    x = torch.ones(m, 1, device=Where.device) if rowwise else torch.ones((), device=Where.device)
    y = torch.ones(1, n, device=Where.device) if rowwise else torch.ones((), device=Where.device)
    return lambda: torch._scaled_mm(a, b, x, y, out_dtype=torch.bfloat16)


def integers(m, k, n):
    a = torch.randint(-100, 100, (m, k), device=Where.device, dtype=torch.int8)
    b = torch.randint(-100, 100, (n, k), device=Where.device, dtype=torch.int8).t()
    return lambda: torch._int_mm(a, b)


def grouped(tokens, k, n, experts):
    offsets = torch.arange(1, experts + 1, device=Where.device, dtype=torch.int32) * (tokens // experts)
    weight = randn(experts, n, k, dtype="bf16").transpose(-2, -1).detach().requires_grad_(True)
    return trained(
        lambda x, w: torch._grouped_mm(x, w, offs=offsets), randn(tokens, k, dtype="bf16", grad=True), weight
    )


def recurrent():
    for kind, (b, s, w, layers), dtype in itertools.product(
        ("LSTM", "GRU"),
        ((64, 128, 1024, 2), (32, 64, 512, 1), (128, 32, 256, 2), (1, 64, 512, 1)),
        ("bf16", "fp32", "tf32"),
    ):
        yield Case(
            f"{kind} {dtype} {b} {s} {w} {layers}",
            lambda k=kind, g=(b, s, w, layers), d=dtype: sequence(k, *g, d),
            tf32=dtype == "tf32",
        )


def sequence(kind, batch, length, width, layers, dtype):
    net = getattr(torch.nn, kind)(width, width, layers, batch_first=True).to(Where.device, SHORT[dtype])
    return trained(lambda x, *_: net(x)[0], randn(batch, length, width, dtype=dtype, grad=True), *net.parameters())
