"""transformers 5.24: the checkpoint's own processor, told the file's frame count and average rate.

The servers run this processor too, behind loaders of their own: its limits and its sampling are theirs as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects import sampling, text
from evs_cli.dialects.base import (
    GlmModel,
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
from evs_cli.dialects.resize import Size, qwen2_frame_size, qwen3_frame_size
from evs_cli.dialects.transformers_5_24_arguments import (
    FLAT_PIXELS,
    QWEN_KEYS,
    Arguments,
    idle_bounds_notes,
    refuse_unknown_scoped,
    require_no_rate,
)
from evs_cli.encoders.frame_size import capped_frame_pixels, capped_video_pixels
from evs_cli.encoders.nemotron_h_omni import target_patches


def qwen2_5_vl(source: ServerSource, model: QwenModel, options: ServerOptions) -> ServerPlan:
    """Qwen2.5-VL: every frame, unless a rate or a number is given; one span, no times told.

    Raises:
        RefusedByServerError: the processor would fail on the clip or its arguments.
    """
    arguments = processor_arguments(options)
    refuse_unknown_scoped(options, QWEN_KEYS | FLAT_PIXELS)
    bounds_bind = False
    if is_sampled(arguments, model.do_sample_frames):
        indices, rule = qwen2_indices(source, model, arguments)
        bounds_bind = arguments.get("num_frames") is None
    else:
        indices, rule = np.arange(source.num_frames), "every frame"
    plan = qwen2_5_vl_plan(source, model, arguments, indices, rule, pruning(model, options))
    return plan if bounds_bind else plan.with_notes(idle_bounds_notes(arguments, "fps with its bounds, or num_frames"))


def qwen2_5_vl_plan(
    source: ServerSource,
    model: QwenModel,
    arguments: Arguments,
    indices: Int64Array,
    rule: str,
    rate: PruningRate,
    *,
    frame: Size | None = None,
    keeps_size: bool = False,
    sampled_fps: float | None = None,
    **more: Any,
) -> ServerPlan:
    """The plan of frames that are settled: the processor's size, one span, positions by the rate it believes.

    Args:
        source: the file.
        model: the checkpoint.
        arguments: of the processor.
        indices: (S,) sampled frames.
        rule: what settled them.
        rate: what the tokens are pruned at.
        frame: (height, width) that a loader has resized to before.
        keeps_size: whether the processor is told to leave the size as it is (``do_resize=False``).
        sampled_fps: rate of the sampled frames as the processor believes it; None is their share of the file's.
        **more: further fields of the plan.
    """
    height, width = frame or (source.height, source.width)
    least, most = size_limits(model, arguments)
    if arguments.get("cap_pixels_per_frame", model.cap_pixels_per_frame):
        tubelet, tokens = model.temporal_patch_size, model.max_video_tokens
        most = capped_frame_pixels(least, most, tokens, model.factor, tubelet, len(indices))
    size = (height, width)
    if not keeps_size:
        size = qwen2_frame_size(height, width, factor=model.factor, min_pixels=least, max_pixels=most)
    grid = _qwen_grid(model, len(indices), size)
    believed = sampled_fps or len(indices) / source.num_frames * source.average_fps or 24.0
    per_grid = model.temporal_patch_size / believed
    return ServerPlan(
        frame_indices=indices,
        resizes=_resizes(frame, size),
        token_grid_thw=grid,
        frame_texts=("",) * grid[0],
        frame_end="",
        outer=(model.start, model.end),
        placeholder=model.placeholder,
        prompt_seconds=np.arange(grid[0], dtype=np.float64) * per_grid,
        seconds_per_grid=per_grid,
        pruning=rate,
        rule=rule,
        **more,
    )


def qwen3_vl(source: ServerSource, model: QwenModel, options: ServerOptions) -> ServerPlan:
    """Qwen3-VL and Qwen3.5: 2 frames a second unless told otherwise, a span and a time a frame of tokens.

    Raises:
        RefusedByServerError: the processor would fail on the clip or its arguments.
    """
    given = processor_arguments(options)
    refuse_unknown_scoped(options, QWEN_KEYS)
    arguments = {name: value for name, value in given.items() if name not in FLAT_PIXELS}
    if is_sampled(arguments, model.do_sample_frames):
        require_no_rate(model, arguments)
        indices, rule = qwen3_indices(source, model, arguments)
    else:
        indices, rule = np.arange(source.num_frames), "every frame"
    plan = qwen3_vl_plan(source, model, arguments, indices, rule, pruning(model, options))
    dropped = [
        f"{name} is dropped by this processor, with a warning; size bounds the pixels of all frames together: "
        f'{{"size": {{"shortest_edge": {model.min_pixels}, "longest_edge": {model.max_pixels}}}}}'
        for name in sorted(FLAT_PIXELS & given.keys())
    ]
    return plan.with_notes([*dropped, *idle_bounds_notes(arguments, "num_frames with fps null, or fps")])


def qwen3_vl_plan(
    source: ServerSource,
    model: QwenModel,
    arguments: Arguments,
    indices: Int64Array,
    rule: str,
    rate: PruningRate,
    *,
    frame: Size | None = None,
    keeps_size: bool = False,
    **more: Any,
) -> ServerPlan:
    """The plan of frames that are settled: the processor's size and times; arguments as ``qwen2_5_vl_plan``."""
    height, width = frame or (source.height, source.width)
    least, most = size_limits(model, arguments)
    if arguments.get("cap_pixels_per_frame", model.cap_pixels_per_frame):
        most = capped_video_pixels(least, most, model.max_video_tokens, model.factor, len(indices))
    size = (height, width)
    if not keeps_size:
        size = qwen3_frame_size(
            height,
            width,
            num_frames=len(indices),
            temporal_factor=model.temporal_patch_size,
            factor=model.factor,
            min_pixels=least,
            max_pixels=most,
        )
    seconds = text.tubelet_mean_seconds(indices, source.average_fps or 24.0, model.temporal_patch_size)
    return ServerPlan(
        frame_indices=indices,
        resizes=_resizes(frame, size),
        token_grid_thw=_qwen_grid(model, len(indices), size),
        frame_texts=tuple(told + model.start for told in text.seconds_texts(seconds)),
        frame_end=model.end,
        outer=(model.start, model.end),
        placeholder=model.placeholder,
        prompt_seconds=seconds,
        pruning=rate,
        rule=rule,
        **more,
    )


