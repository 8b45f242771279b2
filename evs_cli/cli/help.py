"""``evs help``: a command or a word of the output, explained."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import typer

from evs_cli.cli.command import HelpAll
from evs_cli.cli.help_page import page_width
from evs_cli.cli.topics import ALIASES, TOPICS, topic_page, topics_page
from evs_cli.errors import UsageError

EXAMPLES = ("evs help prune", "evs help knee", "evs help topics")
EVERYDAY = ()


def command(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND|TOPIC", help="A command, or a word of the output: evs help topics lists them."),
    ] = None,
    help_all: HelpAll = False,
) -> None:
    """Explain a command or a word of the output."""
    root: Any = ctx.parent
    assert root is not None
    asked = " ".join(words or ())
    typer.echo(_page(asked, root.command, root.command_path))


def _page(asked: str, root: Any, path: str) -> str:
    """The page that was asked for.

    Raises:
        UsageError: there is none.
    """
    if not asked:
        return str(root.page(path, every=False))
    if (found := _command(asked, root)) is not None:
        return str(found.page(f"{path} {asked}", every=False))
    written = asked.lower().replace("_", " ")
    names = (written, written.replace("-", " "))  # uniform-frames is a word, change-kept is two
    name = next((ALIASES.get(name, name) for name in names if name in TOPICS or name in ALIASES), written)
    if name == "topics":
        return topics_page(page_width())
    if name not in TOPICS:
        known = [*root.commands, "topics", *TOPICS, *ALIASES]
        near = get_close_matches(name, known, n=1)
        raise UsageError(
            f"There is no help on {asked!r}." + (f" Did you mean {near[0]!r}?" if near else ""),
            hint="evs help topics",
        )
    return topic_page(name, page_width())


def _command(asked: str, root: Any) -> Any:
    """The command of ``prune`` or ``cache ls``; None where there is none."""
    found = root
    for word in asked.split():
        found = getattr(found, "commands", {}).get(word)
    return found
