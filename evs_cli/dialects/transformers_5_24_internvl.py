"""transformers 5.24 with InternVL in its own format: every frame at one size, numbered, no times told."""

from __future__ import annotations

from typing import Any

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects import sampling, text
from evs_cli.dialects import transformers_5_24 as hf
from evs_cli.dialects.base import (
    FloatArray,
    Int64Array,
    InternVLModel,
    PruningRate,
    RefusedByServerError,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.resize import Size
from evs_cli.dialects.transformers_5_24_arguments import Arguments, idle_bounds_notes


def internvl(source: ServerSource, model: InternVLModel, options: ServerOptions) -> ServerPlan:
    """InternVL: every frame, unless a rate or a number is given; one size for all.

    Raises:
        RefusedByServerError: the processor or the model would fail on the clip or its arguments.
    """
    arguments = hf.processor_arguments(options)
    if hf.is_sampled(arguments, model.do_sample_frames):
        indices, rule = internvl_indices(source, model, arguments)
    else:
        indices, rule = np.arange(source.num_frames), "every frame"
    size = frame_size(model.frame_size, arguments)
    notes = tuple(idle_bounds_notes(arguments, "fps or num_frames"))
    return internvl_plan(source, model, indices, size, hf.pruning(model, options), rule=rule, notes=notes)


def internvl_indices(source: ServerSource, model: InternVLModel, arguments: Arguments) -> tuple[Int64Array, str]:
    """(S,) frames that the video processor samples, and the rule in words; a number goes before a rate.

    Raises:
        RefusedByServerError: neither, no frame, more than there are, or a shift or an index past the last.
    """
    num_frames, fps = arguments.get("num_frames") or model.num_frames, arguments.get("fps") or model.fps
    rule = f"{num_frames} frames"
    if num_frames is None:
        if fps is None:
            raise RefusedByServerError("do_sample_frames needs fps or num_frames: this checkpoint has none of its own.")
        if source.average_fps <= 0:
            raise RefusedByServerError("the file's frame rate is unknown, and sampling by fps needs one.")
        num_frames, rule = int(source.num_frames / source.average_fps * fps), f"{fps:g} fps"
    if not 0 < num_frames <= source.num_frames:
        raise RefusedByServerError(
            f"{num_frames} frames of a file of {source.num_frames} are refused. Expected one at least, and those of "
            "the file at most."
        )
    shift = arguments.get("initial_shift", model.initial_shift)
    start = source.num_frames / num_frames / 2 if shift is True else float(shift)
    if start > source.num_frames:
        raise RefusedByServerError(f"initial_shift {start:g} of a file of {source.num_frames} frames is refused.")
    indices = sampling.float32_arange_indices(source, num_frames, start=start)
    if len(indices) == 0 or indices[-1] >= source.num_frames:
        raise RefusedByServerError(
            f"the processor's own rounding asks for no frame, or for one past the last of {source.num_frames}, and it "
            "fails; another fps or num_frames does not."
        )
    return indices, rule


def internvl_plan(
    source: ServerSource, model: InternVLModel, indices: Int64Array, size: Size, rate: PruningRate, **more: Any
) -> ServerPlan:
    """The plan of frames that are settled.

    Args:
        source: the file.
        model: the checkpoint.
        indices: (S,) sampled frames.
        size: (height, width) in pixels of every frame.
        rate: what the tokens are pruned at.
        **more: further fields of the plan.

    Raises:
        RefusedByServerError: a size whose tokens are not as many as the prompt holds.
    """
    height, width = (side // patch // model.merge_size for side, patch in zip(size, model.patch_size, strict=True))
    if height * width != model.tokens_per_tile:
        raise RefusedByServerError(
            f"frames of {size[1]}x{size[0]} give {height * width} tokens each, the prompt holds "
            f"{model.tokens_per_tile}: the model fails on it.",
            hint="Leave size out.",
        )
    # What a frame's time is told as: nothing. Where it stands is the loader's arithmetic all the same.
    seconds: FloatArray = indices / source.average_fps if source.average_fps > 0 else np.zeros(len(indices))
    return ServerPlan(
        frame_indices=indices,
        resizes=(size,),
        token_grid_thw=TokenGrid(len(indices), height, width),
        frame_texts=tuple(text.numbered_texts(len(indices), model.start)),
        frame_end=model.end,
        outer=("", ""),
        placeholder=model.placeholder,
        prompt_seconds=seconds,
        pruning=rate,
        **more,
    )


def frame_size(own: Size, arguments: Arguments) -> Size:
    """(height, width) in pixels of every frame: ``size`` of the arguments, else the checkpoint's own.

    Raises:
        RefusedByServerError: a size by its edges, which depends on the frame.
    """
    size = arguments.get("size")
    if size is None:
        return own
    if set(size) != {"height", "width"}:
        raise RefusedByServerError(
            f"size {dict(size)} is refused: this model takes frames of one size. Expected height and width.",
            hint=f'Such as {{"height": {own[0]}, "width": {own[1]}}}, its own.',
        )
    return int(size["height"]), int(size["width"])
