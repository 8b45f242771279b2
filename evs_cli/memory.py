"""Memory: how much is free, of the machine or of the container that evs runs in, and how what is freed goes back."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
_LARGE_BLOCK_BYTES = 1 << 20


def free_memory_bytes() -> int | None:
    """Memory that a program can take without pushing others out, in bytes; None where the system does not tell.

    On Linux what the kernel calls available, or what a container's limit leaves of it where that is less; elsewhere
    half of what the machine has.
    """
    available = _meminfo_bytes("MemAvailable")
    if available is not None:
        return min([available, *_cgroup_rests()])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _meminfo_bytes(key: str) -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _cgroup_rests() -> list[int]:
    """What each limit on this process leaves, in bytes; empty where none is set. Pages of files count as free."""
    rests = []
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            most = int((_CGROUP / limit).read_text(encoding="ascii"))
            used = int((_CGROUP / usage).read_text(encoding="ascii"))
            lines = (_CGROUP / limit).with_name("memory.stat").read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):  # "max" is no limit
            continue
        stat = dict(line.split() for line in lines)
        cached = int(stat.get("inactive_file", stat.get("total_inactive_file", "0")))
        rests.append(max(0, most - used + cached))
    return rests


def give_back_large_blocks() -> bool:
    """Have the C library map every block of a megabyte and more by itself, so that what is freed goes back at once.

    glibc raises that bound to the largest block freed so far, up to 32 MB, and cuts smaller ones out of a heap, where
    what lives on beside them keeps their place from being given back or used whole again: 450 frames of dinov2-small
    peak at 1,317 MB so, and at 1,085 MB with a bound that stays. It holds for the whole process, which is why the
    program asks for it and the library does not; ``MALLOC_MMAP_THRESHOLD_`` in the environment goes before.

    Returns:
        Whether it was done; only glibc has such a bound.
    """
    import ctypes

    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; on Windows there is no process to look into
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES))
