"""Byte sources: a local file as a memory map, or any URL that fsspec knows by range reads.

In: a path or a URL. Out: ``read(start, end)``, which fetches those bytes and no others. What went wrong on the way is
said in one sentence.
"""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from evs_cli.errors import ArtifactError, first_line, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator


class ByteSource(Protocol):
    """A file that bytes are read of by their place."""

    name: str
    """Last part of its path, for messages."""
    size_bytes: int

    def read(self, start: int, end: int) -> memoryview:
        """The bytes ``start`` to ``end``, the latter not included; fewer where the file ends before.

        Raises:
            ArtifactError: they cannot be read.
        """

    def close(self) -> None:
        """Let go of the file; what was read of it may live on."""


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether it names its scheme: ``https://``, ``s3://``, ``memory://``."""
    return isinstance(path, str) and "://" in path


def open_bytes(path: str | os.PathLike[str]) -> ByteSource:
    """A file or URL, opened.

    Raises:
        ArtifactError: it is not there or cannot be read, or what fsspec needs for it is not installed.
    """
    return RemoteBytes(str(path)) if is_url(path) else LocalBytes(Path(path))


class LocalBytes:
    """A local file in a memory map; what is read of it is not copied."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        with _readable(str(path)), _open_file(path) as file:
            self.size_bytes = os.fstat(file.fileno()).st_size
            # An empty file cannot be mapped, and has nothing to read.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size_bytes else b""

    def read(self, start: int, end: int) -> memoryview:
        """See ``ByteSource.read``."""
        if isinstance(self._map, mmap.mmap) and self._map.size() < end <= self.size_bytes:
            # Bytes that are gone from under the map end the program when they are touched.
            raise ArtifactError(f"cannot read {self.name}: it was cut while it was open.", hint="Copy it again.")
        return memoryview(self._map)[start:end]

    def close(self) -> None:
        """See ``ByteSource.close``: the map goes when the last view of it does."""
        self._map = b""


def _open_file(path: Path) -> IO[bytes]:
    """A file, opened; of a pipe nobody may write to, opening would wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(None, "it is not a file")
    return path.open("rb")


class RemoteBytes:
    """A file behind an fsspec URL; each read is one request for exactly its range."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = url.partition("?")[0].rsplit("/", 1)[-1] or without_secrets(url)
        try:
            import fsspec
        except ImportError as error:
            raise ArtifactError(
                f"cannot read {without_secrets(url)}: fsspec is not installed.",
                hint="pip install fsspec, or give a local file.",
            ) from error
        with _readable(url):
            self._files, self._path = fsspec.core.url_to_fs(url)
            self.size_bytes = int(self._files.size(self._path))

    def read(self, start: int, end: int) -> memoryview:
        """See ``ByteSource.read``."""
        with _readable(self._url):
            return memoryview(self._files.cat_file(self._path, start=start, end=end))

    def close(self) -> None:
        """See ``ByteSource.close``."""


@contextmanager
def _readable(path: str) -> Iterator[Any]:
    """Make what goes wrong on the way to a file an ``ArtifactError``."""
    try:
        yield
    except FileNotFoundError as error:
        # File systems of fsspec say so of a server that does not answer too, and why behind it.
        reason = first_line(error.__cause__).rstrip(".") if isinstance(error.__cause__, Exception) else ""
        raise _unreadable(path, f"no such file{f' ({reason})' if reason else ''}") from _shown(error, path)
    except OSError as error:
        raise _unreadable(path, (error.strerror or first_line(error)).lower()) from _shown(error, path)
    except Exception as error:  # file systems of fsspec raise the errors of their own libraries
        if not is_url(path) and not isinstance(error, ImportError):
            raise
        raise _unreadable(path, first_line(error).rstrip(".")) from _shown(error, path)


def _unreadable(path: str, reason: str) -> ArtifactError:
    text = f"cannot read {path}: {reason}."
    return ArtifactError(without_secrets(text) if is_url(path) else text)


def _shown(error: Exception, path: str) -> Exception | None:
    """The cause that ``--debug`` prints; none where the URL holds a secret, which errors of fsspec repeat."""
    return None if is_url(path) and without_secrets(path) != path else error
