"""What a picture draws of a run: its frames with their masks and counts, at the times they are shown.

In: a view, and the most frames. Out: a ``DrawnRun``. A frame that does not decode, and every frame where the video is
not at hand, is drawn as plain grey: its mask is known all the same.
"""

from __future__ import annotations

import io
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evs_cli._version import __version__
from evs_cli.report.pictures.overlay import Mask, Pixels, fitted_size, paint_mask, plain_frame
from evs_cli.report.pictures.writer import thinned

if TYPE_CHECKING:
    from PIL import Image

    from evs_cli.jobs.view import View
    from evs_cli.jobs.viewed_run import ViewedRun
    from evs_cli.video.frames import Picture

_MAX_STEM_BYTES = 150  # of a file's name, which may have 255 in all
_TEXT_KEY = "evs"


@dataclass(frozen=True, eq=False)
class DrawnFrame:
    """One frame of tokens."""

    index: int
    """Its place in the token grid, 0 first."""
    source_index: int
    """The frame of the video that is shown for it."""
    pts_seconds: float
    mask: Mask
    """(h, w) bool, True where the token is kept."""

    @property
    def retained_tokens(self) -> int:
        """Tokens kept."""
        return int(self.mask.sum())


@dataclass(frozen=True, eq=False)
class DrawnRun:
    """The frames of a run that a picture draws, and the words that go with them."""

    run: ViewedRun
    frames: tuple[DrawnFrame, ...]
    """At least one, in the order of time."""
    frame_size: tuple[int, int]
    """(height, width) in pixels of the video as shown."""
    has_video: bool
    """Whether its pixels are at hand."""

    @classmethod
    def of(cls, view: View, max_frames: int) -> DrawnRun:
        """The first run of a view, thinned to ``max_frames``."""
        run = view.runs[0]
        masks = run.retention.retention_mask.cpu().numpy()
        frames = tuple(
            DrawnFrame(index, int(run.frame_indices[index]), float(run.pts_seconds[index]), masks[index])
            for index in thinned(len(masks), max_frames)
        )
        return cls(run, frames, view.source_size, view.frames is not None)

    def thinned(self, max_frames: int) -> DrawnRun:
        """At most so many of its frames, evenly spread."""
        return replace(self, frames=tuple(self.frames[index] for index in thinned(len(self.frames), max_frames)))

    @property
    def tokens_per_frame(self) -> int:
        """h * w."""
        return self.frames[0].mask.size

    @property
    def frame_indices(self) -> list[int]:
        """Frames of the video that are wanted, each once."""
        return sorted({frame.source_index for frame in self.frames})

    @property
    def stem(self) -> str:
        """The video's name without its suffix, as the beginning of a file's name."""
        name = re.sub(r"[\x00-\x1f\x7f/\\\ud800-\udfff]", "_", Path(self._video_name).stem)
        return name.encode()[:_MAX_STEM_BYTES].decode(errors="ignore") or "video"

    @property
    def _video_name(self) -> str:
        return str(self.run.provenance.get("video", {}).get("name") or "video")

    def overlay(self, frame: DrawnFrame, picture: Picture | None, size: tuple[int, int]) -> Pixels:
        """A frame with its mask painted on it.

        Args:
            frame: which one.
            picture: (H, W, 3) uint8 as shown; None paints on plain grey.
            size: (height, width) to which the frame is resized first.
        """
        return paint_mask(resized(picture, size), frame.mask, self.run.pixel_region)

    def size_in(self, room: tuple[int, int], *, max_scale: float = 1.0) -> tuple[int, int]:
        """(height, width) of a frame whose overlay fits a room of (height, width) pixels."""
        return fitted_size(self.frame_size, self.run.pixel_region, room, max_scale=max_scale)

    def title(self) -> str:
        """File, model, rate and counts in a line of ASCII, which every font has."""
        run, kept = self.run, self.run.retention.retained_tokens
        # A model that is a folder is told by its name: where it lies says nothing to who sees the picture.
        model = Path(run.model).name if Path(run.model).is_absolute() else run.model
        rule = "" if run.rule.method == "evs" else f" by {run.rule.method}"
        counts = f"{kept:,} of {run.total_tokens:,} tokens kept ({kept / run.total_tokens:.1%}){rule}"
        return f"{readable(self._video_name)}  |  {readable(model)}  |  q = {run.q:g}  |  {counts}"

    def legend(self) -> str:
        """What the painting means, and what is left out, in sentences."""
        sentences = ["Clear: kept."]
        why = ", because it repeats the frame before" if self.run.rule.method == "evs" else ""
        sentences.append(f"Grey and dark: dropped{why}.")
        if not self.run.pixel_region.is_whole:
            sentences.append("Striped: not seen by the model.")
        if not self.has_video:
            sentences.append("The video is not at hand: plain grey stands for its pixels.")
        if (thinning := self.thinning()) is not None:
            sentences.append(thinning)
        return " ".join(sentences)

    def thinning(self) -> str | None:
        """That not all frames are drawn; None where they are."""
        total = self.run.token_grid_thw[0]
        if len(self.frames) == total:
            return None
        return f"{len(self.frames):,} of {total:,} frames are drawn, evenly spread; all are counted."

    def record(self) -> dict[str, Any]:
        """What a picture was made of, for its own file: the same for the same input."""
        video = self.run.provenance.get("video", {})
        return {
            "evs": __version__,
            "video": {"name": video.get("name"), "sha256": video.get("sha256")},
            "model": self.run.provenance.get("model", {}).get("id"),
            "method": self.run.rule.method,
            "q": self.run.q,
            "token_grid_thw": list(self.run.token_grid_thw),
            "retained_tokens": self.run.retention.retained_tokens,
            "frames": [frame.index for frame in self.frames],
            "num_tokens_per_frame": self.run.retention.num_tokens_per_frame.tolist(),
        }


