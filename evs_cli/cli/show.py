"""``evs show``: what is in a file that evs wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_output
from evs_cli.cli.values import printed_parts
from evs_cli.console import Sink

EXAMPLES = ("evs show crossing.pt", "evs show crossing.pt --json")


@with_output
def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .pt or .safetensors file that `evs prune` wrote.")],
    sink: Sink,
    printed: o.Print = None,
) -> None:
    """Read a pruned video back, check it against itself, and print it."""
    parts = printed_parts(printed)
    if parts:
        sink = sink.as_json()
    with sink.progress() as progress:
        progress.stage("read")
        from evs_cli.artifact import load
        from evs_cli.report.render import render_show

        render_show(file, load(file), sink, parts)
