"""A dict out of a file that anybody may have made: plain values and plain tensors alone, within bounds.

It is looked through before anything is computed of it. A file of some kilobytes can hold a list that holds itself a
thousandfold, a tensor of terabytes over one number, or an integer of a million digits.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli.files.record_checks import RecordFault, describe, require

if TYPE_CHECKING:
    import torch

MAX_DEPTH = 12
"""Dicts and lists in each other; an artifact of evs has 5."""
MAX_VALUES = 1_000_000
"""Values beside tensors: a long video's frames are told by the thousand."""
_NAME_LETTERS = 80  # of a name in a message
MAX_PICKLE_BYTES = 1 << 26
"""Of the part of a ``.pt`` file that is no tensor's data."""


def check_archive(path: Path) -> None:
    """Refuse a ``.pt`` file whose parts are more than the file, before torch makes room for them.

    Raises:
        RecordFault: it is compressed, which torch never does, or its parts share bytes.
        OSError, zipfile.BadZipFile: it cannot be read, or is no archive.
    """
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
    require(all(part.compress_type == zipfile.ZIP_STORED for part in parts), "it is compressed")
    require(sum(part.file_size for part in parts) <= path.stat().st_size, "its parts are larger than the file")
    pickled = sum(part.file_size for part in parts if part.filename.endswith(".pkl"))
    require(pickled <= MAX_PICKLE_BYTES, f"it holds {pickled:,} bytes of values beside its tensors")


def check_record(record: Mapping[str, Any]) -> None:
    """Refuse what no artifact holds, by its name.

    Raises:
        RecordFault: values nested too deep, too many of them, an integer that 64 bits do not hold, a key that is no
            text, a value or tensor of another kind, or a tensor whose numbers are not its own.
    """
    for count, (name, value) in enumerate(_values("", record, 0)):
        require(count < MAX_VALUES, f"it holds more than {MAX_VALUES:,} values")
        _check_value(name, value)


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """All that is in it, containers too, each by its name: of a list that is in a list twice, twice."""
    if isinstance(value, dict):
        require(all(isinstance(key, str) for key in value), f"{name or 'the file'} has a key that is no text")
        parts: Iterable[tuple[object, Any]] = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    else:
        yield name, value
        return
    require(depth < MAX_DEPTH, f"{name[:_NAME_LETTERS]} is nested deeper than {MAX_DEPTH}")
    for key, each in parts:
        yield from _values(f"{name}.{key}" if name else str(key), each, depth + 1)


def _check_value(name: str, value: Any) -> None:
    import torch

    name = name[:_NAME_LETTERS]
    if isinstance(value, torch.Tensor):
        _check_tensor(name, value)
    elif isinstance(value, int):
        require(-(2**63) <= value < 2**63, f"{name} is an integer of more than 64 bits")
    elif not isinstance(value, (str, float, type(None))):
        raise RecordFault(f"{name} is a {type(value).__name__}")


def _check_tensor(name: str, tensor: torch.Tensor) -> None:
    import torch

    from evs_cli.files.encoding.dtypes import NAMES

    is_plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    require(is_plain and not tensor.is_nested, f"{name} is not a plain tensor in memory")
    is_known = tensor.dtype in NAMES and tensor.dtype is not torch.float8_e4m3fn
    require(is_known, f"{name} is {describe(tensor)}, a dtype that no artifact has")
    # A stride of 0 makes a tensor of any size of one number.
    num_bytes = tensor.numel() * tensor.element_size()
    require(num_bytes <= tensor.untyped_storage().nbytes(), f"{name} is larger than what it is made of")
