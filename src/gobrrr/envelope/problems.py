"""What is to be counted: an expression with the shapes of its tensors, or an op that is named by a word and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gobrrr.cost import dtype_name, price
from gobrrr.envelope import contractions, functions
from gobrrr.envelope.graph import Constant, Graph, Piece, Value
from gobrrr.envelope.parse import Constant as Literal
from gobrrr.envelope.parse import Expression, Name, names, parse
from gobrrr.errors import UsageError
from gobrrr.model.work import Collective, OpCall, Scalar, Tensor, TensorList

_ = contractions  # importing it defined the matrix products and views

Shape = tuple[int, ...]
MAX_ELEMENTS = 2**60
MAX_CHAIN = 4096
SHORT_DTYPES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn",
    "f64": "float64", "f32": "float32", "f16": "float16", "tf32": "tf32",
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """The kernels op by op and fused; `shapes` of the tensors that go in.

    `elements` of the largest tensor of a pointwise problem; `product`: M, N and K of a lone matrix product.
    """

    what: str
    dtype: str
    shapes: dict[str, Shape]
    unfused: tuple[Piece, ...]
    fused: tuple[Piece, ...]
    notes: tuple[str, ...] = ()
    elements: int | None = None
    product: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Options:
    """What an op named by a word may be told besides its sizes; None: not said."""

    shape: Shape | None = None
    ops: int | None = None
    ranks: int | None = None
    causal: bool | None = None
    kv_heads: int | None = None
    keys: int | None = None
    stride: int | None = None
    padding: int | None = None
    host: bool | None = None


def dtype_of(name: str) -> str:
    """torch's name of an element type ("bf16", "torch.bfloat16"); "tf32" is float32 on the TF32 units."""
    plain = name.strip().lower()
    found = SHORT_DTYPES.get(plain) or dtype_name(plain)
    if not found:
        raise UsageError(f"unknown dtype {name[:40]!r}; for instance float32, tf32, bf16, fp16, fp8, float64, int8")
    return found


def sizes_of(text: str) -> Shape:
    """A shape as it is typed: "8,1024,768" or "8x1024x768". Raises UsageError."""
    parts = [part.strip().replace("_", "") for part in text.strip().strip("()[]").replace("x", ",").split(",")]
    if not all(part.isdecimal() for part in parts if part) or not any(parts):
        raise UsageError(f"{text[:60]!r} is not a shape; write it as 8,1024,768")
    return checked(tuple(int(part) for part in parts if part))


def read_shapes(given: Sequence[str] | None) -> dict[str, Shape]:
    """Shapes as typed, "x=8,1024" for one tensor and "8,1024" for all others (under ""). Raises UsageError."""
    shapes: dict[str, Shape] = {}
    for one in given or ():
        name, found, sizes = one.rpartition("=")
        name = name.strip()
        if (found and not name) or name in shapes:
            raise UsageError(f"--shape {one[:60]}: {'no name before =' if not name and found else 'given twice'}")
        shapes[name] = sizes_of(sizes)
    return shapes


def read_sizes(given: Sequence[str] | None) -> tuple[int, ...]:
    """Sizes as typed: "4096", "4_096" or "1e9". Raises UsageError for what is no whole number from 1."""
    return tuple(_size(one) for one in given or ())


def _size(text: str) -> int:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = 0.0
    if not 1 <= value <= MAX_ELEMENTS or not value.is_integer():
        raise UsageError(f"{text[:40]!r} is not a size: a whole number from 1, such as 4096 or 1e9")
    return int(value)


def checked(shape: Sequence[int]) -> Shape:
    """The shape, if a tensor can have it. Raises UsageError for sizes below 1 and for more than 2^60 elements."""
    count = 1
    for size in shape:
        if size < 1:
            raise UsageError(f"a size of {size}: sizes are at least 1")
        count *= size
        if count > MAX_ELEMENTS:
            raise UsageError(f"{tuple(shape)} has more than 2^60 elements")
    return tuple(shape)


