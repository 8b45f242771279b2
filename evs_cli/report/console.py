"""The one place that writes to the terminal: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, RenderableType
from rich.markup import escape

from evs_cli.report import interrupt

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

FORMATS = ("table", "json", "csv")
_PLAIN_WIDTH = 4096  # off a terminal nothing may wrap: a pipe has no width


@dataclass(frozen=True)
class OutputStyle:
    """How a user wants to be told things."""

    format: str = "table"
    """One of ``FORMATS``."""
    quiet: bool = False
    """Only the result and errors."""
    verbosity: int = 0
    """1 tells devices, dtypes and versions; 2 the libraries' own logs too."""
    no_color: bool = False


class Sink:
    """Where everything a user sees goes through."""

    def __init__(self, style: OutputStyle | None = None) -> None:
        self.style = style or OutputStyle()
        no_color = True if self.style.no_color else None  # None leaves NO_COLOR and TERM=dumb to Rich
        self._out = _console(sys.stdout or _closed(), no_color)
        self._err = _console(sys.stderr or _closed(), no_color, is_error=True)
        self._bar: RichProgress | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is one: tables have lines and colours there."""
        return bool(self._out.file.isatty())  # FORCE_COLOR makes Rich call a pipe a terminal; it has no width

    @property
    def width(self) -> int:
        """Columns of stdout; practically endless off a terminal."""
        return self._out.width

    @property
    def is_human(self) -> bool:
        """Whether the result is a table, so that hints make sense."""
        return self.style.format == "table"

    def fits(self, renderable: RenderableType) -> bool:
        """Whether a table has room on stdout without a cell cut or wrapped."""
        if not self.is_terminal:
            return True
        from rich.measure import Measurement

        # Console.measure never answers more than the console's own width.
        roomy = self._out.options.update(max_width=_PLAIN_WIDTH)
        return Measurement.get(self._out, roomy, renderable).maximum <= self.width

    def as_json(self) -> Sink:
        """A sink of the same style, but for JSON."""
        return Sink(replace(self.style, format="json"))

    def result(self, renderable: RenderableType) -> None:
        """Print a table or text to stdout."""
        if self.is_terminal:
            with self._progress_hidden():
                self._out.print(renderable)
            return
        with self._out.capture() as captured:
            self._out.print(renderable, no_wrap=True, crop=False, overflow="ignore")
        self.text("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def text(self, text: str) -> None:
        """Print plain text to stdout as it stands."""
        with self._progress_hidden():
            self._out.file.write(text if text.endswith("\n") else text + "\n")
            self._out.file.flush()

    def json(self, document: Any) -> None:
        """Print one compact JSON document to stdout; NaN is a bug and raises."""
        self.text(json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":")))

    def notice(self, text: str) -> None:
        """Tell something worth knowing, unless quiet."""
        if not self.style.quiet:
            self._err.print(f"[yellow]Note:[/] {escape(sentence(text))}", soft_wrap=True)

    def hint(self, text: str) -> None:
        """Suggest a next step, in human mode alone."""
        if not self.style.quiet and self.is_human:
            self._err.print(f"[cyan]Hint:[/] {escape(text)}", soft_wrap=True)

    def detail(self, text: str) -> None:
        """Tell a detail at ``-v``."""
        if self.style.verbosity and not self.style.quiet:
            self._err.print(escape(text), soft_wrap=True, style="dim")

    def status(self, text: str) -> None:
        """Tell what was done (a file written), unless quiet."""
        if not self.style.quiet:
            self._err.print(escape(text), soft_wrap=True)

    def error(self, message: str, hint: str | None = None) -> None:
        """Tell why a command failed, always."""
        self._err.print(f"[bold red]Error:[/] {escape(sentence(message))}", soft_wrap=True)
        if hint:
            self._err.print(f"[cyan]Hint:[/] {escape(hint)}", soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[TerminalProgress]:
        """A progress display on stderr, where that is a terminal; it leaves nothing behind."""
        from rich.progress import (
            Progress,
            SpinnerColumn,
            TextColumn,
        )

        # FORCE_COLOR makes Rich call a pipe a terminal; a spinner in a log is of no use all the same.
        is_shown = self._err.file.isatty() and not self.style.quiet
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[state]}"),
            console=self._err,
            transient=True,
            disable=not is_shown,
        )
        with bar:
            self._bar = bar
            try:
                yield TerminalProgress(bar, self)
            finally:
                self._bar = None

    @contextmanager
    def _progress_hidden(self) -> Iterator[None]:
        """Take the progress off the screen while stdout is written: the two share a terminal, not a console."""
        if self._bar is None:
            yield
            return
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()


class TerminalProgress:
    """A ``Progress`` on the terminal. A Ctrl-C that was dropped on the way is raised when it moves on."""

    def __init__(self, bar: RichProgress, sink: Sink) -> None:
        self._bar, self._sink = bar, sink
        self._task: TaskID | None = None
        self._total: int | None = None
        self._done = 0
        self._start = 0.0

    def stage(self, name: str, total: int | None = None) -> None:
        """Show a new step in place of the one before."""
        interrupt.raise_if_asked()
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._total, self._done, self._start = total, 0, time.monotonic()
        self._task = self._bar.add_task(name, total=total, state="")

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
        self._sink.notice(text)

    def detail(self, text: str) -> None:
        """Tell a detail above the bar, at ``-v``."""
        self._sink.detail(text)


def sentence(text: str) -> str:
    """``text`` on one line, as a sentence that ends with a full stop; a file's name may hold a line break."""
    text = " ".join(text.split("\n")).rstrip()
    return text if text.endswith((".", "!", "?", "`")) else text + "."


def _closed() -> TextIO:
    """Where text goes whose stream the caller closed (``>&-``)."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _console(stream: Any, no_color: bool | None, *, is_error: bool = False) -> Console:
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # a stream that knows no block characters shows ? and goes on
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, no_color=no_color, highlight=False, stderr=is_error, emoji=False, width=width)
