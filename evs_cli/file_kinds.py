"""What tells the files of evs apart: a pruned video (``evs prune``) and a whole encoding (``evs encode``)."""

from __future__ import annotations

import os

METADATA_KEY = "evs"
"""The one key of a safetensors file's metadata: JSON with sorted keys."""
ENCODING_KIND = "encoding"
"""``kind`` in that JSON, where the file is a whole encoding."""
ENCODING_SUFFIX = ".safetensors"
_OWN_SUFFIXES = (ENCODING_SUFFIX, ".pt")


def is_own_file(path: object) -> bool:
    """Whether it is named as a file that evs wrote, so that it is read as an encoding and not as a video."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    name = os.fspath(path).partition("?")[0] if "://" in str(path) else os.fspath(path)
    return name.lower().endswith(_OWN_SUFFIXES)


def begins_as_own(head: bytes) -> bool:
    """Whether a file begins as a safetensors file that evs wrote, whatever its name."""
    return b'"__metadata__":{"evs' in head
