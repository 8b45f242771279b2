"""Memory: how much is free, of the machine or of the container that evs runs in, and how what is freed goes back."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGE_BLOCK_BYTES = 32 << 20  # the most that glibc takes
_KEPT_BYTES = 2 * _LARGE_BLOCK_BYTES


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


def keep_freed_blocks() -> bool:
    """Have the C library keep what is freed and hand it out again, up to 64 MB of blocks below 32 MB each.

    A model frees and takes the same blocks layer by layer. By itself glibc takes the larger ones from the system and
    gives them back, until it has seen one that is as large freed; each time the system must clear every page of it.
    Beside frames that are decoded and rows that are kept, blocks of several sizes also break its heap into pieces.
    With the bound set from the start, DINOv2 ViT-S encodes 4 frames at a time in 0.7 of the time that a bound of 1 MB
    needs, and the peak grows less with the length of the video. It holds for the whole process, which is why the
    program asks for it and the library does not; what the environment says goes before.

    Returns:
        Whether it was done; only glibc has such bounds.
    """
    import ctypes

    if {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"} & os.environ.keys():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; on Windows there is no process to look into
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
