"""The JSON document of a command: ``{"schema_version", "command", "videos": [...], ...}``.

Of several videos each record is written as soon as it is made, on a line of its own, so that a reader sees how far a
long run is. The text is one valid document once it is closed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evs_cli.report.escaped_text import escaped_json

SCHEMA_VERSION = 2
"""Of every command's JSON document."""


class JsonDocument:
    """Records of a command, written at the end, or one by one.

    Args:
        command: its name.
        write: prints a line.
    """

    def __init__(self, command: str, write: Callable[[str], None]) -> None:
        self.command = command
        self.recorded: set[str | None] = set()
        """The videos that have a record."""
        self.is_closed = False
        self._write = write
        self._kept: list[Mapping[str, Any]] = []
        self._num_written = 0

    @property
    def is_begun(self) -> bool:
        """Whether a part of it is printed already."""
        return self._num_written > 0

    def add(self, records: Iterable[Mapping[str, Any]], *, at_once: bool, is_ascii: bool) -> None:
        """Add records.

        Args:
            records: what is told of each video.
            at_once: whether they are printed now; always the same for one document.
            is_ascii: whether letters beyond ASCII are escaped.
        """
        for record in records:
            self.recorded.add(record.get("video"))
            if not at_once:
                self._kept.append(record)
                continue
            text = _compact(record, is_ascii=is_ascii)  # before the head is printed: it may fail
            if self._num_written == 0:
                self._write(_compact(self._head("videos"), is_ascii=is_ascii)[: -len("]}")])
            self._write(text if self._num_written == 0 else f",{text}")
            self._num_written += 1

    def close(self, key: str, facts: Mapping[str, Any], *, is_ascii: bool) -> None:
        """Print what is left of it.

        Args:
            key: what the list of records is called.
            facts: what stands beside the list.
            is_ascii: as for ``add``.
        """
        self.is_closed = True
        if not self.is_begun:
            self._write(_compact({**self._head(key), key: self._kept, **facts}, is_ascii=is_ascii))
            return
        rest = _compact(facts, is_ascii=is_ascii)
        self._write("]}" if rest == "{}" else f"],{rest[1:]}")

    def _head(self, key: str) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "command": self.command, key: []}


def _compact(value: Any, *, is_ascii: bool) -> str:
    """JSON on one line; NaN is a bug and raises."""
    return escaped_json(json.dumps(value, allow_nan=False, ensure_ascii=is_ascii, separators=(",", ":")))
