"""`gobrrr explain`: what a condition or a treatment is."""

from __future__ import annotations

from typing import Annotated

import typer

from gobrrr.cli.options import app
from gobrrr.report import output


@app.command(short_help="What a code means; without a code, list them.")
def explain(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="A code such as O01, or a treatment.")] = None,
) -> None:
    """Say what a condition or a treatment is; without CODE, list them all."""
    from gobrrr import api
    from gobrrr.report import layout, listing, markdown, terminal

    console = output.console()
    if code is None:
        terminal.print_lines(listing.codes(**api.codes(), page=terminal.page_for(console)), console)
        return
    text = api.explain(code)
    if not console.is_terminal:
        output.text(markdown.fitted(text, layout.DEFAULT_WIDTH))
        return
    from rich.markdown import Markdown

    console.print(Markdown(text), width=terminal.page_for(console).width)
