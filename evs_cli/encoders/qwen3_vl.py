"""Qwen3-VL: a span a frame behind its timestamp, mrope a frame at a time, DeepStack levels beside the main one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evs_cli.encoders.base import EncodeOptions, FloatArray, seconds
from evs_cli.encoders.qwen_vl import QwenVideoEncoder, cap_argument, size_argument


class Qwen3VLEncoder(QwenVideoEncoder):
    """Pixel limits hold for all frames together; each frame's time is written out before it."""

    supported_options: ClassVar[frozenset[str]] = frozenset(
        {"prompt", "video_min_pixels", "video_max_pixels", "cap_pixels_per_frame"}
    )

    def _video_arguments(self, options: EncodeOptions) -> dict[str, Any]:
        video = self.processor.video_processor
        return {
            **size_argument(video, options.video_min_pixels, options.video_max_pixels),
            **cap_argument(video, options.cap_pixels_per_frame),
        }

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """The mean of a tubelet's first and last frame in whole milliseconds, to the tenth the prompt prints."""
        milliseconds = np.round(1000 * pts_seconds).reshape(-1, self.temporal_patch_size)
        means = (milliseconds[:, 0] / 1000 + milliseconds[:, -1] / 1000) / 2
        return seconds([float(f"{value:.1f}") for value in means])
