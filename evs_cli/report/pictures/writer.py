"""What every output of ``evs view`` is to the one pass over the video's frames.

In: a view. Out: a ``PictureWriter`` says which frames it wants, is handed each as it is decoded, and writes its file at
the end. So the video is decoded once for all outputs, and no frame is kept longer than it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evs_cli.video.frames import Picture


class PictureWriter(Protocol):
    """Draws a view into a file or a folder."""

    @property
    def frame_indices(self) -> Sequence[int]:
        """Frames of the source it wants to draw on."""

    def add(self, frame_index: int, picture: Picture) -> None:
        """Take a frame it asked for, as shown; frames come in ascending order, less those that do not decode."""

    def finish(self) -> list[Path]:
        """Write what was drawn, whole or not at all, and name the files.

        Raises:
            ArtifactError: a file that cannot be written.
        """

    def discard(self) -> None:
        """Remove what was begun and is not finished; it may be called at any time."""


def thinned(num_frames: int, max_frames: int) -> list[int]:
    """At most ``max_frames`` of ``num_frames`` indices, spread evenly from 0 on.

    Args:
        num_frames: at least 1.
        max_frames: at least 1.
    """
    count = min(num_frames, max_frames)
    return [index * num_frames // count for index in range(count)]
