"""Draws the sample clips of this folder: ``sample_scenes`` paints the pictures, PyAV (libx264) writes them.

Needs numpy and av only. Every clip is a pure function of the constants here, so two runs with one version of both
give the same bytes. What a test needs to know of a clip (times of changes, boxes of objects) is a constant or a
function here.

    python samples/make_samples.py [--output-dir DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import av
import numpy as np
import sample_scenes as paint
from numpy.typing import NDArray
from sample_scenes import HEIGHT, WIDTH, Box, Image

Pixels: TypeAlias = NDArray[np.uint8]
"""RGB frame (HEIGHT, WIDTH, 3)."""

FPS = 20
DURATION_SECONDS = 10
SLIDE_SECONDS = (1.25, 2.75, 4.25, 5.75, 7.25, 8.75)
"""When the slide changes in ``slides.mp4``; between these times the decoded frames are bit-equal."""
CUT_SECONDS = (1.75, 3.25, 5.25, 6.75, 8.25)
"""When the scene changes in ``cuts.mp4``."""
PAN_PIXELS_PER_SECOND = 60
"""Speed of the camera in ``pan.mp4``, to the right."""
FADE_SECONDS = (2.0, 8.0)
"""Begin and end of the linear fade in ``fade.mp4``."""
FADE_GAIN = 0.35
"""Brightness after the fade, of 1 before it."""


def times() -> Iterator[float]:
    """The presentation time of every frame, in seconds."""
    return (n / FPS for n in range(FPS * DURATION_SECONDS))


def crossing_boxes(t: float) -> list[Box]:
    """The boxes of the objects in ``crossing.mp4`` at ``t`` seconds: a bus, then three balloons.

    A box may lie partly or wholly outside the frame.
    """
    bus = WIDTH + 10 - (t * 150 + 40) % (WIDTH + 170)
    boxes = [(bus, 160.0, bus + 150, 242.0)]
    for top, width, speed, start in ((28.0, 90, 76, 110), (6.0, 74, 98, 420), (44.0, 66, 86, 300)):
        left = (t * speed + start) % (WIDTH + 2 * width) - width
        boxes.append((left, top, left + width, top + 1.32 * width))
    return boxes


def crossing_cells(t: float, rows: int = 16, columns: int = 28) -> NDArray[np.bool_]:
    """Which cells of a (rows, columns) token grid the objects of ``crossing.mp4`` touch at ``t`` seconds."""
    touched = np.zeros((rows, columns), np.bool_)
    for box in crossing_boxes(t):
        left, right = np.clip([box[0], box[2]], 0, WIDTH) * columns / WIDTH
        top, bottom = np.clip([box[1], box[3]], 0, HEIGHT) * rows / HEIGHT
        touched[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
    return touched


def crossing() -> Iterator[Image]:
    """A bus and three balloons cross a valley that stands still."""
    background = paint.road(paint.valley(seed=47, trees=10))
    colors = (("e2572b", "f6c445"), ("2f6fb0", "f4f1e6"), ("7a3fa0", "ef8fa8"))
    for t in times():
        image = background.copy()
        bus, *balloons = crossing_boxes(t)
        for box, pair in reversed(list(zip(balloons, colors, strict=True))):
            paint.draw_balloon(image, box, pair)
        paint.draw_bus(image, bus)
        yield image


def slides() -> Iterator[Image]:
    """Seven slides; frames repeat exactly between the changes."""
    pages = [paint.slide(number) for number in range(len(SLIDE_SECONDS) + 1)]
    return (pages[np.searchsorted(SLIDE_SECONDS, t, side="right")] for t in times())


def pan() -> Iterator[Image]:
    """A camera pans over a wide valley: everything moves."""
    world = paint.valley(WIDTH + PAN_PIXELS_PER_SECOND * DURATION_SECONDS, seed=52, trees=90)
    for t in times():
        left = round(t * PAN_PIXELS_PER_SECOND)
        yield world[:, left : left + WIDTH]


def cuts() -> Iterator[Image]:
    """Hard cuts among six scenes in which only a small balloon drifts."""
    scenes = [paint.city(), paint.dunes(), paint.glass(), paint.sea(), paint.table(), paint.valley()]
    for t in times():
        image = scenes[np.searchsorted(CUT_SECONDS, t, side="right")].copy()
        left = 30 + 6 * t
        paint.draw_balloon(image, (left, 24, left + 24, 58), ("e2572b", "f4f1e6"))
        yield image


def still() -> Iterator[Image]:
    """Nothing happens."""
    image = paint.table()
    return (image for _ in times())


def fade() -> Iterator[Image]:
    """A window grows dark: the brightness changes, no shape does."""
    image = paint.glass()
    return (image * np.float32(np.interp(t, FADE_SECONDS, (1, FADE_GAIN))) for t in times())


CLIPS: dict[str, Callable[[], Iterator[Image]]] = {
    f"{clip.__name__}.mp4": clip for clip in (crossing, slides, pan, cuts, still, fade)
}
"""By the name of a file, the function that gives its frames in order."""


def encoder_options(frames: Sequence[Pixels]) -> dict[str, str]:
    """libx264 options for ``frames``: a constant quantiser, one long group, and repeats that decode bit-equal.

    At the common quantiser the encoder would go on refining a picture that stands still, so a repeated frame gets
    the coarsest one, at which nothing is left to code; the plain motion search and no deblocking let it skip every
    block.
    """
    repeats = [n for n in range(1, len(frames)) if np.array_equal(frames[n], frames[n - 1])]
    params = "keyint=1000:bframes=0:weightp=0:subme=1:me=dia:8x8dct=0:no-deblock=1"
    if repeats:
        params += ":zones=" + "/".join(f"{n},{n},q=51" for n in repeats)
    return {"preset": "slow", "threads": "1", "flags": "+bitexact", "qp": "20", "x264-params": params}


def write_clip(path: Path, images: Iterator[Image]) -> None:
    """Writes ``images`` as an H.264 MP4 (yuv420p) whose bytes depend on them and on PyAV's version."""
    frames = [np.round(np.clip(image, 0, 1) * 255).astype(np.uint8) for image in images]
    with av.open(str(path), "w", options={"fflags": "+bitexact", "movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options=encoder_options(frames))
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.time_base = Fraction(1, FPS)
        for n, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = n, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def main(argv: Sequence[str] | None = None) -> None:
    """Writes every clip of ``CLIPS`` and prints a line a file."""
    parser = argparse.ArgumentParser(description="Draw the sample clips of evs.")
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent, help="default: this script's folder")
    folder: Path = parser.parse_args(argv).output_dir
    folder.mkdir(parents=True, exist_ok=True)
    for name, clip in CLIPS.items():
        write_clip(folder / name, clip())
        print(f"{folder / name}: {(folder / name).stat().st_size} bytes")


if __name__ == "__main__":
    main()