def nemotron(source: ServerSource, model: NemotronModel, options: ServerOptions) -> ServerPlan:
    """Nemotron Omni: every frame unless told otherwise; the rate of config.json prunes.

    Raises:
        RefusedByServerError: transformers has no processor of 12B v2, or it would fail on the arguments.
    """
    if model.target_num_patches is None:
        raise RefusedByServerError("transformers 5.24 has no processor of Nemotron Nano VL 12B v2.")
    arguments = processor_arguments(options)
    if is_sampled(arguments, default=False):
        indices, rule = _even_indices(source, arguments)
    else:
        indices, rule = np.arange(source.num_frames), "every frame"
    rows, columns = target_patches(
        source.height,
        source.width,
        target_num_patches=model.target_num_patches,
        merge_size=model.merge_size,
        keeps_aspect=model.keeps_aspect,
    )
    seconds = text.whole_millisecond_seconds(indices, source.average_fps)
    return nemotron_plan(
        model,
        indices,
        (rows, columns),
        seconds,
        text.sampled_at_texts(seconds.tolist(), model.temporal_patch_size, "\n"),
        pruning(model, options),
        rule=rule,
        notes=tuple(idle_bounds_notes(arguments, "fps or num_frames")),
    )


def nemotron_plan(
    model: NemotronModel,
    indices: Int64Array,
    patches: Size,
    seconds: np.ndarray[Any, np.dtype[np.float64]],
    texts: list[str],
    rate: PruningRate,
    **more: Any,
) -> ServerPlan:
    """The plan of frames whose (rows, columns) of patches, times (S,) and texts (T,) are settled."""
    rows, columns = patches
    return ServerPlan(
        frame_indices=indices,
        resizes=((rows * model.patch_size, columns * model.patch_size),),
        token_grid_thw=TokenGrid(len(texts), rows // model.merge_size, columns // model.merge_size),
        frame_texts=tuple(told + model.start for told in texts),
        frame_end=model.end,
        outer=("", ""),
        placeholder=model.placeholder,
        prompt_seconds=seconds[:: model.temporal_patch_size],
        pruning=rate,
        **more,
    )


def processor_arguments(options: ServerOptions) -> Arguments:
    """The processor's arguments: those given whole, then what the user asks of the sampling."""
    return {**options.mm_processor, **options.request}


def is_sampled(arguments: Arguments, default: bool) -> bool:
    """Whether frames are sampled: as said, else where a rate or a number is given (the chat template's call), else
    by the processor's default."""
    asked = arguments.get("fps") is not None or arguments.get("num_frames") is not None
    return bool(arguments.get("do_sample_frames", asked or default))


def pruning(model: ServedModel, options: ServerOptions) -> PruningRate:
    """The rate of config.json, or what is asked instead of it; Nemotron's alone."""
    if not isinstance(model, NemotronModel):
        return PruningRate(0.0, "transformers does not prune this family", can_prune=False)
    if options.video_pruning_rate is not None:
        return PruningRate(options.video_pruning_rate, "as if config.json said so", can_prune=True)
    return PruningRate(model.config_pruning_rate, "config.json", can_prune=True)


def pixel_limits_of_size(model: QwenModel | GlmModel, arguments: Arguments) -> tuple[int, int]:
    """(least, most) pixels: the checkpoint's, or both edges of ``size``.

    Raises:
        RefusedByServerError: one edge alone.
    """
    size = arguments.get("size")
    if size is None:
        return model.min_pixels, model.max_pixels
    if set(size) != {"shortest_edge", "longest_edge"}:
        raise RefusedByServerError(
            f"size {dict(size)} is refused by the processor. Expected both edges, in pixels.",
            hint=f'Such as {{"shortest_edge": {model.min_pixels}, "longest_edge": {model.max_pixels}}}.',
        )
    return int(size["shortest_edge"]), int(size["longest_edge"])


def size_limits(model: QwenModel, arguments: Arguments) -> tuple[int, int]:
    """(least, most) pixels: as ``pixel_limits_of_size``, then their two aliases."""
    least, most = pixel_limits_of_size(model, arguments)
    return int(arguments.get("min_pixels", least)), int(arguments.get("max_pixels", most))


def qwen2_indices(source: ServerSource, model: QwenModel, arguments: Arguments) -> tuple[Int64Array, str]:
    """(S,) frames that Qwen2-VL's video processor samples, and the rule in words.

    Raises:
        RefusedByServerError: a rate and a number together, more frames than there are, or indices past the last.
    """
    fps, num_frames = _rate_or_number(arguments, model.fps)
    patch = model.temporal_patch_size
    if num_frames is not None:
        num_frames = round(num_frames / patch) * patch
        if not 0 < num_frames <= source.num_frames:
            raise RefusedByServerError(f"num_frames {num_frames} of a file of {source.num_frames} frames is refused.")
        rule = f"{num_frames} frames"
    elif fps is not None:
        num_frames = sampling.qwen2_num_frames(
            source,
            fps,
            min_frames=arguments.get("min_frames", model.min_frames),
            max_frames=arguments.get("max_frames", model.max_frames),
            temporal_patch_size=patch,
        )
        rule = f"{fps:g} fps"
    else:
        raise RefusedByServerError("do_sample_frames needs fps or num_frames: this checkpoint has neither of its own.")
    indices = sampling.float32_arange_indices(source, num_frames)
    if indices[-1] >= source.num_frames:
        raise RefusedByServerError(
            f"the processor's own rounding asks for frame {indices[-1]} of {source.num_frames} and it fails; another "
            "fps or num_frames does not."
        )
    return indices, rule


def qwen3_indices(source: ServerSource, model: QwenModel, arguments: Arguments) -> tuple[Int64Array, str]:
    """(S,) frames that Qwen3-VL's video processor samples, and the rule in words.

    Raises:
        RefusedByServerError: a rate and a number together.
    """
    fps, num_frames = _rate_or_number(arguments, model.fps)
    if num_frames is not None:
        return sampling.rounded_linspace_indices(source, num_frames), f"{num_frames} frames"
    if fps is None:
        num_frames = min(max(source.num_frames, model.min_frames), model.max_frames)
        return sampling.rounded_linspace_indices(source, num_frames), f"at most {model.max_frames} frames"
    num_frames = sampling.qwen3_num_frames(source, fps, min_frames=model.min_frames, max_frames=model.max_frames)
    return sampling.rounded_linspace_indices(source, num_frames), f"{fps:g} fps"


Sampler = Callable[[ServerSource, QwenModel, Arguments], tuple[Int64Array, str]]
"""A processor's own sampling."""


def _rate_or_number(arguments: Arguments, own_fps: float | None) -> tuple[float | None, int | None]:
    fps, num_frames = arguments.get("fps"), arguments.get("num_frames")
    if fps is not None and num_frames is not None:
        raise RefusedByServerError("fps and num_frames exclude each other in the processor. Give one.")
    return (own_fps if fps is None and num_frames is None else fps), num_frames


def _even_indices(source: ServerSource, arguments: Arguments) -> tuple[Int64Array, str]:
    """Every n-th frame by whole numbers, transformers' rule where a processor has none of its own."""
    fps, num_frames = arguments.get("fps"), arguments.get("num_frames")
    rule = f"{num_frames} frames"
    if num_frames is None:
        if fps is None:
            return np.arange(source.num_frames), "every frame"
        if source.average_fps <= 0:
            raise RefusedByServerError("the file's frame rate is unknown, and sampling by fps needs one.")
        num_frames, rule = max(1, int(source.num_frames / source.average_fps * fps)), f"{fps:g} fps"
    if num_frames > source.num_frames:
        raise RefusedByServerError(f"{num_frames} frames of a file of {source.num_frames} are refused.")
    return np.arange(num_frames) * source.num_frames // num_frames, rule


def _qwen_grid(model: QwenModel, num_frames: int, size: Size) -> TokenGrid:
    """Tokens in time, height and width; an odd last frame is repeated to fill its tubelet."""
    tubelets = -(-num_frames // model.temporal_patch_size)
    return TokenGrid(tubelets, size[0] // model.factor, size[1] // model.factor)


def _resizes(loader: Size | None, processor: Size) -> tuple[Size, ...]:
    return (processor,) if loader is None or loader == processor else (loader, processor)
