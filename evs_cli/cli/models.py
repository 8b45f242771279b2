"""``evs models``: the model families evs knows."""

from __future__ import annotations

from evs_cli.cli.shared import with_output
from evs_cli.report.console import Sink

EXAMPLES = ("evs models", "evs models --json")
EVERYDAY = ("--format", "--json")


@with_output("models")
def command(sink: Sink) -> None:
    """List the model families.

    It tells how each samples and lays out its tokens, and what it needs.
    """
    from evs_cli.report.render import render_models

    render_models(sink)
