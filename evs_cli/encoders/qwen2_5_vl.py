"""Qwen2.5-VL: one span of video tokens, mrope whose time axis counts seconds."""

from __future__ import annotations

from typing import Any, ClassVar

from evs_cli.encoders.base import EncodeOptions, FloatArray
from evs_cli.encoders.qwen_vl import QwenVideoEncoder, cap_argument, grid_times, size_argument


class Qwen25VLEncoder(QwenVideoEncoder):
    """Pixel limits hold for each frame; the time of a frame is told by its position alone."""

    supported_options: ClassVar[frozenset[str]] = frozenset(
        {"prompt", "frame_min_pixels", "frame_max_pixels", "cap_pixels_per_frame"}
    )

    def _video_arguments(self, options: EncodeOptions) -> dict[str, Any]:
        video = self.processor.video_processor
        return {
            **size_argument(video, options.frame_min_pixels, options.frame_max_pixels),
            **cap_argument(video, options.cap_pixels_per_frame),
        }

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        num_grids = len(pts_seconds) // self.temporal_patch_size
        return grid_times(num_grids, 1.0 if seconds_per_grid is None else seconds_per_grid)
