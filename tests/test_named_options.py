"""Every option and every command that a text of gobrrr names is one that the command line has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
import typer

from gobrrr.cli import app
from tests.conftest import ROOT

OPTION = re.compile(r"(?<![\w(-])--[a-z][a-z-]*\b(?!:)")
COMMAND = re.compile(r"\bgobrrr (?:-- )?([a-z]+)\b((?: (?:--?[a-z][a-z-]*|[A-Za-z0-9_./:,=*\"-]+))*)")
OTHERS = {
    "--format", "--id", "--query-gpu",  # nvidia-smi's
    "--lr",  # of the script in the examples
    "--calibrate", "--fit", "--held", "--here", "--keep", "--more", "--warm",  # of programs in bench/
    "--level",  # a property of the page's style
}  # fmt: skip
"""Options of other programs that the texts name."""
DOCUMENTS = ("README.md", "CHANGELOG.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))


@cache
def commands() -> dict[str, frozenset[str]]:
    """The options of each command."""
    root = typer.main.get_command(app)
    found = {"": _options(root)}
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        found[name] = _options(command)
        for inner in getattr(command, "commands", {}).values():
            found[name] |= _options(inner)
    return found


def _options(command: object) -> frozenset[str]:
    named = [one for each in command.params for one in [*each.opts, *each.secondary_opts]]  # type: ignore[attr-defined]
    return frozenset([*named, "--help"])


def texts() -> Iterator[tuple[str, str]]:
    """Where a text is, and the text: every string in the source, every document."""
    for path in sorted((ROOT / "src" / "gobrrr").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.name}:{node.lineno}", node.value
    for name in DOCUMENTS:
        yield name, (ROOT / name).read_text()


def unknown(text: str) -> list[str]:
    """The options and commands in a text that are not there."""
    every = frozenset[str]().union(*commands().values(), OTHERS)
    found = [one for one in OPTION.findall(text) if one not in every]
    for name, rest in COMMAND.findall(text):
        own = commands().get(name)
        if own is not None:
            found += [f"gobrrr {name} {one}" for one in OPTION.findall(rest) if one not in own | {"--debug"} | OTHERS]
    return found


def test_every_option_that_a_text_names_is_there() -> None:
    found = {where: missing for where, text in texts() if (missing := unknown(text))}
    assert not found


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("diagnose with --python", ["--python"]),
        ("gobrrr diagnose trace.json --budget 3", ["gobrrr diagnose --budget"]),
        ("gobrrr diagnose trace.json --html page.html --json", []),
        ("gobrrr treat FILE --budget 20", []),
        ("var(--soft)", []),
    ],
)
def test_what_is_not_there_is_found(text: str, missing: list[str]) -> None:
    assert unknown(text) == missing


def test_every_command_in_a_block_of_a_document_is_there() -> None:
    named = {
        name
        for document in DOCUMENTS
        for block in re.findall(r"^```\w*\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
        for name in re.findall(r"^\$? ?gobrrr ([a-z]+)", block, re.MULTILINE)
    }
    assert len(named) > 5
    assert named <= commands().keys()
