"""The one place that writes to the terminal: results on stdout, everything else on stderr.

A command hands over its results as records, rows and a view; the sink prints the one that was asked for. What a URL
holds of passwords and keys is printed nowhere, as both streams end up in logs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from evs_cli.errors import EvsError, without_url_secrets
from evs_cli.report.escaped_text import EscapedText, escaped, shortened
from evs_cli.report.json_document import JsonDocument
from evs_cli.report.records import ended_record, error_record, to_csv
from evs_cli.report.signs import signs_of
from evs_cli.report.streams import PLAIN_WIDTH, closed_stream, console_on, told_when_full
from evs_cli.report.terminal_progress import TerminalProgress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from evs_cli.jobs.runner import Outcome

FORMATS = ("table", "json", "csv")
_PIPE_COLUMNS = 80  # a drawing needs some width there too


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
        self.inputs: Sequence[str] | None = None
        """Videos and files as they were named; None for a command that takes none."""
        self._document = JsonDocument("", self.text)
        self._has_header = False
        no_color = True if self.style.no_color else None  # None leaves NO_COLOR and TERM=dumb to Rich
        self._out = console_on(sys.stdout or closed_stream(), no_color)
        self._err = console_on(sys.stderr or closed_stream(), no_color, is_error=True)
        self.signs = signs_of(self._out.file)
        """What stdout can show."""
        self._err_signs = signs_of(self._err.file)
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
    def drawing_width(self) -> int:
        """Columns for what is drawn to a width: of the terminal; elsewhere COLUMNS, or 80."""
        if self.is_terminal:
            return self.width
        columns = os.environ.get("COLUMNS", "")
        return int(columns) if columns.isdecimal() and int(columns) else _PIPE_COLUMNS

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
        roomy = self._out.options.update(max_width=PLAIN_WIDTH)
        return Measurement.get(self._out, roomy, renderable).maximum <= self.width

    def force_json(self) -> None:
        """Print JSON, whatever format was asked for."""
        self.style = replace(self.style, format="json")

    @contextmanager
    def running(self, command: str, inputs: Sequence[str] | None) -> Iterator[None]:
        """Run a command. Whatever ends it, what it has printed of the JSON document is made a whole one.

        Of an error the document has a record for each input not yet told of. What is no ``EvsError`` prints no
        document that was not begun.

        Args:
            command: its name, ``cache ls`` for one.
            inputs: see ``Sink.inputs``.
        """
        self._document, self.inputs = JsonDocument(command, self.text), inputs
        try:
            yield
        except EvsError as error:
            if self.inputs is not None and not self._document.is_closed:
                self._end_document(error)
            raise
        except BaseException as error:
            if self._document.is_begun and not self._document.is_closed:
                with suppress(OSError):  # of a pipe that nobody reads any more
                    self._end_document(error)
            raise

    def _end_document(self, error: BaseException) -> None:
        """Close the JSON document with the error that ended the command."""
        # With several models a video may be told of already, and fail with the next one.
        failed: list[str | None] = [video for video in self.inputs or () if video not in self._document.recorded]
        self._add(ended_record(video, error) for video in failed or self.inputs or [None])
        self.finish()

    def _add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add to the JSON document, if that is the format; of several inputs each record is printed at once."""
        if self.style.format == "json":
            at_once = self.inputs is not None and len(self.inputs) > 1
            self._document.add(records, at_once=at_once, is_ascii=not self.signs.is_unicode)

    def show(
        self, records: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]] | None, view: Callable[[], None]
    ) -> None:
        """Show a result in the format asked for. A command may call this again and again, once a video.

        Tables and CSV are printed at once, CSV under one header; JSON is one document, whose records are printed at
        once where there are several inputs, and which ``finish`` closes.

        Args:
            records: what JSON tells, read for that alone.
            rows: what CSV tells, with the same keys in every call, read for that alone; None prints no row.
            view: prints the table to this sink.
        """
        if self.style.format == "json":
            self._add(records)
        elif self.style.format == "table":
            view()
        elif rows := list(rows or ()):
            self.text(to_csv(rows, header=not self._has_header))
            self._has_header = True

    def outcome_failed(self, outcome: Outcome[Any], error: EvsError, *, with_model: bool = False) -> None:
        """Tell that one of several videos failed.

        Args:
            outcome: of that video.
            error: why.
            with_model: whether its JSON record names the model, as a video has one record a model.
        """
        self.error(error.message, error.hint)
        which = {"model": outcome.input.model} if with_model else {}
        self._add([error_record(outcome.video, error, **which)])

    def finish(self, key: str = "videos", **facts: object) -> None:
        """Close the JSON document, if that is the format.

        Args:
            key: what its list of records is called.
            facts: what stands beside the list.
        """
        if self.style.format == "json":
            self._document.close(key, facts, is_ascii=not self.signs.is_unicode)

    def result(self, renderable: RenderableType) -> None:
        """Print a table or text to stdout."""
        with self._out.capture() as captured:
            if self.is_terminal:
                self._out.print(EscapedText(renderable))
            else:
                self._out.print(EscapedText(renderable), no_wrap=True, crop=False, overflow="ignore")
        text = captured.get()
        self._print(text if self.is_terminal else "\n".join(line.rstrip() for line in text.split("\n")))

    def text(self, text: str) -> None:
        """Print plain text to stdout: for programs as it stands, for a terminal without what it would obey."""
        self._print(escaped(text) if self.is_terminal else text)

    def _print(self, text: str) -> None:
        text = without_url_secrets(text if text.endswith("\n") else text + "\n")
        with self._progress_hidden(), told_when_full():
            self._out.file.write(self.signs.written(text))
            self._out.file.flush()

    def as_shown(self, text: str) -> str:
        """A name as stdout shows it: a letter that it does not know is a number there, and wider."""
        encoding = getattr(self._out.file, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def path(self, path: Path) -> None:
        """Print a file's path on a line of stdout; off a terminal byte by byte as it is, for programs to open it."""
        if self.is_terminal or not hasattr(self._out.file, "buffer"):
            self.text(str(path))  # escaped: what is read by eye is not opened
            return
        with told_when_full():
            self._out.file.flush()
            self._out.file.buffer.write(os.fsencode(path) + b"\n")
            self._out.file.flush()

    def notice(self, text: str) -> None:
        """Tell something worth knowing, unless quiet."""
        if not self.style.quiet:
            self._tell(sentence(text), "Note:", "yellow")

    def hint(self, text: str) -> None:
        """Suggest a next step, in human mode alone."""
        if not self.style.quiet and self.is_human:
            self._tell(text, "Hint:", "cyan")

    def detail(self, text: str) -> None:
        """Tell a detail at ``-v``."""
        if self.style.verbosity and not self.style.quiet:
            self._tell(text, style="dim")

    def status(self, text: str) -> None:
        """Tell what was done (a file written), unless quiet."""
        if not self.style.quiet:
            self._tell(text)

    def error(self, message: str, hint: str | None = None) -> None:
        """Tell why a command failed, always."""
        self._tell(sentence(message), "Error:", "bold red")
        if hint:
            self._tell(hint, "Hint:", "cyan")

    def traceback(self, error: BaseException) -> None:
        """Tell where an error was raised, for ``--debug``."""
        lines = without_url_secrets("".join(traceback.format_exception(error)))
        self._err.file.write(self._err_signs.written(escaped(lines)))

    def _tell(self, text: str, label: str = "", style: str = "") -> None:
        """Print a line to stderr, in the signs that it can show; the style is the label's if there is one."""
        shown = self._err_signs.written(escaped(without_url_secrets(shortened(text))))
        line = Text.assemble((label, style), " ", shown) if label else Text(shown, style)
        self._err.print(line, soft_wrap=True)

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
            SpinnerColumn(self._err_signs.spinner),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[state]}"),
            console=self._err,
            transient=True,
            disable=not is_shown,
        )
        with bar:
            self._bar = bar
            try:
                yield TerminalProgress(bar, self.notice, self.detail)
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


def sentence(text: str) -> str:
    """``text`` on one line, as a sentence that ends with a full stop; a file's name may hold a line break."""
    text = " ".join(text.split("\n")).rstrip()
    return text if text.endswith((".", "!", "?", "`")) else text + "."
