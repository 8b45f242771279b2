"""Where a video comes from: a path or a seekable binary file object, and the words for one that cannot be opened.

In: what the user gave. Out: an open libav container, a name for messages, a size, a hash. The one place where errors
of the operating system and of libav become sentences. It does not know what is in the container.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from evs_cli.errors import UsageError, VideoError, without_secrets
from evs_cli.video.folders import folder_hint
from evs_cli.video.own_files import is_own_file, looks_like_own_file
from evs_cli.video.pyav import open_options

VideoSource = str | os.PathLike[str] | BinaryIO
"""A path, or a binary file object that can seek (``open(path, "rb")``, ``io.BytesIO``)."""

_HEAD_BYTES = 4096

_ERRNO_WORDS = {
    errno.ENOENT: "no such file",
    errno.EACCES: "no permission to read it",
    errno.EPERM: "no permission to read it",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENOTDIR: "no such file",
    errno.ENAMETOOLONG: "the file name is too long",
    errno.ELOOP: "its symbolic links go in a circle",
    errno.EIO: "the disk reports a read error",
    errno.ENOMEM: "out of memory",
}


def source_name(source: VideoSource) -> str:
    """The name to call a source by: a path's last part, ``stdin``, or ``<stream>`` for a nameless file object."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return path.name or str(path)
    name = getattr(source, "name", None)
    if isinstance(name, str) and name and not name.startswith("<"):
        return Path(name).name
    return "stdin" if name in ("<stdin>", 0) else "<stream>"


def source_size_bytes(source: VideoSource) -> int:
    """The size of a source; a file object keeps its position.

    Raises:
        VideoError: the path is missing, a URL, a folder, not a regular file or not readable.
        UsageError: the object is neither a path nor a seekable binary file object.
    """
    if isinstance(source, (str, os.PathLike)):
        if isinstance(source, str) and "://" in source and not Path(source).exists():
            # Not as a file that is missing: the last part of a URL may be a key, and `Path` takes a slash of it away.
            raise VideoError(
                f"cannot open {without_secrets(source)}: it is a URL, and evs reads videos from files",
                hint="Download it first.",
            )
        return _regular_file_size(Path(source))
    if not hasattr(source, "read") or issubclass(type(source), io.TextIOBase):
        raise UsageError(
            f"Invalid video source ({type(source).__name__}). Expected a path or a file object opened in binary mode."
        )
    if not source.seekable():
        raise UsageError(
            f"Invalid video source ({source_name(source)}): it cannot seek.",
            hint="read it into an io.BytesIO, or save it to a file first",
        )
    position = source.tell()
    size = source.seek(0, os.SEEK_END)
    source.seek(position)
    return size


def _regular_file_size(path: Path) -> int:
    name = source_name(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise VideoError(f"cannot open {name}: {_ERRNO_WORDS[errno.EISDIR]}", hint=folder_hint(path))
        if not stat.S_ISREG(status.st_mode):
            # Opening a named pipe would wait for its writer, perhaps for ever.
            raise VideoError(f"cannot open {name}: it is not a regular file", hint="save the video to a file first")
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        raise VideoError(f"cannot open {name}: {_ERRNO_WORDS[errno.ENOENT]}", hint=_missing_hint(path)) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        raise open_error(name, error) from error
    return status.st_size


def _missing_hint(path: Path) -> str | None:
    """Where a file was looked for; of a pattern, that no file matches it."""
    if any(sign in str(path) for sign in "*?["):
        return "A shell makes names of a pattern, unless it is in quotes or no file matches it."
    folder = path.parent
    if folder == Path():
        return None
    return f"It was looked for in {folder}." if folder.is_dir() else f"There is no folder {folder}."


@contextmanager
def open_binary(source: VideoSource) -> Iterator[IO[bytes]]:
    """The bytes of a source from the start; a path is closed at the end, a file object gets its position back."""
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            yield file
        return
    position = source.tell()
    source.seek(0)
    try:
        yield source
    finally:
        source.seek(position)


def file_sha256(source: VideoSource) -> str:
    """The SHA-256 of a source as 64 hexadecimal digits, read in pieces.

    Raises:
        VideoError: as of ``source_size_bytes``.
    """
    source_size_bytes(source)
    with open_binary(source) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


@contextmanager
def open_container(source: VideoSource) -> Iterator[Any]:
    """An ``av`` input container on a source, closed at the end (a file object stays open, at its old position).

    Raises:
        VideoError: libav cannot open it; the message says what the file looks like instead.
    """
    import av

    if isinstance(source, (str, os.PathLike)):
        # Without "file:" libav takes "10:30 clip.mp4" for a protocol. It is also told nothing of the network.
        with _opened("file:" + os.fspath(source), source, av) as container:
            yield container
        return
    with open_binary(source) as file, _opened(file, source, av) as container:
        yield container


@contextmanager
def _opened(target: Any, source: VideoSource, av: Any) -> Iterator[Any]:
    try:
        container = av.open(target, mode="r", **open_options())
    except (av.error.FFmpegError, OSError) as error:
        raise open_error(source_name(source), error, source) from error
    try:
        yield container
    finally:
        container.close()


def open_error(name: str, error: Exception, source: VideoSource | None = None) -> VideoError:
    """The VideoError for a file that does not open: one line with the reason in words.

    Args:
        name: the file's name.
        error: an OSError, an av.error.FFmpegError or a ValueError.
        source: the file, where its content may tell more than libav's error does.
    """
    number = getattr(error, "errno", None)
    if number in _ERRNO_WORDS:
        return VideoError(f"cannot open {name}: {_ERRNO_WORDS[number]}")
    if source is not None:
        reason, hint = _looks_like(source)
        return VideoError(f"cannot open {name}: {reason}", hint=hint)
    return VideoError(f"cannot open {name}: {libav_words(error)}")


def libav_words(error: Exception) -> str:
    """One short clause for an error of libav or the system, without numbers and paths."""
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(words).splitlines()[0].strip().rstrip(".").lower()


def _looks_like(source: VideoSource) -> tuple[str, str | None]:
    """What a file that libav refuses seems to be, and a hint where one helps."""
    with open_binary(source) as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        return "the file is empty (0 bytes)", None
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the video itself", "fetch the content with: git lfs pull"
    if head[4:8] == b"ftyp":
        return (
            "it is an mp4 without its index (moov), as left by an interrupted copy or recording",
            "copy or record the file again; what is there cannot be decoded without the index",
        )
    if _is_text(head):
        return "it is a text file, not a video", None
    if is_own_file(source) or looks_like_own_file(head):
        return "it is a file of evs, no video", "give the video it was made of"
    return "it is not a media file that libav knows", None


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        # A multi-byte character may be cut at the end of what was read.
        head.decode("utf-8", errors="strict" if len(head) < _HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        return False
    return sum(byte < 32 and byte not in b"\t\r\n\f\x1b" for byte in head) == 0
