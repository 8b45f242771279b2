"""Reads scattered rows of a tensor in a file: neighbours in one read, and never more than one block at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from evs_cli.errors import ArtifactError
from evs_cli.files.encoding.byte_source import ByteSource
from evs_cli.files.encoding.container import TensorEntry
from evs_cli.files.encoding.dtypes import DTYPES

_BLOCK_BYTES = 32 << 20  # of one read: memory beside the rows that are kept
_GAP_BYTES = 1 << 16  # rows nearer than this are read in one go, the gap with them; a prefix has no gaps


def read_exactly(source: ByteSource, start: int, end: int) -> memoryview:
    """All bytes of a range.

    Raises:
        ArtifactError: they cannot be read, or fewer came.
    """
    data = source.read(start, end)
    if len(data) != end - start:
        raise ArtifactError(f"cannot read {source.name}: {end - start:,} bytes were asked for, {len(data):,} came.")
    return data


def read_rows(source: ByteSource, entry: TensorEntry, ranks: torch.Tensor) -> torch.Tensor:
    """Rows of a tensor, block by block into their places.

    Args:
        source: the file.
        entry: the tensor, ``(N, D)``.
        ranks: ``(n,)`` int64 rows of it, in any order; one may come twice.

    Returns:
        ``(n, D)`` in the dtype they are stored in.

    Raises:
        ArtifactError: they cannot be read.
    """
    rows = torch.empty((len(ranks), *entry.shape[1:]), dtype=DTYPES[entry.dtype])
    places = rows.view(torch.uint8).numpy()
    ascending, slots = (values.numpy() for values in ranks.sort())
    for first, last in _runs(ascending, entry.row_bytes):
        start, end = int(ascending[first]), int(ascending[last - 1]) + 1
        data = read_exactly(source, entry.start + start * entry.row_bytes, entry.start + end * entry.row_bytes)
        block = np.frombuffer(data, dtype=np.uint8).reshape(-1, entry.row_bytes)
        wanted = ascending[first:last]
        is_whole = len(block) == len(wanted) and bool((np.diff(wanted) == 1).all())  # no gap, nothing twice
        places[slots[first:last]] = block if is_whole else block[wanted - start]
    return rows


def _runs(ascending: np.ndarray[Any, np.dtype[np.int64]], row_bytes: int) -> Iterator[tuple[int, int]]:
    """``(first, last)`` bounds of the rows that one read fetches: near each other, and of a block at most."""
    most_gap, most_rows = max(1, _GAP_BYTES // row_bytes), max(1, _BLOCK_BYTES // row_bytes)
    cuts = np.flatnonzero(np.diff(ascending) > most_gap) + 1
    bounds = [0, *cuts.tolist(), len(ascending)]
    for first, last in itertools.pairwise(bounds):
        while first < last:
            upper = int(np.searchsorted(ascending[first:last], ascending[first] + most_rows)) + first
            yield first, upper
            first = upper