class FrameOrder:
    """Hands every drawn frame to ``draw`` in the order of time, with its picture or with None.

    Pictures come by their place in the video, of which two frames of tokens may share one; those that do not decode do
    not come at all.
    """

    def __init__(self, frames: Sequence[DrawnFrame], draw: Callable[[DrawnFrame, Picture | None], None]) -> None:
        self._left, self._draw = list(frames), draw

    def add(self, source_index: int, picture: Picture) -> None:
        """Draw the frames up to a picture's."""
        while self._left and self._left[0].source_index <= source_index:
            frame = self._left.pop(0)
            self._draw(frame, picture if frame.source_index == source_index else None)

    def finish(self) -> None:
        """Draw the frames whose pictures did not come."""
        while self._left:
            self._draw(self._left.pop(0), None)


class RunWriter(ABC):
    """A ``PictureWriter`` that draws the frames of a view's first run, one after the other.

    Args:
        view: whose first run is drawn.
        path: where to.
        max_frames: most frames that are drawn.
        overwrite: whether it may exist when it is written.
    """

    def __init__(self, view: View, path: Path, max_frames: int, *, overwrite: bool = False) -> None:
        self._run, self._path = DrawnRun.of(view, max_frames), path
        self._overwrite = overwrite
        self._order = FrameOrder(self._run.frames, self._draw)

    @property
    def frame_indices(self) -> Sequence[int]:
        """See ``PictureWriter``."""
        return self._run.frame_indices

    def add(self, frame_index: int, picture: Picture) -> None:
        """See ``PictureWriter``."""
        self._order.add(frame_index, picture)

    def discard(self) -> None:  # noqa: B027 - most writers have nothing to remove
        """See ``PictureWriter``; nothing has a name before the end."""

    @abstractmethod
    def finish(self) -> list[Path]:
        """See ``PictureWriter``."""

    @abstractmethod
    def _draw(self, frame: DrawnFrame, picture: Picture | None) -> None:
        """Draw the next frame; None is a picture that is not at hand."""


def resized(picture: Picture | None, size: tuple[int, int]) -> Pixels:
    """(height, width, 3) uint8 of a picture, untouched where it has that size; plain grey where there is none."""
    from PIL import Image

    if picture is None:
        return plain_frame(*size)
    if picture.shape[:2] == size:
        return picture
    return np.asarray(Image.fromarray(picture).resize((size[1], size[0]), Image.Resampling.LANCZOS))


def readable(text: str) -> str:
    """A text in ASCII: accents are left out, what has no such letter becomes "?". Pillow's own font has no more."""
    plain = unicodedata.normalize("NFKD", text)
    return "".join(letter if " " <= letter <= "~" else "?" for letter in plain if not unicodedata.combining(letter))


def seconds_text(seconds: float) -> str:
    """A time as the report page writes it: ``2.50 s``."""
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.1f} s"


def png_bytes(image: Image.Image, record: dict[str, Any], *, is_small: bool = False) -> bytes:
    """A PNG with a record in a text chunk; the same bytes for the same pixels and record.

    Args:
        image: the pixels.
        record: goes into the chunk as JSON.
        is_small: take the time to make few bytes of it: a second for a sheet, and several for a frame of 4K.
    """
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    text = json.dumps(record, sort_keys=True, ensure_ascii=False)
    info.add_itxt(_TEXT_KEY, text.encode(errors="replace").decode())  # a name may hold bytes that are no UTF-8
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=is_small, pnginfo=info)
    return buffer.getvalue()
