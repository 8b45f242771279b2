"""What a caller may watch of a run, and where its time goes. Knows no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


class Progress(Protocol):
    """What a caller may watch."""

    def begin_video(self, number: int, total: int) -> None:
        """Video ``number`` of ``total``, from 1, begins; the stages that follow are of it."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A step begins; ``total`` units of it are expected, where that is known."""

    def advance(self, units: int) -> None:
        """Units of the present step are done."""

    def notice(self, text: str) -> None:
        """A sentence the user should read."""

    def detail(self, text: str) -> None:
        """A sentence for those who ask for more."""


class SilentProgress:
    """A ``Progress`` that nobody watches."""

    def begin_video(self, number: int, total: int) -> None:
        """Ignore it."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Ignore it."""

    def advance(self, units: int) -> None:
        """Ignore it."""

    def notice(self, text: str) -> None:
        """Ignore it."""

    def detail(self, text: str) -> None:
        """Ignore it."""


class DeduplicatedProgress:
    """A ``Progress`` of work that is repeated: what is noticed again is not told again.

    Args:
        watcher: who is told.
    """

    def __init__(self, watcher: Progress) -> None:
        self._watcher = watcher
        self._told: set[str] = set()

    def begin_video(self, number: int, total: int) -> None:
        """See ``Progress.begin_video``."""
        self._watcher.begin_video(number, total)

    def stage(self, name: str, total: int | None = None) -> None:
        """See ``Progress.stage``."""
        self._watcher.stage(name, total)

    def advance(self, units: int) -> None:
        """See ``Progress.advance``."""
        self._watcher.advance(units)

    def notice(self, text: str) -> None:
        """See ``Progress.notice``."""
        if text not in self._told:
            self._told.add(text)
            self._watcher.notice(text)

    def detail(self, text: str) -> None:
        """See ``Progress.detail``."""
        if text not in self._told:
            self._told.add(text)
            self._watcher.detail(text)


@dataclass
class Timings:
    """Seconds spent in each step, added up over the batches.

    Steps of one thread: they add up to its time. Of steps that run side by side, ``decode`` is what encoding waited for
    frames.
    """

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Add the time of the block to ``step``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start
