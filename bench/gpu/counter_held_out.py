"""More operations, measured only after the model of DRAM traffic (gobrrr.cost.traffic) had its constants.

What the model says of them is a prediction: other sizes, and some other operations, than those of counter_cases.py.
"""

import torch
import torch.nn.functional as F
from counter_cases import (
    BF16,
    CASES,
    FP16,
    FP32,
    NAMES,
    add,
    aten,
    batch,
    conv,
    flash,
    group,
    layer,
    lists,
    mm,
    op,
    put,
    scaled,
    soft,
    soft_backward,
)


def contractions():
    mms = (
        (BF16, 4096, 4096, 12288, "nt"), (BF16, 12288, 12288, 12288, "nn"), (BF16, 16384, 5120, 5120, "nt"),
        (BF16, 4096, 16384, 11008, "tn"), (BF16, 64, 8192, 8192, "nt"), (FP16, 6144, 6144, 6144, "nn"),
        (FP16, 32768, 2048, 8192, "nt"), (FP32, 4096, 4096, 16384, "nt"),
    )  # fmt: skip
    for dtype, m, k, n, layout in mms:
        add(f"mm.{NAMES[dtype]}.{m}x{k}x{n}.{layout}", mm(m, k, n, dtype, layout))
    add("mm.tf32.6144", mm(6144, 6144, 6144, FP32, tf32=True))
    add("mm.tf32.4096x11008x4096.nt", mm(4096, 11008, 4096, FP32, "nt", tf32=True))
    for m, k, n in ((4096, 8192, 28672), (12288, 12288, 12288)):
        add(f"scaled_mm.fp8.{m}x{k}x{n}", lambda r, m=m, k=k, n=n: scaled(r, m, k, n), cuda_only=True)
    add("addmm.bf16.16384x1024x4096", lambda r: op(
        aten.addmm, r(4096, dtype=BF16), r(16384, 1024, dtype=BF16), r(4096, 1024, dtype=BF16).t()))  # fmt: skip
    add("bmm.bf16.32x2048", lambda r: op(aten.bmm, r(32, 2048, 2048, dtype=BF16), r(32, 2048, 2048, dtype=BF16)))
    add("bmm.fp16.scores.128x1024x64", lambda r: op(
        aten.bmm, r(128, 1024, 64, dtype=FP16), r(128, 1024, 64, dtype=FP16).transpose(1, 2)))  # fmt: skip
    add("conv.bf16.cl.3x3.c512.28", conv(128, 512, 28, 512, 3, 1, BF16, True))
    add("conv.bf16.cl.1x1.c512to2048.7", conv(1024, 512, 7, 2048, 1, 1, BF16, True))
    add("conv.fp16.cl.3x3.c64.112", conv(64, 64, 112, 64, 3, 1, FP16, True))
    add("conv.bf16.nchw.3x3.c128.56", conv(128, 128, 56, 128, 3, 1, BF16, False))
    add("conv.bwd.bf16.cl.3x3.c512.28", conv(128, 512, 28, 512, 3, 1, BF16, True, backward=True))
    add("conv.bwd.bf16.cl.1x1s2.c256to512.56", conv(128, 256, 56, 512, 1, 2, BF16, True, backward=True))
    add("depthwise.bf16.cl.7x7.c192.56", conv(128, 192, 56, 192, 7, 1, BF16, True, groups=192))
    add("flash.bf16.2x16x8192x128.causal", flash(2, 16, 8192, 128, True), cuda_only=True)
    add("flash.bf16.16x32x2048x64", flash(16, 32, 2048, 64, False), cuda_only=True)
    add("flash.bwd.bf16.2x16x8192x64.causal", flash(2, 16, 8192, 64, True, backward=True), cuda_only=True)


