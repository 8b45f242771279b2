"""A JSON request with a whole video inside, written out piece by piece: no copy of the clip is held in memory.

In: a body in which a marker stands for the video's URL, and a file. Out: the bytes of the request and their number.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evs_cli.errors import UsageError
from evs_cli.video.source import source_size_bytes

MARKER = "evs:inline-video"
"""What stands for the URL of the video in a body."""
MAX_INLINE_BYTES = 512 * 2**20
"""The largest file that is sent inside a request: a server holds it as text, as bytes and decoded at once."""
_PIECE_BYTES = 3 * 2**16  # a multiple of 3: base64 of each piece ends without padding, but for the last


@dataclass(frozen=True)
class InlineVideo:
    """A video file as a ``data:`` URL.

    Raises:
        VideoError: a file that cannot be read.
        UsageError: a file larger than ``MAX_INLINE_BYTES``.
    """

    path: Path
    media_type: str
    """Such as ``video/mp4``."""

    def __post_init__(self) -> None:
        size = source_size_bytes(self.path)
        if size > MAX_INLINE_BYTES:
            raise UsageError(
                f"{self.path.name} is {size:,} bytes, too many to send inside a request. Expected at most "
                f"{MAX_INLINE_BYTES:,}.",
                hint="Give --as-url file where the server can read the file, or --as-url http://… where it can fetch "
                "it.",
            )

    @property
    def head(self) -> str:
        """The URL up to the base64 text."""
        return f"data:{self.media_type};base64,"

    @property
    def url_bytes(self) -> int:
        """Length of the whole URL."""
        return len(self.head) + 4 * -(-self.path.stat().st_size // 3)

    def url(self) -> Iterator[bytes]:
        """The URL piece by piece."""
        yield self.head.encode("ascii")
        with self.path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield base64.b64encode(piece)


def media_type(name: str) -> str:
    """The media type of a video by its file name; ``video/mp4`` where it says none."""
    guessed, _ = mimetypes.guess_type(name)
    return guessed if guessed is not None and guessed.startswith("video/") else "video/mp4"


@dataclass(frozen=True)
class RequestBody:
    """The bytes of a JSON request."""

    content: Mapping[str, Any]
    """JSON; ``MARKER`` is its one URL of a video where there is one inside."""
    video: InlineVideo | None = None

    @property
    def size_bytes(self) -> int:
        """Length of the whole request."""
        return sum(len(part) for part in self._parts()) + (0 if self.video is None else self.video.url_bytes)

    def __iter__(self) -> Iterator[bytes]:
        before, *behind = self._parts()
        yield before
        if self.video is not None:
            yield from self.video.url()
        yield from behind

    def _parts(self) -> list[bytes]:
        """The JSON, cut where the video goes."""
        text = json.dumps(self.content)
        return [part.encode("ascii") for part in (text.split(MARKER, 1) if self.video is not None else [text])]
