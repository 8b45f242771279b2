"""Files that are costly to make and the same for every test: made once a run, by whichever process asks first."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

_VARIABLE = "EVS_TESTS_FOLDER"
"""Names the folder of this run to the processes that share the work."""


def begin_run() -> None:
    """Make the folder of a run, in its first process; it goes with it, so that no second run uses what is in it."""
    folder = Path(tempfile.mkdtemp(prefix="evs-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_VARIABLE] = str(folder)


def _folder() -> Path:
    if not os.environ.get(_VARIABLE):
        begin_run()  # outside of pytest
    return Path(os.environ[_VARIABLE])


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The path of a file or folder that ``make(path)`` makes; nobody may change it afterwards.

    Args:
        name: its path within the folder of the run.
        make: is given a path of the same last name, which does not exist.
    """
    path = _folder() / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"), tempfile.TemporaryDirectory(dir=_folder()) as scratch:
            if not path.exists():
                draft = Path(scratch) / path.name
                make(draft)
                draft.rename(path)  # whole or not at all: others look for it without the lock
    return path