def others():
    for rows, width, dtype in ((32768, 2048, FP32), (32768, 5120, BF16), (8192, 12288, FP32), (65536, 2560, BF16)):
        add(f"layer_norm.{NAMES[dtype]}.{rows}x{width}", layer(rows, width, dtype))
    add("layer_norm.bwd.fp32.65536x1536", layer(65536, 1536, FP32, backward=True))
    add("layer_norm.bwd.bf16.32768x4096", layer(32768, 4096, BF16, backward=True))
    add("rms_norm.bf16.16384x8192", layer(16384, 8192, BF16, rms=True))
    add("rms_norm.bwd.bf16.32768x4096", layer(32768, 4096, BF16, backward=True, rms=True))
    add("group_norm.fp32.16x320x96", group(FP32, 16, 320, 96))
    add("batch_norm.bf16.nchw", batch(BF16, False))
    add("batch_norm.bwd.bf16.nchw", batch(BF16, False, backward=True))
    for rows, width, dtype in ((8192, 16384, FP32), (8192, 32768, BF16), (65536, 2048, FP16)):
        add(f"softmax.{NAMES[dtype]}.{rows}x{width}", soft(aten._softmax, dtype, rows, width))
    add("softmax.bf16.spatial.32x21x262144", soft(aten._softmax, BF16, 32, 21, 262144, dim=1))
    add("log_softmax.fp32.16384x10240", soft(aten._log_softmax, FP32, 16384, 10240))
    add("log_softmax.bf16.16384x30522", soft(aten._log_softmax, BF16, 16384, 30522))
    add("softmax.bwd.fp32.65536x1024", soft_backward(aten._softmax_backward_data, FP32, 65536, 1024))
    add("log_softmax.bwd.bf16.16384x30522", soft_backward(aten._log_softmax_backward_data, BF16, 16384, 30522))
    add("nll_loss.fp32.262144x1024", lambda r: op(
        aten.nll_loss_forward, r(262144, 1024), r.index(1024, 262144), None, 1, -100))  # fmt: skip
    n = (16384, 8192)
    add("silu.fp16", lambda r: op(aten.silu, r(*n, dtype=FP16)))
    add("addcmul.fp32", lambda r: op(aten.addcmul, r(*n), r(*n), r(*n)))
    add("sigmoid.bwd.bf16", lambda r: op(aten.sigmoid_backward, r(*n, dtype=BF16), r(*n, dtype=BF16)))
    add("gt.scalar.fp32", lambda r: op(aten.gt, r(*n), 0.5))
    add("masked_fill_.fp32", lambda r: op(aten.masked_fill_, r(*n), r(*n, dtype=torch.bool), 0.0))
    add("mul.strided4.fp32", lambda r: op(aten.mul, r(16384, 16384)[:, ::4], 2.0))
    add("neg.even_rows.bf16", lambda r: op(aten.neg, r(65536, 4096, dtype=BF16)[::2]))
    add("sum.inner.fp32", lambda r: op(aten.sum, r(8192, 16384), [1]))
    add("sum.outer.bf16", lambda r: op(aten.sum, r(65536, 4096, dtype=BF16), [0]))
    add("amax.fp32", lambda r: op(aten.amax, r(*n), [1]))
    add("cumsum.inner.bf16", lambda r: op(aten.cumsum, r(*n, dtype=BF16), 1))
    add("swap.bf16.64x2048x1024", lambda r: op(aten.clone, r(64, 2048, 1024, dtype=BF16).transpose(1, 2),
                                               memory_format=torch.contiguous_format))  # fmt: skip
    add("flip.fp32", lambda r: op(aten.flip, r(*n), [1]))
    add("embedding.fp32.32000x2048", lambda r: op(aten.embedding, r(32000, 2048), r.index(32000, 16, 2048)))
    add("embedding.bwd.fp32.32000x2048", lambda r: op(
        aten.embedding_dense_backward, r(16, 2048, 2048), r.index(32000, 16, 2048), r.n(32000), -1, False))  # fmt: skip
    add(
        "index_select.bf16.rows",
        lambda r: op(aten.index_select, r(131072, 2048, dtype=BF16), 0, r.index(131072, 65536)),
    )
    add("gather.bf16", lambda r: op(aten.gather, r(8192, 16384, dtype=BF16), 1, r.index(16384, 8192, 4096)))
    add("foreach_addcmul_.fp32", lambda r: op(torch._foreach_addcmul_, *(lists(r, 3))))
    big, half = ((16384, 8192), FP32), ((16384, 8192), BF16)
    put("inductor.tanh_mul.bf16", lambda x, y: torch.tanh(x) * y + x, half, half)
    put("inductor.rms.fp32", lambda x: F.rms_norm(x, (x.shape[-1],)), big)
    put("inductor.bwd.norm.fp32", lambda x: F.layer_norm(x, (x.shape[-1],)), big, backward=True)
    put("inductor.softmax.bf16.32768x8192", lambda x: x.softmax(-1), ((32768, 8192), BF16))
    put("inductor.norm_mean.fp32", lambda x: (x.float() ** 2).mean(-1), big)
    put("inductor.mm_gelu.triton.bf16", lambda x, w: F.gelu(x @ w), ((4096, 8192), BF16), ((8192, 8192), BF16),
        options={"max_autotune": True, "max_autotune_gemm_backends": "TRITON"})  # fmt: skip


_BEFORE = set(CASES)
contractions()
others()
HELD_OUT = set(CASES) - _BEFORE
