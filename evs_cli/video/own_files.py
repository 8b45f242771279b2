"""Files that evs wrote, told from videos by their names and first bytes."""

from __future__ import annotations

import os

ENCODING_SUFFIX = ".safetensors"
_OWN_SUFFIXES = (ENCODING_SUFFIX, ".pt")


def is_own_file(path: object) -> bool:
    """Whether it is named as a file that evs wrote, so that it is read as an encoding and not as a video."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    name = os.fspath(path).partition("?")[0] if "://" in str(path) else os.fspath(path)
    return name.lower().endswith(_OWN_SUFFIXES)


def looks_like_own_file(head: bytes) -> bool:
    """Whether a file begins as a safetensors file that evs wrote, whatever its name."""
    return b'"__metadata__":{"evs' in head
