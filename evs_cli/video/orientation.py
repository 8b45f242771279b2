"""How a stored picture is turned and mirrored before it is shown.

In: the 3x3 display matrix that mp4, mov and some H.264 streams carry, as libav hands it out with a decoded frame.
Out: one of the eight turns and mirrorings of a rectangle, applied to arrays without copying.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

_DISPLAY_MATRIX_BYTES = 36


@dataclass(frozen=True)
class Orientation:
    """Transpose first, then flip.

    Attributes:
        transpose: rows become columns (width and height change places).
        flip_horizontal: then left and right change places.
        flip_vertical: then top and bottom change places.
        is_exact: False where the matrix holds another angle or a shear, which is shown as the nearest of the eight.
    """

    transpose: bool = False
    flip_horizontal: bool = False
    flip_vertical: bool = False
    is_exact: bool = True

    @property
    def is_mirrored(self) -> bool:
        """Whether writing would read backwards if the picture were only turned."""
        return (self.transpose + self.flip_horizontal + self.flip_vertical) % 2 == 1

    def shown_size(self, width: int, height: int) -> tuple[int, int]:
        """``(width, height)`` as shown of a stored picture of that size."""
        return (height, width) if self.transpose else (width, height)

    def apply(self, picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A view of ``picture`` ``(H, W, ...)`` as it is to be shown, ``(H', W', ...)``."""
        if self.transpose:
            picture = picture.swapaxes(0, 1)
        if self.flip_horizontal:
            picture = picture[:, ::-1]
        if self.flip_vertical:
            picture = picture[::-1]
        return picture


def orientation_of(display_matrix: bytes | None) -> Orientation:
    """The orientation that a display matrix asks for.

    Args:
        display_matrix: nine native int32 ``a b u c d v x y w``; a stored point ``(p, q)``, q downwards, is shown at
            ``(a p + c q + x, b p + d q + y)``. None or anything of another length: as stored.
    """
    if display_matrix is None or len(display_matrix) != _DISPLAY_MATRIX_BYTES:
        return Orientation()
    a, b, _, c, d, _, *_ = struct.unpack("=9i", display_matrix)
    if a * d - b * c == 0:
        return Orientation(is_exact=False)
    transpose = abs(b) + abs(c) > abs(a) + abs(d)
    across, down = (c, b) if transpose else (a, d)
    rest = (a, d) if transpose else (b, c)
    # Fixed point of 16 bits: a quarter turn written through sines may leave a few units beside the zeros.
    is_exact = max(map(abs, rest)) * 100 < min(abs(across), abs(down))
    return Orientation(transpose, flip_horizontal=across < 0, flip_vertical=down < 0, is_exact=is_exact)


def frame_orientation(frame: Any) -> Orientation:
    """The orientation in the side data of a decoded ``av.VideoFrame``."""
    side_data = frame.side_data.get("DISPLAYMATRIX")
    return orientation_of(None if side_data is None else bytes(side_data))
