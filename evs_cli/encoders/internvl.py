"""InternVL: a span a frame behind ``FrameN:``, placeholders of the image token, patches merged two by two."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from evs_cli.core.placeholders import IntArray
from evs_cli.encoders.base import Clip
from evs_cli.encoders.frame_vlm import FrameVideoEncoder
from evs_cli.encoders.segments import Segment, joined

if TYPE_CHECKING:
    import torch


class InternVLEncoder(FrameVideoEncoder):
    """A video goes in as the images of its frames; the prompt counts them and tells no time."""

    modality: ClassVar[str] = "image"

    @property
    def merge_size(self) -> int:
        """The side of the pixel shuffle: 2."""
        return round(1 / float(self.config.downsample_ratio))

    def _written(self, clip: Clip, text: str) -> tuple[IntArray, tuple[int, int]]:
        """See ``FrameVideoEncoder``: the frames numbered, each at the checkpoint's one size."""
        files = self.plan_processor
        before, behind = text.split(self.video_markup, 1)
        segments: list[Segment] = [before]
        for number in range(1, clip.num_frames + 1):
            told = f"Frame{number}: {files.start_image_token}"
            segments += [told if number == 1 else f"\n{told}", files.image_seq_length, files.end_image_token]
        ids = self.sequence_ids(text, joined([*segments, behind]), self.placeholder_token)
        size = files.video_processor.size
        return ids, (int(size["height"]), int(size["width"]))

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        """``(t, h * w, D)``."""
        rows: torch.Tensor = self._model.get_image_features(pixels[0]).pooler_output
        return rows
