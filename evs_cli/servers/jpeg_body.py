"""A JSON request with JPEG frames in it, written and read back piece by piece.

In: frames one at a time, and a body whose data URL has none yet. Out: the bytes of the request in a file.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from evs_cli.dialects.vllm_frames import DATA_URL_HEAD

if TYPE_CHECKING:
    import torch


def jpeg_of(frame: torch.Tensor, quality: int) -> bytes:
    """A JPEG whose colours have full resolution (4:4:4).

    Args:
        frame: (3, H, W) uint8 RGB.
        quality: 1 to 100.
    """
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame.permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=quality, subsampling=0)
    return buffer.getvalue()


class JpegBodyWriter:
    """A body on its way into a file: what stands before the frames, the frames, and what stands behind them.

    Args:
        file: where it goes.
        body: the body as planned; of its video's URL only the head.
    """

    def __init__(self, file: IO[bytes], body: Mapping[str, Any]) -> None:
        self._file, self._last, self._last_bytes = file, b"", 0
        self.num_frames = 0
        """Frames written."""
        self.jpeg_bytes = 0
        """Of these frames, before they became text."""
        self.num_bytes = 0
        """Of the body so far."""
        self._write(_around_frames(body)[0])

    def add(self, jpeg: bytes) -> None:
        """Write a frame."""
        self._last, self._last_bytes = base64.b64encode(jpeg), len(jpeg)
        self._write_last()

    def finish(self, body: Mapping[str, Any], num_frames: int) -> None:
        """Repeat the last frame until there are ``num_frames``, and write the rest of ``body``.

        It may say other things behind its frames than the planned one: some may not have decoded.
        """
        while self.num_frames < num_frames:
            self._write_last()
        self._write(_around_frames(body)[1])

    def _write_last(self) -> None:
        self._write(b"," + self._last if self.num_frames else self._last)
        self.num_frames += 1
        self.jpeg_bytes += self._last_bytes

    def _write(self, part: bytes) -> None:
        self.num_bytes += self._file.write(part)


def _around_frames(body: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """A body's JSON up to the frames in its data URL, and behind them."""
    url = json.dumps(DATA_URL_HEAD)
    before, _, behind = json.dumps(body).partition(url)
    return (before + url[:-1]).encode("ascii"), (url[-1] + behind).encode("ascii")
