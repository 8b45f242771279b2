"""The cache folder: finds entries by digest, lists them, and removes the least recently used first.

In: digests and files of ``evs encode``. Out: paths, and what a listing tells. It reads headers alone, and imports
neither torch nor a model. Any number of programs may use it at once: files come and go whole, and one that another
program removed is as good as none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evs_cli.core.counts import TokenGrid
from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.encoding.container import LENGTH_BYTES, Header, header_bytes, read_header
from evs_cli.files.kinds import METADATA_KEY
from evs_cli.video.own_files import ENCODING_SUFFIX

KEY_METADATA = "evs_cache"
"""Key of an entry's metadata, beside an encoding's own: what settles it, as JSON."""
NAME_DIGITS = 12
"""Of a digest: what people call an entry by."""
_ABANDONED_SECONDS = 86_400.0  # a file that was being written so long ago belongs to a program that was killed


@dataclass(frozen=True)
class CacheEntry:
    """One file of the cache."""

    path: Path
    size_bytes: int
    last_used_seconds: float
    """When it was written or last served, in seconds since 1970."""

    @property
    def name(self) -> str:
        """What people call it by."""
        return self.path.stem[:NAME_DIGITS]


@dataclass(frozen=True)
class EntryFacts:
    """What the header of an entry tells."""

    video: str
    """The video's name without folders, as it was when it was encoded."""
    model: str
    num_sampled_frames: int
    token_grid_thw: TokenGrid
    dtype: str
    """Of the rows."""
    key_parts: Mapping[str, Any]
    """See ``EncodingKey.parts``."""


class EncodingCache:
    """Encodings in a folder.

    Args:
        folder: where they lie; it is made when the first one is written.
        limit_bytes: the most they may take together.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes

    def path_of(self, digest: str) -> Path:
        """Where the entry of a digest lies, or will."""
        return self.folder / f"{digest}{ENCODING_SUFFIX}"

    def entries(self) -> list[CacheEntry]:
        """Every entry, the last used first."""
        found = [
            CacheEntry(path, status.st_size, status.st_mtime)
            for path, status in self._files()
            if not path.name.startswith(".") and path.suffix == ENCODING_SUFFIX
        ]
        return sorted(found, key=lambda entry: (-entry.last_used_seconds, entry.path.name))

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            paths = sorted(self.folder.iterdir())
        except OSError:
            return
        for path in paths:
            with suppress(OSError):  # removed meanwhile
                yield path, path.stat()

    def touch(self, path: Path) -> None:
        """Mark an entry as used now."""
        with suppress(OSError):  # removed meanwhile, or a folder that can only be read
            os.utime(path)

    def remove(self, path: Path) -> bool:
        """Remove an entry; whether it is gone now."""
        try:
            path.unlink(missing_ok=True)
        except OSError:  # open in another program, where the system minds
            return False
        return True

    def make_room(self, size_bytes: int, keep: Path | None = None) -> list[CacheEntry]:
        """Remove the least recently used of the other entries until one of ``size_bytes`` fits; what was removed.

        Args:
            size_bytes: of the entry that stays or is to come.
            keep: its path; None where it has no place yet.
        """
        self._sweep_abandoned()
        entries = [entry for entry in self.entries() if entry.path != keep]
        taken, removed = sum(entry.size_bytes for entry in entries), []
        for entry in reversed(entries):
            if taken + size_bytes <= self.limit_bytes:
                break
            if self.remove(entry.path):
                taken -= entry.size_bytes
                removed.append(entry)
        return removed

    def _sweep_abandoned(self) -> None:
        """Remove what a program that was killed left half written."""
        oldest = time.time() - _ABANDONED_SECONDS
        for path, status in self._files():
            if path.name.startswith(".") and status.st_mtime < oldest:
                self.remove(path)

    def remove_named(self, names: Sequence[str], *, every: bool = False) -> list[CacheEntry]:
        """Remove entries by their names, or every one; what was removed.

        Raises:
            UsageError: neither names nor every, or both.
            ArtifactError: a name of no entry; none is removed then.
        """
        if bool(names) == every:
            raise UsageError("Invalid entries: expected names of entries, or --all, and not both. See `evs cache ls`.")
        if every:
            self._sweep_abandoned()
        chosen = self.entries() if every else list(dict.fromkeys(self.named(name) for name in names))
        return [entry for entry in chosen if self.remove(entry.path)]

    def named(self, name: str) -> CacheEntry:
        """The entry of a name, or of the beginning of one.

        Raises:
            ArtifactError: there is none.
            UsageError: there are several.
        """
        found = [entry for entry in self.entries() if name and entry.path.stem.startswith(name)]
        if not found:
            raise ArtifactError(f"cannot find {name!r}: the cache has no such entry.", hint="evs cache ls")
        if len(found) > 1:
            raise UsageError(f"Invalid entry {name!r}: {len(found)} begin so. Expected more of its digits.")
        return found[0]


def read_facts(path: Path) -> EntryFacts | None:
    """What an entry's header tells; None where it is damaged, gone or no entry."""
    try:
        header = _read_header(path)
        record = json.loads(header.metadata[METADATA_KEY])
        return EntryFacts(
            video=str(record["provenance"]["video"]["name"]),
            model=str(record["provenance"]["model"]["id"]),
            num_sampled_frames=header.entries["pts_seconds"].shape[0],
            token_grid_thw=TokenGrid(*(int(n) for n in record["token_grid_thw"])),
            dtype=str(record["store"]["dtype"]),
            key_parts=dict(json.loads(header.metadata[KEY_METADATA])),
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None


def _read_header(path: Path) -> Header:
    with path.open("rb") as file:
        text = file.read(header_bytes(file.read(LENGTH_BYTES)))
        header = read_header(text)
        if header.end != os.fstat(file.fileno()).st_size:
            raise ValueError("cut or added to")
        return header
