"""Lossless clips whose every token cell has a colour of its own, so that a picture of a mask is checked by pixel."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from video_files import patch_display_matrix

BESIDE = (250, 245, 90)
"""Colour of the pixels of a frame that no cell covers."""


def cell_colours(count: int) -> np.ndarray:
    """(count, 3) uint8: colours that differ from each other, none of them grey or dark."""
    wheel = [colorsys.hsv_to_rgb(i / count, (0.7, 0.95)[i % 2], (0.75, 1.0)[i // 2 % 2]) for i in range(count)]
    colours = np.rint(255 * np.array(wheel)).astype(np.uint8)
    assert len({tuple(colour) for colour in colours}) == count
    return colours


def colours_of_frame(frame: int, grid: tuple[int, int]) -> np.ndarray:
    """(h, w, 3) uint8: the colours of a frame's cells; those of the next frame are moved on by one cell."""
    return np.roll(cell_colours(grid[0] * grid[1]), frame, axis=0).reshape(*grid, 3)


def draw_frame(frame: int, size: tuple[int, int], grid: tuple[int, int], region: tuple[float, ...]) -> np.ndarray:
    """(H, W, 3) uint8: each pixel has the colour of the cell that its middle lies in.

    Args:
        frame: which one.
        size: (H, W).
        grid: (h, w).
        region: (top, left, bottom, right) of the cells, in shares of the frame.
    """
    top, left, bottom, right = region
    rows = np.floor(((np.arange(size[0]) + 0.5) / size[0] - top) / (bottom - top) * grid[0]).astype(int)
    columns = np.floor(((np.arange(size[1]) + 0.5) / size[1] - left) / (right - left) * grid[1]).astype(int)
    colours = colours_of_frame(frame, grid)
    picture = colours[np.clip(rows, 0, grid[0] - 1)[:, None], np.clip(columns, 0, grid[1] - 1)[None]]
    is_beside = ((rows < 0) | (rows >= grid[0]))[:, None] | ((columns < 0) | (columns >= grid[1]))[None]
    picture[is_beside] = BESIDE
    return picture


def write_cell_clip(
    path: Path,
    *,
    size: tuple[int, int],
    grid: tuple[int, int],
    region: tuple[float, ...] = (0, 0, 1, 1),
    num_frames: int = 4,
    fps: int = 2,
    pixel_aspect: Fraction = Fraction(1),
    turned: tuple[tuple[int, int, int, int], Callable[[np.ndarray], np.ndarray]] | None = None,
) -> Path:
    """Write a clip in RGB without loss.

    Args:
        path: an mp4.
        size: (H, W) of a frame as shown, but for ``pixel_aspect``.
        grid: (h, w) of its cells.
        region: see ``draw_frame``.
        num_frames: how many.
        fps: frames a second.
        pixel_aspect: width of a pixel over its height.
        turned: a display matrix, and what makes the stored picture of the shown one.
    """
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264rgb", rate=fps, options={"qp": "0", "preset": "ultrafast"})
        stream.pix_fmt = "rgb24"
        for frame in range(num_frames):
            picture = draw_frame(frame, size, grid, region)
            stored = np.ascontiguousarray(picture if turned is None else turned[1](picture))
            if frame == 0:
                stream.height, stream.width = stored.shape[:2]
                stream.codec_context.sample_aspect_ratio = pixel_aspect
            output.mux(stream.encode(av.VideoFrame.from_ndarray(stored, "rgb24")))
        output.mux(stream.encode(None))
    if turned is not None:
        patch_display_matrix(path, turned[0])
    return path
