"""Ctrl-C that is not lost.

Python raises ``KeyboardInterrupt`` wherever the program happens to be. In a destructor it is printed and dropped; in
the import of an extension module it may become an ``ImportError``. So one that was dropped is raised again, and the
program remembers that it was asked to stop, and looks at places of its own choosing.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from types import FrameType
from typing import Any

_was_asked = False
_AGAIN_SECONDS = 0.05  # long enough to be out of the destructor that dropped it


def watch() -> None:
    """Remember Ctrl-C from now on; called by the program, never by the library.

    It leaves alone a handler that is not Python's own, such as of a shell that ignores Ctrl-C for what runs behind it.
    """
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _remember)
        _raise_again_when_dropped()


def _remember(number: int, frame: FrameType | None) -> None:
    global _was_asked
    _was_asked = True
    raise KeyboardInterrupt


def _raise_again_when_dropped() -> None:
    """Raise a ``KeyboardInterrupt`` that was dropped once more, and print no "Exception ignored in …" of it."""
    tell = sys.unraisablehook

    def raise_again(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            tell(dropped)
            return
        timer = threading.Timer(_AGAIN_SECONDS, _interrupt_main_thread)
        timer.daemon = True
        timer.start()

    sys.unraisablehook = raise_again


def _interrupt_main_thread() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # ends a wait too
    else:
        _thread.interrupt_main()


def raise_if_asked() -> None:
    """Raise ``KeyboardInterrupt`` if Ctrl-C came, whatever became of the one that was raised then."""
    if _was_asked:
        raise KeyboardInterrupt
