"""The safetensors container, written and read by hand: its own library wants all tensors in memory at once.

The format, as safetensors documents it: 8 bytes, little endian, the length n of the header; n bytes of JSON, a tensor a
key with ``dtype``, ``shape`` and ``data_offsets`` into what follows, and ``__metadata__`` of strings; then the data,
without holes. Numpy and torch are not needed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LENGTH_BYTES = 8
"""Bytes of the header's length, in front of it."""
MAX_HEADER_BYTES = 100_000_000
"""What safetensors' own reader allows."""
_METADATA = "__metadata__"
_ALIGNMENT = 8

ITEM_BYTES: Mapping[str, int] = {
    **{"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2},
    **{"I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1},
}
"""Bytes of an element by the format's name of its dtype."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file."""

    name: str
    dtype: str
    """A name in ``ITEM_BYTES``."""
    shape: tuple[int, ...]
    start: int
    """First byte, counted from the start of the file."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.start + self.size_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry of the first dimension."""
        return math.prod(self.shape[1:]) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Header:
    """What stands in front of the data."""

    metadata: Mapping[str, str]
    entries: Mapping[str, TensorEntry]
    """By name, in the order of the data."""
    data_start: int
    """First byte behind the header, counted from the start of the file."""

    @property
    def end(self) -> int:
        """Size of the whole file in bytes."""
        return max((entry.end for entry in self.entries.values()), default=self.data_start)


def write_header(metadata: Mapping[str, str], tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """Length and header of a file.

    Args:
        metadata: strings by name.
        tensors: ``(name, dtype, shape)`` of each tensor in the order of its data.
    """
    document: dict[str, Any] = {_METADATA: dict(metadata)}
    offset = 0
    for name, dtype, shape in tensors:
        end = offset + math.prod(shape) * ITEM_BYTES[dtype]
        document[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % _ALIGNMENT)  # so that data of 8 bytes an element lies at a multiple of 8
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def header_bytes(first: bytes) -> int:
    """Length of the header, from the file's first ``LENGTH_BYTES`` bytes.

    Raises:
        ValueError: too few bytes, or a length that no header has.
    """
    size = int.from_bytes(first, "little")
    if len(first) != LENGTH_BYTES or not 2 <= size <= MAX_HEADER_BYTES:
        raise ValueError("no header")
    return size


def read_header(text: bytes) -> Header:
    """A header without the length in front.

    Raises:
        ValueError: it is no header, or its tensors overlap, leave holes or contradict their sizes.
    """
    try:
        document = json.loads(text)
        metadata = document.pop(_METADATA, {})
        entries = [
            _entry(name, fields, LENGTH_BYTES + len(text))
            for name, fields in sorted(document.items(), key=lambda item: item[1]["data_offsets"])
        ]
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("no header") from error
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("metadata that is no text")
    end = LENGTH_BYTES + len(text)
    for entry in entries:
        if entry.start != end:
            raise ValueError(f"{entry.name} does not follow the tensor before it")
        end = entry.end
    return Header(metadata, {entry.name: entry for entry in entries}, LENGTH_BYTES + len(text))


def _entry(name: str, fields: Mapping[str, Any], data_start: int) -> TensorEntry:
    shape, (start, end) = tuple(fields["shape"]), fields["data_offsets"]
    is_right = fields["dtype"] in ITEM_BYTES and all(type(n) is int and n >= 0 for n in (*shape, start, end))
    entry = TensorEntry(name, fields["dtype"], shape, data_start + start) if is_right else None
    if entry is None or entry.size_bytes != end - start:
        raise ValueError(f"{name} of a wrong size")
    return entry
