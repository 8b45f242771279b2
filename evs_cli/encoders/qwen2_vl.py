"""Qwen2-VL: one span of video tokens, mrope whose time axis counts frames; no time is told."""

from __future__ import annotations

from typing import ClassVar

from evs_cli.encoders.grid_vlm import GridVideoEncoder
from evs_cli.encoders.pixel_limits import FRAME_PIXELS


class Qwen2VLEncoder(GridVideoEncoder):
    """Pixel limits hold for each frame."""

    pixel_limits: ClassVar[tuple[str, str]] = FRAME_PIXELS
    supported_options: ClassVar[frozenset[str]] = frozenset({"prompt", *FRAME_PIXELS, "cap_pixels_per_frame"})
