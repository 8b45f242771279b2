"""qwen-vl-utils 0.0.14: ``fetch_video`` samples and resizes, then transformers' processor is told to sample no more.

Read from ``vision_process.py`` of that release. What trainers change of it is a ``Caller``: their own files have one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evs_cli.dialects import sampling
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
from evs_cli.dialects.resize import Size, sglang_frame_size

Given = Mapping[str, Any]
"""What ``--video-kwargs`` says: the video's part of a message, arguments of the calls, environment variables."""
MESSAGE_KEYS = frozenset(
    (
        *("fps", "nframes", "min_frames", "max_frames", "min_pixels", "max_pixels", "total_pixels"),
        *("resized_height", "resized_width", "video_start", "video_end"),
    )
)
"""Of the video's part of a message, beside the video."""
CALL_KEYS = frozenset(("image_patch_size", "do_resize"))
"""Arguments: of ``process_vision_info``, and of the processor behind it."""
VARIABLES = frozenset(("MODEL_SEQ_LEN", "FORCE_QWENVL_VIDEO_READER"))
"""Environment variables that the package itself reads."""
READERS = ("torchcodec", "decord", "torchvision")
"""What ``FORCE_QWENVL_VIDEO_READER`` names, in the order in which the package takes what is installed."""
SPATIAL_MERGE_SIZE = 2
"""Patches along a side of one token, whatever the checkpoint says."""
_FIXED_MIN_TOKENS, _FIXED_MAX_TOKENS = 4, 16_384
"""Of a frame whose height and width are given: those of an image."""
_SHARE_OF_SEQUENCE = 0.9  # of the model's sequence, which is left to a video


@dataclass(frozen=True)
class Budget:
    """The constants of the package; the defaults are its own."""

    fps: float = 2.0
    frame_factor: int = 2
    """Sampled frames come in multiples of it."""
    min_frames: int = 4
    max_frames: int = 768
    min_tokens: int = 128
    """Least tokens of a pair of frames, as pixels of each of the two."""
    max_tokens: int = 768
    sequence_tokens: int = 128_000
    """``MODEL_SEQ_LEN``: nine tenths of it are the tokens that all frames may have together."""


def own_budget(given: Given, factor: int) -> Budget:
    """The package's constants, with the environment variable that it reads itself."""
    return Budget(sequence_tokens=int(float(given.get("MODEL_SEQ_LEN", Budget.sequence_tokens))))


@dataclass(frozen=True)
class Caller:
    """A program that calls ``fetch_video``, and how it calls the processor then."""

    name: str
    resizes_again: Callable[[QwenModel], bool]
    """Whether the processor is left to resize the frames once more (``do_resize``)."""
    budget: Callable[[Given, int], Budget] = own_budget
    """The constants, from what is given and the pixels along a side of one token."""
    variables: frozenset[str] = VARIABLES
    """Environment variables that have an effect."""
    passes_metadata: bool = True
    """Whether rate and indices reach the processor of Qwen2.5-VL too, which tells seconds by them."""


OWN = Caller("qwen-vl-utils", resizes_again=lambda model: not model.tells_times, passes_metadata=False)
"""The calls of the package's README: ``do_resize=False`` for Qwen3-VL alone."""


def plan_video(source: ServerSource, model: QwenModel, options: ServerOptions, caller: Caller = OWN) -> ServerPlan:
    """Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: the package's frames and size, then the processor's prompt.

    Raises:
        RefusedByServerError: ``fetch_video`` or the processor behind it would fail.
    """
    given = options.video_kwargs
    patch = int(given.get("image_patch_size", model.patch_size))
    factor = patch * SPATIAL_MERGE_SIZE
    budget = caller.budget(given, factor)
    window, first = window_of(source, given)
    indices, rule = frame_indices(window, first, given, budget)
    size = frame_size(source, len(indices), given, budget, factor)
    resizes_again = bool(given.get("do_resize", caller.resizes_again(model)))
    if not resizes_again and any(side % model.factor for side in size):
        raise RefusedByServerError(
            f"frames of {size[1]}x{size[0]} are not whole tokens of {model.factor} pixels, and do_resize is off: the "
            "processor fails.",
            hint=f"Call process_vision_info with image_patch_size={model.patch_size}, this model's own.",
        )
    shared: dict[str, Any] = {
        "frame": size,
        "keeps_size": not resizes_again,
        "loader_interpolation": "bicubic",
        "notes": tuple(notes_on(given, caller, model, patch)),
    }
    rate = PruningRate(0.0, f"{caller.name} does not prune", can_prune=False)
    if model.tells_times:
        return hf.qwen3_vl_plan(source, model, {}, indices, rule, rate, **shared)
    sampled_fps = len(indices) / window.num_frames * source.average_fps
    return hf.qwen2_5_vl_plan(source, model, {}, indices, rule, rate, sampled_fps=sampled_fps, **shared)


