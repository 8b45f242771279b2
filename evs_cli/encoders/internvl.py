"""InternVL: a span a frame behind ``FrameN:``, placeholders of the image token, patches merged two by two."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from evs_cli.encoders.frame_vlm import FrameVideoEncoder

if TYPE_CHECKING:
    import torch


class InternVLEncoder(FrameVideoEncoder):
    """A video goes in as the images of its frames; the prompt counts them and tells no time."""

    modality: ClassVar[str] = "image"

    @property
    def merge_size(self) -> int:
        """The side of the pixel shuffle: 2."""
        return round(1 / float(self.config.downsample_ratio))

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """``(t, h * w, D)``."""
        rows: torch.Tensor = self._model.get_image_features(pixels[0]).pooler_output
        return rows
