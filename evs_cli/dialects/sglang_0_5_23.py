"""SGLang 0.5.23: the model's own processor code samples and resizes, then transformers' processor resizes again.

Read from the release of that number: ``multimodal/processors`` of the families. q is config.json's, Nemotron's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evs_cli.dialects import sampling, text
from evs_cli.dialects import transformers_5_24 as hf
from evs_cli.dialects.base import (
    Int64Array,
    NemotronModel,
    PruningRate,
    QwenModel,
    RefusedByServerError,
    ServedModel,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.resize import Size, sglang_frame_size, sglang_target_patches

FPS = 2.0
MIN_FRAMES = 4
MAX_FRAMES = 768
FRAME_FACTOR = 2
"""Sampled frames come in multiples of it."""
RESIZE_FACTOR = 28
"""Of its own resize, whatever the family's tokens measure."""
FRAME_MIN_PIXELS = 128 * 28 * 28
FRAME_MAX_PIXELS = 768 * 28 * 28
VIDEO_MAX_PIXELS = int(128_000 * 28 * 28 * 0.9)
"""Of all frames together, before the division by their number; each frame's share is doubled."""
NEMOTRON_FPS = 2
NEMOTRON_MAX_FRAMES = 128
_OWN_KEYS = frozenset(("fps", "nframes", "min_frames", "max_frames", "min_pixels", "max_pixels", "total_pixels")) | {
    "resized_height",
    "resized_width",
}


def qwen2_5_vl(source: ServerSource, model: QwenModel, options: ServerOptions) -> ServerPlan:
    """Qwen2.5-VL: 2 frames a second in whole tubelets, small frames; the processor is told no times.

    Raises:
        RefusedByServerError: the server would fail on the clip or its options.
    """
    indices, rule = _qwen_indices(source, options.mm_process)
    return hf.qwen2_5_vl_plan(
        source,
        model,
        _processor_arguments(options),
        indices,
        rule,
        pruning(model, options),
        frame=loader_size(source, len(indices), options.mm_process),
        sampled_fps=24.0,
        notes=(
            *_idle_request(options),
            f"the model is told 24 fps, {24 / _true_fps(source, indices):.3g} times too fast",
        ),
    )


def qwen3_vl(source: ServerSource, model: QwenModel, options: ServerOptions) -> ServerPlan:
    """Qwen3-VL and Qwen3.5: as Qwen2.5-VL, then the processor's own size; a span and a time a frame of tokens.

    Raises:
        RefusedByServerError: the server would fail on the clip or its options.
    """
    indices, rule = _qwen_indices(source, options.mm_process)
    return hf.qwen3_vl_plan(
        source,
        model,
        _processor_arguments(options),
        indices,
        rule,
        pruning(model, options),
        frame=loader_size(source, len(indices), options.mm_process),
        notes=_idle_request(options),
    )


def nemotron(source: ServerSource, model: NemotronModel, options: ServerOptions) -> ServerPlan:
    """Nemotron Nano VL 12B v2 and Omni: 2 frames a second, at most 128; the rate of config.json prunes.

    Raises:
        RefusedByServerError: the file holds no frame.
    """
    rate = min(NEMOTRON_FPS, source.average_fps)
    num_frames = sampling.bounded_num_frames(source, rate, NEMOTRON_MAX_FRAMES)
    indices = sampling.truncated_linspace_indices(source, num_frames)
    if model.target_num_patches is None:
        side = model.image_size // model.patch_size
        patches: Size = (side, side)
    else:
        patches = sglang_target_patches(
            source.height,
            source.width,
            target_num_patches=model.target_num_patches,
            merge_size=model.merge_size,
            keeps_aspect=model.keeps_aspect,
        )
    seconds = text.whole_millisecond_seconds(indices, source.average_fps)
    separator = "\n" if model.temporal_patch_size > 1 else ""
    return hf.nemotron_plan(
        model,
        indices,
        patches,
        seconds,
        text.sampled_at_texts(seconds.tolist(), model.temporal_patch_size, separator),
        pruning(model, options),
        rule=f"{NEMOTRON_FPS} fps, at most {NEMOTRON_MAX_FRAMES} frames",
        notes=_idle_request(options),
    )


