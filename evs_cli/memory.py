"""How much memory is free: of the machine, or of the container that evs runs in."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


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
