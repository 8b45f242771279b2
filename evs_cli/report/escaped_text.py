"""Text from outside, such as file names and servers' answers, made safe to show.

A terminal obeys what it is shown: an ESC moves the cursor or sets the clipboard, a mark of direction makes a name read
backwards, a line separator forges a line of ours. Such characters are shown by their numbers, as ``\\x1b``.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment

LONGEST_LINE = 2000
"""Letters of a line on stderr; a name of a server or a file may be a megabyte."""

_CONTROLS = (
    *(code for code in range(0x20) if chr(code) not in "\n\t"),
    *range(0x7F, 0xA0),  # DEL, and C1: 0x9B begins a command as ESC does
    0x061C,
    *(0x200E, 0x200F),  # marks of direction
    *range(0x2028, 0x202F),  # line and paragraph separators, embeddings and overrides of direction
    *range(0x2066, 0x206A),  # isolates
    0xFEFF,
)
_SHOWN = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROLS}
_IN_JSON = {code: f"\\u{code:04x}" for code in _CONTROLS}


def escaped(text: str) -> str:
    """The text with each character that a terminal would obey as its number; line breaks and tabs stay."""
    return text.translate(_SHOWN)


def one_line(text: str) -> str:
    """As ``escaped``, and line breaks and tabs too: names that differ stay apart, each on a line."""
    return escaped(text).replace("\n", r"\n").replace("\t", r"\t")


def escaped_json(document: str) -> str:
    """A JSON document with the same characters as ``\\u`` escapes: it stands for the same values."""
    return document.translate(_IN_JSON)


def shortened(text: str) -> str:
    """The text, less what is in the middle of one longer than ``LONGEST_LINE``."""
    half = LONGEST_LINE // 2
    return text if len(text) <= LONGEST_LINE else f"{text[:half]} … {text[-half:]}"


class EscapedText:
    """What Rich draws, its texts escaped; its own colours are not."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._renderable)
