"""Masks drawn in characters: a small map of each frame, its time and a bar of its count under it.

In: masks, times, the signs of a terminal and its width. Out: lines of text. Nothing here knows files or prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from evs_cli.report.signs import Signs

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
_GAP = 2  # columns between frames side by side


@dataclass(frozen=True, eq=False)
class FrameMap:
    """One frame of tokens to draw."""

    pts_seconds: float
    mask: Mask
    """(h, w) bool, True where the token is kept."""

    @property
    def retained_tokens(self) -> int:
        """Tokens kept."""
        return int(self.mask.sum())

    @property
    def caption(self) -> str:
        """Its time and count."""
        return f"{self.pts_seconds:.2f} s  {self.retained_tokens:,}"


@dataclass(frozen=True)
class MapBand:
    """Lines of the frames that stand side by side."""

    masks: tuple[str, ...]
    captions: str
    bars: str


def pool_factor(grid_width: int, columns: int) -> int:
    """Columns of tokens that one character stands for, so that a frame is no wider than ``columns``; 1 where it fits.

    A character is about twice as high as wide, so it stands for twice as many rows.
    """
    return -(-grid_width // max(1, columns))


def draw_bands(frames: Sequence[FrameMap], signs: Signs, columns: int) -> list[MapBand]:
    """Maps of frames of one size, in order, as many side by side as there is room for; at least one.

    Args:
        frames: at least one.
        signs: what to draw with.
        columns: width of the terminal. Below 16 a caption may be wider.
    """
    grid_width = frames[0].mask.shape[1]
    pool = pool_factor(grid_width, columns)
    width = max(-(-grid_width // pool), *(len(frame.caption) for frame in frames))
    abreast = max(1, (columns + _GAP) // (width + _GAP))
    return [_band(frames[start : start + abreast], signs, pool, width) for start in range(0, len(frames), abreast)]


def _band(frames: Sequence[FrameMap], signs: Signs, pool: int, width: int) -> MapBand:
    def beside(parts: Sequence[str]) -> str:
        return (" " * _GAP).join(part.ljust(width) for part in parts).rstrip()

    maps = [map_lines(frame.mask, signs, pool) for frame in frames]
    return MapBand(
        tuple(beside(row) for row in zip(*maps, strict=True)),
        beside([frame.caption for frame in frames]),
        beside([count_bar(frame.retained_tokens, frame.mask.size, signs, width) for frame in frames]),
    )


def map_lines(mask: Mask, signs: Signs, pool: int = 1) -> list[str]:
    """A mask as text, a line for every two rows of tokens; with ``pool``, for every ``2 * pool`` of them.

    Args:
        mask: ``(h, w)`` bool. Of an odd number of rows the last line has a lower half without a token.
        signs: what to draw with.
        pool: columns of tokens a character, at least 1.
    """
    if pool == 1:
        even = np.pad(mask, ((0, len(mask) % 2), (0, 0))).astype(np.uint8)
        return _written(even[::2] + 2 * even[1::2], signs.halves)
    rows, columns = np.arange(0, mask.shape[0], 2 * pool), np.arange(0, mask.shape[1], pool)
    kept, cells = (
        np.add.reduceat(np.add.reduceat(each.astype(np.int64), rows, axis=0), columns, axis=1)
        for each in (mask, np.ones_like(mask))  # a block at the edge may be smaller
    )
    return _written((kept > 0).astype(np.uint8) + (kept == cells), signs.pooled)


def _written(places: np.ndarray[Any, np.dtype[np.uint8]], letters: str) -> list[str]:
    """(rows, columns) places in ``letters`` as lines."""
    return ["".join(letters[place] for place in row) for row in places.tolist()]


def count_bar(count: int, full: int, signs: Signs, columns: int) -> str:
    """A bar of ``count`` of ``full``; none of 0, and never none of more."""
    return signs.long_bar(count / full, columns) or (signs.parts[1] if count else "")


def map_legend(grid_width: int, signs: Signs, columns: int) -> str:
    """What a character of the maps stands for."""
    pool = pool_factor(grid_width, columns)
    if pool == 1:
        none, upper, lower, both = tuple(signs.halves)
        return f"a character is 2 rows of tokens: {both} both kept, {upper} upper, {lower} lower, {none} none"
    none, some, every = tuple(signs.pooled)
    return f"pooled to fit: a character is {2 * pool} x {pool} tokens: {every} all kept, {some} some, {none} none"