def window_of(source: ServerSource, given: Given) -> tuple[ServerSource, int]:
    """The part between ``video_start`` and ``video_end`` as a source, and its first frame in the file.

    Raises:
        RefusedByServerError: a file of unknown rate or of no frame, or a window that holds no two frames.
    """
    if source.average_fps <= 0 or source.num_frames <= 0:
        raise RefusedByServerError("the file's frame rate or its number of frames is unknown, and fetch_video fails.")
    start, end = given.get("video_start"), given.get("video_end")
    if start is None and end is None:
        return source, 0
    longest = source.num_frames / source.average_fps
    first = 0 if start is None else math.ceil(max(0.0, min(start, longest)) * source.average_fps)
    last = source.num_frames - 1
    if end is not None:
        last = min(math.floor(max(0.0, min(end, longest)) * source.average_fps), last)
    if first >= last:
        raise RefusedByServerError(
            f"video_start {start} and video_end {end} leave frames {first} to {last} of {source.num_frames}: "
            "fetch_video fails.",
            hint=f"Give a window inside the {longest:.6g} s of the file.",
        )
    return replace(source, num_frames=last - first + 1), first


def frame_indices(window: ServerSource, first: int, given: Given, budget: Budget) -> tuple[Int64Array, str]:
    """(S,) frames of the file, and the rule in words: evenly from the window's first frame to its last, rounded.

    Raises:
        RefusedByServerError: a rate and a number together, fewer frames than a pair, or more than the window holds.
    """
    num_frames, rule = _num_frames(window, given, budget)
    if not budget.frame_factor <= num_frames <= window.num_frames:
        raise RefusedByServerError(
            f"{num_frames} frames of {window.num_frames} are refused by fetch_video. Expected at least "
            f"{budget.frame_factor}, and at most those there are."
        )
    return sampling.float32_linspace_indices(first, first + window.num_frames - 1, num_frames), rule


def _num_frames(window: ServerSource, given: Given, budget: Budget) -> tuple[int, str]:
    if "nframes" in given:
        if "fps" in given:
            raise RefusedByServerError("fps and nframes of a video exclude each other in fetch_video. Give one.")
        return round(given["nframes"] / budget.frame_factor) * budget.frame_factor, f"{given['nframes']} frames"
    fps = given.get("fps", budget.fps)
    num_frames = sampling.even_num_frames(
        window,
        fps,
        min_frames=given.get("min_frames", budget.min_frames),
        max_frames=given.get("max_frames", min(budget.max_frames, window.num_frames)),
        factor=budget.frame_factor,
    )
    return num_frames, f"{fps:g} fps"


def frame_size(source: ServerSource, num_frames: int, given: Given, budget: Budget, factor: int) -> Size:
    """(height, width) in pixels of each of ``num_frames`` frames; sides are multiples of ``factor``.

    Raises:
        RefusedByServerError: a least above the most, an extreme aspect, or a side that a limit shrinks to nothing.
    """
    token = factor * factor
    if "resized_height" in given and "resized_width" in given:
        least, most = _FIXED_MIN_TOKENS * token, float(_FIXED_MAX_TOKENS * token)
        height, width = int(given["resized_height"]), int(given["resized_width"])
    else:
        least, most = pixel_limits(num_frames, given, budget, factor)
        height, width = source.height, source.width
    if most < least:
        raise RefusedByServerError(
            f"max_pixels {most:g} is below min_pixels {least}, and fetch_video fails.",
            hint=f'Give both, such as {{"min_pixels": {min(4 * token, int(most))}, "max_pixels": {int(most)}}}.',
        )
    return sglang_frame_size(height, width, factor=factor, min_pixels=least, max_pixels=most)


def pixel_limits(num_frames: int, given: Given, budget: Budget, factor: int) -> tuple[int, float]:
    """(least, most) pixels of each frame: a pair's share of all tokens, at most 768 of them, or ``max_pixels``."""
    token = factor * factor
    least = given.get("min_pixels", budget.min_tokens * token)
    # The order of the factors is that of the rule: it settles the last bit.
    total = given.get("total_pixels", budget.sequence_tokens * factor * factor * _SHARE_OF_SEQUENCE)
    share = total / num_frames * budget.frame_factor
    most = max(min(budget.max_tokens * token, share), int(least * 1.05))
    return least, min(given.get("max_pixels", most), most)


_INSTEAD = {
    "num_frames": "; nframes does",
    "size": "; max_pixels does",
    "VIDEO_MAX_PIXELS": " 0.0.14; MODEL_SEQ_LEN and total_pixels do",
    "VIDEO_TOTAL_PIXELS": "; MODEL_SEQ_LEN and total_pixels do",
}
"""What works in place of names that other programs, or older versions, have for the same."""


def notes_on(given: Given, caller: Caller, model: QwenModel, patch: int) -> list[str]:
    """Sentences on what is given and does nothing, and on calls that go wrong."""
    known = MESSAGE_KEYS | CALL_KEYS | caller.variables
    notes = [f"{name} does nothing in {caller.name}{_INSTEAD.get(name, '')}" for name in given if name not in known]
    if len({"resized_height", "resized_width"} & given.keys()) == 1:
        notes.append("resized_height and resized_width do nothing one without the other")
    if patch != model.patch_size:
        notes.append(
            f"image_patch_size {patch} is not this model's {model.patch_size}: frames are resized by it, and again by "
            "the processor"
        )
    if not model.tells_times and not caller.passes_metadata:
        notes.append(
            "transformers 5.24 refuses the fps list that process_vision_info returns for this model; take "
            "return_video_metadata=True and pass video_metadata, by which its times are counted here"
        )
    return notes
