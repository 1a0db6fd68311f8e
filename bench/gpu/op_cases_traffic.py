"""Cases of the op sweep whose ops move bytes: norms, pointwise, reductions, copies, indexing, optimizers, transfers."""

import itertools
from functools import partial

import torch
import torch.nn.functional as F

from bench.gpu.case import SHORT, Case, Where, applied, both, randn, reduced, trained


def norms():
    for (rows, width), dtype in itertools.product(
        [
            *itertools.product((128, 2048, 16384), (64, 384, 768, 1024, 2048, 4096, 8192)),
            (65536, 768),
            (200704, 96),
            (12608, 768),
        ],
        ("bf16", "fp32"),
    ):
        size = rows * width * SHORT[dtype].itemsize * 2
        yield from both(
            f"layer_norm {dtype} {rows} {width}",
            lambda r=rows, w=width, d=dtype: trained(
                lambda x, a, b: F.layer_norm(x, (w,), a, b),
                randn(r, w, dtype=d, grad=True),
                randn(w, dtype=d, grad=True),
                randn(w, dtype=d, grad=True),
            ),
            size,
        )
        yield from both(
            f"rms_norm {dtype} {rows} {width}",
            lambda r=rows, w=width, d=dtype: trained(
                lambda x, a: F.rms_norm(x, (w,), a), randn(r, w, dtype=d, grad=True), randn(w, dtype=d, grad=True)
            ),
            size,
        )
    images = [
        (64, 64, 112), (64, 256, 56), (64, 512, 28), (64, 1024, 14), (64, 2048, 7), (8, 64, 56), (8, 512, 28),
        (64, 32, 112), (64, 144, 56), (64, 960, 7), (4, 256, 64), (4, 512, 32), (4, 1024, 16),
    ]  # fmt: skip
    for (b, c, side), dtype, last in itertools.product(images, ("bf16", "fp32"), (False, True)):
        size = b * c * side * side * SHORT[dtype].itemsize * 2
        name = f"{dtype} {'cl' if last else 'nchw'} {b} {c} {side}"
        given = (b, c, side, dtype, last)
        yield from both(f"batch_norm train {name}", lambda g=given: image_norm(*g, "train"), size)
        yield Case(f"batch_norm eval {name} hot", lambda g=given: image_norm(*g, "eval"))
        if c % 32 == 0:
            yield from both(f"group_norm {name}", lambda g=given: image_norm(*g, "group"), size)


def image_norm(b, c, side, dtype, last, kind):
    x = randn(b, c, side, side, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format).requires_grad_(
        kind != "eval"
    )
    a, bias = randn(c, dtype=dtype, grad=kind != "eval"), randn(c, dtype=dtype, grad=kind != "eval")
    if kind == "group":
        return trained(lambda x, a, bias: F.group_norm(x, 32, a, bias), x, a, bias)
    mean, var = randn(c, dtype=dtype), randn(c, dtype=dtype).abs() + 1
    if kind == "eval":
        return lambda: F.batch_norm(x, mean, var, a, bias)
    return trained(lambda x, a, bias: F.batch_norm(x, mean, var, a, bias, training=True), x, a, bias)


def softmaxes():
    shapes = [
        (8192, 50257), (8192, 50304), (4096, 32000), (2048, 32000), (64, 1000), (8192, 10000), (196608, 512),
        (98304, 1024), (32768, 2048), (1024, 128), (151296, 197), (16384, 64), (128, 8192), (1, 32000), (2048, 8),
    ]  # fmt: skip
    for (rows, width), dtype in itertools.product(shapes, ("bf16", "fp32")):
        size = rows * width * SHORT[dtype].itemsize * 2
        for kind in (torch.softmax, torch.log_softmax):
            yield from both(
                f"{kind.__name__} {dtype} {rows} {width}",
                lambda r=rows, w=width, d=dtype, f=kind: trained(lambda x: f(x, -1), randn(r, w, dtype=d, grad=True)),
                size,
            )
        yield Case(f"cross_entropy {dtype} {rows} {width}", lambda r=rows, w=width, d=dtype: cross_entropy(r, w, d))


def cross_entropy(rows, width, dtype):
    labels = torch.randint(0, width, (rows,), device=Where.device)
    return trained(lambda x: F.cross_entropy(x, labels), randn(rows, width, dtype=dtype, grad=True))


UNARY = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "relu": F.relu,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "exp": torch.exp, "cos": torch.cos,
    "pow3": lambda x: torch.pow(x, 3.0), "mul_scalar": lambda x: x * 0.5,
    "dropout": lambda x: F.dropout(x, 0.1, True), "rsqrt": torch.rsqrt, "neg": torch.neg,
}  # fmt: skip
SIZES = tuple(1 << e for e in (10, 14, 17, 19, 20, 21, 22, 23, 24, 26, 28))


