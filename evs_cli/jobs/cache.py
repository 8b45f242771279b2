"""Where the user keeps encodings, and how much room they may take."""

from __future__ import annotations

import os

from evs_cli.encoders.embedded import cache_directory
from evs_cli.errors import UsageError
from evs_cli.files.cache.store import EncodingCache

SIZE_VARIABLE = "EVS_CACHE_SIZE"
"""Environment variable of the most that entries may take together, in GB."""
DEFAULT_SIZE_GB = 10.0


def open_cache() -> EncodingCache:
    """The user's cache: ``encodings`` in evs's cache directory, at most ``EVS_CACHE_SIZE`` GB.

    Raises:
        UsageError: a size that is none.
    """
    text = os.environ.get(SIZE_VARIABLE) or f"{DEFAULT_SIZE_GB:g}"
    try:
        size_gb = float(text)
    except ValueError:
        size_gb = 0.0
    if not 0 < size_gb < float("inf"):
        raise UsageError(f"Invalid {SIZE_VARIABLE} ({text!r}). Expected a size in GB above 0.")
    return EncodingCache(cache_directory() / "encodings", round(size_gb * 1e9))
