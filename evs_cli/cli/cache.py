"""``evs cache``: encodings that ``--cache`` kept."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.command import EvsGroup, HelpAll, command_class
from evs_cli.cli.shared import with_output
from evs_cli.report.console import Sink

EXAMPLES = ("evs cache ls", "evs cache ls --json", "evs cache rm --all")


commands = typer.Typer(cls=EvsGroup, help="See and remove the encodings that --cache kept.")


@commands.callback()
def group(help_all: HelpAll = False) -> None:
    """See and remove the encodings that --cache kept."""


@commands.command("ls", cls=command_class(("--format", "--json"), EXAMPLES[:2]))
@with_output("cache ls")
def ls(sink: Sink) -> None:
    """List the cache's entries, the last used first.

    They lie in encodings/ of evs's cache directory (EVS_CACHE, else the platform's own), at most 10 GB of them or
    EVS_CACHE_SIZE; the least recently used go first.
    """
    from evs_cli.jobs.cache import open_cache
    from evs_cli.report.cache import render_cache

    render_cache(open_cache(), sink)


@commands.command("rm", no_args_is_help=True, cls=command_class(("--all", "--json"), EXAMPLES[2:]))
@with_output("cache rm")
def rm(
    sink: Sink,
    entries: Annotated[
        list[str] | None, typer.Argument(metavar="ENTRY", help="Entries as `evs cache ls` names them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove them all.")] = False,
) -> None:
    """Remove entries, and tell what that frees."""
    from evs_cli.jobs.cache import open_cache
    from evs_cli.report.cache import render_removed

    render_removed(open_cache().remove_named(entries or [], every=every), sink)
