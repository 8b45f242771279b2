"""stdout and stderr as evs writes to them: all of a text or an error, letters that they do not know by number."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from evs_cli.errors import EvsError

PLAIN_WIDTH = 4096
"""Columns off a terminal, where nothing may wrap: a pipe has no width."""


@contextmanager
def told_when_full() -> Iterator[None]:
    """Make an error of what stdout does not take; of a pipe that nobody reads there is nothing to tell."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EvsError(f"cannot write the result: {(error.strerror or str(error)).lower()}") from error


def closed_stream() -> TextIO:
    """Where text goes whose stream the caller closed (``>&-``)."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _whole(stream: Any) -> Any:
    """The stream, or one in its place that writes all of a text or raises.

    Under ``PYTHONUNBUFFERED`` a text goes to the system in one call, which may take a part of it: the rest of a long
    result would be lost in silence where a disk fills up.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    buffered = io.BufferedWriter(io.FileIO(raw.fileno(), "w", closefd=False))
    return io.TextIOWrapper(buffered, stream.encoding, stream.errors, newline="", write_through=True)


def console_on(stream: Any, no_color: bool | None, *, is_error: bool = False) -> Console:
    """Rich's console on a stream, for plain text and styles alone: markup, emoji and highlights are a file name's own.

    Args:
        stream: stdout or stderr.
        no_color: True for none; None leaves ``NO_COLOR`` and ``TERM`` to Rich.
        is_error: whether it is stderr.
    """
    if hasattr(stream, "reconfigure"):
        # A letter of a file's name that the stream does not know is written by its number: names stay apart.
        stream.reconfigure(errors="backslashreplace")
    stream = _whole(stream)
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(
        file=stream, no_color=no_color, markup=False, highlight=False, stderr=is_error, emoji=False, width=width
    )
