"""The signs beyond ASCII that evs prints, each with what stands for it on a terminal that has ASCII alone.

In: a stream. Out: a ``Signs``, which every view draws with, and which rewrites the text that is printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TEXT = {
    **{"…": "...", "±": "+-", "×": "x", "·": ".", "→": "->", "─": "-", "−": "-", "–": "-", "—": "-"},
    **{"“": '"', "”": '"', "’": "'"},
}
"""Signs in sentences, and what is written for them in ASCII."""


@dataclass(frozen=True)
class Signs:
    """How a view draws on one kind of terminal."""

    is_unicode: bool
    levels: str
    """Bars of one character, eighth by eighth."""
    none: str
    """A bar of nothing."""
    full: str
    """What a full bar is called in the words beside it."""
    block: str
    """A whole character of a long bar."""
    parts: str
    """The last character of a long bar, from nothing to seven eighths."""
    halves: str
    """Two rows of cells a character: none kept, the upper one, the lower one, both."""
    pooled: str
    """Several cells a character: none kept, some, all."""
    spinner: str
    """Rich's name of the sign that turns while evs works."""
    ellipsis: str
    """What stands for the part of a name that is cut out."""

    def bar(self, count: int, full: int) -> str:
        """One character for ``count`` of ``full``; never the empty one for a count above 0."""
        return self.levels[-(-count * len(self.levels) // full) - 1] if count else self.none

    def long_bar(self, share: float, columns: int) -> str:
        """A bar of ``share`` in [0, 1] of ``columns``, in eighths of a character."""
        whole, part = divmod(round(share * columns * 8), 8)
        return self.block * whole + (self.parts[part] if part else "")

    def written(self, text: str) -> str:
        """The text as this terminal can show it; a letter without a stand-in stays."""
        if self.is_unicode:
            return text
        return text.translate(_STAND_INS)


UNICODE = Signs(True, "▁▂▃▄▅▆▇█", "·", "full bar", "█", " ▏▎▍▌▋▊▉", "·▀▄█", "·▒█", "dots", "…")
ASCII = Signs(False, "12345678", ".", "8", "#", " .:-=+*%", '."_#', ".+#", "line", "...")
DRAWN = frozenset("".join((UNICODE.levels, UNICODE.block, UNICODE.parts, UNICODE.halves, UNICODE.pooled))) - {" "}
"""Every sign beyond ASCII that is drawn with; those in sentences are in ``_TEXT``."""
_STAND_INS = str.maketrans(_TEXT)


def signs_of(stream: Any, environment: Mapping[str, str] | None = None) -> Signs:
    """The signs that a text stream can show.

    Args:
        stream: where text is written to.
        environment: of the process, where it is another than ``os.environ``.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        "".join(sorted(DRAWN)).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    is_plain = stream.isatty() and _is_plain_terminal(os.environ if environment is None else environment)
    return ASCII if is_plain else UNICODE


def _is_plain_terminal(environment: Mapping[str, str]) -> bool:
    """Whether the terminal has few signs and no locale says otherwise.

    Python itself turns the locale C into UTF-8, and says so in LC_CTYPE: that tells nothing of the terminal.
    """
    locale = environment.get("LC_ALL") or environment.get("LANG") or "C"
    return environment.get("TERM") in ("linux", "dumb") and locale in ("C", "POSIX")
