"""Qwen3-VL: a span a frame behind its timestamp, mrope a frame at a time, DeepStack levels beside the main one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.encoders.base import FloatArray, seconds
from evs_cli.encoders.grid_vlm import GridVideoEncoder
from evs_cli.encoders.pixel_limits import VIDEO_PIXELS
from evs_cli.encoders.segments import Segment


class Qwen3VLEncoder(GridVideoEncoder):
    """Pixel limits hold for all frames together; each frame's time is written out before it."""

    pixel_limits: ClassVar[tuple[str, str]] = VIDEO_PIXELS
    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt", *VIDEO_PIXELS, "cap_pixels_per_frame"})

    def _prompt_seconds(self, pts_seconds: FloatArray, seconds_per_grid: float | None) -> FloatArray:
        """The mean of a tubelet's first and last frame in whole milliseconds, to the tenth the prompt prints."""
        milliseconds = np.round(1000 * pts_seconds).reshape(-1, self.temporal_patch_size)
        means = (milliseconds[:, 0] / 1000 + milliseconds[:, -1] / 1000) / 2
        return seconds([float(f"{value:.1f}") for value in means])

    def _video_segments(self, pts_seconds: FloatArray, token_grid_thw: TokenGrid) -> list[Segment]:
        """See ``GridVideoEncoder``: a time and a span a frame."""
        tokens = self.plan_processor.tokenizer.named
        start = tokens.get("vision_start_token", "<|vision_start|>")
        end = tokens.get("vision_end_token", "<|vision_end|>")
        per_frame = token_grid_thw.tokens_per_frame
        times = self._prompt_seconds(pts_seconds, None).tolist()
        return [part for time in times for part in (f"<{time:.1f} seconds>{start}", per_frame, end)]
