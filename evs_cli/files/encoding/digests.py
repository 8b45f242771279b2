"""Checksums that reveal damage: one SHA-256 of everything before the rows, and a CRC-32 of each row.

Opening a file reads the whole front, so one digest covers it. Each rate reads other rows, so each row has its own.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from evs_cli.files.encoding.dtypes import bytes_of

FRONT_KEY = "evs_front_sha256"
"""Key of the metadata that holds ``front_digest``."""
CHECKSUM_SUFFIX = ".crc32"
"""Behind a level's name: ``row_checksums`` of its rows, in rank order."""


def front_digest(
    metadata: Mapping[str, str], layout: Iterable[tuple[str, str, tuple[int, ...]]], front: Iterable[memoryview]
) -> str:
    """SHA-256 in hexadecimal of everything but the rows.

    Args:
        metadata: of the header; its own digest does not count.
        layout: ``(name, dtype, shape)`` of every tensor, in the order of the data, as the container names dtypes.
        front: the data before the rows, in pieces.
    """
    told = {key: value for key, value in metadata.items() if key != FRONT_KEY}
    digest = hashlib.sha256(json.dumps([told, list(layout)], sort_keys=True).encode())
    for piece in front:
        digest.update(piece)
    return digest.hexdigest()


def row_checksums(rows: torch.Tensor) -> torch.Tensor:
    """The CRC-32 of each row's bytes, as zlib counts it.

    Args:
        rows: ``(n, D)`` as they are stored.

    Returns:
        ``(n,)`` int32, the bits of the unsigned number: the container has readers that know no other.
    """
    data, row_bytes = bytes_of(rows), rows.shape[1] * rows.itemsize
    sums = (zlib.crc32(data[start : start + row_bytes]) for start in range(0, len(data), row_bytes))
    return torch.from_numpy(np.fromiter(sums, dtype=np.uint32, count=len(rows)).view(np.int32))
