"""The pixel limits that a user asks for, as a server's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evs_cli.dialects.base import GlmModel, QwenModel, ServedModel
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError


def processor_pixels(options: EncodeOptions) -> dict[str, Any]:
    """Arguments of transformers' processors: the limits of a frame or of a video, whichever the family has, by edge."""
    edges = {
        "shortest_edge": options.frame_min_pixels or options.video_min_pixels,
        "longest_edge": options.frame_max_pixels or options.video_max_pixels,
    }
    return _given({"cap_pixels_per_frame": options.cap_pixels_per_frame, "size": _given(edges) or None})


def loader_pixels(options: EncodeOptions) -> dict[str, Any]:
    """Arguments of SGLang, whose own resize has the limits of a frame."""
    edges = {"shortest_edge": options.video_min_pixels, "longest_edge": options.video_max_pixels}
    return _given(
        {
            "cap_pixels_per_frame": options.cap_pixels_per_frame,
            "min_pixels": options.frame_min_pixels,
            "max_pixels": options.frame_max_pixels,
            "size": _given(edges) or None,
        }
    )


def message_pixels(options: EncodeOptions) -> dict[str, Any]:
    """Keys of a video in a message for qwen-vl-utils, whose ``total_pixels`` counts a pair of frames as one.

    Raises:
        UsageError: a least of all frames together, which is a frame's there.
    """
    least, most = options.video_min_pixels, options.video_max_pixels
    if least is not None and least > 1:  # 1 is none at all
        raise UsageError("--video-min-pixels has no effect on qwen-vl-utils. Expected --frame-min-pixels.")
    return _given(
        {
            "min_pixels": options.frame_min_pixels or least,
            "max_pixels": options.frame_max_pixels,
            "total_pixels": None if most is None else max(1, most // 2),
        }
    )


def with_pixels(given: Mapping[str, Any], pixels: Mapping[str, Any], model: ServedModel) -> dict[str, Any]:
    """A server's arguments with the pixel limits asked for put in."""
    merged = {**given, **pixels}
    if pixels.get("size") and isinstance(model, (QwenModel, GlmModel)):  # their processors take both edges or none
        own = {"shortest_edge": model.min_pixels, "longest_edge": model.max_pixels}
        merged["size"] = {**own, **given.get("size", {}), **pixels["size"]}
    return merged


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
