"""Videos as they are named on the command line, opened."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evs_cli.errors import UsageError
from evs_cli.video.source import VideoSource

STDIN = "-"
"""The name that stands for a video on standard input."""


@contextmanager
def opened(video: str) -> Iterator[VideoSource]:
    """The source of a video as named on the command line; ``-`` is kept in a temporary file while it is read.

    Raises:
        UsageError: ``-`` where standard input is a terminal, which would wait for ever.
    """
    if video != STDIN:
        yield video
        return
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("Invalid video -: standard input is closed. Expected a video piped into it.")
    if sys.stdin.isatty():
        raise UsageError("Invalid video -: standard input is a terminal. Expected a video piped into it.")
    with tempfile.TemporaryDirectory(prefix="evs-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path
