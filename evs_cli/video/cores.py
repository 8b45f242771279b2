"""How many cores decoding may use."""

from __future__ import annotations

import os


def core_count() -> int:
    """Cores that this process may run on: a container may own fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
