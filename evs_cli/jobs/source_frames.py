"""The pictures of a video that a file of evs was made from: found by its recorded name, and known by its SHA-256.

In: the file's name and provenance, or ``--video``. Out: ``SourceFrames``, which decodes the frames that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evs_cli.errors import EvsError, VideoError
from evs_cli.video.info import VideoInfo, probe_video
from evs_cli.video.source import VideoSource, file_sha256

if TYPE_CHECKING:
    from evs_cli.video.decoder import Decoder
    from evs_cli.video.frames import Picture


@dataclass(frozen=True, eq=False)
class SourceFrames:
    """A video whose frames can be decoded again."""

    info: VideoInfo
    decoder: Decoder = "pyav"

    @classmethod
    def of(cls, source: VideoSource, decoder: Decoder = "pyav") -> SourceFrames:
        """Probe a video.

        Raises:
            VideoError: it cannot be opened or holds no video.
        """
        return cls(probe_video(source), decoder)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels as shown."""
        return self.info.height, self.info.width

    def read(self, frame_indices: Sequence[int]) -> Iterator[tuple[int, Picture]]:
        """``(index, picture)`` of distinct frames in ascending order, one at a time; those that decode.

        Raises:
            VideoError: none of them decodes, or an index that the video does not have.
        """
        from evs_cli.video.reader import read_frames

        wanted = np.unique(np.asarray(frame_indices, dtype=np.int64))
        if len(wanted) and wanted[-1] >= self.info.num_frames:
            raise VideoError(f"cannot show frame {wanted[-1]} of {self.info.name}: it has {self.info.num_frames}.")
        # One frame a chunk: pictures are made smaller one by one, and a frame of 8K is 100 MB.
        with read_frames(self.info, wanted, chunk_frames=1, decoder=self.decoder) as stream:
            for batch in stream:
                yield int(batch.frame_indices[0]), batch.frames[0].permute(1, 2, 0).numpy()


def find_video(file: str, provenance: Mapping[str, Any], named: str | None) -> tuple[SourceFrames | None, str | None]:
    """The video that ``file`` was made from; or None and a sentence that says why.

    Args:
        file: the file of evs, a path or a URL.
        provenance: what it records.
        named: the video as the user named it; None looks beside the file and in the current folder.

    Raises:
        VideoError: the video that the user named cannot be read, or is another one.
    """
    recorded = provenance.get("video", {})
    name, digest = recorded.get("name"), recorded.get("sha256")
    if named is not None:
        if not isinstance(digest, str) or file_sha256(named) != digest:
            raise VideoError(
                f"cannot show {named} under the mask of {file}: it is not the video that the mask was made of, by its "
                "SHA-256.",
                hint=f"Give {name}, as it was then; or leave --video out to draw the masks alone.",
            )
        return SourceFrames.of(named), None
    remedy = "The masks alone are drawn; --video FILE names the video."
    if not isinstance(name, str) or not isinstance(digest, str) or name != Path(name).name:
        return None, f"{file} does not say which video it was made from. {remedy}"
    folders = [Path(), *([] if "://" in file else [Path(file).parent])]
    found = [folder / name for folder in reversed(folders) if (folder / name).is_file()]
    for path in found:
        try:
            if file_sha256(path) == digest:
                return SourceFrames.of(path), None
        except (EvsError, OSError):  # it cannot be read; the next one may be
            continue
    if found:
        return None, f"{found[0]} is not the video that {file} was made from, by its SHA-256. {remedy}"
    return None, f"{name}, which {file} was made from, is neither beside it nor in the current folder. {remedy}"
