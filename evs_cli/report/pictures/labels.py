"""Text in pictures, in the one font that Pillow brings itself, so that it looks the same on every machine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont

BLACK, WHITE, GREY = (0, 0, 0), (255, 255, 255), (96, 96, 96)
_LEAST_SIZE = 9


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's font, so many pixels high."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def text_width(text: str, size: int) -> int:
    """Pixels across of a line."""
    return round(font(size).getlength(text))


def fitting_size(text: str, width: int, size: int) -> int:
    """The largest size up to ``size`` at which a line is no wider than ``width``; at least ``_LEAST_SIZE``."""
    while size > _LEAST_SIZE and text_width(text, size) > width:
        size -= 1
    return size


def wrapped(text: str, width: int, size: int) -> list[str]:
    """Lines no wider than ``width``, broken at spaces; a single word that is wider is cut, with dots."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(shortened(word, width, size))
    return lines


def shortened(text: str, width: int, size: int) -> str:
    """A line no wider than ``width``; dots stand for the middle where it is cut."""
    if text_width(text, size) <= width:
        return text
    kept = len(text) - 1
    while kept > 2 and text_width(f"{text[: kept - kept // 2]}...{text[-(kept // 2) :]}", size) > width:
        kept -= 1
    return f"{text[: kept - kept // 2]}...{text[-(kept // 2) :]}"


def write(
    pen: ImageDraw.ImageDraw,
    place: tuple[float, float],
    text: str,
    size: int,
    colour: tuple[int, int, int] = BLACK,
    *,
    anchor: str = "la",
) -> None:
    """Draw a line of text.

    Args:
        pen: of the picture.
        place: (x, y) in pixels of ``anchor``.
        text: ASCII.
        size: pixels high.
        colour: RGB.
        anchor: Pillow's two letters: left, middle or right; ascender, middle or baseline.
    """
    pen.text(place, text, fill=colour, font=font(size), anchor=anchor)