def pointwise():
    for n, dtype in itertools.product(SIZES, ("bf16", "fp32")):
        item = SHORT[dtype].itemsize
        for name, function in UNARY.items():
            train = name in ("gelu", "gelu_tanh", "silu", "relu", "tanh", "dropout", "sigmoid")
            if n in SIZES[1::3] or name in ("gelu", "silu", "mul_scalar", "dropout"):
                yield from both(
                    f"{name} {dtype} {n}", lambda n=n, d=dtype, f=function, t=train: unary(n, d, f, t), n * item * 2
                )
        for name, function in {
            "add": torch.add,
            "mul": torch.mul,
            "where": lambda a, b: torch.where(a > 0, a, b),
        }.items():
            yield from both(f"{name} {dtype} {n}", lambda n=n, d=dtype, f=function: binary(n, d, f), n * item * 3)
        other = "fp32" if dtype == "bf16" else "bf16"
        yield from both(
            f"cast {dtype} {other} {n}",
            lambda n=n, d=dtype, o=other: unary(n, d, lambda x: x.to(SHORT[o]), False),
            n * 6,
        )
        if n >= 1 << 14:
            yield from broadcasts(n, dtype, n * item * 2)
        yield from both(f"add_ {dtype} {n}", lambda n=n, d=dtype: binary(n, d, lambda a, b: a.add_(b)), n * item * 3)
        yield from both(f"relu_ {dtype} {n}", lambda n=n, d=dtype: unary(n, d, F.relu_, False), n * item * 2)
    for n in SIZES[2::3]:
        yield Case(f"add bf16+fp32 {n} hot", lambda n=n: mixed(n))
        yield Case(f"masked_fill bf16 {n} hot", lambda n=n: masked(n))
        yield Case(f"fill bf16 {n} hot", lambda n=n: filled(n))


def unary(n, dtype, function, train):
    x = randn(n, dtype=dtype, grad=train)
    return trained(function, x) if train else lambda: function(x)


def binary(n, dtype, function):
    a, b = randn(n, dtype=dtype), randn(n, dtype=dtype)
    return lambda: function(a, b)


def mixed(n):
    a, b = randn(n, dtype="bf16"), randn(n)
    return lambda: a + b


def masked(n):
    a = randn(n, dtype="bf16")
    m = a > 0
    return lambda: a.masked_fill(m, 0.0)


def filled(n):
    a = randn(n, dtype="bf16")
    return lambda: a.fill_(1.0)


def broadcasts(n, dtype, nbytes):
    wide = 1024 if n >= 1 << 17 else 128
    rows = n // wide
    shapes = {"row": (1, wide), "column": (rows, 1)}
    for name, shape in shapes.items():
        yield from both(
            f"mul {name} {dtype} {rows} {wide}", lambda r=rows, w=wide, s=shape, d=dtype: broadcast(r, w, s, d), nbytes
        )
    yield from both(
        f"add transposed {dtype} {rows} {wide}", lambda r=rows, w=wide, d=dtype: strided(r, w, d, "transposed"), nbytes
    )
    yield from both(f"mul half {dtype} {rows} {wide}", lambda r=rows, w=wide, d=dtype: strided(r, w, d, "half"), nbytes)


def broadcast(rows, wide, shape, dtype):
    a, b = randn(rows, wide, dtype=dtype), randn(*shape, dtype=dtype)
    return lambda: a * b


def strided(rows, wide, dtype, kind):
    if kind == "transposed":
        a, b = randn(rows, wide, dtype=dtype), randn(wide, rows, dtype=dtype).t()
        return lambda: a + b
    a, b = randn(rows, 2 * wide, dtype=dtype).chunk(2, -1)
    return lambda: a * b


def reductions():
    kinds = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "var": torch.var}
    for n, wide, dtype in itertools.product((1 << 16, 1 << 20, 1 << 23, 1 << 26), (64, 1024, 8192), ("bf16", "fp32")):
        rows, size = n // wide, n * SHORT[dtype].itemsize
        for (name, f), dim in itertools.product(kinds.items(), (0, 1)):
            yield from both(
                f"{name} dim {dim} {dtype} {rows} {wide}",
                lambda r=rows, w=wide, d=dtype, f=f, i=dim: reduced(r, w, d, lambda x: f(x, i)),
                size,
            )
        for name, f in {
            "cumsum": lambda x: x.cumsum(-1),
            "argmax": lambda x: x.argmax(-1),
            "norm": torch.linalg.vector_norm,
            "sum all": torch.sum,
            "mean all": torch.mean,
            "pow mean": lambda x: x.pow(2).mean(-1),
        }.items():
            yield from both(
                f"{name} {dtype} {rows} {wide}", lambda r=rows, w=wide, d=dtype, f=f: reduced(r, w, d, f), size
            )


