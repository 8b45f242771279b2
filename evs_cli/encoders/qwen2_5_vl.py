"""Qwen2.5-VL: one span of video tokens, mrope whose time axis counts seconds."""

from __future__ import annotations

import numpy as np

from evs_cli.encoders.base import Clip, FloatArray, seconds
from evs_cli.encoders.frame_times import true_times
from evs_cli.encoders.qwen2_vl import Qwen2VLEncoder


class Qwen25VLEncoder(Qwen2VLEncoder):
    """As Qwen2-VL, but the time of a frame is told, by its position alone."""

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """Even steps of the clip's mean interval."""
        num_grids = len(pts_seconds) // self.temporal_patch_size
        return seconds(np.arange(num_grids) * (1.0 if seconds_per_grid is None else seconds_per_grid))

    def _seconds_per_grid(self, clip: Clip, num_frames: int) -> float:
        """See ``GridVideoEncoder``: a tubelet over the rate of the sampled frames, as the true times tell it."""
        times = true_times(clip, clip.pts_seconds)
        sampled_fps: float = num_frames / times["total_num_frames"] * times["fps"]
        return self.temporal_patch_size / sampled_fps
