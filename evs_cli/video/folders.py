"""Words for a folder given in place of a video: the patterns that name the videos in it."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_VIDEO_SUFFIXES = frozenset(
    (
        *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".flv", ".wmv"),
        *(".ogv", ".3gp", ".gif", ".vob", ".y4m"),
    )
)
_MAX_ENTRIES = 10_000  # a hint need not look through an archive


def folder_hint(folder: Path) -> str:
    """``Name the videos in it: clips/*.mp4 clips/*.mov``; of the folders in it where itself holds none."""
    for pattern in ("*", "*/*"):
        patterns = _patterns(folder, pattern)
        if patterns:
            return f"Name the videos in it: {' '.join(patterns)}"
    return "Give video files; there is none in it."


def _patterns(folder: Path, pattern: str) -> list[str]:
    """A pattern for a shell for each kind of video that is there, the most frequent first."""
    found = Counter(
        path.suffix
        for path in _first(folder.glob(pattern))
        if path.suffix.lower() in _VIDEO_SUFFIXES and path.is_file()
    )
    return [f"{shlex.quote(str(folder))}/{pattern}{suffix}" for suffix, _ in found.most_common()]


def _first(paths: Iterable[Path]) -> Iterable[Path]:
    return itertools.islice(paths, _MAX_ENTRIES)
