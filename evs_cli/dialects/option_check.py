"""Whether what a user asks of a family means anything under a dialect, before any work."""

from __future__ import annotations

from dataclasses import replace

from evs_cli.dialects import Dialect
from evs_cli.encoders.base import PIXEL_OPTIONS, EncodeOptions, VideoEncoder
from evs_cli.errors import UsageError


def check_options(encoder: VideoEncoder, dialect: Dialect, options: EncodeOptions) -> None:
    """Raise ``UsageError`` for an option that the family, or the dialect, has no use for."""
    if dialect.is_evs:
        pass
    elif dialect.rules.bounds_any_pixels:
        if options.cap_pixels_per_frame is not None:
            raise UsageError(
                f"--cap-pixels-per-frame has no effect on {dialect.name}: its own limits settle the size. Expected "
                "--frame-max-pixels."
            )
        if "frame_max_pixels" in encoder.supported_options or "video_max_pixels" in encoder.supported_options:
            options = replace(options, **dict.fromkeys(PIXEL_OPTIONS))
    elif options.video_max_pixels is not None and "frame_max_pixels" in encoder.supported_options:
        raise UsageError(
            f"--video-max-pixels has no effect on {encoder.source.name} under {dialect.name}: the processor bounds "
            "each frame. Expected --frame-max-pixels, or --dialect evs or qwen-vl-utils."
        )
    encoder.check_options(options)
