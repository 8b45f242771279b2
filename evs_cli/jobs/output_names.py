"""Names of results in a folder: ``{parent}/{stem}`` and the other fields of ``--name``.

In: a pattern, a video as it was named, its place and its rate. Out: a path inside the folder, without a suffix.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from evs_cli.errors import UsageError
from evs_cli.jobs.inputs import STDIN

FIELDS = ("stem", "parent", "name", "index", "q")
"""What a pattern may hold between braces."""


@dataclass(frozen=True)
class NamePattern:
    """A pattern of names, ``{parent}/{stem}``.

    Raises:
        UsageError: braces that do not match, a field that is not known, or no field that tells videos apart.
    """

    text: str
    fields: tuple[str, ...] = FIELDS
    """The fields that have a value; a job without rates has no ``q``."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.used if name not in self.fields]
        if unknown:
            raise UsageError(
                f"Invalid --name {self.text!r}: {{{unknown[0]}}} is no field of it. "
                f"Expected {', '.join(f'{{{name}}}' for name in self.fields)}."
            )

    @property
    def used(self) -> tuple[str, ...]:
        """The fields that are in the pattern."""
        try:
            parts = list(string.Formatter().parse(self.text))
        except ValueError as error:
            raise UsageError(
                f"Invalid --name {self.text!r}: {error}. Expected a pattern such as '{{parent}}/{{stem}}'."
            ) from error
        return tuple(name for _, name, _, _ in parts if name is not None)

    def path_of(self, video: str, index: int, q: float | None) -> PurePosixPath:
        """The path of one result in the folder, ``/`` between its parts.

        Args:
            video: as it was named.
            index: its place among the videos, from 1.
            q: its rate, where one was asked for.

        Raises:
            UsageError: a path that leaves the folder or names no file, a format that does not suit its field, or a
                rate where none was asked for.
        """
        if "q" in self.used and q is None:
            raise UsageError(f"Invalid --name {self.text!r}: {{q}} is the rate asked for. Expected --q beside it.")
        values = {**_parts_of(video), "index": index, "q": None if q is None else _Rate(q)}
        try:
            # A video of the working folder has no parent: "{parent}/{stem}" is "stem" then, and no path of the root.
            filled = self.text.format(**values)
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            raise UsageError(f"Invalid --name {self.text!r}: {error}. Expected a format of the field.") from error
        path = PurePosixPath(filled if self.text.startswith("/") else filled.lstrip("/"))
        if path.is_absolute() or ".." in path.parts:
            raise UsageError(f"Invalid --name {self.text!r}: {filled} is outside the output folder.")
        if not path.name or "\0" in filled or filled.endswith("/"):
            raise UsageError(f"Invalid --name {self.text!r}: it names no file for {video}.")
        return path


class _Rate(float):
    """A rate that is written as short as it is, unless a format says otherwise."""

    def __format__(self, spec: str) -> str:
        return super().__format__(spec or ".9g")


def _parts_of(video: str) -> dict[str, str]:
    """``stem``, ``parent`` and ``name`` of a video as it was named; of a parent neither the root nor ``..``."""
    if video == STDIN:
        return {"stem": "stdin", "parent": "", "name": "stdin"}
    parent = Path(urlsplit(video).path if "://" in video else video).parent
    kept = [part for part in parent.parts if part not in (parent.anchor, "..")]
    return {"stem": Path(video).stem, "parent": "/".join(kept), "name": Path(video).name}
