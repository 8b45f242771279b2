"""Pixel limits of the families that encode flat patches: as options, as arguments, and the size that they give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evs_cli.encoders.base import Clip
from evs_cli.encoders.frame_size import (
    Size,
    capped_frame_pixels,
    capped_video_pixels,
    qwen2_frame_size,
    qwen3_frame_size,
)
from evs_cli.errors import UsageError

FRAME_PIXELS = ("frame_min_pixels", "frame_max_pixels")
VIDEO_PIXELS = ("video_min_pixels", "video_max_pixels")


def processor_frame_size(
    video_processor: Any, clip: Clip, num_frames: int, arguments: Mapping[str, Any], *, holds_for_video: bool
) -> Size:
    """(height, width) in pixels that a video processor gives each frame.

    Args:
        video_processor: its fields.
        clip: the clip, for the size of its frames.
        num_frames: sampled frames, a single one taken twice.
        arguments: of its call, before its own fields.
        holds_for_video: whether the limits hold for all frames together, and not for each.

    Raises:
        RefusedByServerError: a clip that it refuses.
    """
    video, tubelet = video_processor, int(video_processor.temporal_patch_size)
    factor = int(video.patch_size) * int(video.merge_size)
    size, is_capped = arguments.get("size", video.size), arguments.get("cap_pixels_per_frame", False)
    least, most = int(size["shortest_edge"]), int(size["longest_edge"])
    if not holds_for_video:
        if is_capped:
            most = capped_frame_pixels(least, most, int(video.max_video_tokens), factor, tubelet, num_frames)
        return qwen2_frame_size(clip.height, clip.width, factor=factor, min_pixels=least, max_pixels=most)
    if is_capped:
        most = capped_video_pixels(least, most, int(video.max_video_tokens), factor, num_frames)
    return qwen3_frame_size(
        clip.height,
        clip.width,
        num_frames=num_frames,
        temporal_factor=tubelet,
        factor=factor,
        min_pixels=least,
        max_pixels=most,
    )


def cap_argument(video_processor: Any, cap_pixels_per_frame: bool | None) -> dict[str, Any]:
    """``cap_pixels_per_frame``, always passed: unset, the processor warns, and its default is announced to change."""
    value = video_processor.cap_pixels_per_frame if cap_pixels_per_frame is None else cap_pixels_per_frame
    return {"cap_pixels_per_frame": bool(value)}


def size_argument(video_processor: Any, minimum: int | None, maximum: int | None) -> dict[str, Any]:
    """``size`` of a video processor whose two edges are pixel counts, with the user's limits put in."""
    if minimum is None and maximum is None:
        return {}
    size = video_processor.size
    low, high = minimum or int(size["shortest_edge"]), maximum or int(size["longest_edge"])
    if low > high:
        raise UsageError(f"Invalid pixel limits: at least {low}, at most {high}. Expected the least below the most.")
    return {"size": {"shortest_edge": low, "longest_edge": high}}


def limit_notes(clip: Clip, frame_size: tuple[int, int], factor: int) -> list[str]:
    """A sentence where a pixel limit, and not rounding to whole tokens alone, settled the size."""
    natural = tuple(max(factor, round(side / factor) * factor) for side in (clip.height, clip.width))
    if natural == frame_size or min(clip.height, clip.width) < factor:
        return []
    return [
        f"a pixel limit bound: frames of {clip.width}x{clip.height} become {frame_size[1]}x{frame_size[0]}, "
        f"without it {natural[1]}x{natural[0]}"
    ]
