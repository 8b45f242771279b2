"""Output files: a bad path is refused before any work, and a file is written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.draft_file import draft_beside


def check_output_file(
    path: Path, suffixes: Sequence[str], *, overwrite: bool, hint: str = "--force overwrites it."
) -> None:
    """Refuse an output that could not be written later; ``hint`` is of one that exists.

    Raises:
        UsageError: a suffix other than ``suffixes``.
        ArtifactError: the file exists and ``overwrite`` is False, it is a folder, or its folder cannot be written.
    """
    try:
        is_folder, exists = path.is_dir(), os.path.lexists(path)  # a link to nothing is a name that is taken
    except OSError as error:  # a name that is too long
        raise unwritable(path, error) from error
    if is_folder:
        raise ArtifactError(f"cannot write {path}: it is a folder.", hint="Give a file name.")
    if path.suffix not in suffixes:
        raise UsageError(f"Invalid output {path}: suffix {path.suffix!r}. Expected one of {', '.join(suffixes)}.")
    if exists and not overwrite:
        raise ArtifactError(f"cannot write {path}: it exists already.", hint=hint)
    check_folder_around(path)


def check_folder_around(path: Path) -> None:
    """Refuse a file or folder that could not be made, by the nearest folder above it that exists.

    Raises:
        ArtifactError: that is no folder, or cannot be written.
    """
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise ArtifactError(f"cannot write {path}: {folder} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"cannot write {path}: no permission to write in {folder}.")


def refuse_inputs(output: Path, inputs: Sequence[str | os.PathLike[str]]) -> None:
    """Refuse an output that would take the place of what it is made of, whether or not it may overwrite.

    Raises:
        UsageError: it is one of the inputs, by whatever name.
    """
    try:
        if not output.exists():
            return
    except OSError:  # a name that is too long, which ``check_output_file`` tells
        return
    for name in inputs:
        try:
            is_input = output.samefile(name)
        except (OSError, ValueError):  # no such input, which is told when it is read
            is_input = False
        if is_input:
            raise UsageError(f"Invalid output {output}: it is the input {name} itself. Expected another name.")


@contextmanager
def replacing(target: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A temporary file beside ``target`` that takes its place when all is written; no reader sees half a file.

    The folder of ``target`` is made where it is missing. What a killed program left of the same output is removed.

    Args:
        target: the file.
        overwrite: whether one that is there then may go. It is asked in the very act: what somebody else wrote while
            this was made is not lost.

    Raises:
        ArtifactError: it cannot be written, or is there now and ``overwrite`` is False.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with draft_beside(target) as (draft, file):
            yield file
            file.flush()
            os.fsync(file.fileno())
            draft.chmod(0o666 & ~umask())  # a draft is private, an output is not
            put_in_place(draft, target, overwrite=overwrite)
    except OSError as error:
        raise unwritable(target, error) from error


def put_in_place(draft: Path, target: Path, *, overwrite: bool) -> None:
    """Give a finished draft the target's name.

    Raises:
        ArtifactError: the name is taken, and ``overwrite`` is False.
    """
    if not overwrite:
        try:
            _take_name(draft, target)
        except FileExistsError:
            raise ArtifactError(
                f"cannot write {target}: it was made by another program meanwhile.", hint="--force overwrites it."
            ) from None
    draft.replace(target)  # which is the draft itself already, where the name was taken by a link


def _take_name(draft: Path, target: Path) -> None:
    """Make the target, as a link to the draft where that can be.

    Raises:
        FileExistsError: the name is taken, if only by a dangling link, which a rename would not refuse.
    """
    try:
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def unwritable(path: Path, error: OSError) -> ArtifactError:
    """The error for a file that the system does not let evs write."""
    return ArtifactError(f"cannot write {path}: {(error.strerror or str(error)).lower()}.")


def umask() -> int:
    """The permissions that this process takes away from what it makes."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
