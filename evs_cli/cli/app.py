"""The program: its commands, and the one place where errors become words and exit codes."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from evs_cli._version import __version__
from evs_cli.cli import bench, cache, check, encode, export, fit, help, models, plan, prune, show, sweep, view
from evs_cli.cli.command import EvsGroup, HelpAll, command_class
from evs_cli.errors import EvsError, UsageError
from evs_cli.pipeline.memory import keep_freed_blocks
from evs_cli.report import interrupt
from evs_cli.report.console import OutputStyle, Sink

_EXIT_CODES = (
    "Exit codes: 0 ok, 1 failed (one of several videos, or unexpected), 2 usage, 3 video, 4 model, "
    "5 artifact or output exists, 6 does not fit or differs from the plan, 130 interrupted."
)
_MORE = "Options of a command: evs COMMAND --help. Words of the output: evs help topics."


class _Root(EvsGroup):
    closing = (_EXIT_CODES, _MORE)


app = typer.Typer(
    name="evs",
    cls=_Root,
    help="Count, prune and export the video tokens of vision-language models with EVS (Efficient Video Sampling).",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = {
    **{"prune": prune, "sweep": sweep, "encode": encode, "plan": plan, "fit": fit, "check": check, "export": export},
    **{"show": show, "view": view, "bench": bench, "models": models, "help": help},
}
for _name, _module in _COMMANDS.items():
    app.command(
        _name,
        cls=command_class(_module.EVERYDAY, _module.EXAMPLES),
        no_args_is_help=_name not in ("bench", "models", "help"),
    )(_module.command)
_GROUPS = {"cache": cache}
for _name, _module in _GROUPS.items():
    app.add_typer(_module.commands, name=_name)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"evs {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    help_all: HelpAll = False,
) -> None:
    """Count, prune and export the video tokens of vision-language models with EVS (Efficient Video Sampling)."""


@functools.cache
def _program() -> Any:
    """The parser of the whole command line, which takes a tenth of a second to build."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code.

    Raises:
        EvsError: what a user can mend, a line that cannot be parsed among it.
    """
    try:
        return int(_program().main(args=arguments, prog_name="evs", standalone_mode=False) or 0)
    except Exception as error:
        # Typer's own errors of parsing, whose class is not public.
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        raise UsageError(
            error.format_message(), hint=None if context is None else f"{context.command_path} --help"
        ) from error


def _interrupted(sink: Sink) -> int:
    """Say so, where somebody listens still, and return the exit code."""
    with contextlib.suppress(OSError, SystemExit):  # the latter is what Rich makes of a pipe that nobody reads
        sink.status("Interrupted.")
    return 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: arguments without the program's name; None is ``sys.argv[1:]``.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in arguments or os.environ.get("EVS_DEBUG", "").lower() not in ("", "0", "false", "no", "off")
    sink = Sink(OutputStyle(no_color="--no-color" in arguments))
    keep_freed_blocks()
    try:
        try:
            with warnings.catch_warnings():
                code = _run(arguments)
        except Exception:
            interrupt.raise_if_asked()  # what it broke on its way is no error of its own
            raise
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        return _interrupted(sink) if code == 130 else code
    except KeyboardInterrupt:
        return _interrupted(sink)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is left to say, nor to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except EvsError as error:
        if is_debug:
            sink.traceback(error)
        sink.error(error.message, error.hint)
        return error.exit_code
    except Exception as error:
        if is_debug:
            sink.traceback(error)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            sink.error(f"no space is left on the disk{f' of {error.filename}' if error.filename else ''}")
            return 1
        if isinstance(error, MemoryError):
            sink.error("out of memory", "Fewer frames a batch take less: --batch-frames 1. So does a smaller --size.")
            return 1
        from evs_cli.cli.bug_report import versions_behind

        first_line = next(iter(str(error).splitlines()), "")
        sink.error(
            f"unexpected {type(error).__name__}: {first_line}",
            "This is a bug in evs. Run again with --debug and report the traceback with your command line and these "
            f"versions: {versions_behind(error)}.",
        )
        return 1
    return _interrupted(sink) if code == 130 else code
