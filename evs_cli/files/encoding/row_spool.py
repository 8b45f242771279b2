"""Spools rows to disk in the order of time, until all are encoded and ranked and can be written in rank order.

In: tokens from a ``TokenSink``'s caller. Out: rows in any order, a block at a time. Memory does not grow with the video
but for a checksum a row, and a scale where the store dtype has one; the disk holds the rows twice until the file is
written.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import torch

from evs_cli.core.row_accumulator import RowAccumulator
from evs_cli.errors import ArtifactError
from evs_cli.files.encoding.digests import row_checksums
from evs_cli.files.encoding.dtypes import bytes_of
from evs_cli.files.encoding.stored_rows import RowStore, StoreError
from evs_cli.files.output_file import unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BYTES = 8 << 20
_DISK_SHARE = 2  # the rows lie on disk twice: here, and in the file made of them


class RowSpool:
    """A ``TokenSink`` that writes every row to a nameless file in the folder of the output.

    The file is gone when it is closed, and when the program ends in whatever way.

    Args:
        target: the output, whose folder takes the rows.
        store_dtype: dtype to store in; None is the embeddings' own.
        main_only: whether further levels (DeepStack) are left out.
    """

    def __init__(self, target: Path, store_dtype: torch.dtype | None = None, *, main_only: bool = False) -> None:
        self._target, self._num_frames = target, 0
        self._store_dtype, self._main_only = store_dtype, main_only
        self._files: list[IO[bytes]] = []
        self.stores: list[RowStore] = []
        """What each stored level was rounded by, the main one first."""
        self.num_levels = 0
        """Levels that came, stored or not."""
        self.dims: list[int] = []
        """D of each stored level."""
        self._scales: list[RowAccumulator] = []
        self._checksums: list[RowAccumulator] = []
        self.embedding_dtype: torch.dtype | None = None
        """Of the rows as they came; None before any."""
        self.num_rows = 0
        """Rows a level so far."""

    def expecting(self, num_frames: int) -> RowSpool:
        """Itself, told T as planned: to find out with the first rows that the disk is too small."""
        self._num_frames = num_frames
        return self

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.close()

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """See ``TokenSink.add``.

        Raises:
            ArtifactError: the rows cannot be written, or the disk is too small for all that are planned.
            UsageError: values that the store dtype cannot hold.
        """
        stored_levels = levels[:1] if self._main_only else levels
        if not self._files:
            self._open(levels, stored_levels)
        for number, (level, file, store) in enumerate(zip(stored_levels, self._files, self.stores, strict=True)):
            stored = store.store(level.reshape(-1, level.shape[-1]))
            try:
                _write_all(file, bytes_of(stored.values))
            except OSError as error:
                raise unwritable(self._target, error) from error
            self._checksums[number].append(row_checksums(stored.values))
            if stored.scales is not None:
                self._scales[number].append(stored.scales)
        self.num_rows += levels[0].shape[:3].numel()

    def _open(self, levels: tuple[torch.Tensor, ...], stored_levels: tuple[torch.Tensor, ...]) -> None:
        self.embedding_dtype, self.num_levels = levels[0].dtype, len(levels)
        self.dims = [level.shape[-1] for level in stored_levels]
        dtype = self._store_dtype or levels[0].dtype
        num_rows = self._num_frames * levels[0].shape[1] * levels[0].shape[2]
        folder = self._target.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _check_space(self._target, _DISK_SHARE * num_rows * sum(self.dims) * dtype.itemsize)
            for _ in stored_levels:
                # Unbuffered: what is written must be there for the reads, and blocks are large.
                self._files.append(tempfile.TemporaryFile(dir=folder, buffering=0))  # noqa: SIM115
        except OSError as error:
            raise unwritable(self._target, error) from error
        self.stores = [RowStore(dtype) for _ in stored_levels]
        self._scales = [RowAccumulator(num_rows) for _ in stored_levels]
        self._checksums = [RowAccumulator(num_rows) for _ in stored_levels]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the rows are stored in."""
        return self.stores[0].dtype

    def errors(self) -> list[StoreError | None]:
        """The error of each stored level, the main one first."""
        return [store.error() for store in self.stores]

    def scales(self, level: int, order: torch.Tensor) -> torch.Tensor | None:
        """(N,) float32 scales of a level's rows in ``order``; None where its dtype has none."""
        return self._scales[level].rows[order] if len(self._scales[level]) else None

    def checksums(self, level: int, order: torch.Tensor) -> torch.Tensor:
        """(N,) int32 checksums of a level's rows in ``order``; see ``digests``."""
        return self._checksums[level].rows[order]

    def blocks(self, level: int, order: torch.Tensor) -> Iterator[memoryview]:
        """The bytes of a level's rows in ``order``, block by block; a block is valid until the next.

        Args:
            level: 0 is the main one.
            order: (N,) places of the rows as they came.

        Raises:
            OSError: they cannot be read back.
        """
        file, row_bytes = self._files[level], self.dims[level] * self.dtype.itemsize
        block = bytearray(max(1, _BLOCK_BYTES // row_bytes) * row_bytes)
        view = memoryview(block)
        for places in torch.split(order, len(block) // row_bytes):
            # In the order they lie on disk, so that it is passed over once a block.
            ascending, slots = places.sort()
            for place, slot in zip(ascending.tolist(), slots.tolist(), strict=True):
                file.seek(place * row_bytes)
                _fill(file, view[slot * row_bytes : (slot + 1) * row_bytes])
            yield view[: len(places) * row_bytes]


def _write_all(file: IO[bytes], view: memoryview) -> None:
    """Write all of ``view``; a write may take less than it was given."""
    while len(view):
        view = view[file.write(view) :]


def _fill(file: IO[bytes], view: memoryview) -> None:
    """Read until ``view`` is full; a read may give less than was asked for."""
    while len(view):
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise OSError("the rows that were set aside are gone")
        view = view[count:]


def _check_space(target: Path, size_bytes: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if size_bytes > free:
        need, there = f"{size_bytes / 1e6:,.1f} MB", f"{free / 1e6:,.1f} MB"
        raise ArtifactError(
            f"cannot write {target}: its rows need {need} on the way, {there} are free.",
            hint="Store less (--store-dtype int8, --levels main, fewer frames), or write to another disk.",
        )
