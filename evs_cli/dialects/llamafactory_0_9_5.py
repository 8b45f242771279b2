"""LLaMA-Factory 0.9.5: its own sampling and resize of a Qwen-VL video, then transformers' processor.

Read from ``data/mm_plugin.py`` and ``hparams/model_args.py`` of that release. It does not call qwen-vl-utils. It counts
tokens by the stream's header, before a frame is decoded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evs_cli.dialects import text
from evs_cli.dialects import transformers_5_24 as hf
from evs_cli.dialects.base import (
    Int64Array,
    PruningRate,
    QwenModel,
    RefusedByServerError,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.resize import MAX_ASPECT, Size

DEFAULTS: Mapping[str, float] = {
    "video_fps": 2.0,
    "video_maxlen": 128,
    "video_max_pixels": 256 * 256,
    "video_min_pixels": 16 * 16,
}
"""Its arguments of a video; pixels are those of each frame."""
LEAST_SIDE = 28
"""Pixels of a frame's shorter side, whatever the family's tokens measure."""
_ASPECT_OF_EXTREMES = 180  # what becomes of a frame beyond ``MAX_ASPECT``


@dataclass(frozen=True)
class StreamSource(ServerSource):
    """A video with what its stream's header states."""

    stated_frames: int | None = None
    """Frames; None where the header states none."""
    stated_seconds: float | None = None
    """Length; None where the header states none."""
    is_turned: bool = False
    """Whether a player turns or mirrors the stored frames, which LLaMA-Factory does not."""


def plan_video(source: ServerSource, model: QwenModel, options: ServerOptions) -> ServerPlan:
    """Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: at most 128 small frames, an even number.

    Raises:
        RefusedByServerError: it would fail on the clip or its arguments.
    """
    given = {**DEFAULTS, **options.video_kwargs}
    if given["video_max_pixels"] < given["video_min_pixels"]:
        raise RefusedByServerError("video_max_pixels is below video_min_pixels, and LLaMA-Factory fails.")
    sampled, duration = sampled_indices(source, given["video_fps"], int(given["video_maxlen"]))
    # An odd last frame is given twice, before any limit of all frames is compared.
    indices = np.append(sampled, sampled[-1:]) if len(sampled) % 2 else sampled
    frame = frame_size(source.height, source.width, int(given["video_max_pixels"]), int(given["video_min_pixels"]))
    rule = f"{given['video_fps']:g} fps, at most {given['video_maxlen']:g} frames"
    rate = PruningRate(0.0, "LLaMA-Factory does not prune", can_prune=False)
    shared: dict[str, Any] = {
        "frame": frame,
        "loader_interpolation": "bicubic",
        "notes": tuple(_notes(source, options)),
    }
    if not model.tells_times:
        fps = given["video_fps"] if duration is None else len(sampled) / duration
        return hf.qwen2_5_vl_plan(source, model, {}, indices, rule, rate, sampled_fps=fps, **shared)
    plan = hf.qwen3_vl_plan(source, model, {}, indices, rule, rate, **shared)
    # Indices go to the processor's rule as numbers at video_fps: the detour settles the last bit.
    told = indices / source.average_fps * given["video_fps"] / given["video_fps"]
    patch = model.temporal_patch_size
    seconds = (told[::patch] + told[patch - 1 :: patch]) / 2
    texts = tuple(time + model.start for time in text.seconds_texts(seconds))
    return replace(plan, outer=("", ""), prompt_seconds=seconds, frame_texts=texts)


def sampled_indices(source: ServerSource, fps: float, most: int) -> tuple[Int64Array, float | None]:
    """(S,) frames and the length they were sampled from; None where the header states none.

    Without a number of frames in the header, the first ``most`` frames are taken, whatever the rate.

    Raises:
        RefusedByServerError: a header that lacks what is divided by, or states more than the file holds.
    """
    frames, duration = source.num_frames, source.duration_seconds
    stated_frames: int | None = frames
    stated_seconds: float | None = duration
    if isinstance(source, StreamSource):
        stated_frames, stated_seconds = source.stated_frames, source.stated_seconds
    if source.average_fps <= 0:
        raise RefusedByServerError("the file's frame rate is unknown, and LLaMA-Factory divides by it.")
    if stated_frames is None:
        if stated_seconds is not None and frames < most:
            raise RefusedByServerError(
                f"the header states no number of frames: LLaMA-Factory counts {most} and finds {frames}.",
                hint=f"Write the file anew as MP4, or give --video-kwargs '{{\"video_maxlen\": {frames}}}'.",
            )
        return np.arange(min(most, frames)), stated_seconds
    if stated_seconds is None:
        raise RefusedByServerError(
            "the header states no length, and LLaMA-Factory divides by it.", hint="Write the file anew as MP4."
        )
    wanted = min(stated_frames, most, max(1, math.floor(stated_seconds * fps)))
    indices = np.linspace(0, stated_frames - 1, wanted).astype(np.int64)
    if indices[-1] >= frames:
        raise RefusedByServerError(
            f"the header states {stated_frames} frames and the file holds {frames}: LLaMA-Factory counts tokens of "
            "frames that it does not find."
        )
    return indices, stated_seconds


def frame_size(height: int, width: int, most: int, least: int) -> Size:
    """(height, width) in pixels of a frame before the processor sees it: shrunk or grown to a limit, sides cut down.

    Raises:
        RefusedByServerError: a limit leaves a side of 0.
    """
    if width * height > most:
        scale = math.sqrt(most / (width * height))
        width, height = int(width * scale), int(height * scale)
    if 0 in (width, height):
        raise RefusedByServerError("its limit of pixels leaves a frame a side of 0, and LLaMA-Factory fails.")
    if width * height < least:
        scale = math.sqrt(least / (width * height))
        width, height = int(width * scale), int(height * scale)
    width, height = max(width, LEAST_SIDE), max(height, LEAST_SIDE)
    if width / height > MAX_ASPECT:
        width = height * _ASPECT_OF_EXTREMES
    if height / width > MAX_ASPECT:
        height = width * _ASPECT_OF_EXTREMES
    return height, width


def _notes(source: ServerSource, options: ServerOptions) -> list[str]:
    """Sentences on arguments it does not have, and on files it sees otherwise than a player."""
    notes = [f"{name} does nothing in LLaMA-Factory" for name in options.video_kwargs if name not in DEFAULTS]
    if isinstance(source, StreamSource):
        if source.stated_frames is None:
            notes.append("the header states no number of frames: LLaMA-Factory takes the first ones, at no rate")
        if source.is_turned:
            notes.append("LLaMA-Factory does not turn the frames upright: as many tokens, of frames that lie otherwise")
    return notes
