"""A stream as a file, for decoders that seek and for other processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from evs_cli.errors import EvsError


@contextmanager
def temporary_copy(stream: IO[bytes], name: str) -> Iterator[Path]:
    """A file of a stream's bytes, in a folder of its own that goes at the end.

    Args:
        stream: read to its end.
        name: of the file.

    Raises:
        EvsError: it cannot be kept, as where the disk is full.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="evs-")
    except OSError as error:  # no folder of temporary files at all
        raise EvsError(f"cannot keep a copy of {name}: {(error.strerror or str(error)).lower()}.") from error
    with folder:
        path = Path(folder.name) / name
        try:
            with path.open("wb") as file:
                shutil.copyfileobj(stream, file)
        except OSError as error:
            raise EvsError(
                f"cannot keep a copy of {name} in {tempfile.gettempdir()}: {(error.strerror or str(error)).lower()}.",
                hint="Set TMPDIR to a folder with room, or give a file.",
            ) from error
        yield path
