"""`gobrrr calc`: the cost of an operation or an expression, on the back of an envelope."""

from __future__ import annotations

from typing import Annotated

import typer

from gobrrr.cli.options import AsJson, Width, app, show_record


@app.command(short_help="The back of the envelope: an op or an expression.")
def calc(
    what: Annotated[str, typer.Argument(metavar="WHAT", help='"x.cos().cos()", mm, attention, ... or article.')],
    sizes: Annotated[list[str] | None, typer.Argument(metavar="[SIZES]", help="The sizes of an op.")] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="NAME[,NAME]", help="A machine; several give a table.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="[NAME=]N,N", help="Shape of all tensors, or of the one named."),
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="TYPE", help="fp32, tf32, bf16, ...")] = "float32",
    ops: Annotated[int | None, typer.Option("--ops", metavar="N", help="pointwise: operations in a row.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="attention: with a causal mask.")] = False,
    kv_heads: Annotated[
        int | None, typer.Option("--kv-heads", metavar="N", help="attention: heads of keys and values.")
    ] = None,
    keys: Annotated[
        int | None, typer.Option("--keys", metavar="N", help="attention: number of keys, if not S.")
    ] = None,
    stride: Annotated[int | None, typer.Option("--stride", metavar="N", help="conv2d: stride.")] = None,
    padding: Annotated[int | None, typer.Option("--padding", metavar="N", help="conv2d: padding.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", metavar="N", help="allreduce: number of devices.")] = None,
    host: Annotated[bool, typer.Option("--host", help="copy: from the host's memory to the device.")] = False,
    as_json: AsJson = False,
    width: Width = None,
) -> None:
    """Say what an expression or an op costs on a machine: FLOP, bytes, intensity, floor, bound, and what fusion saves.

    \b
      gobrrr calc "x.cos().cos()" --shape 67108864 --on a100-40gb
      gobrrr calc "(x @ w).gelu()" --shape x=8,1024 --shape w=1024,4096 --on h100
      gobrrr calc mm 4096 4096 4096 --dtype bf16 --on a100-40gb,h100,mi300x
      gobrrr calc attention 8 16 4096 64 --dtype bf16 --causal --on h100
      gobrrr calc pointwise --ops 64 --shape 67108864 --on article

    Ops: mm M N K, bmm B M N K, linear ROWS IN OUT, attention B H S D, conv2d N C H W OUT KERNEL, pointwise,
    layernorm ROWS WIDTH, softmax ROWS WIDTH, embedding TOKENS ROWS WIDTH, allreduce BYTES, copy BYTES, adam PARAMETERS.

    `gobrrr calc article` computes the article's own figures; `gobrrr calc generations` shows compute over bandwidth,
    GPU by GPU.
    """
    from gobrrr import api, envelope
    from gobrrr.report import calc as page

    if what in envelope.TABLES:
        show_record(envelope.TABLES[what](), page.article if what == "article" else page.generations, as_json, width)
        return
    options: dict[str, int | None] = {
        "ops": ops, "kv_heads": kv_heads, "keys": keys, "stride": stride, "padding": padding, "ranks": ranks,
        "causal": causal or None, "host": host or None,
    }  # fmt: skip
    shapes, numbers = envelope.read_shapes(shape), envelope.read_sizes(sizes)
    machines = [name.strip() for name in (on or "").split(",")]
    results = [api.calc(what, *numbers, on=machine, shape=shapes, dtype=dtype, **options) for machine in machines]
    if len(results) > 1:
        show_record(results, page.across, as_json, width)
    else:
        show_record(results[0], page.envelope, as_json, width)
