"""Which part of a frame a model sees: what a processor's resizing, cropping and padding amount to.

In: sizes in pixels. Out: a ``PixelRegion`` in shares of the frame, over which the token grid lies evenly. Pictures of a
mask are drawn by it, so that a cell covers the very pixels its token was made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from evs_cli.errors import UsageError


@dataclass(frozen=True)
class PixelRegion:
    """A rectangle in shares of a frame as it is shown, 0 at the top left and 1 at the bottom right.

    A cropped frame has a region inside [0, 1]. A padded frame has one that reaches outside.

    Raises:
        UsageError: an empty region, or numbers that are not finite.
    """

    top: float = 0.0
    left: float = 0.0
    bottom: float = 1.0
    right: float = 1.0

    def __post_init__(self) -> None:
        # Written so that NaN fails; a region a thousand times the frame is a damaged record, not a padding.
        if not (-1000 < self.top < self.bottom < 1000 and -1000 < self.left < self.right < 1000):
            raise UsageError(f"Invalid pixel region {astuple(self)}. Expected (top, left, bottom, right), ascending.")

    @property
    def is_whole(self) -> bool:
        """Whether it is the frame itself."""
        return self == WHOLE_FRAME

    def as_list(self) -> list[float]:
        """``[top, left, bottom, right]``, as the artifact records it."""
        return list(astuple(self))

    def cell(self, row: int, column: int, height: int, width: int) -> tuple[float, float, float, float]:
        """(top, left, bottom, right) of the cell at ``row, column`` of a ``height`` x ``width`` token grid."""
        down, across = (self.bottom - self.top) / height, (self.right - self.left) / width
        top, left = self.top + row * down, self.left + column * across
        return top, left, top + down, left + across


WHOLE_FRAME = PixelRegion()
"""The model sees all of the frame, and nothing beside it."""


def recorded_region(provenance: Mapping[str, Any]) -> PixelRegion | None:
    """The region that a file of evs records; None of one that was written before evs recorded it.

    Raises:
        UsageError: a record that is no region.
    """
    numbers = provenance.get("pixel_region")
    if numbers is None:
        return None
    if not isinstance(numbers, list) or len(numbers) != 4 or not all(type(n) in (int, float) for n in numbers):
        raise UsageError(f"Invalid pixel region {numbers!r}. Expected (top, left, bottom, right), ascending.")
    return PixelRegion(*numbers)


def cropped_region(
    resized: tuple[int, int], crop: tuple[int, int] | None, covered: tuple[int, int] | None = None
) -> PixelRegion:
    """The region of a frame that was resized, then cut to its middle, then cut into patches.

    Args:
        resized: (height, width) in pixels after resizing the whole frame.
        crop: (height, width) that is cut out of the middle; a side longer than the frame's is padded. None cuts none.
        covered: (height, width) from the top left on that the tokens are made of: patches leave out the last
            pixels where the side is no multiple of theirs. None is all of it.
    """
    sides = []
    for side, cut, seen in zip(resized, crop or resized, covered or crop or resized, strict=True):
        # transformers' center_crop: pads by half (rounded down) in front, or cuts half (rounded down) off.
        start = (side - cut) // 2 if side >= cut else -((cut - side) // 2)
        sides.append((start / side, (start + seen) / side))
    (top, bottom), (left, right) = sides
    return PixelRegion(top, left, bottom, right)
