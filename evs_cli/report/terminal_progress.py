"""How far a run is, on a line of the terminal that goes when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from evs_cli.report import interrupt

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class TerminalProgress:
    """A ``Progress`` on the terminal. A Ctrl-C that was dropped on the way is raised when it moves on.

    Args:
        bar: the line.
        notice: tells something above it.
        detail: tells a detail above it, at ``-v``.
    """

    def __init__(self, bar: RichProgress, notice: Callable[[str], None], detail: Callable[[str], None]) -> None:
        self._bar, self._notice, self._detail = bar, notice, detail
        self._task: TaskID | None = None
        self._total: int | None = None
        self._done = 0
        self._start = 0.0
        self._video = ""

    def begin_video(self, number: int, total: int) -> None:
        """Put ``clip 7 of 60`` before the steps that follow; nothing before those of a single video."""
        interrupt.raise_if_asked()
        self._video = f"clip {number} of {total}: " if total > 1 else ""

    def stage(self, name: str, total: int | None = None) -> None:
        """Show a new step in place of the one before."""
        interrupt.raise_if_asked()
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._total, self._done, self._start = total, 0, time.monotonic()
        self._task = self._bar.add_task(self._video + name, total=total, state="")

    def advance(self, units: int) -> None:
        """Move on, and say how far it is and how long the rest will take."""
        interrupt.raise_if_asked()
        if self._task is None or self._total is None:
            return
        self._done += units
        left = (time.monotonic() - self._start) / self._done * (self._total - self._done)
        self._bar.update(
            self._task, completed=self._done, state=f"{self._done}/{self._total} frames, {left:.0f} s left"
        )

    def notice(self, text: str) -> None:
        """Tell something above the bar."""
        self._notice(text)

    def detail(self, text: str) -> None:
        """Tell a detail above the bar, at ``-v``."""
        self._detail(text)
