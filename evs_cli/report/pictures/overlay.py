"""A mask painted on a frame: kept cells are untouched pixels, dropped ones grey and dark, with an outline between them.

In: a frame as shown, a mask and the region its token grid covers. Out: pixels. Nothing is told by hue alone: the
outline tells kept from dropped where brightness does not, and what the model does not see is hatched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evs_cli.core.pixel_region import PixelRegion

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Int64Array = np.ndarray[Any, np.dtype[np.int64]]

PLAIN_GREY = 190
"""Of a frame whose pixels are not at hand."""
_DROPPED_GAIN = 0.32  # a dropped white is darker than most kept colours, a dropped grey is still to be seen
_LUMA = np.array([299, 587, 114], np.uint32)  # thousandths of red, green and blue, ITU-R BT.601
_UNSEEN_GAIN, _UNSEEN_GREY, _STRIPE_SHARE = 0.45, 22, 0.35  # as painting.js has it
_LONG_SIDE_A_PIXEL = 640  # an outline is a pixel wide for each so many pixels of the long side


@dataclass(frozen=True)
class OverlayGrid:
    """Where the cells of a token grid lie in an overlay, in whole pixels.

    The overlay is the box around the frame and all that the model sees, which padding may have made larger.
    """

    height: int
    """Pixels down of the overlay."""
    width: int
    frame_top: int
    """Row of the overlay at which the frame begins."""
    frame_left: int
    row_edges: Int64Array
    """(h + 1,) borders of the rows of cells, top first: row ``i`` covers ``row_edges[i]:row_edges[i + 1]``."""
    column_edges: Int64Array
    """(w + 1,) borders of the columns of cells."""

    @classmethod
    def of(cls, frame_size: tuple[int, int], grid: tuple[int, int], region: PixelRegion) -> OverlayGrid:
        """Lay a grid over a frame.

        Args:
            frame_size: (height, width) of the frame in pixels.
            grid: (h, w) of the token grid.
            region: the part of the frame it covers.
        """
        (rows, top, down), (columns, left, across) = (
            _edges(side, cells, start, end)
            for side, cells, start, end in zip(
                frame_size, grid, (region.top, region.left), (region.bottom, region.right), strict=True
            )
        )
        return cls(down, across, top, left, rows, columns)

    def cell(self, row: int, column: int) -> tuple[slice, slice]:
        """Rows and columns of pixels that a cell covers."""
        return (
            slice(int(self.row_edges[row]), int(self.row_edges[row + 1])),
            slice(int(self.column_edges[column]), int(self.column_edges[column + 1])),
        )

    def spread(self, mask: Mask) -> tuple[Mask, Mask]:
        """``(H', W')`` masks of the pixels of kept cells, and of those of dropped cells."""
        kept = np.zeros((self.height, self.width), np.bool_)
        seen = kept.copy()
        rows, columns = np.diff(self.row_edges), np.diff(self.column_edges)
        place = slice(self.row_edges[0], self.row_edges[-1]), slice(self.column_edges[0], self.column_edges[-1])
        kept[place] = mask.repeat(rows, axis=0).repeat(columns, axis=1)
        seen[place] = True
        return kept, seen & ~kept


def _edges(side: int, cells: int, start: float, end: float) -> tuple[Int64Array, int, int]:
    """Borders of cells between two shares of a side, where the frame begins, and the length of it all, in pixels."""
    # Rounded one by one, from the exact shares: the error of a border is half a pixel, and does not add up.
    borders = np.rint((start + (end - start) * np.arange(cells + 1) / cells) * side).astype(np.int64)
    first, last = min(0, int(borders[0])), max(side, int(borders[-1]))
    return borders - first, -first, last - first


def paint_mask(frame: Pixels, mask: Mask, region: PixelRegion) -> Pixels:
    """Paint what was kept on a frame.

    Args:
        frame: (H, W, 3) uint8 RGB as shown.
        mask: (h, w) bool, True where the token is kept.
        region: the part of the frame over which the token grid lies evenly.

    Returns:
        (H', W', 3) uint8; H' = H and W' = W but where the region reaches outside the frame.
    """
    height, width = mask.shape
    grid = OverlayGrid.of((frame.shape[0], frame.shape[1]), (height, width), region)
    picture = np.zeros((grid.height, grid.width, 3), np.uint8)  # padding is black
    frame_rows = slice(grid.frame_top, grid.frame_top + frame.shape[0])
    picture[frame_rows, grid.frame_left : grid.frame_left + frame.shape[1]] = frame
    kept, dropped = grid.spread(mask)
    picture[dropped] = (_DROPPED_GAIN * _grey(picture[dropped])).astype(np.uint8)[:, None]
    _hatch(picture, ~(kept | dropped))
    # On the dropped side of the border, so that no pixel of a kept cell is touched.
    picture[dropped & _widened(kept, outline_pixels(grid))] = 255
    return picture


def plain_frame(height: int, width: int) -> Pixels:
    """(height, width, 3) uint8: what a mask is painted on where the video is not at hand."""
    return np.full((height, width, 3), PLAIN_GREY, np.uint8)


def outline_pixels(grid: OverlayGrid) -> int:
    """How wide the line between kept and dropped cells is: it must be seen, and leave most of the smallest cell."""
    smallest = min(int(np.diff(grid.row_edges).min()), int(np.diff(grid.column_edges).min()))
    wanted = -(-max(grid.height, grid.width) // _LONG_SIDE_A_PIXEL)
    return max(1, min(wanted, smallest // 4))


def fitted_size(
    frame_size: tuple[int, int], region: PixelRegion, room: tuple[int, int], *, max_scale: float
) -> tuple[int, int]:
    """(height, width) to which a frame is resized before it is painted, so that its overlay fits a room.

    Args:
        frame_size: (height, width) in pixels as shown.
        region: the part of it the model sees.
        room: (height, width) in pixels that the overlay may have.
        max_scale: how much larger than it is a frame may become.
    """
    down, across = _box_sides(region)
    height, width = frame_size
    # A pixel is left for each side of the box that is rounded.
    scale = min(max_scale, (room[0] - 1) / (down * height), (room[1] - 1) / (across * width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def _box_sides(region: PixelRegion) -> tuple[float, float]:
    """(down, across) sides of an overlay, in sides of the frame; at least 1."""
    return max(1.0, region.bottom) - min(0.0, region.top), max(1.0, region.right) - min(0.0, region.left)


def _grey(pixels: Pixels) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n,) brightness in [0, 255] of pixels (n, 3)."""
    return (pixels @ _LUMA) / 1000


def _hatch(picture: Pixels, unseen: Mask) -> None:
    """Draw diagonal stripes over what the model does not see, in place."""
    if not unseen.any():
        return
    rows, columns = unseen.nonzero()
    dark = _UNSEEN_GAIN * picture[unseen] + _UNSEEN_GREY
    period = max(6, max(picture.shape) // 80)
    is_stripe = (rows + columns) % period < max(2, period // 4)
    dark[is_stripe] += (255 - dark[is_stripe]) * _STRIPE_SHARE
    picture[unseen] = dark.astype(np.uint8)


def _widened(mask: Mask, pixels: int) -> Mask:
    """A mask with everything that is at most so many pixels away, along rows, columns and diagonals."""
    wide = mask.copy()
    for step in range(1, pixels + 1):
        wide[step:] |= mask[:-step]
        wide[:-step] |= mask[step:]
    tall = wide.copy()
    for step in range(1, pixels + 1):
        wide[:, step:] |= tall[:, :-step]
        wide[:, :-step] |= tall[:, step:]
    return wide