def expression(text: str, shapes: Mapping[str, Shape], dtype: str) -> Problem:
    """An expression of tensors; `shapes` by name, "" for all the others."""
    tree = parse(text)
    used = names(tree)
    if not used:
        raise UsageError(f"{text[:60]!r}: no tensor in it, so nothing to count")
    unknown = [name for name in shapes if name and name not in used]
    if unknown:
        raise UsageError(f"--shape names {', '.join(unknown)}, but the expression's tensors are {', '.join(used)}")
    missing = [name for name in used if name not in shapes and "" not in shapes]
    if missing:
        raise UsageError(f"no shape for {', '.join(missing)}: --shape {missing[0]}=8,1024,768, or --shape N for all")
    given = {name: checked(shapes.get(name, shapes.get("", ()))) for name in used}
    graph = Graph()
    stored = "float32" if dtype == "tf32" else dtype
    inputs = {name: graph.tensor(shape, stored) for name, shape in given.items()}
    result = _evaluate(tree, graph, inputs)
    if not isinstance(result, Value) or not graph.nodes:
        raise UsageError(f"{text[:60]!r}: no operation in it, so nothing to count")
    graph.outputs.append(result)
    return Problem(text, dtype, given, *_plans(graph, dtype), elements=graph.largest())


def _plans(graph: Graph, dtype: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    if dtype != "tf32":
        return graph.alone(), graph.fused()
    return _on_tf32(graph.alone()), _on_tf32(graph.fused())


def _on_tf32(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    return tuple(
        Piece(
            piece.name, replace(piece.work, matrix_dtype="tf32") if piece.work.matrix_flop else piece.work, piece.calls
        )
        for piece in pieces
    )


def _evaluate(tree: Expression, graph: Graph, inputs: Mapping[str, Value]) -> Value | Constant:
    if isinstance(tree, Name):
        return inputs[tree.name]
    if isinstance(tree, Literal):
        return tree.value
    function = functions.find(tree.function)
    arguments = [_evaluate(argument, graph, inputs) for argument in tree.arguments]
    keywords = {name: _evaluate(one, graph, inputs) for name, one in tree.keywords}
    return function.build(graph, functions.bind(function, arguments, keywords))


@dataclass(frozen=True)
class Word:
    """An op by a word: the sizes that follow it, the options that it takes, and how it is built."""

    sizes: str
    options: tuple[str, ...]
    build: Callable[[Sequence[int], str, Options], Problem]


def _text(word: str, sizes: Sequence[int]) -> str:
    return " ".join([word, *(f"{size}" for size in sizes)])


def _by_expression(
    word: str,
    text: str,
    layout: Callable[[Sequence[int]], dict[str, Shape]],
    product: Callable[[Sequence[int]], tuple[int, int, int]] | None = None,
) -> Word:
    """A word that stands for an expression over tensors of certain shapes."""

    def build(sizes: Sequence[int], dtype: str, _: Options) -> Problem:
        made = expression(text, {name: checked(shape) for name, shape in layout(sizes).items()}, dtype)
        sides = product(sizes) if product is not None else None
        return Problem(
            _text(word, sizes), dtype, made.shapes, made.unfused, made.fused, elements=made.elements, product=sides
        )

    return Word(_SIZES[word], (), build)


def _single(what: str, dtype: str, shapes: dict[str, Shape], call: OpCall, notes: tuple[str, ...] = ()) -> Problem:
    work = price(call)
    if not work.known:
        raise UsageError(f"{what}: {work.note}")
    piece = Piece(what.split()[0], work)
    pieces = _on_tf32((piece,)) if dtype == "tf32" else (piece,)
    return Problem(what, dtype, shapes, pieces, pieces, notes)


def _pointwise(_: Sequence[int], dtype: str, options: Options) -> Problem:
    count = options.ops or 1
    if not 1 <= count <= MAX_CHAIN:
        raise UsageError(f"--ops must be from 1 to {MAX_CHAIN:,}")
    if options.shape is None:
        raise UsageError("pointwise needs the tensor's size: --shape 67108864")
    graph = Graph()
    value = graph.tensor(options.shape, "float32" if dtype == "tf32" else dtype)
    for _step in range(count):
        value = functions.pointwise(graph, "mul", [value, 2])
    graph.outputs.append(value)
    what = f"x = x * 2, {count} times" if count > 1 else "x * 2"
    return Problem(what, dtype, {"x": options.shape}, *_plans(graph, dtype), elements=graph.largest())


def _attention(sizes: Sequence[int], dtype: str, options: Options) -> Problem:
    batch, heads, rows, head = sizes
    shared, keys = options.kv_heads or heads, options.keys or rows
    if heads % shared:
        raise UsageError(f"{heads} heads can't share {shared} key and value heads evenly")
    stored = "float32" if dtype == "tf32" else dtype
    shapes = {"q": checked((batch, heads, rows, head)), "k": checked((batch, shared, keys, head))}
    shapes["v"] = shapes["k"]
    call = OpCall(
        name="aten::scaled_dot_product_attention",
        inputs=(*(Tensor(shape, stored) for shape in shapes.values()), Scalar(""), Scalar("0.0"),
                Scalar(str(bool(options.causal)))),
        kernels=("sgemm",) if stored == "float32" else (),
    )  # fmt: skip
    what = _text("attention", sizes) + (" causal" if options.causal else "")
    fused = _single(what, dtype, shapes, call)
    graph = _materialised(shapes, stored, causal=bool(options.causal))
    unfused = _plans(graph, dtype)[0]
    notes = ["op by op, the scores go through memory between the kernels; fused, they stay on the chip"]
    if options.causal:
        notes.append("the fused kernel skips the products that the causal mask removes; op by op they are computed")
    return Problem(what, dtype, shapes, unfused, fused.fused, tuple(notes))


def _materialised(shapes: Mapping[str, Shape], dtype: str, *, causal: bool) -> Graph:
    """(q @ k.T * scale).masked_fill(mask).softmax(-1) @ v; queries that share a key head stand in one matrix."""
    batch, heads, rows, head = shapes["q"]
    _, shared, keys, _ = shapes["k"]
    graph = Graph()
    stacked = heads // shared * rows
    query = graph.tensor((batch * shared, stacked, head), dtype)
    key = graph.tensor((batch * shared, head, keys), dtype)
    value = graph.tensor((batch * shared, keys, head), dtype)
    scores = functions.find("bmm").build(graph, {"x": query, "y": key})
    scores = functions.pointwise(graph, "mul", [scores, head**-0.5])
    if causal:
        mask = graph.tensor((stacked, keys), "bool")
        scores = functions.find("masked_fill").build(graph, {"x": scores, "mask": mask, "value": float("-inf")})
    weights = functions.find("softmax").build(graph, {"x": scores, "dim": -1})
    graph.outputs.append(functions.find("bmm").build(graph, {"x": weights, "y": value}))
    return graph


def _conv2d(sizes: Sequence[int], dtype: str, options: Options) -> Problem:
    batch, channels, height, width, out, kernel = sizes
    stored = "float32" if dtype == "tf32" else dtype
    shapes = {"x": checked((batch, channels, height, width)), "w": checked((out, channels, kernel, kernel))}
    settings = (Scalar(""), Scalar(f"[{options.stride or 1}]"), Scalar(f"[{options.padding or 0}]"), Scalar("[1]"))
    call = OpCall(
        name="aten::conv2d",
        inputs=(*(Tensor(shape, stored) for shape in shapes.values()), *settings, Scalar("1")),
        kernels=("sgemm",) if stored == "float32" else (),
    )
    return _single(_text("conv2d", sizes), dtype, shapes, call)


def _embedding(sizes: Sequence[int], dtype: str, _: Options) -> Problem:
    tokens, rows, width = sizes
    shapes = {"table": checked((rows, width)), "indices": checked((tokens,))}
    call = OpCall(name="aten::embedding", inputs=(Tensor(shapes["table"], dtype), Tensor(shapes["indices"], "int64")))
    return _single(_text("embedding", sizes), dtype, shapes, call)


def _allreduce(sizes: Sequence[int], dtype: str, options: Options) -> Problem:
    if options.ranks is None or options.ranks < 1:
        raise UsageError("allreduce needs the number of devices: --ranks 8")
    record = Collective(
        name="allreduce", dtype="uint8", in_elements=sizes[0], out_elements=sizes[0], group_size=options.ranks
    )
    what = f"{_text('allreduce', sizes)} over {options.ranks} ranks"
    note = "ring: each rank sends 2 (n - 1) / n of the bytes and receives as many"
    return _single(what, dtype, {}, OpCall(name="nccl:all_reduce", collective=record), (note,))


def _copy(sizes: Sequence[int], dtype: str, options: Options) -> Problem:
    kind = "HtoD" if options.host else "DtoD"
    call = OpCall(name=f"Memcpy {kind}", copied_bytes=checked(sizes)[0])
    return _single(f"{_text('copy', sizes)}{' from the host' if options.host else ''}", dtype, {}, call)


def _adam(sizes: Sequence[int], dtype: str, _: Options) -> Problem:
    """The step op by op as torch.optim.AdamW(foreach=False) runs it, against its fused kernel."""
    stored = "float32" if dtype == "tf32" else dtype
    shape = checked(sizes)
    lists = tuple(TensorList((Tensor(shape, stored),)) for _each in range(4))
    fused = _single(
        _text("adam", sizes), dtype, {"parameters": shape}, OpCall(name="aten::_fused_adamw_", inputs=lists)
    )
    graph = Graph()
    parameter, gradient, first, second = (graph.tensor(shape, stored) for _each in range(4))
    decayed = functions.pointwise(graph, "mul", [parameter, 0.99])
    mean = functions.pointwise(graph, "lerp", [first, gradient, 0.1])
    scaled = functions.pointwise(graph, "mul", [second, 0.999])
    square = functions.pointwise(graph, "addcmul", [scaled, gradient, gradient])
    root = functions.pointwise(graph, "sqrt", [square], "float")
    divided = functions.pointwise(graph, "div", [root, 0.9], "float")
    shifted = functions.pointwise(graph, "add", [divided, 1e-8])
    graph.outputs += [mean, square, functions.pointwise(graph, "addcdiv", [decayed, mean, shifted])]
    return Problem(fused.what, dtype, fused.shapes, graph.alone(), fused.fused, elements=sizes[0])


_SIZES = {
    "mm": "M N K",
    "bmm": "B M N K",
    "linear": "ROWS IN OUT",
    "attention": "B H S D",
    "conv2d": "N C H W OUT KERNEL",
    "pointwise": "",
    "layernorm": "ROWS WIDTH",
    "softmax": "ROWS WIDTH",
    "embedding": "TOKENS ROWS WIDTH",
    "allreduce": "BYTES",
    "copy": "BYTES",
    "adam": "PARAMETERS",
}

WORDS: dict[str, Word] = {
    "mm": _by_expression(
        "mm", "mm(a, b)", lambda n: {"a": (n[0], n[2]), "b": (n[2], n[1])}, lambda n: (n[0], n[1], n[2])
    ),
    "bmm": _by_expression("bmm", "bmm(a, b)", lambda n: {"a": (n[0], n[1], n[3]), "b": (n[0], n[3], n[2])}),
    "linear": _by_expression(
        "linear", "linear(x, w)", lambda n: {"x": (n[0], n[1]), "w": (n[2], n[1])}, lambda n: (n[0], n[2], n[1])
    ),
    "attention": Word(_SIZES["attention"], ("causal", "kv_heads", "keys"), _attention),
    "conv2d": Word(_SIZES["conv2d"], ("stride", "padding"), _conv2d),
    "pointwise": Word("", ("ops", "shape"), _pointwise),
    "layernorm": _by_expression(
        "layernorm", "layer_norm(x, None, w, b)", lambda n: {"x": (n[0], n[1]), "w": (n[1],), "b": (n[1],)}
    ),
    "softmax": _by_expression("softmax", "softmax(x, -1)", lambda n: {"x": (n[0], n[1])}),
    "embedding": Word(_SIZES["embedding"], (), _embedding),
    "allreduce": Word(_SIZES["allreduce"], ("ranks",), _allreduce),
    "copy": Word(_SIZES["copy"], ("host",), _copy),
    "adam": Word(_SIZES["adam"], (), _adam),
}
"""The ops that can be named by a word; `mm M N K` is (M, K) times (K, N)."""


def by_word(word: str, sizes: Sequence[int], dtype: str, options: Options) -> Problem:
    """The op called `word`. Raises UsageError where the sizes or the options are not its own."""
    entry = WORDS[word]
    wanted = entry.sizes.split()
    if len(sizes) != len(wanted):
        usage = " ".join(["gobrrr calc", word, *wanted])
        raise UsageError(f"{word} takes {len(wanted)} sizes, not {len(sizes)}: {usage}")
    for name in ("shape", "ops", "ranks", "causal", "kv_heads", "keys", "stride", "padding", "host"):
        value = getattr(options, name)
        if value is not None and name not in entry.options:
            takes = ", ".join(f"--{option.replace('_', '-')}" for option in entry.options) or "no options of its own"
            raise UsageError(f"--{name.replace('_', '-')} is not an option of {word}, which takes {takes}")
        if isinstance(value, int) and not isinstance(value, bool) and (value < 0 or (value == 0 and name != "padding")):
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    checked(sizes)
    return entry.build(sizes, dtype, options)
