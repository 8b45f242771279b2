"""Qwen2-VL: one span of video tokens, mrope whose time axis counts frames; no time is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.grid_vlm import GridVideoEncoder
from evs_cli.encoders.pixel_limits import FRAME_PIXELS


class Qwen2VLEncoder(GridVideoEncoder):
    """Pixel limits hold for each frame; one of all frames together is shared out among them."""

    pixel_limits: ClassVar[tuple[str, str]] = FRAME_PIXELS
    supported_options: ClassVar[frozenset[str]] = frozenset(
        {"prompt", *FRAME_PIXELS, "video_max_pixels", "cap_pixels_per_frame"}
    )

    def _video_arguments(self, options: EncodeOptions, num_frames: int) -> dict[str, Any]:
        """See ``GridVideoEncoder._video_arguments``."""
        if options.video_max_pixels is not None:
            own = int(self.plan_processor.video_processor.size["longest_edge"])
            share = options.video_max_pixels // num_frames
            options = replace(options, frame_max_pixels=max(1, min(options.frame_max_pixels or own, share)))
        return super()._video_arguments(options, num_frames)
