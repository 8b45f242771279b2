"""A command and a group as evs wants them of Typer: its own help, and traps that are told.

Typer's parsing stays as it is; only its words and its help's look are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from evs_cli.cli.command_line import check_command_line
from evs_cli.cli.help_page import command_page, group_page, page_width


class EvsCommand(TyperCommand):
    """A command with a short and a whole help; made by ``command_class``."""

    everyday: ClassVar[Sequence[str]] = ()
    examples: ClassVar[Sequence[str]] = ()

    def page(self, path: str, *, every: bool) -> str:
        """The text of its help; ``path`` is how it is called, ``evs prune``."""
        return command_page(path, self, self.everyday, self.examples, every=every, width=page_width())

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the short page."""
        formatter.write(self.page(ctx.command_path, every=False))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; none at all is a call for help.

        Raises:
            UsageError: what ``check_command_line`` refuses.
        """
        if not ctx.resilient_parsing:  # a shell that completes a line asks about half of it
            if not args and self.no_args_is_help:
                typer.echo(self.page(ctx.command_path, every=False))
                raise typer.Exit(2)
            check_command_line(args, self.get_params(ctx))
        return super().parse_args(ctx, args)


class EvsGroup(TyperGroup):
    """A group of commands whose help lists them."""

    closing: ClassVar[Sequence[str]] = ()
    """Paragraphs at the end of its help."""

    def page(self, path: str, *, every: bool) -> str:
        """The text of its help, which has one form."""
        return group_page(path, self, self.closing, page_width())

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        formatter.write(self.page(ctx.command_path, every=False))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; none at all is a call for help."""
        if not args and not ctx.resilient_parsing:
            typer.echo(self.page(ctx.command_path, every=False))
            raise typer.Exit(2)
        return super().parse_args(ctx, args)


def command_class(everyday: Sequence[str], examples: Sequence[str]) -> type[EvsCommand]:
    """The class of one command.

    Args:
        everyday: options on the first page of its help, by their long names, in this order.
        examples: command lines in its help.
    """
    return type("Command", (EvsCommand,), {"everyday": tuple(everyday), "examples": tuple(examples)})


def show_whole_help(ctx: typer.Context, value: bool) -> None:
    """The callback of ``--help-all``."""
    if value and not ctx.resilient_parsing:
        command: Any = ctx.command
        typer.echo(command.page(ctx.command_path, every=True))
        raise typer.Exit


HelpAll = Annotated[bool, typer.Option("--help-all", callback=show_whole_help, is_eager=True, hidden=True)]
"""Of groups and of commands whose help has one page."""
