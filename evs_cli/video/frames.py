"""Decoded frames on their way to a model: gathered into chunks, whichever decoder they come from.

In: pictures one by one in the order of time. Out: a ``FrameStream`` of ``FrameBatch``. Memory is bounded by the chunk:
the stream holds one chunk and one picture, whatever the length of the video; a caller that still holds the chunk
before makes that two.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import torch

from evs_cli.errors import VideoError
from evs_cli.video.info import VideoInfo
from evs_cli.video.packets import FloatArray, Int64Array

Picture = np.ndarray[Any, np.dtype[np.uint8]]
"""(H, W, 3) uint8 RGB as shown; any strides."""


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """A chunk of sampled frames that decoded.

    Attributes:
        frames: (t, 3, H, W) uint8 contiguous, RGB, turned upright, square pixels.
        frame_indices: (t,) int64, never descending: indices into ``VideoInfo.pts_seconds``.
        pts_seconds: (t,) float64: when each frame is first shown.
        positions: (t,) int64 ascending: which entries of the selection these are. One that is absent from all batches
            did not decode.
    """

    frames: torch.Tensor
    frame_indices: Int64Array
    pts_seconds: FloatArray
    positions: Int64Array

    def __repr__(self) -> str:
        return f"FrameBatch(frames={tuple(self.frames.shape)}, positions={self.positions.tolist()})"


@dataclass(frozen=True, eq=False)
class DecodedFrame:
    """One picture out of a decoder: ``index`` into ``VideoInfo.pts_seconds`` and ``picture`` (H, W, 3) uint8."""

    index: int
    picture: Picture


@dataclass
class DecodeFaults:
    """What a decoder met on its way; it counts up while frames are read.

    Attributes:
        num_corrupt_packets: packets that gave no frame because they are damaged.
        num_damaged_frames: frames asked for that decode only in part; they are left out as well.
        keeps_damaged: whether they are delivered instead.
        warnings: sentences on the decoder itself.
        is_cancelled: set, from any thread, when nobody wants more frames: the decoder ends within a packet.
    """

    num_corrupt_packets: int = 0
    num_damaged_frames: int = 0
    keeps_damaged: bool = False
    warnings: list[str] = field(default_factory=list)
    is_cancelled: threading.Event = field(default_factory=threading.Event)


class FrameStream(Iterator[FrameBatch]):
    """The batches of a selection; iterate it to the end, or close it (it is a context manager too).

    Args:
        info: the probed video.
        frame_indices: (S,) int64, never descending, S >= 1: the frames to deliver.
        chunk_frames: frames a batch; only the last batch has fewer.
        decoded: the decoder: pictures of the distinct ``frame_indices`` in ascending order, less those that fail.
        faults: what that decoder counts into.
    """

    def __init__(
        self,
        info: VideoInfo,
        frame_indices: Int64Array,
        chunk_frames: int,
        decoded: Generator[DecodedFrame, None, None],
        faults: DecodeFaults,
    ) -> None:
        self._batches = _batches(info, frame_indices, chunk_frames, decoded)
        self._faults = faults

    @property
    def num_corrupt_packets(self) -> int:
        """Damaged packets met so far."""
        return self._faults.num_corrupt_packets

    @property
    def num_damaged_frames(self) -> int:
        """Frames left out so far because only parts of them decode."""
        return self._faults.num_damaged_frames

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of the decoder's work so far; complete at the end."""
        return tuple(self._faults.warnings)

    def __next__(self) -> FrameBatch:
        return next(self._batches)

    def cancel(self) -> None:
        """Make the iteration end soon, in whichever thread it runs."""
        self._faults.is_cancelled.set()

    def close(self) -> None:
        """Stop: close the file and end the decoder, also in the middle of a video."""
        self._batches.close()

    def __enter__(self) -> FrameStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Chunk:
    """A batch being filled: room for ``size`` frames of (3, H, W) uint8."""

    def __init__(self, size: int, height: int, width: int) -> None:
        self._frames = torch.empty((size, 3, height, width), dtype=torch.uint8)
        self._pixels = self._frames.numpy()  # the same memory: numpy copies from flipped views, torch does not
        self._indices: list[int] = []
        self._positions: list[int] = []

    @property
    def is_full(self) -> bool:
        return len(self._positions) == len(self._frames)

    def add(self, frame: DecodedFrame, position: int) -> None:
        np.copyto(self._pixels[len(self._positions)], frame.picture.transpose(2, 0, 1))
        self._indices.append(frame.index)
        self._positions.append(position)

    def batch(self, info: VideoInfo) -> FrameBatch:
        indices = np.array(self._indices, dtype=np.int64)
        return FrameBatch(
            frames=self._frames[: len(indices)],
            frame_indices=indices,
            pts_seconds=info.pts_seconds[indices],
            positions=np.array(self._positions, dtype=np.int64),
        )


def _batches(
    info: VideoInfo, frame_indices: Int64Array, chunk_frames: int, decoded: Generator[DecodedFrame, None, None]
) -> Generator[FrameBatch, None, None]:
    chunk: _Chunk | None = None
    num_selected = len(frame_indices)
    any_decoded = False
    try:
        for frame in decoded:
            any_decoded = True
            first, end = np.searchsorted(frame_indices, [frame.index, frame.index + 1])
            for position in range(int(first), int(end)):
                if chunk is None:
                    chunk = _Chunk(min(chunk_frames, num_selected - position), info.height, info.width)
                chunk.add(frame, position)
                if chunk.is_full:
                    full, chunk = chunk, None
                    yield full.batch(info)
                    del full  # or the chunk lives on beside the next
    finally:
        decoded.close()
    if chunk is not None:
        yield chunk.batch(info)
    if not any_decoded:
        raise VideoError(f"cannot decode {info.name}: none of the {num_selected} sampled frames decodes")
