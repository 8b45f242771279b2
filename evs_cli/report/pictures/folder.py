"""``-o frames/``: a folder of numbered PNGs, one a frame at the size of the video, and a contact sheet.

They are made in a hidden folder beside it, which takes its name when all are there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.errors import ArtifactError
from evs_cli.files.output_file import check_folder_around, put_in_place, umask, unwritable
from evs_cli.report.pictures.drawn import DrawnFrame, RunWriter, png_bytes
from evs_cli.report.pictures.sheet import ContactSheet

if TYPE_CHECKING:
    from evs_cli.jobs.view import View
    from evs_cli.video.frames import Picture

MAX_SHEET_FRAMES = 24
"""Most frames of the contact sheet."""
_MAX_SIDE = 8192  # of a picture: a region far outside of a large frame would fill the memory


def check_output_folder(path: Path, *, overwrite: bool) -> None:
    """Refuse a folder that could not be filled later.

    Raises:
        ArtifactError: it is a file, holds something and ``overwrite`` is False, or cannot be written.
    """
    try:
        if path.is_dir():
            if not os.access(path, os.W_OK | os.X_OK):
                raise ArtifactError(f"cannot write {path}: no permission to write in it.")
            if not overwrite and any(path.iterdir()):
                raise ArtifactError(
                    f"cannot write {path}: it is a folder that is not empty.",
                    hint="--force writes into it, and replaces the pictures of the same names alone.",
                )
        elif path.exists():
            raise ArtifactError(f"cannot write {path}: it is a file.", hint="Give the name of a folder.")
    except OSError as error:  # a name that is too long, or a folder that cannot be listed
        raise unwritable(path, error) from error
    if not path.is_dir():
        check_folder_around(path)


class FolderWriter(RunWriter):
    """A ``PictureWriter`` of a folder.

    Args:
        view: whose first run is drawn.
        path: the folder; what lies in it and has none of the pictures' names stays as it is.
        max_frames: most pictures; the contact sheet has at most ``MAX_SHEET_FRAMES`` of them.
        overwrite: whether it may exist when it is written.

    Raises:
        ArtifactError: nothing can be written there.
    """

    def __init__(self, view: View, path: Path, max_frames: int, *, overwrite: bool = False) -> None:
        super().__init__(view, path, max_frames, overwrite=overwrite)
        self._sheet = ContactSheet(self._run.thinned(MAX_SHEET_FRAMES))
        self._size = self._run.size_in((_MAX_SIDE, _MAX_SIDE))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Beside the folder, or in it where it exists: on the same disk either way, so that moving cannot fail.
            self._draft = Path(tempfile.mkdtemp(dir=path if path.is_dir() else path.parent, prefix=f".{path.name}."))
        except OSError as error:
            raise unwritable(path, error) from error
        # However the run ends, the draft goes: with ``discard``, or with this writer.
        self._draft_removal = weakref.finalize(self, shutil.rmtree, self._draft, ignore_errors=True)

    def add(self, frame_index: int, picture: Picture) -> None:
        """See ``PictureWriter``."""
        super().add(frame_index, picture)
        self._sheet.add(frame_index, picture)

    def finish(self) -> list[Path]:
        """See ``PictureWriter``."""
        self._order.finish()
        self._write(f"{self._run.stem}_sheet.png", self._sheet.png())
        names = sorted(path.name for path in self._draft.iterdir())
        try:
            if not self._path.exists():
                self._draft.chmod(0o777 & ~umask())  # a temporary folder is private
                self._draft.rename(self._path)
            else:
                self._move(names)
        except OSError as error:
            raise unwritable(self._path, error) from error
        finally:
            self.discard()
        return [self._path / name for name in names]

    def discard(self) -> None:
        """See ``PictureWriter``."""
        self._draft_removal()

    def _draw(self, frame: DrawnFrame, picture: Picture | None) -> None:
        from PIL import Image

        image = Image.fromarray(self._run.overlay(frame, picture, self._size))
        record = {**self._run.record(), "frame": frame.index, "pts_seconds": frame.pts_seconds}
        self._write(f"{self._run.stem}_{frame.index:04d}.png", png_bytes(image, record))

    def _write(self, name: str, data: bytes) -> None:
        try:
            (self._draft / name).write_bytes(data)
        except OSError as error:
            raise unwritable(self._path / name, error) from error

    def _move(self, names: Sequence[str]) -> None:
        """Move all into a folder that exists; nothing is moved where one of them cannot be."""
        for name in names:
            if (self._path / name).is_dir():
                raise ArtifactError(f"cannot write {self._path / name}: it is a folder.")
        for name in names:
            put_in_place(self._draft / name, self._path / name, overwrite=self._overwrite)
