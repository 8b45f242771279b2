"""A checksum of every tensor of an artifact, and one of its other values: damage is told, and never loaded.

A flipped bit in an embedding contradicts nothing else in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evs_cli.files.record_checks import require

if TYPE_CHECKING:
    import torch

CHECKSUMS = "checksums"
"""Key of the record; see ``with_checksums``."""
LEVEL_PREFIX, INPUT_PREFIX = "deepstack_embeddings.", "token_inputs."
_VALUES = "values"  # no tensor's name


def with_checksums(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with ``checksums``: SHA-256 in hexadecimal, by the flat name of each tensor and as ``values``."""
    return {**record, CHECKSUMS: _checksums(record)}


def check_checksums(record: Mapping[str, Any]) -> None:
    """Hold a record against its checksums.

    Raises:
        RecordFault: a tensor, or the other values, are not what was written.
    """
    found, told = _checksums(record), record.get(CHECKSUMS)
    require(isinstance(told, dict), f"{CHECKSUMS} are missing")
    assert isinstance(told, dict)
    wrong = sorted(name for name in found.keys() | told.keys() if found.get(name) != told.get(name))
    require(not wrong, f"{', '.join(wrong[:3])} not what was written")


def split_tensors(record: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The record's tensors under flat names, and what else is in it."""
    import torch

    tensors: dict[str, torch.Tensor] = {}
    rest: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif name == LEVEL_PREFIX[:-1]:
            tensors |= {f"{LEVEL_PREFIX}{index}": level for index, level in enumerate(value)}
        elif name == INPUT_PREFIX[:-1]:
            tensors |= {f"{INPUT_PREFIX}{key}": values for key, values in value.items()}
        else:
            rest[name] = value
    return tensors, rest


def _checksums(record: Mapping[str, Any]) -> dict[str, str]:
    from evs_cli.files.encoding.dtypes import NAMES, bytes_of

    tensors, rest = split_tensors({name: value for name, value in record.items() if name != CHECKSUMS})
    sums = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        digest = hashlib.sha256(f"{NAMES[tensor.dtype]}{tuple(tensor.shape)}".encode())
        digest.update(bytes_of(tensor))
        sums[name] = digest.hexdigest()
    values = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**sums, _VALUES: hashlib.sha256(values.encode()).hexdigest()}
