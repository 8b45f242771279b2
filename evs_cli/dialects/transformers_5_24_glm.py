"""transformers 5.24 with GLM-4.1V, 4.5V and 4.6V: an image a frame of tokens, its time behind it.

The servers that take these checkpoints run this processor too, behind loaders of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects import sampling, text
from evs_cli.dialects import transformers_5_24 as hf
from evs_cli.dialects.base import (
    FloatArray,
    GlmModel,
    Int64Array,
    PruningRate,
    RefusedByServerError,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.resize import Size, qwen3_frame_size
from evs_cli.dialects.transformers_5_24_arguments import Arguments

TOLD_EVERY = 2
"""Sampled frames to one time that is told, whatever the tubelet."""
_IDLE = ("num_frames", "min_frames", "max_frames", "min_pixels", "max_pixels")


def glm(source: ServerSource, model: GlmModel, options: ServerOptions) -> ServerPlan:
    """GLM-4.1V and 4.5V: 2 frames a second; GLM-4.6V: by the clip's length.

    Raises:
        RefusedByServerError: the processor would fail on the clip or its arguments.
    """
    arguments = hf.processor_arguments(options)
    if hf.is_sampled(arguments, model.do_sample_frames):
        indices, rule = glm_indices(source, model, arguments)
    else:
        indices, rule = np.arange(source.num_frames), "every frame"
    plan = glm_plan(source, model, arguments, indices, rule, hf.pruning(model, options))
    return plan.with_notes(unused_argument_notes(model, arguments, "the processor"))


def glm_indices(source: ServerSource, model: GlmModel, arguments: Arguments) -> tuple[Int64Array, str]:
    """(S,) frames that the video processor samples, an even number of them, and the rule in words.

    Raises:
        RefusedByServerError: the rate is unknown, or the clip is too short for a frame.
    """
    if source.average_fps <= 0:
        raise RefusedByServerError("the file's frame rate is unknown, and this sampling needs one.")
    if model.samples_by_length:
        indices = sampling.glm46v_indices(source, model.temporal_patch_size)
        rule = by_length_rule(source, model.temporal_patch_size)
    else:
        fps = arguments.get("fps") or model.fps
        indices = sampling.glm4v_indices(source, fps, max_seconds=model.max_seconds, at_least=1)
        rule = fps_rule(source, fps, model.max_seconds)
    return sampling.pad_to_even(require_frames(source, indices)), rule


def glm_plan(
    source: ServerSource,
    model: GlmModel,
    arguments: Arguments,
    indices: Int64Array,
    rule: str,
    rate: PruningRate,
    *,
    frame: Size | None = None,
    tells_whole_seconds: bool = False,
    **more: Any,
) -> ServerPlan:
    """The plan of frames that are settled: the processor's size, a span and a time a frame of tokens.

    Args:
        source: the file.
        model: the checkpoint.
        arguments: of the processor.
        indices: (S,) sampled frames.
        rule: what settled them.
        rate: what the tokens are pruned at.
        frame: (height, width) that a loader has resized to before.
        tells_whole_seconds: whether times are cut to whole seconds even where tenths are written.
        **more: further fields of the plan.

    Raises:
        RefusedByServerError: fewer frames than one tubelet, an extreme aspect, or half a ``size``.
    """
    height, width = frame or (source.height, source.width)
    least, most = hf.pixel_limits_of_size(model, arguments)
    size = qwen3_frame_size(
        height,
        width,
        num_frames=len(indices),
        temporal_factor=model.temporal_patch_size,
        factor=model.factor,
        min_pixels=least,
        max_pixels=most,
    )
    seconds: FloatArray = indices[::TOLD_EVERY] / (source.average_fps or 24.0)
    seconds = np.trunc(seconds) if tells_whole_seconds else seconds
    told = text.tenths_texts(seconds) if model.samples_by_length else text.whole_seconds_texts(seconds)
    num_tubelets = -(-len(indices) // model.temporal_patch_size)
    return ServerPlan(
        frame_indices=indices,
        resizes=(size,) if frame is None or frame == size else (frame, size),
        token_grid_thw=TokenGrid(num_tubelets, size[0] // model.factor, size[1] // model.factor),
        frame_texts=(model.frame_start,) * num_tubelets,
        frame_end=model.frame_end,
        told_behind=tuple(told),
        outer=(model.start, model.end),
        placeholder=model.placeholder,
        prompt_seconds=np.array([float(time.split()[0]) for time in told]),
        pruning=rate,
        rule=rule,
        **more,
    )


def require_frames(source: ServerSource, indices: Int64Array) -> Int64Array:
    """The same indices.

    Raises:
        RefusedByServerError: there are none.
    """
    if len(indices) == 0:
        raise RefusedByServerError(
            f"a clip of {source.duration_seconds:.2f} s is too short: its sampling takes no frame of it."
        )
    return indices


def fps_rule(source: ServerSource, fps: float, max_seconds: float) -> str:
    """GLM-4.1V's and 4.5V's sampling in words."""
    if source.duration_seconds <= max_seconds:
        return f"{fps:g} fps"
    return f"{int(max_seconds * fps)} frames, as of {max_seconds:g} s at {fps:g} fps"


def by_length_rule(source: ServerSource, temporal_patch_size: int) -> str:
    """GLM-4.6V's sampling in words."""
    fps = sampling.glm46v_fps(source, temporal_patch_size)
    return f"{fps:g} fps by the clip's length, at most {sampling.GLM_MAX_FRAMES} frames"


def unused_argument_notes(model: GlmModel, given: Iterable[str], owner: str) -> list[str]:
    """A sentence for each argument of the sampling or the size that does nothing.

    Args:
        model: the checkpoint.
        given: names of the arguments.
        owner: whose arguments they are, in words.
    """
    idle = (*_IDLE, "fps") if model.samples_by_length else _IDLE
    instead = "the clip's length settles the number" if model.samples_by_length else "fps sets the rate"
    return [
        f"{name} of {owner} does nothing for this model; "
        + ("size bounds the pixels of all frames together" if name.endswith("pixels") else instead)
        for name in idle
        if name in given and (not isinstance(given, Mapping) or given[name] is not None)
    ]
