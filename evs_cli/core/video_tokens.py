"""What an encoder gives: the embeddings of a chunk of frames."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class VideoTokens:
    """The tokens of t frames (of tokens), one tensor a level."""

    levels: tuple[torch.Tensor, ...]
    """(t, h, w, D) a level, the main one first; DeepStack models have more than one."""
    extra: torch.Tensor | None = None
    """(E, D) rows of these frames that are no grid token (a CLS), in the order of their placeholders; None for none."""
