"""Write docs/conditions.md from the docstrings of the conditions and treatments; `--check` says if it is current."""

from __future__ import annotations

import sys

from bench import pages
from gobrrr.conditions import Condition
from gobrrr.conditions import catalogue as conditions
from gobrrr.treatments import Treatment
from gobrrr.treatments import catalogue as treatments

PAGE = pages.DOCS / "conditions.md"
HEAD = """# Conditions and treatments

Made by `python -m tools.make_docs` from the docstrings in `src/gobrrr/conditions` and `src/gobrrr/treatments`;
edit those. Each part is what `gobrrr explain` prints for the code or the name.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, _contents()]
    parts += [_condition(condition) for condition in conditions()]
    parts += [_treatment(treatment) for treatment in treatments()]
    return "\n".join(parts)


def _contents() -> str:
    codes = "\n".join(f"| {condition.code} | {condition.title} |" for condition in conditions())
    names = "\n".join(f"| {treatment.name} | {treatment.title} | {treatment.numerics} |" for treatment in treatments())
    return (
        f"| condition | what |\n| --- | --- |\n{codes}\n\n"
        f"| treatment | what | may change in the numbers |\n| --- | --- | --- |\n{names}\n"
    )


def _condition(condition: Condition) -> str:
    return f"## {condition.code}: {condition.title}\n\n{_deeper(condition.explanation)}\n"


def _treatment(treatment: Treatment) -> str:
    return f"## {treatment.name}\n\n{_deeper(treatment.explanation)}\n\n```python\n{treatment.code_to_paste}\n```\n"


def _deeper(text: str) -> str:
    """Headings one level down; code blocks as they are."""
    lines, code = [], False
    for line in text.splitlines():
        code ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("## ") and not code else line)
    return "\n".join(lines)


def main() -> int:
    return pages.main(__doc__, lambda: {PAGE: page()}, "python -m tools.make_docs")


if __name__ == "__main__":
    sys.exit(main())
