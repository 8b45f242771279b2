"""Video-LLaVA: one span, in which a class token stands in front of each frame's patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from evs_cli.encoders.frame_vlm import FrameVideoEncoder

if TYPE_CHECKING:
    import torch


class VideoLlavaEncoder(FrameVideoEncoder):
    """The processor cuts out the middle of each frame; its class token is an extra row, the prompt tells no time."""

    rows_before_frame: ClassVar[int] = 1

    @property
    def merge_size(self) -> int:
        """1: a patch is a token."""
        return 1

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """``(t, 1 + h * w, D)``."""
        rows: torch.Tensor = self._model.get_video_features(pixels).pooler_output
        return rows
