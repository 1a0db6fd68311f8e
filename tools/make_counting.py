"""Write docs/counting.md: what is counted and how, and what it was compared with; `--check` says if it is current.

Figures come from bench/results: closed_forms.json, compare_counters.json and h100_counters.json, each with the command
that wrote it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from bench import counters, pages

PAGE = pages.DOCS / "counting.md"
DEVICES = ("cpu", "meta")
PASSES = ("forward", "training")

HEAD = """# Counting

Made by `python -m tools.make_counting` from `bench/results/`. Every verdict rests on FLOPs and bytes: a count that is
silently wrong makes a wrong diagnosis that looks right. So gobrrr counts, or says that it doesn't know.

```python
import gobrrr

print(gobrrr.count(step, *args).flop_model)  # on fake tensors: no device, no memory, nothing computed
```

## What is counted

Every operation of a step is one of these, and their shares by calls, bytes and device time stand beside the verdict:

| certainty | what it means |
| --- | --- |
| exact | follows from the arguments |
| bounded | an interval, or a count that rests on an assumption which is named: the note says which |
| view | moves and computes nothing |
| unknown | no rule, or arguments that don't say enough: missing from the sums, and listed |

FLOPs three ways. One multiply-add is 2 FLOP.

| | |
| --- | --- |
| model | what the maths needs: a causal mask leaves S (S + 1) / 2 of S x S pairs |
| executed | what the kernels do, each thing once |
| hardware | with what is computed again: by a checkpoint, by the backward pass of a fused attention |

Bytes three ways.

| | |
| --- | --- |
| as run | each operation's inputs and outputs once; of an embedding the rows read, of experts those touched |
| fused | without what chains of pointwise operations and reductions hand on among themselves |
| compulsory | what goes into and comes out of the largest regions that could be one kernel |

The same model counts the same on the CPU, on meta and on a GPU, eager and compiled, whichever kernel is dispatched:
`nn.MultiheadAttention`'s fast path and its parts, scaled dot-product attention by its fused kernels and by plain
products, recurrent layers in one kernel or step by step (tests/static/test_same_everywhere.py). An operation of your
own is unknown, and listed, until it has a rule of three lines ([rules.md](rules.md)):

```python
import gobrrr.cost as cost


@cost.rule("mylib::swiglu", family="pointwise")  # silu(gate) * up: 5 FLOP an element
def swiglu(call):
    return cost.elementwise([cost.tensor(call, 0), cost.tensor(call, 1)], "bfloat16", flop_per_element=5)
```

"""

SHORT = """## What falls short

- Attention masks given as values count the whole square: what they leave is not in their shape.
- A recurrent layer in one kernel counts the gradient of its first state whether or not that is asked for; step by step
  (meta) the first step's product is left out where it is not.
- Sparse products count what is stored where that is known; a sparse tensor that the step itself makes is unknown.
- Contractions are compared with closed forms; pointwise work is counted by a figure an element (5 for a softmax, 8 for
  a layer norm), which a kernel may undercut or exceed.
- `flex_attention` can't be run on fake tensors here: the step is refused, with its line. So is a size that depends on
  data (`x[mask]`).
- Autocast does not reach tensors on meta, as in torch itself: FLOPs are the same there, bytes those of float32.
- Traces record neither outputs nor element types of lists: what can't be derived from the arguments is unknown there.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, _closed(_load("closed_forms")), _peers(_load("compare_counters")), _counters(), SHORT]
    return "\n".join(part.strip() + "\n" for part in parts)


def _load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = pages.read(pages.RESULTS / f"{name}.json")
    return found


def _made(results: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"`{results['command']}`, {results['date']}; device: {results['device']}; {versions}."


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *map(list, rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _closed(results: dict[str, Any]) -> str:
    columns = [(where, name) for where in DEVICES for name in PASSES]
    rows = [
        [
            row["model"],
            row["what"],
            f"{row['forward'] / 1e9:,.2f}",
            f"{row['training'] / 1e9:,.2f}",
            *(_ratio(row[f"{where}_{name}"] / row[name]) for where, name in columns),
            str(sum(sum(row[f"{where}_{name}_unknown"].values()) for where, name in columns)),
        ]
        for row in results["rows"]
    ]
    head = ["model", "size", "closed form forward, GFLOP", "forward + backward, GFLOP"]
    lines = [
        "## Against closed forms",
        "",
        "Matrix products, convolutions and attention of nine public architectures, by hand from their sizes; attention",
        "of a causal model counts the pairs that its mask leaves. Counted over closed form:",
        "",
        *_table([*head, *(f"{where} {name}" for where, name in columns), "unknown calls"], rows),
        "",
        _made(results),
    ]
    return "\n".join(lines)


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _peers(results: dict[str, Any]) -> str:
    found = {(row["tool"], row["device"], row["model"]): row for row in results["rows"]}
    models = list(dict.fromkeys(row["model"] for row in results["rows"]))
    kinds = list(dict.fromkeys((row["tool"], row["device"]) for row in results["rows"]))
    errors: list[str] = []

    def cell(tool: str, where: str, model: str) -> str:
        row = found[tool, where, model]
        if "ratio" in row:
            ratio = float(row["ratio"])
            text = _ratio(ratio) if ratio >= 0.01 else f"{ratio:.4f}"
            return text if abs(ratio - 1) <= 0.02 else f"**{text}**"
        if row["error"] not in errors:
            errors.append(row["error"])
        return f"ERR {errors.index(row['error']) + 1}"

    rows = [[tool, where, *(cell(tool, where, model) for model in models)] for tool, where in kinds]
    sizes = {where: [f"{model} {found[kinds[0][0], where, model]['size']}" for model in models] for where in DEVICES}
    missing = results["not_installed"]
    lines = [
        "## Other counters on the same models",
        "",
        "Counted over closed form, in each tool's own convention: gobrrr is held to what the maths needs, the others",
        "to attention over all pairs; tools that count multiply-adds (fvcore, torchinfo) are doubled. Bold: off by",
        "more than 2 %. Some count norms and activations too, about 1 %. A forward pass in evaluation mode, or forward",
        "and backward where it says training; float32; attention by `scaled_dot_product_attention`. In training, the",
        "dropout of BERT, GPT-2 and T5 makes the CPU take plain products for it, which FlopCounterMode sees.",
        "",
        *_table(["tool", "device", *models], rows),
        "",
        f"Sizes on meta: {'; '.join(sizes['meta'])}. On the CPU, where most of these tools compute what they count:",
        f"{'; '.join(sizes['cpu'])}. Each figure is a process of its own, with at most {results['limit_s']:.0f} s.",
        *([f"Not installed: {', '.join(missing)}."] if missing else []),
        "",
        *(f"- ERR {number}: `{text.replace('`', '')}`" for number, text in enumerate(errors, 1)),
        "",
        f"{_made(results)} The tools: `pip install gobrrr[peers]`.",
    ]
    return "\n".join(lines)


def _counters() -> str:
    results = counters.load()
    return "\n".join(
        [
            "## Against hardware counters",
            "",
            'FLOPs and DRAM bytes of single operations against the counters of Nsight Compute. "Counted" is bytes as',
            'run; "modelled" adds what the caches do (matmul re-reads, two-pass norms, strided access).',
            "",
            counters.table(results),
            "",
            "`python -m bench.counters` prints this table; `bench/gpu/counters.py` measured it.",
        ]
    )


def main() -> int:
    return pages.main(__doc__, lambda: {PAGE: page()}, "python -m tools.make_counting")


if __name__ == "__main__":
    sys.exit(main())
