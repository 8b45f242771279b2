"""LLaVA-NeXT-Video: one span, patches pooled in squares of ``spatial_pool_stride``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evs_cli.encoders.frame_vlm import FrameVideoEncoder
from evs_cli.encoders.loading import of_one_video

if TYPE_CHECKING:
    import torch


class LlavaNextVideoEncoder(FrameVideoEncoder):
    """The processor cuts out the middle of each frame; the prompt tells no time."""

    @property
    def merge_size(self) -> int:
        """The stride of the pooling: 2."""
        return int(self.config.spatial_pool_stride)

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """``(1, t * h * w, D)``, or ``(t, h * w, D)`` before transformers 5.20.2."""
        return of_one_video(self._model.get_video_features(pixels).pooler_output)
