"""``evs models``: the model families evs knows, and the files of one model."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.shared import with_output
from evs_cli.errors import UsageError
from evs_cli.report.console import Sink

EXAMPLES = ("evs models", "evs models fetch qwen3-vl-8b", "evs models --json")
EVERYDAY = ("--format", "--json")
_FETCH = "fetch"


@with_output("models")
def command(
    sink: Sink,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="fetch NAME", help="Get the files that counts of this model need from the hub."),
    ] = None,
) -> None:
    """List the model families, or get a model's files.

    The list tells how each samples and lays out its tokens, and what it needs. What is fetched is a few megabytes
    into HF_HOME, no weights; evs plan and evs fit then need no network for that model.
    """
    from evs_cli.report.render import render_fetched, render_models

    if not words:
        return render_models(sink)
    if words[0] != _FETCH or len(words) == 1:
        raise UsageError(
            f"Invalid argument ({' '.join(words)}). Expected nothing, or fetch and a model's name.",
            hint="evs models --help",
        )
    from evs_cli.jobs.fetch import fetch_model

    return render_fetched([fetch_model(name) for name in words[1:]], sink)
