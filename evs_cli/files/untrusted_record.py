"""A dict out of a file that anybody may have made: plain values and plain tensors alone, within bounds.

It is looked through before anything is computed of it. A file of some kilobytes can hold a list that holds itself a
thousandfold, a tensor of terabytes over one number, or an integer of a million digits.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli.files.record_checks import RecordFault, require

if TYPE_CHECKING:
    import torch

MAX_DEPTH = 12
"""Dicts and lists in each other; an artifact of evs has 5."""
MAX_VALUES = 1_000_000
"""Values beside tensors: a long video's frames are told by the thousand."""
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
    """Refuse what no artifact holds.

    Raises:
        RecordFault: values nested too deep, too many of them, an integer that 64 bits do not hold, a key that is no
            text, a value or tensor of another kind, or a tensor whose numbers are not its own.
    """
    for count, value in enumerate(_values(record, 0)):
        require(count < MAX_VALUES, f"it holds more than {MAX_VALUES:,} values")
        _check_value(value)


def _values(value: Any, depth: int) -> Iterator[Any]:
    """All that is in it, containers too, one by one: of a list that is in a list twice, twice."""
    yield value
    if isinstance(value, (dict, list, tuple)):
        require(depth < MAX_DEPTH, f"its values are nested deeper than {MAX_DEPTH}")
        for each in value.values() if isinstance(value, dict) else value:
            yield from _values(each, depth + 1)


def _check_value(value: Any) -> None:
    import torch

    if isinstance(value, torch.Tensor):
        _check_tensor(value)
    elif isinstance(value, dict):
        require(all(isinstance(key, str) for key in value), "a key is no text")
    elif isinstance(value, int):
        require(-(2**63) <= value < 2**63, "an integer has more than 64 bits")
    elif not isinstance(value, (str, float, type(None), list, tuple)):
        raise RecordFault(f"it holds a {type(value).__name__}")


def _check_tensor(tensor: torch.Tensor) -> None:
    import torch

    from evs_cli.files.encoding.dtypes import NAMES

    is_plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    require(is_plain and not tensor.is_nested, "a tensor is not a plain one in memory")
    require(tensor.dtype in NAMES and tensor.dtype is not torch.float8_e4m3fn, f"a tensor is {tensor.dtype}")
    # A stride of 0 makes a tensor of any size of one number.
    require(tensor.is_contiguous() and _owns_its_numbers(tensor), "a tensor's numbers are not its own")


def _owns_its_numbers(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
