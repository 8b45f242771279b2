"""Videos as they are named on the command line, opened."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from evs_cli.errors import UsageError
from evs_cli.video.source import VideoSource
from evs_cli.video.temporary_copy import temporary_copy

STDIN = "-"
"""The name that stands for a video on standard input."""


@contextmanager
def opened(video: str) -> Iterator[VideoSource]:
    """The source of a video as named on the command line; ``-`` is kept in a temporary file while it is read.

    Raises:
        UsageError: ``-`` where standard input is a terminal, which would wait for ever.
        EvsError: there is no room for its copy.
    """
    if video != STDIN:
        yield video
        return
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("Invalid video -: standard input is closed. Expected a video piped into it.")
    if sys.stdin.isatty():
        raise UsageError("Invalid video -: standard input is a terminal. Expected a video piped into it.")
    with temporary_copy(sys.stdin.buffer, "stdin") as path:
        yield path
