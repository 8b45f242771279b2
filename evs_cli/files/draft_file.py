"""A file that is being written, under a hidden name beside its target, so that a rename is enough to finish it.

The name follows from the target's, and whoever writes the file holds a lock on it. So a draft without a lock was left
by a program that was killed, and the next one that writes the same target removes it.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_HAS_LOCKS = importlib.util.find_spec("fcntl") is not None
"""False on Windows, where a file that is open cannot be removed either."""
_MOST_WRITERS = 8
"""Of one target at a time; more are told that it is busy."""
_NAME_LETTERS = 40  # of the target's name in the draft's: a name may have 255 bytes in all


@contextmanager
def draft_beside(target: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new file in the folder of ``target``, private to this user; it is removed, if it still has that name then.

    Yields:
        Its path, and the file, open to read and write.

    Raises:
        OSError: none can be made there.
    """
    names = [_draft_name(target, number) for number in range(_MOST_WRITERS)]
    made: Path | None = None
    descriptor = -1
    for name in names:
        if made is None and (taken := _taken(name)) is not None:
            made, descriptor = name, taken
        elif made is not None:
            _remove_abandoned(name)
    if made is None:
        raise OSError(errno.EBUSY, f"{_MOST_WRITERS} other programs are writing it")
    with os.fdopen(descriptor, "w+b") as file:
        try:
            yield made, file
        finally:
            # While it is locked. It may have the target's name by now, and another program's draft this one.
            with suppress(OSError):
                if os.path.samestat(made.lstat(), os.fstat(file.fileno())):
                    made.unlink()


def _draft_name(target: Path, number: int) -> Path:
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:8]
    return target.with_name(f".{target.stem[:_NAME_LETTERS]}.{digest}.{number}.evs-draft")


def _taken(name: Path) -> int | None:
    """The descriptor of a new file of this name, locked; None where another program is writing it.

    An old file is never written to, whoever made it: it is removed, and a new one made.
    """
    for _ in range(2):
        _remove_abandoned(name)
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return None
        # Between these two lines another program may have found it without a lock, and removed it.
        if _lock(descriptor) and os.fstat(descriptor).st_nlink > 0:
            return descriptor
        os.close(descriptor)
    return None


def _remove_abandoned(name: Path) -> None:
    """Remove a draft that nobody holds a lock on."""
    if not _HAS_LOCKS:
        with suppress(OSError):
            name.unlink()
        return
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # none is there, or none of ours
        return
    try:
        if _lock(descriptor):
            with suppress(OSError):
                name.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed; whether no other program had."""
    if not _HAS_LOCKS:
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