def movement():
    for n, dtype in itertools.product((1 << 14, 1 << 18, 1 << 21, 1 << 23, 1 << 25, 1 << 27), ("bf16", "fp32")):
        size, rows = n * SHORT[dtype].itemsize * 2, n // 64
        moves = {
            "clone": ((n,), lambda x: x.clone()),
            "transpose": ((rows // 16, 1024), lambda x: x.t().contiguous()),
            "split heads": (
                (max(rows // 2048, 1), min(rows, 2048) // 16, 16, 64),
                lambda x: x.transpose(1, 2).contiguous(),
            ),
            "to cl": ((rows // 64, 64, 8, 8), lambda x: x.contiguous(memory_format=torch.channels_last)),
            "chunk copy": ((rows, 64), lambda x: x[:, :32].contiguous()),
            "cat 0": ((rows, 64), lambda x: torch.cat([x, x])),
            "cat 1": ((rows, 64), lambda x: torch.cat([x, x], -1)),
            "cat 8": ((rows, 64), lambda x: torch.cat(x.chunk(8))),
            "stack": ((rows, 64), lambda x: torch.stack([x, x], 1)),
            "pad": ((rows, 64), lambda x: F.pad(x, (0, 1))),
            "roll": ((rows, 64), lambda x: x.roll(1, -1)),
            "flip": ((rows, 64), lambda x: x.flip(-1)),
            "repeat": ((rows, 64), lambda x: x[:, None].expand(-1, 4, -1).reshape(-1, 64)),
            "tril": ((rows // 16, 1024), torch.tril),
            "zeros_like": ((n,), torch.zeros_like),
        }
        for name, (shape, function) in moves.items():
            yield from both(f"{name} {dtype} {n}", lambda s=shape, f=function, d=dtype: moved(s, d, f), size)
    for n in (1 << 16, 1 << 24):
        yield Case(f"randn fp32 {n}", lambda n=n: lambda: torch.randn(n, device=Where.device))
        yield Case(f"arange {n}", lambda n=n: lambda: torch.arange(n, device=Where.device))
        yield Case(f"fft fp32 {n}", lambda n=n: applied(lambda: randn(n // 1024, 1024), torch.fft.rfft))
        yield Case(f"fft2 fp32 {n}", lambda n=n: applied(lambda: randn(n // 65536, 256, 256), torch.fft.fft2))


def moved(shape, dtype, function):
    x = randn(*shape, dtype=dtype)
    return lambda: function(x)


def indexing():
    for (vocab, width), count, dtype in itertools.product(
        ((50257, 768), (32000, 2048), (30522, 1024), (512, 768)), (1, 128, 2048, 16384), ("bf16", "fp32")
    ):
        yield Case(
            f"embedding {dtype} {vocab} {width} {count}",
            lambda v=vocab, w=width, n=count, d=dtype: looked_up(v, w, n, d),
        )
    for rows, bag in itertools.product((10_000, 200_000), (1, 4, 20)):
        yield Case(f"embedding_bag fp32 {rows} 64 8192 {bag}", lambda r=rows, b=bag: bagged(r, b))
    for n, width, dtype in itertools.product((1024, 16384, 131072), (64, 1024), ("bf16", "fp32")):
        for name in ("index_select", "index", "gather", "scatter_add", "index_add", "index_put", "take_rows_bwd"):
            yield Case(f"{name} {dtype} {n} {width}", lambda n=n, w=width, d=dtype, k=name: indexed(n, w, d, k))
    for (rows, width), dtype in itertools.product(
        ((2048, 8), (64, 1000), (1, 32000), (16384, 64), (64, 50257), (1, 1 << 20)), ("bf16", "fp32")
    ):
        yield Case(
            f"topk {dtype} {rows} {width}", lambda r=rows, w=width, d=dtype: reduced(r, w, d, lambda x: x.topk(2))
        )
        yield Case(
            f"sort {dtype} {rows} {width}", lambda r=rows, w=width, d=dtype: reduced(r, w, d, lambda x: x.sort())
        )
    for n in (4096, 65536, 1 << 20):
        ids = partial(torch.randint, 0, 8, (n,), device=Where.device)
        yield Case(f"argsort int64 {n}", lambda i=ids: applied(i, torch.argsort))
        yield Case(
            f"histc int32 {n}", lambda i=ids: applied(lambda: i().int(), partial(torch.histc, bins=8, min=0, max=7))
        )
        yield Case(f"eq int64 {n}", lambda i=ids: applied(i, lambda x: x == 3))
        yield Case(f"nonzero {n}", lambda i=ids: applied(i, lambda x: torch.nonzero(x == 3)))


def looked_up(vocab, width, count, dtype):
    ids = torch.randint(0, vocab, (count,), device=Where.device)
    return trained(lambda w: F.embedding(ids, w), randn(vocab, width, dtype=dtype, grad=True))


def bagged(rows, bag):
    ids = torch.randint(0, rows, (8192, bag), device=Where.device)
    return trained(lambda w: F.embedding_bag(ids, w, mode="sum"), randn(rows, 64, grad=True))


def indexed(n, width, dtype, kind):
    x, y = randn(n, width, dtype=dtype, grad=kind == "take_rows_bwd"), randn(n, width, dtype=dtype)
    ids = (
        torch.randperm(n, device=Where.device)
        if Where.device != "meta"
        else torch.empty(n, dtype=torch.long, device=Where.device)
    )
    wide = ids[:, None].expand(n, width)
    if kind == "take_rows_bwd":
        return trained(lambda x: x[ids], x)
    return {
        "index_select": lambda: x.index_select(0, ids),
        "index": lambda: x[ids],
        "gather": lambda: x.gather(0, wide),
        "scatter_add": lambda: x.scatter_add(0, wide, y),
        "index_add": lambda: x.index_add(0, ids, y),
        "index_put": lambda: x.index_put_((ids,), y),
    }[kind]


def optimizers():
    lists = {
        "resnet50": [(64,)] * 106 + [(256, 64, 3, 3)] * 40 + [(2048, 1024)] * 8,
        "one 1e8": [(10_000, 10_000)],
        "bert": [(768,)] * 120 + [(768, 768)] * 48 + [(3072, 768)] * 24 + [(30522, 768)],
        "tiny": [(64, 64)] * 100,
    }
    makers = {
        "adamw foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
        "adamw fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
        "sgd foreach": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, foreach=True),
        "sgd fused": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True),
        "adamw single": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
    }
    for (name, shapes), (kind, maker), dtype in itertools.product(lists.items(), makers.items(), ("fp32", "bf16")):
        if kind != "adamw single" or name == "tiny":
            yield Case(f"{kind} {dtype} {name}", lambda s=shapes, m=maker, d=dtype: optimized(s, m, d))
    for name, shapes in lists.items():
        yield Case(f"clip_grad_norm fp32 {name}", lambda s=shapes: clipped(s))


def optimized(shapes, maker, dtype):
    parameters = [torch.nn.Parameter(randn(*shape, dtype=dtype)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return maker(parameters).step


def clipped(shapes):
    parameters = [torch.nn.Parameter(randn(*shape)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)


def pooling():
    for (b, c, side), dtype, last in itertools.product(
        ((64, 64, 112), (8, 64, 112), (8, 512, 28), (64, 2048, 7)), ("bf16", "fp32"), (False, True)
    ):
        kinds = {
            "max_pool 3 2": lambda x: F.max_pool2d(x, 3, 2, 1),
            "avg_pool 2 2": lambda x: F.avg_pool2d(x, 2),
            "adaptive_avg 1": lambda x: F.adaptive_avg_pool2d(x, 1),
            "upsample nearest": lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
            "upsample bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        }
        for name, function in kinds.items():
            if name.startswith("upsample") and side == 112 and b == 64:
                continue
            full = f"{name} {dtype} {'cl' if last else 'nchw'} {b} {c} {side}"
            yield Case(full, lambda b=b, c=c, s=side, d=dtype, f=function, m=last: pooled(b, c, s, d, f, m))


def pooled(b, c, side, dtype, function, last):
    x = randn(b, c, side, side, dtype=dtype)
    layout = torch.channels_last if last else torch.contiguous_format
    return trained(function, x.contiguous(memory_format=layout).requires_grad_(True))


def transfers():
    for n in (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 27):
        for pinned in (True, False):
            yield Case(f"to device {'pinned' if pinned else 'pageable'} {n}", lambda n=n, p=pinned: sent(n, p))
        yield Case(
            f"to host pageable {n}",
            lambda n=n: applied(partial(torch.empty, n, dtype=torch.uint8, device=Where.device), torch.Tensor.cpu),
        )


def sent(n, pinned):
    x = torch.empty(n, dtype=torch.uint8)
    x = x.pin_memory() if pinned and Where.device == "cuda" else x
    return lambda: x.to(Where.device, non_blocking=pinned)
