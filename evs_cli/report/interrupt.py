"""Ctrl-C that is not lost, and SIGTERM and SIGHUP as clean as it.

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
_number = int(signal.SIGINT)
_DEADLY = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""What ends a program from outside: a scheduler's time limit, a terminal that was closed. Windows has no SIGHUP."""
_AGAIN_SECONDS = 0.05  # long enough to be out of the destructor that dropped it


def watch() -> None:
    """Remember Ctrl-C from now on, and take the signals that end a program for one; called by the program alone.

    By default SIGTERM and SIGHUP end a program at once, and what it was writing stays in the user's folder.
    It leaves alone a handler that is not Python's own, such as of a shell that ignores Ctrl-C for what runs behind it,
    or of ``nohup``.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _remember)
        _raise_again_when_dropped()
    for number in _DEADLY:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _remember)


def exit_code() -> int:
    """What a shell expects of a program that such a signal ended: 130 of Ctrl-C, 143 of SIGTERM, 129 of SIGHUP."""
    return 128 + _number


def _remember(number: int, frame: FrameType | None) -> None:
    global _was_asked, _number
    _was_asked, _number = True, number
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
