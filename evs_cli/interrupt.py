"""Ctrl-C that is not lost.

Python raises ``KeyboardInterrupt`` wherever the program happens to be. In a destructor it is printed and dropped; in
the import of an extension module it may become an ``ImportError``. So the program remembers that it was asked to stop,
and looks at places of its own choosing.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

_was_asked = False


def watch() -> None:
    """Remember Ctrl-C from now on; called by the program, never by the library.

    It leaves alone a handler that is not Python's own, such as of a shell that ignores Ctrl-C for what runs behind it.
    """
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _remember)
        _keep_quiet_when_dropped()


def _remember(number: int, frame: FrameType | None) -> None:
    global _was_asked
    _was_asked = True
    raise KeyboardInterrupt


def _keep_quiet_when_dropped() -> None:
    """Print no "Exception ignored in …" of a ``KeyboardInterrupt``: it is not ignored."""
    tell = sys.unraisablehook

    def tell_others(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            tell(dropped)

    sys.unraisablehook = tell_others


def was_asked() -> bool:
    """Whether Ctrl-C came, whatever became of the ``KeyboardInterrupt``."""
    return _was_asked


def raise_if_asked() -> None:
    """Raise the ``KeyboardInterrupt`` that something on the way dropped."""
    if _was_asked:
        raise KeyboardInterrupt
