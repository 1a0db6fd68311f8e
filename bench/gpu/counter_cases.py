"""The operations whose hardware counters are read: how each is called, with random inputs of which sizes.

`CASES` maps a name to how it is built, eager or compiled, and whether it needs a CUDA card. A name's first part is its
family; "bwd" in it says backward. counter_held_out.py adds more.
"""

import torch
import torch.nn.functional as F

aten = torch.ops.aten
BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
FP8 = torch.float8_e4m3fn
NAMES = {BF16: "bf16", FP16: "fp16", FP32: "fp32"}


class Maker:
    """Random inputs on a device; `dry` makes them small: sizes above 64 are divided by 64, to 64 at the least."""

    def __init__(self, device, dry):
        self.device, self.dry = device, dry

    def n(self, size):
        """A size as the run wants it."""
        return max(64, size // 64) if self.dry and size > 64 else size

    def __call__(self, *shape, dtype=FP32, cl=False):
        """A random tensor; `cl`: channels last."""
        shape = [self.n(size) for size in shape]
        if dtype in (torch.int8, torch.bool):
            made = torch.randint(0 if dtype is torch.bool else -8, 2 if dtype is torch.bool else 8, shape)
            return made.to(self.device, dtype)
        narrow = dtype is FP8
        made = torch.randn(shape, device=self.device, dtype=BF16 if narrow else dtype)
        made = made.to(dtype) if narrow else made
        return made.contiguous(memory_format=torch.channels_last) if cl else made

    def index(self, below, *shape):
        """Random indices below a size."""
        return torch.randint(0, self.n(below), [self.n(size) for size in shape], device=self.device)


CASES = {}


def add(name, build, mode="eager", cuda_only=False):
    """`build(Maker)` gives the call to profile. A name's first part is its family; "bwd" in it says backward."""
    assert name not in CASES, name
    CASES[name] = (build, mode, cuda_only)


def op(function, *arguments, **options):
    return lambda: function(*arguments, **options)


def mm(m, k, n, dtype, layout="nn", tf32=False):
    def build(r):
        a = r(k, m, dtype=dtype).t() if layout[0] == "t" else r(m, k, dtype=dtype)
        b = r(n, k, dtype=dtype).t() if layout[1] == "t" else r(k, n, dtype=dtype)

        def call():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            return aten.mm(a, b)

        return call

    return build


def matmuls():
    for n in (1024, 2048, 4096, 8192, 16384):
        add(f"mm.bf16.{n}", mm(n, n, n, BF16))
    for layout in ("nt", "tn", "tt"):
        add(f"mm.bf16.8192.{layout}", mm(8192, 8192, 8192, BF16, layout))
    sizes = (
        (65536, 1024, 1024, "nt"), (8192, 256, 8192, "nn"), (8192, 4096, 14336, "nt"), (16, 8192, 28672, "nt"),
        (128, 16384, 16384, "nt"), (8192, 4096, 128256, "nt"), (4096, 32768, 4096, "tn"), (1024, 65536, 1024, "tn"),
        (32768, 12288, 3072, "nn"), (512, 8192, 65536, "nt"),
    )  # fmt: skip
    for m, k, n, layout in sizes:
        add(f"mm.bf16.{m}x{k}x{n}.{layout}", mm(m, k, n, BF16, layout))
    add("mm.fp16.8192", mm(8192, 8192, 8192, FP16))
    add("mm.fp16.2048x8192x32768.nt", mm(2048, 8192, 32768, FP16, "nt"))
    add("mm.tf32.8192", mm(8192, 8192, 8192, FP32, tf32=True))
    add("mm.tf32.16384x4096x4096.nt", mm(16384, 4096, 4096, FP32, "nt", tf32=True))
    add("mm.fp32.4096", mm(4096, 4096, 4096, FP32))
    add("mm.fp32.8192x2048x8192.nt", mm(8192, 2048, 8192, FP32, "nt"))
    add("mm.fp64.4096", mm(4096, 4096, 4096, FP64))
    for m, k, n in ((8192, 8192, 8192), (16384, 4096, 16384)):
        add(f"scaled_mm.fp8.{m}x{k}x{n}", lambda r, m=m, k=k, n=n: scaled(r, m, k, n), cuda_only=True)
    add("int_mm.int8.8192", lambda r: op(
        aten._int_mm, r(8192, 8192, dtype=torch.int8), r(8192, 8192, dtype=torch.int8).t()))  # fmt: skip
    add("addmm.bf16.8192x4096x16384", lambda r: op(
        aten.addmm, r(16384, dtype=BF16), r(8192, 4096, dtype=BF16), r(16384, 4096, dtype=BF16).t()))  # fmt: skip
    add("addmm.bf16.full.8192", lambda r: op(
        aten.addmm, r(8192, 8192, dtype=BF16), r(8192, 8192, dtype=BF16), r(8192, 8192, dtype=BF16)))  # fmt: skip
    add("bmm.bf16.scores.64x2048x128", lambda r: op(
        aten.bmm, r(64, 2048, 128, dtype=BF16), r(64, 2048, 128, dtype=BF16).transpose(1, 2)))  # fmt: skip
    add("bmm.bf16.values.64x2048x2048x128", lambda r: op(
        aten.bmm, r(64, 2048, 2048, dtype=BF16), r(64, 2048, 128, dtype=BF16)))  # fmt: skip
    add("bmm.bf16.16x4096", lambda r: op(aten.bmm, r(16, 4096, 4096, dtype=BF16), r(16, 4096, 4096, dtype=BF16)))
    add("mv.bf16.16384", lambda r: op(aten.mv, r(16384, 16384, dtype=BF16), r(16384, dtype=BF16)))


def scaled(r, m, k, n):
    scale = torch.tensor(1.0, device=r.device)
    return op(aten._scaled_mm, r(m, k, dtype=FP8), r(n, k, dtype=FP8).t(), scale, scale, None, None, BF16)


def conv(n, c, size, k, kernel, stride, dtype, cl, groups=1, backward=False):
    def build(r):
        depthwise = groups > 1
        x, w = r(n, c, size, size, dtype=dtype, cl=cl), r(k, 1 if depthwise else c, kernel, kernel, dtype=dtype)
        w = w.contiguous(memory_format=torch.channels_last) if cl else w
        pads, wide = [kernel // 2] * 2, r.n(groups)
        y = aten.convolution(x, w, None, [stride] * 2, pads, [1, 1], False, [0, 0], wide)
        if not backward:
            return op(aten.convolution, x, w, None, [stride] * 2, pads, [1, 1], False, [0, 0], wide)
        dy, mask = torch.randn_like(y), [True, True, False]
        return op(aten.convolution_backward, dy, x, w, None, [stride] * 2, pads, [1, 1], False, [0, 0], wide, mask)

    return build


def convolutions():
    kinds = {
        "3x3.c256.56": (64, 256, 56, 256, 3, 1), "1x1.c64to256.56": (128, 64, 56, 256, 1, 1),
        "1x1.c1024to256.14": (512, 1024, 14, 256, 1, 1), "stem7x7s2": (128, 3, 224, 64, 7, 2),
        "3x3s2.c128.56": (128, 128, 56, 128, 3, 2),
    }  # fmt: skip
    for name, sizes in kinds.items():
        add(f"conv.bf16.cl.{name}", conv(*sizes, BF16, True))
    add("conv.bf16.nchw.3x3.c256.56", conv(*kinds["3x3.c256.56"], BF16, False))
    add("conv.tf32.nchw.3x3.c128.56", conv(64, 128, 56, 128, 3, 1, FP32, False))
    add("conv.tf32.cl.3x3.c128.56", conv(64, 128, 56, 128, 3, 1, FP32, True))
    for name in ("3x3.c256.56", "1x1.c64to256.56", "3x3s2.c128.56"):
        add(f"conv.bwd.bf16.cl.{name}", conv(*kinds[name], BF16, True, backward=True))
    add("conv.bwd.tf32.nchw.3x3.c128.56", conv(64, 128, 56, 128, 3, 1, FP32, False, backward=True))
    for dtype, name in ((BF16, "bf16"), (FP32, "fp32")):
        add(f"depthwise.{name}.nchw.c384.56", conv(64, 384, 56, 384, 3, 1, dtype, False, groups=384))
    add("depthwise.bf16.cl.c384.56", conv(64, 384, 56, 384, 3, 1, BF16, True, groups=384))
    add("depthwise.bwd.bf16.nchw.c384.56", conv(64, 384, 56, 384, 3, 1, BF16, False, groups=384, backward=True))


def flash(b, h, s, d, causal, backward=False, keys=None):
    def build(r):
        q, k, v = (r(b, h, n, d, dtype=BF16) for n in (s, keys or s, keys or s))
        if not backward:
            return op(aten._scaled_dot_product_flash_attention, q, k, v, 0.0, causal)
        out, lse, cq, ck, mq, mk, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
        do = torch.randn_like(out)
        return op(aten._scaled_dot_product_flash_attention_backward, do, q, k, v, out, lse, cq, ck, mq, mk, 0.0,
                  causal, seed, offset)  # fmt: skip

    return build


def attention():
    for b, h, s, d, causal in ((4, 32, 4096, 128, True), (4, 32, 4096, 128, False), (16, 16, 4096, 64, True)):
        name = f"bf16.{b}x{h}x{s}x{d}{'.causal' if causal else ''}"
        add(f"flash.{name}", flash(b, h, s, d, causal), cuda_only=True)
        add(f"flash.bwd.{name}", flash(b, h, s, d, causal, backward=True), cuda_only=True)
    add("flash.bf16.64x16x1024x64", flash(64, 16, 1024, 64, False), cuda_only=True)
    add("flash.bf16.cross.8x16x16384x64.k256", flash(8, 16, 16384, 64, False, keys=256), cuda_only=True)

    def efficient(dtype, bias, backward):
        def build(r):
            q, k, v = (r(4, 16, 2048, 64, dtype=dtype) for _ in range(3))
            mask = r(4, 16, 2048, 2048, dtype=dtype) if bias else None
            out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, mask, True)
            if not backward:
                return op(aten._scaled_dot_product_efficient_attention, q, k, v, mask, True)
            do = torch.randn_like(out)
            return op(aten._scaled_dot_product_efficient_attention_backward, do, q, k, v, mask, out, lse, seed,
                      offset, 0.0, [True, True, True, False])  # fmt: skip

        return build

    add("efficient.bf16.bias", efficient(BF16, True, False), cuda_only=True)
    add("efficient.fp32", efficient(FP32, False, False), cuda_only=True)
    add("efficient.bwd.bf16", efficient(BF16, False, True), cuda_only=True)

    def cudnn(r):
        q, k, v = (r(4, 32, 4096, 128, dtype=BF16) for _ in range(3))
        return op(aten._scaled_dot_product_cudnn_attention, q, k, v, None, True, 0.0, True)

    add("cudnn_sdpa.bf16.4x32x4096x128.causal", cudnn, cuda_only=True)


def layer(rows, width, dtype, backward=False, rms=False):
    def build(r):
        x, w, b = r(rows, width, dtype=dtype), r(width, dtype=dtype), r(width, dtype=dtype)
        shape, dy = [r.n(width)], torch.randn_like(x)
        if rms:
            _, rstd = aten._fused_rms_norm(x, shape, w, 1e-5)
            if not backward:
                return op(aten._fused_rms_norm, x, shape, w, 1e-5)
            return op(aten._fused_rms_norm_backward, dy, x, shape, rstd, w, [True, True])
        _, mean, rstd = aten.native_layer_norm(x, shape, w, b, 1e-5)
        if not backward:
            return op(aten.native_layer_norm, x, shape, w, b, 1e-5)
        return op(aten.native_layer_norm_backward, dy, x, shape, mean, rstd, w, b, [True, True, True])

    return build


def group(dtype, n, c, size, backward=False):
    def build(r):
        n_, c_, hw = n, r.n(c), r.n(size) ** 2
        x, w, b = r(n, c, size, size, dtype=dtype), r(c, dtype=dtype), r(c, dtype=dtype)
        _, mean, rstd = aten.native_group_norm(x, w, b, n_, c_, hw, 32, 1e-5)
        if not backward:
            return op(aten.native_group_norm, x, w, b, n_, c_, hw, 32, 1e-5)
        dy = torch.randn_like(x)
        return op(aten.native_group_norm_backward, dy, x, mean, rstd, w, n_, c_, hw, 32, [True, True, True])

    return build


def batch(dtype, cl, training=True, backward=False):
    def build(r):
        x = r(128, 256, 56, 56, dtype=dtype, cl=cl)
        w, b, mean = (r(256) for _ in range(3))
        var = torch.ones_like(mean)
        y, saved_mean, saved_std = aten.native_batch_norm(x, w, b, mean, var, training, 0.1, 1e-5)
        if not backward:
            return op(aten.native_batch_norm, x, w, b, mean, var, training, 0.1, 1e-5)
        dy = torch.randn_like(y)
        return op(aten.native_batch_norm_backward, dy, x, w, mean, var, saved_mean, saved_std, training, 1e-5,
                  [True, True, True])  # fmt: skip

    return build


def norms():
    kinds = ((16384, 4096, FP32, "fp32"), (65536, 1024, BF16, "bf16"), (8192, 16384, BF16, "bf16"))
    for rows, width, dtype, name in (*kinds, (4096, 32768, FP32, "fp32"), (131072, 768, FP32, "fp32")):
        add(f"layer_norm.{name}.{rows}x{width}", layer(rows, width, dtype))
    for rows, width, dtype, name in kinds:
        add(f"layer_norm.bwd.{name}.{rows}x{width}", layer(rows, width, dtype, backward=True))
    for rows, width, dtype, name in kinds[:2]:
        add(f"rms_norm.{name}.{rows}x{width}", layer(rows, width, dtype, rms=True))
        add(f"rms_norm.bwd.{name}.{rows}x{width}", layer(rows, width, dtype, backward=True, rms=True))

    add("group_norm.fp32.32x256x64", group(FP32, 32, 256, 64))
    add("group_norm.bf16.16x512x128", group(BF16, 16, 512, 128))
    add("group_norm.bwd.bf16.16x512x128", group(BF16, 16, 512, 128, backward=True))

    add("batch_norm.fp32.nchw", batch(FP32, False))
    add("batch_norm.bf16.cl", batch(BF16, True))
    add("batch_norm.eval.bf16.nchw", batch(BF16, False, training=False))
    add("batch_norm.bwd.fp32.nchw", batch(FP32, False, backward=True))
    add("batch_norm.bwd.bf16.cl", batch(BF16, True, backward=True))


def soft(function, dtype, *shape, dim=-1):
    return lambda r: op(function, r(*shape, dtype=dtype), dim, False)


def soft_backward(function, dtype, *shape):
    return lambda r: op(function, r(*shape, dtype=dtype), torch.softmax(r(*shape, dtype=dtype), -1), -1, dtype)


def softmaxes():
    for rows, width, dtype, name in (
        (32768, 4096, BF16, "bf16"), (1 << 20, 64, FP32, "fp32"), (2048, 50304, FP32, "fp32"),
        (512, 262144, FP32, "fp32"),
    ):  # fmt: skip
        add(f"softmax.{name}.{rows}x{width}", soft(aten._softmax, dtype, rows, width))
    add("softmax.fp32.spatial.64x256x4096", soft(aten._softmax, FP32, 64, 256, 4096, dim=1))
    add("log_softmax.fp32.4096x32000", soft(aten._log_softmax, FP32, 4096, 32000))
    add("log_softmax.bf16.8192x50304", soft(aten._log_softmax, BF16, 8192, 50304))
    add("softmax.bwd.bf16.32768x4096", soft_backward(aten._softmax_backward_data, BF16, 32768, 4096))
    add("log_softmax.bwd.fp32.4096x32000", soft_backward(aten._log_softmax_backward_data, FP32, 4096, 32000))
    add("log_softmax.bwd.bf16.8192x50304", soft_backward(aten._log_softmax_backward_data, BF16, 8192, 50304))
    add("nll_loss.fp32.524288x512", lambda r: op(
        aten.nll_loss_forward, r(524288, 512), r.index(512, 524288), None, 1, -100))  # fmt: skip


def pointwise():
    n = (32768, 4096)
    add("gelu.bf16", lambda r: op(aten.gelu, r(*n, dtype=BF16)))
    add("gelu.bwd.bf16", lambda r: op(aten.gelu_backward, r(*n, dtype=BF16), r(*n, dtype=BF16)))
    add("add.fp32", lambda r: op(aten.add, r(*n), r(*n)))
    add("add_.bf16", lambda r: op(aten.add_, r(*n, dtype=BF16), r(*n, dtype=BF16)))
    add("mul.fp32.l2", lambda r: op(aten.mul, r(512, 4096), 2.0))
    add("cast.fp32.bf16", lambda r: op(r(*n).to, BF16))
    add("cast.bf16.fp32", lambda r: op(r(*n, dtype=BF16).to, FP32))
    add("dropout.bf16", lambda r: op(aten.native_dropout, r(*n, dtype=BF16), 0.1, True))
    add("where.fp32", lambda r: op(aten.where, r(*n, dtype=torch.bool), r(*n), r(*n)))
    add("add.bias.bf16", lambda r: op(aten.add, r(*n, dtype=BF16), r(4096, dtype=BF16)))
    add("mul.column.fp32", lambda r: op(aten.mul, r(*n), r(32768, 1)))
    add("mul.strided2.fp32", lambda r: op(aten.mul, r(16384, 16384)[:, ::2], 2.0))
    add("mul.strided16.bf16", lambda r: op(aten.mul, r(32768, 16384, dtype=BF16)[:, ::16], 2.0))
    add("add.transposed.fp32", lambda r: op(aten.add, r(8192, 8192), r(8192, 8192).t()))
    add("add.rows.sliced.bf16", lambda r: op(aten.add, r(32768, 8192, dtype=BF16)[:, : r.n(4096)], r(*n, dtype=BF16)))
    add("fill.fp32", lambda r: op(aten.fill_, r(*n), 1.5))


def reductions():
    add("sum.inner.bf16", lambda r: op(aten.sum, r(32768, 8192, dtype=BF16), [1]))
    add("sum.outer.fp32", lambda r: op(aten.sum, r(32768, 4096), [0]))
    add("sum.all.fp32", lambda r: op(aten.sum, r(32768, 4096)))
    add("sum.middle.bf16", lambda r: op(aten.sum, r(64, 1024, 2048, dtype=BF16), [1]))
    add("mean.spatial.bf16.cl", lambda r: op(aten.mean, r(256, 512, 28, 28, dtype=BF16, cl=True), [2, 3]))
    add("argmax.fp32", lambda r: op(aten.argmax, r(8192, 32000), -1))
    add("var.fp32", lambda r: op(aten.var, r(16384, 8192), [1]))
    add("vector_norm.fp32", lambda r: op(aten.linalg_vector_norm, r(32768, 4096)))
    add("cumsum.inner.fp32", lambda r: op(aten.cumsum, r(16384, 8192), 1))
    add("cumsum.outer.fp32", lambda r: op(aten.cumsum, r(8192, 16384), 0))


def movement():
    add(
        "transpose.fp32.8192x16384", lambda r: op(aten.clone, r(8192, 16384).t(), memory_format=torch.contiguous_format)
    )
    add("transpose.bf16.16384", lambda r: op(aten.clone, r(16384, 16384, dtype=BF16).t(),
                                             memory_format=torch.contiguous_format))  # fmt: skip
    add("heads.bf16.16x4096x32x128", lambda r: op(aten.clone, r(16, 4096, 32, 128, dtype=BF16).transpose(1, 2),
                                                  memory_format=torch.contiguous_format))  # fmt: skip
    add("to_channels_last.fp32", lambda r: op(aten.clone, r(64, 256, 64, 64), memory_format=torch.channels_last))
    add("cat.outer.bf16", lambda r: op(aten.cat, [r(16384, 4096, dtype=BF16) for _ in range(3)], 0))
    add("cat.inner.fp32", lambda r: op(aten.cat, [r(16384, 2048), r(16384, 1024), r(16384, 3072)], 1))
    add("embedding.bf16.50304x4096", lambda r: op(
        aten.embedding, r(50304, 4096, dtype=BF16), r.index(50304, 16, 2048)))  # fmt: skip
    add("embedding.bwd.bf16.50304x1024", lambda r: op(
        aten.embedding_dense_backward, r(64, 2048, 1024, dtype=BF16), r.index(50304, 64, 2048), r.n(50304), -1,
        False))  # fmt: skip
    add("index_select.fp32.rows", lambda r: op(aten.index_select, r(65536, 1024), 0, r.index(65536, 65536)))
    add("index_select.fp32.columns", lambda r: op(aten.index_select, r(16384, 8192), 1, r.index(8192, 4096)))
    add("gather.fp32", lambda r: op(aten.gather, r(16384, 4096), 1, r.index(4096, 16384, 4096)))
    add("scatter_.fp32", lambda r: op(aten.scatter_, r(16384, 4096), 1, r.index(4096, 16384, 2048), r(16384, 2048)))
    add("index_add_.fp32", lambda r: op(aten.index_add_, r(65536, 1024), 0, r.index(65536, 65536), r(65536, 1024)))
    add("max_pool.bf16.cl", lambda r: op(
        aten.max_pool2d_with_indices, r(128, 64, 112, 112, dtype=BF16, cl=True), [3, 3], [2, 2], [1, 1]))  # fmt: skip
    add("upsample.bilinear.bf16", lambda r: op(
        aten.upsample_bilinear2d, r(16, 128, 128, 128, dtype=BF16), [256, 256], False))  # fmt: skip


def lists(r, count):
    return [[r(2048, 4096) for _ in range(8)] for _ in range(count)]


def optimizers():
    def adamw(r, **kind):
        parameters = [torch.nn.Parameter(tensor) for tensor in lists(r, 1)[0]]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, **kind)
        optimizer.step()
        return optimizer.step

    add("adamw.fused", lambda r: adamw(r, fused=True))
    add("adamw.foreach", lambda r: adamw(r, foreach=True))
    add("foreach_norm.fp32", lambda r: op(torch._foreach_norm, lists(r, 1)[0]))
    add("foreach_mul_.fp32", lambda r: op(torch._foreach_mul_, lists(r, 1)[0], 0.5))


