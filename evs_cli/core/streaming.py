"""Where the tokens of a video go as they are encoded: a sink takes them batch by batch and keeps what it is for.

In: embeddings ``(t, h, w, D)`` a level and their scores ``(t, h, w)``, in the order of time. Out: whatever the sink
keeps. A sink knows tensors alone: no video, no model, no file of ours.
"""

from __future__ import annotations

from typing import Protocol

import torch


class TokenSink(Protocol):
    """Takes the tokens of a video, in order, as they are encoded."""

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """Take the tokens of the next t frames.

        Args:
            levels: ``(t, h, w, D)`` a level on the CPU, the main one first. They are the sink's to read during the
                call alone: what is to be kept is copied.
            dissimilarity: ``(t, h, w)`` on the CPU, in the dtype it was scored in; the video's first frame is 255.
        """


class AllTokens:
    """Keeps every row.

    Args:
        num_frames: T as planned; fewer frames may come.
    """

    def __init__(self, num_frames: int) -> None:
        self._num_frames = num_frames
        self._buffers: tuple[torch.Tensor, ...] = ()  # (planned T, h, w, D) a level, filled from the front
        self._filled = 0

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """See ``TokenSink.add``."""
        if not self._buffers:
            self._buffers = tuple(level.new_empty((self._num_frames, *level.shape[1:])) for level in levels)
        end = self._filled + levels[0].shape[0]
        for buffer, level in zip(self._buffers, levels, strict=True):
            buffer[self._filled : end] = level
        self._filled = end

    @property
    def levels(self) -> tuple[torch.Tensor, ...]:
        """``(T, h, w, D)`` a level: what came, the main one first."""
        return tuple(buffer[: self._filled] for buffer in self._buffers)
