"""``-o masks.mp4``: a film of the sampled frames with what was kept, and the time and count beneath.

Frames are as far apart in time as in the video, and the first is shown at once. The film is made in memory, or in a
file without a name where it grows, and takes its place when it is whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evs_cli.errors import ArtifactError
from evs_cli.files.output_file import replacing, unwritable
from evs_cli.report.pictures.drawn import DrawnFrame, RunWriter, seconds_text
from evs_cli.report.pictures.labels import GREY, WHITE, fitting_size, text_width, write
from evs_cli.report.pictures.overlay import Pixels

if TYPE_CHECKING:
    from evs_cli.jobs.view import View
    from evs_cli.video.frames import Picture

MAX_SIDE = 1280
"""Most pixels of the longer side, the line of text included."""
_LEAST_SIDE = 640  # a smaller video is enlarged by a whole number, or its text would not be read
_TICKS_A_SECOND = 90_000
_LAST_SECONDS = 0.5  # how long the last frame is shown where there is none before it
_CODECS = (("libx264", {"crf": "18", "preset": "veryfast"}), ("mpeg4", {"q": "3"}))
"""By preference, with what makes cells sharp; every browser plays the first, every player both."""
_BT709 = 1  # ITU-T H.273, of matrix, primaries and transfer alike
_LIMITED_RANGE = 1  # libav's AVCOL_RANGE_MPEG
_IN_MEMORY_BYTES = 1 << 26
_BACKGROUND = (20, 20, 20)


class FilmWriter(RunWriter):
    """A ``PictureWriter`` of one MP4 file.

    Args:
        view: whose first run is drawn.
        path: the file.
        max_frames: most frames it shows.
        overwrite: whether it may exist when it is written.
    """

    def __init__(self, view: View, path: Path, max_frames: int, *, overwrite: bool = False) -> None:
        super().__init__(view, path, max_frames, overwrite=overwrite)
        self._ticks = _ascending_ticks([frame.pts_seconds for frame in self._run.frames])
        self._number = 0
        self._file: Any = None
        self._container: Any = None
        self._stream: Any = None

    def finish(self) -> list[Path]:
        """See ``PictureWriter``."""
        import shutil

        self._order.finish()
        self._encode(None)
        self._container.close()
        self._file.seek(0)
        with self._file, replacing(self._path, overwrite=self._overwrite) as file:
            shutil.copyfileobj(self._file, file)
        return [self._path]

    def _draw(self, frame: DrawnFrame, picture: Picture | None) -> None:
        import av

        drawn = self._captioned(frame, self._run.overlay(frame, picture, self._size))
        if self._container is None:
            self._open(*drawn.shape[:2])
        # Tagged and converted as BT.709: players take an untagged film of this size for it, whatever was meant.
        image = av.VideoFrame.from_ndarray(drawn, "rgb24").reformat(
            format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG"
        )
        image.pts, image.time_base = self._ticks[self._number], Fraction(1, _TICKS_A_SECOND)
        self._number += 1
        self._encode(image)

    def _open(self, height: int, width: int) -> None:
        import av

        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed when the film is whole
        name, options = next((name, more) for name, more in _CODECS if name in av.codecs_available)
        self._container = av.open(self._file, "w", format="mp4")
        self._stream = stream = self._container.add_stream(name, rate=_nominal_rate(self._ticks), options=options)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        coder = stream.codec_context
        coder.time_base = Fraction(1, _TICKS_A_SECOND)
        coder.max_b_frames = 0  # packets come in the order of frames, which tells their durations
        coder.gop_size = 12  # a player that jumps finds a frame to begin with
        coder.colorspace = coder.color_primaries = coder.color_trc = _BT709
        coder.color_range = _LIMITED_RANGE

    def _encode(self, image: Any) -> None:
        import av

        try:
            for packet in self._stream.encode(image):
                packet.duration = self._durations[packet.pts]
                self._container.mux(packet)
        except OSError as error:  # of the unnamed file; most of libav's own errors are of this class too
            raise unwritable(self._path, error) from error
        except av.FFmpegError as error:  # an encoder that refuses times: gaps of weeks, as a broken clock writes them
            raise ArtifactError(
                f"Cannot make {self._path}: a film of {self._ticks[-1] / _TICKS_A_SECOND:,.0f} s in "
                f"{len(self._ticks)} frames is refused by its encoder.",
                hint="-o sheet.png draws the same frames, with their times beneath.",
            ) from error

    @cached_property
    def _durations(self) -> dict[int, int]:
        """Ticks that each frame is shown, by when: up to the next one, the last as long as the one before."""
        gaps = np.diff(self._ticks).tolist()
        last = gaps[-1] if gaps else round(_LAST_SECONDS * _TICKS_A_SECOND)
        return dict(zip(self._ticks, [*gaps, last], strict=True))

    @cached_property
    def _size(self) -> tuple[int, int]:
        """(height, width) to which frames are resized, so that the overlay and its line of text fit."""
        height, width = self._run.frame_size
        larger = max(1, -(-_LEAST_SIDE // max(height, width)))
        return self._run.size_in((MAX_SIDE - _bar_height(MAX_SIDE), MAX_SIDE), max_scale=larger)

    def _captioned(self, frame: DrawnFrame, overlay: Pixels) -> Pixels:
        """The overlay over a bar with time and counts; both sides even, as yuv420p wants them."""
        from PIL import Image, ImageDraw

        height, width = overlay.shape[:2]
        bar = _bar_height(width)
        image = Image.new("RGB", (width + width % 2, height + bar + (height + bar) % 2), _BACKGROUND)
        image.paste(Image.fromarray(overlay), (0, 0))
        pen = ImageDraw.Draw(image)
        kept, total = frame.retained_tokens, self._run.tokens_per_frame
        stripe, margin = max(3, bar // 10), bar // 4
        pen.rectangle((0, height, width - 1, height + stripe - 1), fill=GREY)
        if kept:
            pen.rectangle((0, height, round(width * kept / total) - 1, height + stripe - 1), fill=WHITE)
        words = (f"{seconds_text(frame.pts_seconds)}   {kept:,} of {total:,} tokens kept", f"q = {self._run.run.q:g}")
        size = fitting_size("   ".join(words), width - 2 * margin, bar // 2)
        middle = height + stripe + (bar - stripe) // 2
        write(pen, (margin, middle), words[0], size, WHITE, anchor="lm")
        if text_width("   ".join(words), size) <= width - 2 * margin:
            write(pen, (width - margin, middle), words[1], size, WHITE, anchor="rm")
        return np.asarray(image)


def _bar_height(width: int) -> int:
    """Pixels of the line of text under a frame so wide."""
    return max(28, width // 18)


def _ascending_ticks(pts_seconds: Sequence[float]) -> list[int]:
    """Times from the first frame on; two frames of one time, of a clip shorter than a model wants, are a tick apart."""
    ticks: list[int] = []
    for seconds in pts_seconds:
        tick = round((seconds - pts_seconds[0]) * _TICKS_A_SECOND)
        ticks.append(max(tick, ticks[-1] + 1) if ticks else tick)
    return ticks


def _nominal_rate(ticks: Sequence[int]) -> Fraction:
    """Frames a second for the header, between 1 and 60."""
    if len(ticks) < 2:
        return Fraction(2)
    rate = Fraction((len(ticks) - 1) * _TICKS_A_SECOND, ticks[-1] - ticks[0])
    return max(Fraction(1), min(Fraction(60), rate.limit_denominator(1000)))
