"""LLaVA-OneVision: one span, tokens pooled to half of each side, and one newline row behind the last frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from evs_cli.encoders.frame_vlm import FrameVideoEncoder

if TYPE_CHECKING:
    import torch


class LlavaOnevisionEncoder(FrameVideoEncoder):
    """Frames are stretched to the tower's square; the prompt tells no time."""

    rows_behind_video: ClassVar[int] = 1

    @property
    def merge_size(self) -> int:
        """1: the tokens are interpolated between the patches, and an odd side is rounded up."""
        return 1

    def token_sides(self, rows: int, columns: int) -> tuple[int, int]:
        """Half of each side, rounded up."""
        return -(-rows // 2), -(-columns // 2)

    def covered_patches(self, rows: int, columns: int) -> tuple[int, int]:
        """All of them: tokens are interpolated over the whole grid."""
        return rows, columns

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """``(t * h * w, D)``; since transformers 5.18 a call puts a newline behind its frames, which is left off."""
        rows: torch.Tensor = self._model.get_video_features(pixels).pooler_output
        height, width = self.token_sides(*self.patch_sides(*pixels.shape[-2:]))
        return rows[0, : pixels.shape[1] * height * width]

    def closing_rows(self) -> torch.Tensor:
        """``(1, D)``: the newline."""
        newline: torch.Tensor = self._model.image_newline.detach()
        return newline[None]
