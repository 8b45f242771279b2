"""``evs show``: what is in a file that evs wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_output
from evs_cli.cli.values import printed_parts
from evs_cli.errors import UsageError
from evs_cli.report.console import Sink

EXAMPLES = ("evs show crossing.pt", "evs show crossing.pt --json", "evs show crossing.safetensors")
EVERYDAY = ("--print", "--format", "--json", "--quiet", "--verbose")


@with_output("show")
def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that `evs prune` or `evs encode` wrote.")],
    sink: Sink,
    printed: o.Print = None,
) -> None:
    """Print what is in a file that evs wrote.

    It is read back and checked against itself first.
    """
    parts = printed_parts(printed)
    if parts:
        sink.force_json()
    with sink.progress() as progress:
        progress.stage("read")
        from evs_cli.files.artifact import load
        from evs_cli.files.encoding.reader import holds_encoding, open_encoding
        from evs_cli.report.encodings import render_encoding
        from evs_cli.report.render import render_show

        if not holds_encoding(file):
            render_show(file, load(file), sink, parts)
            return
        if parts:
            raise UsageError(f"--print has no effect on {file}, a whole encoding. Expected a pruned video.")
        with open_encoding(file) as encoding:
            render_encoding(file, encoding, sink)
