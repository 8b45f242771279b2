"""Rows of embeddings on the CPU: room for a known number of them, in memory or in a file that is mapped.

A ``RowBuffer`` is filled from the front and thinned in place, so that what is left of it is written to a file without
a copy. It knows no scores and no order but its own.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence

import numpy as np
import torch

from evs_cli.errors import EvsError

_BLOCK_BYTES = 1 << 22  # rows that move are gathered in blocks, so that thinning needs no second buffer


class RowBuffer:
    """Room for rows ``(n, D)`` of one or several levels, under one numbering.

    Args:
        num_rows: how many rows there is room for, at least 1.
        like: a tensor a level, whose last dimension and dtype the rows have.
        free_bytes: memory that is free; rows that take more than half of it lie in a temporary file. None is enough.

    Raises:
        EvsError: the folder for temporary files has no room.
    """

    def __init__(self, num_rows: int, like: Sequence[torch.Tensor], *, free_bytes: int | None = None) -> None:
        size_bytes = num_rows * row_bytes(like)
        self.is_mapped = free_bytes is not None and 2 * size_bytes > free_bytes
        self.num_rows = num_rows
        self.filled = 0
        allocate = _mapped if self.is_mapped else torch.empty
        self._levels = tuple(allocate((num_rows, level.shape[-1]), dtype=level.dtype) for level in like)

    @property
    def room(self) -> int:
        """Rows that can still be appended."""
        return self.num_rows - self.filled

    @property
    def levels(self) -> tuple[torch.Tensor, ...]:
        """``(filled, D)`` a level; each tensor owns exactly its storage, and none is a copy."""
        return tuple(_exact(level, self.filled) for level in self._levels)

    def append(self, rows: Sequence[torch.Tensor], picked: torch.Tensor) -> None:
        """Append ``rows[picked]``: rows ``(n, D)`` a level, picked ``(m,)`` int64 with m at most ``room``."""
        end = self.filled + len(picked)
        for own, level in zip(self._levels, rows, strict=True):
            torch.index_select(level, 0, picked, out=own[self.filled : end])
        self.filled = end

    def thin(self, is_kept: torch.Tensor) -> None:
        """Keep the rows where ``is_kept`` (filled,) bool is True; they close up to the front, in their order."""
        kept = is_kept.nonzero().flatten()
        # Rows move to the front alone, and a block is gathered before it is written: none is overwritten unread.
        start = len(kept) if bool(is_kept.all()) else int(is_kept.int().argmin())  # what stands before stays there
        block = max(1, _BLOCK_BYTES // row_bytes(self._levels))
        for begin in range(start, len(kept), block):
            sources = kept[begin : begin + block]
            for level in self._levels:
                level[begin : begin + len(sources)] = level[sources]
        self.filled = len(kept)

    def move_to(self, other: RowBuffer, is_kept: torch.Tensor) -> None:
        """Append the rows where ``is_kept`` (filled,) bool is True to ``other``, and be empty."""
        own = [level[: self.filled] for level in self._levels]
        other.append(own, is_kept.nonzero().flatten())
        self.filled = 0


def row_bytes(levels: Sequence[torch.Tensor]) -> int:
    """Bytes of one row of all levels together."""
    return sum(level.shape[-1] * level.itemsize for level in levels)


def _exact(rows: torch.Tensor, count: int) -> torch.Tensor:
    """The first ``count`` of ``rows`` (n, D) as a tensor whose storage is they alone: the same memory, no copy."""
    if count == rows.shape[0]:
        return rows
    if count == 0:
        return torch.empty_like(rows[:0])
    return torch.from_numpy(rows[:count].view(torch.uint8).numpy()).view(rows.dtype)


def _mapped(shape: tuple[int, int], *, dtype: torch.dtype) -> torch.Tensor:
    """A tensor in a temporary file that has no name and goes with the tensor."""
    size_bytes = shape[0] * shape[1] * dtype.itemsize
    with tempfile.TemporaryFile(prefix="evs-") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size_bytes)  # or a full disk would end the program, not a call
            pages = np.memmap(file, dtype=np.uint8, mode="w+", shape=(size_bytes,))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise EvsError(
                f"cannot keep {size_bytes / 1e9:.1f} GB of embeddings: neither half of the free memory nor "
                f"{tempfile.gettempdir()} holds them.",
                hint="Set TMPDIR to a folder with room, or raise --q.",
            ) from error
    return torch.from_numpy(pages).view(dtype).view(shape)