def pruning(model: ServedModel, options: ServerOptions) -> PruningRate:
    """The rate of config.json, or what is asked instead of it; Nemotron's alone."""
    if not isinstance(model, NemotronModel):
        return PruningRate(0.0, "SGLang prunes Nemotron alone", can_prune=False)
    return hf.pruning(model, options)


def loader_size(source: ServerSource, num_frames: int, given: Mapping[str, Any]) -> Size:
    """(height, width) of the server's own resize of a Qwen-VL frame."""
    if "resized_height" in given and "resized_width" in given:
        return sglang_frame_size(
            given["resized_height"],
            given["resized_width"],
            factor=RESIZE_FACTOR,
            min_pixels=4 * RESIZE_FACTOR**2,
            max_pixels=16384 * RESIZE_FACTOR**2,
        )
    least = given.get("min_pixels", FRAME_MIN_PIXELS)
    share = given.get("total_pixels", VIDEO_MAX_PIXELS) / num_frames * FRAME_FACTOR
    most = max(min(given.get("max_pixels", FRAME_MAX_PIXELS), share), int(least * 1.05))
    return sglang_frame_size(
        source.height,
        source.width,
        factor=RESIZE_FACTOR,
        min_pixels=least,
        max_pixels=min(given.get("max_pixels", most), most),
    )


def _qwen_indices(source: ServerSource, given: Mapping[str, Any]) -> tuple[Int64Array, str]:
    """(S,) frames and the rule in words."""
    num_frames, rule = _qwen_num_frames(source, given)
    if not FRAME_FACTOR <= num_frames <= source.num_frames:
        raise RefusedByServerError(
            f"{num_frames} frames of a file of {source.num_frames} are refused. Expected {FRAME_FACTOR} at least, and "
            "those of the file at most."
        )
    return np.unique(sampling.truncated_linspace_indices(source, num_frames)), rule


def _qwen_num_frames(source: ServerSource, given: Mapping[str, Any]) -> tuple[int, str]:
    if "nframes" in given:
        if "fps" in given:
            raise RefusedByServerError("fps and nframes of mm_process_config exclude each other. Give one.")
        return round(given["nframes"] / FRAME_FACTOR) * FRAME_FACTOR, f"{given['nframes']} frames"
    if source.average_fps <= 0:
        raise RefusedByServerError("the file's frame rate is unknown, and this sampling divides by it.")
    fps = given.get("fps", FPS)
    num_frames = sampling.even_num_frames(
        source,
        fps,
        min_frames=given.get("min_frames", MIN_FRAMES),
        max_frames=given.get("max_frames", min(MAX_FRAMES, source.num_frames)),
        factor=FRAME_FACTOR,
    )
    return num_frames, f"{fps:g} fps"


def _processor_arguments(options: ServerOptions) -> dict[str, Any]:
    """What of ``mm_process_config`` goes on to transformers' processor."""
    return {name: value for name, value in options.mm_process.items() if name not in _OWN_KEYS}


def _true_fps(source: ServerSource, indices: Int64Array) -> float:
    """Sampled frames a second."""
    return len(indices) / source.num_frames * source.average_fps


def _idle_request(options: ServerOptions) -> tuple[str, ...]:
    """SGLang reads ``fps`` and ``max_frames`` of a request for GLM alone."""
    return tuple(
        f"{name} {value} of a request does nothing for this model; the server's --mm-process-config "
        f'\'{{"video": {{"{name if name != "num_frames" else "nframes"}": {value}}}}}\' does'
        for name, value in options.request.items()
    )
