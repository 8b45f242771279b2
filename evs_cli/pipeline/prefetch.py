"""Runs an iterator in a background thread and buffers up to ``depth`` items.

The reader gets the same items and errors in the same order, so a chain of prefetchers gives the same result as the
steps in turn, only sooner. Whoever stops reading early (an error, Ctrl-C) must close it, which stops the thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")

_POLL_SECONDS = 0.1  # a wait without end cannot be interrupted on every system
_PATIENCE_SECONDS = 0.3  # with a thread that is told to stop


class Prefetcher(Iterator[Item], Generic[Item]):
    """Iterates over ``source`` in a background thread, at most ``depth`` items ahead of the reader.

    An error of the source is raised in its place, after the items before it.

    Args:
        source: what is iterated, in the thread alone; a generator is closed there.
        depth: items that may wait, at least 1; one more is being made.
        on_close: called when the reader ends before the source does, to make the source end soon.
    """

    def __init__(self, source: Iterator[Item], *, depth: int = 1, on_close: Callable[[], None] | None = None) -> None:
        self._source, self._on_close = source, on_close
        self._items: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(depth)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="evs-ahead")
        self._thread.start()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._put((next(self._source), None)):
                pass
        except BaseException as caught:  # the reader's thread raises it; a StopIteration is one too
            error = caught
        finally:
            close = getattr(self._source, "close", None)
            if close is not None:
                close()
        self._put((None, error))

    def _put(self, entry: tuple[Item | None, BaseException | None]) -> bool:
        """Hand an entry over, or return False where nobody wants it any more."""
        while not self._is_stopped.is_set():
            try:
                self._items.put(entry, timeout=_POLL_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    def __next__(self) -> Item:
        while not self._is_stopped.is_set():
            try:
                item, error = self._items.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if error is None:
                return item  # type: ignore[return-value]
            self.close()
            raise error
        raise StopIteration

    def close(self) -> None:
        """Stop the thread; what it has made is dropped.

        Most often it has ended when this returns. Where one item takes long to make, it ends behind that item, and
        nobody waits: Ctrl-C must stop within a second.
        """
        if not self._is_stopped.is_set():
            self._is_stopped.set()
            if self._on_close is not None:
                self._on_close()
        self._thread.join(_PATIENCE_SECONDS)

    def __enter__(self) -> Prefetcher[Item]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
