"""The output of an encoder: the embeddings of a chunk of frames."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class VideoTokens:
    """The tokens of t frames (of tokens), one tensor a level."""

    levels: tuple[torch.Tensor, ...]
    """(t, h, w, D) a level, the main one first; DeepStack models have more than one."""
    extra: torch.Tensor | None = None
    """(E, D) rows of these frames that are no grid token (a CLS), as many a frame, in the order of their placeholders;
    None for none."""

    @property
    def num_frames(self) -> int:
        """t, frames of tokens."""
        return int(self.levels[0].shape[0])

    def take(self, frames: torch.Tensor) -> VideoTokens:
        """The tokens of ``frames`` (n,) int64, each in [0, t), as often as they are named."""
        frames = frames.to(self.levels[0].device)
        extra = self.extra
        if extra is not None:
            extra = extra.reshape(self.num_frames, -1, extra.shape[-1])[frames].flatten(0, 1)
        return VideoTokens(tuple(level[frames] for level in self.levels), extra)
