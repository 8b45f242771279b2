"""Frames as JPEGs that fit a page: at the size the model saw, and smaller where the page would grow too big."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evs_cli.video.frames import Picture

_MAX_SIDE = 640  # a page shows a frame about so wide
_QUALITIES = (82, 68, 54, 40)
_SHRINK = 0.7  # halves the area, and about the bytes
_LEAST_SIDE = 64


def fitted_size(frame: tuple[int, int], rows: float) -> tuple[int, int]:
    """(height, width) of a frame drawn with so many rows, its aspect kept: no larger than it is, nor ``_MAX_SIDE``.

    Args:
        frame: (height, width) in pixels as shown.
        rows: pixels down that are wanted, of the whole frame.
    """
    height, width = frame
    scale = min(1.0, rows / height, _MAX_SIDE / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def jpeg_text(picture: Picture, size: tuple[int, int], max_bytes: int) -> str:
    """Base64 of a picture as JPEG, of at most ``max_bytes`` before encoding where any quality allows it.

    Args:
        picture: (H, W, 3) uint8 RGB.
        size: (height, width) to draw it at.
        max_bytes: most bytes of the JPEG; a picture of ``_LEAST_SIDE`` pixels is not made smaller.
    """
    from PIL import Image

    image = Image.fromarray(picture)
    height, width = size
    while True:
        resized = image.resize((width, height), Image.Resampling.LANCZOS)
        for quality in _QUALITIES:
            buffer = io.BytesIO()
            resized.save(buffer, "JPEG", quality=quality, optimize=True)
            if buffer.tell() <= max_bytes or (quality == _QUALITIES[-1] and max(height, width) <= _LEAST_SIDE):
                return base64.b64encode(buffer.getvalue()).decode("ascii")
        height, width = max(1, int(height * _SHRINK)), max(1, int(width * _SHRINK))
