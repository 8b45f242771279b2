"""The program: its commands, and the one place where errors become words and exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from evs_cli._version import __version__
from evs_cli.cli import bench, cache, check, encode, export, fit, models, plan, prune, show, sweep, view
from evs_cli.errors import EvsError
from evs_cli.pipeline.memory import keep_freed_blocks
from evs_cli.report import interrupt
from evs_cli.report.console import OutputStyle, Sink

_EPILOG = (
    "Exit codes: 0 ok, 1 failed (one of several videos, or unexpected), 2 usage, 3 video, 4 model, "
    "5 artifact or output exists, 6 does not fit or differs from the plan, 130 interrupted."
)

app = typer.Typer(
    name="evs",
    help="Count, prune and export the video tokens of vision-language models with EVS (Efficient Video Sampling).",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = {
    **{"prune": prune, "sweep": sweep, "encode": encode, "plan": plan, "fit": fit, "check": check, "export": export},
    **{"show": show, "view": view, "bench": bench, "models": models},
}
for _name, _module in _COMMANDS.items():
    app.command(
        _name, no_args_is_help=_name not in ("bench", "models"), epilog="\n\n".join(("Examples:", *_module.EXAMPLES))
    )(_module.command)
_GROUPS = {"cache": cache}
for _name, _module in _GROUPS.items():
    app.add_typer(_module.commands, name=_name, epilog="\n\n".join(("Examples:", *_module.EXAMPLES)))


def _version(value: bool) -> None:
    if value:
        typer.echo(f"evs {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Count, prune and export the video tokens of vision-language models with EVS (Efficient Video Sampling)."""


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
                app(args=arguments, prog_name="evs")
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
            traceback.print_exc()
        sink.error(error.message, error.hint)
        return error.exit_code
    except Exception as error:
        if is_debug:
            traceback.print_exc()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            sink.error("cannot write the result: no space left on the device")
            return 1
        from evs_cli.cli.bug_report import versions_behind

        first_line = next(iter(str(error).splitlines()), "")
        sink.error(
            f"unexpected {type(error).__name__}: {first_line}",
            "This is a bug in evs. Run again with --debug and report the traceback with your command line and these "
            f"versions: {versions_behind(error)}.",
        )
        return 1
    return 0