def compiled_call(function, *shapes, backward=False, **options):
    def build(r):
        torch._dynamo.reset()
        torch._functorch.config.donated_buffer = False  # the backward is called three times
        given = [r(*shape, dtype=dtype) for shape, dtype in shapes]
        run = torch.compile(function, **options)
        if not backward:
            return op(torch.no_grad()(run), *given)
        for tensor in given:
            tensor.requires_grad_()
        out = run(*given)
        grad = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, given, grad, retain_graph=True)

    return build


def put(name, *arguments, **options):
    add(name, compiled_call(*arguments, **options), mode="compiled")


def compiled():
    big = ((32768, 4096), FP32)
    half, half_row = ((32768, 4096), BF16), ((4096,), BF16)
    put("inductor.chain.fp32", lambda x, w, b: torch.sigmoid(x * w + b).cos().clamp(-1, 1) * x, big, big, big)
    put("inductor.bias_gelu.bf16", lambda x, b: F.gelu(x + b), half, half_row)
    put(
        "inductor.norm_gelu.bf16",
        lambda x, w, b: F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)),
        half,
        half_row,
        half_row,
    )
    put("inductor.norm.fp32.4096x32768", lambda x: F.layer_norm(x, (x.shape[-1],)), ((4096, 32768), FP32))
    put("inductor.bwd.norm_gelu.bf16", lambda x, w, b: F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)), half, half_row,
        half_row, backward=True)  # fmt: skip
    put("inductor.rms_residual.bf16", lambda x, y, w: F.rms_norm(x + y, (x.shape[-1],), w), half, half, half_row)
    put("inductor.softmax.fp32.16384x8192", lambda x: x.softmax(-1), ((16384, 8192), FP32))
    put("inductor.bwd.softmax.bf16", lambda x: x.softmax(-1), half, backward=True)
    put("inductor.log_softmax.bf16.8192x50304", lambda x: x.float().log_softmax(-1), ((8192, 50304), BF16))
    put("inductor.sum_outer.fp32", lambda x: (x * x).sum(0), big)
    put("inductor.transpose_add.fp32", lambda x, y: x + y.t(), ((8192, 8192), FP32), ((8192, 8192), FP32))
    put("inductor.bwd.swiglu.bf16", lambda x, y: F.silu(x) * y, half, half, backward=True)
    put("inductor.mm_relu.triton.bf16", lambda x, w: F.relu(x @ w), ((8192, 4096), BF16), ((4096, 8192), BF16),
        options={"max_autotune": True, "max_autotune_gemm_backends": "TRITON"})  # fmt: skip


for _family in (
    matmuls,
    convolutions,
    attention,
    norms,
    softmaxes,
    pointwise,
    reductions,
    movement,
    optimizers,
    compiled,
):
    _family()
