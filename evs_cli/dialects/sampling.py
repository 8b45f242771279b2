"""Rules by which servers and processors choose frames from a count and a rate: pure arithmetic on a ``ServerSource``.

Each is the published rule of transformers 5.24, vLLM 0.33 or SGLang 0.5.23; the modules of the dialects say which
server uses which, and with what limits.
"""

from __future__ import annotations

import math

import numpy as np

from evs_cli.dialects.base import Int64Array, RefusedByServerError, ServerSource
from evs_cli.dialects.torch_ranges import torch_arange, torch_linspace


def qwen2_num_frames(
    source: ServerSource, fps: float, *, min_frames: float, max_frames: float, temporal_patch_size: int
) -> int:
    """Frames at ``fps`` within bounds, floored to whole tubelets (Qwen2-VL, Qwen2.5-VL).

    Raises:
        RefusedByServerError: the rate of the source is unknown, or not even one tubelet is left.
    """
    if source.average_fps <= 0:
        raise RefusedByServerError("the file's frame rate is unknown, and this sampling needs one.")
    most = math.floor(min(max_frames, source.num_frames) / temporal_patch_size) * temporal_patch_size
    wanted = source.num_frames / source.average_fps * fps
    bounded = min(max(wanted, min_frames), most, source.num_frames)
    num_frames = math.floor(bounded / temporal_patch_size) * temporal_patch_size
    if num_frames < 1:
        raise RefusedByServerError(
            f"{min(source.num_frames, int(max_frames))} frame(s) at most, of the file or by max_frames, hold no whole "
            f"tubelet of {temporal_patch_size}, and the sampling divides by their number.",
            hint=f"Take a longer file, or max_frames {temporal_patch_size} and more.",
        )
    return num_frames


def float32_arange_indices(source: ServerSource, num_frames: int, *, start: float = 0) -> Int64Array:
    """(num_frames or one more,) indices from ``start``, a step of ``total / num_frames`` in float32 apart, truncated.

    Rounding in float32 may yield a last index equal to the number of frames; transformers leaves it, vLLM clamps it.
    """
    indices: Int64Array = torch_arange(start, source.num_frames, source.num_frames / num_frames).astype(np.int64)
    return indices


def even_num_frames(source: ServerSource, fps: float, *, min_frames: float, max_frames: float, factor: int) -> int:
    """Frames at ``fps`` within bounds that are rounded inwards to multiples of ``factor``, as the result is floored.

    The rule of qwen-vl-utils 0.0.14, and of SGLang 0.5.23 after it; the rate of the source must be known.
    """
    least = math.ceil(min_frames / factor) * factor
    most = math.floor(max_frames / factor) * factor
    wanted = source.num_frames / source.average_fps * fps
    return math.floor(min(max(wanted, least), most, source.num_frames) / factor) * factor


def qwen3_num_frames(source: ServerSource, fps: float, *, min_frames: int, max_frames: int) -> int:
    """Frames at ``fps`` within bounds, odd ones allowed (Qwen3-VL); an unknown rate counts as 24."""
    wanted = int(source.num_frames / (source.average_fps or 24.0) * fps)
    return min(max(wanted, min_frames), max_frames, source.num_frames)


def rounded_linspace_indices(source: ServerSource, num_frames: int) -> Int64Array:
    """(num_frames,) indices from the first frame to the last, rounded half to even."""
    indices: Int64Array = np.linspace(0, source.num_frames - 1, num_frames).round().astype(np.int64)
    return indices


def float32_linspace_indices(first: int, last: int, num_frames: int) -> Int64Array:
    """(num_frames,) indices from ``first`` to ``last``, counted in float32 and rounded half to even (qwen-vl-utils)."""
    indices: Int64Array = torch_linspace(first, last, num_frames).round().astype(np.int64)
    return indices


def truncated_linspace_indices(source: ServerSource, num_frames: int) -> Int64Array:
    """(num_frames,) indices from the first frame to the last, truncated."""
    indices: Int64Array = np.linspace(0, source.num_frames - 1, num_frames, dtype=np.int64)
    return indices


def bounded_num_frames(source: ServerSource, fps: float | None, most: int | None) -> int:
    """Frames at ``fps``, floored, at most ``most`` and those of the file, at least 1; None leaves a bound out."""
    num_frames = source.num_frames if most is None else min(most, source.num_frames)
    if fps is not None:
        num_frames = min(num_frames, math.floor(source.duration_seconds * fps))
    return max(1, num_frames)


GLM_RATES = ((30.0, 3.0), (300.0, 1.0))
"""GLM-4.6V: (longest clip in seconds, frames of tokens a second); 0.5 a second beyond."""
GLM_MAX_FRAMES = 640
"""Most sampled frames of GLM-4.6V."""
_GLM_MAX_SECONDS = 2400.0  # of a longer clip, as many frames as of this


def glm4v_indices(source: ServerSource, fps: float, *, max_seconds: float, at_least: int) -> Int64Array:
    """(S,) indices, each once: a frame every ``1 / fps`` seconds, rounded up to a frame (GLM-4.1V, GLM-4.5V).

    Args:
        source: the file.
        fps: sampled frames a second.
        max_seconds: a longer clip gets as many frames as this one, spread evenly from its start to its end.
        at_least: frames of a clip shorter than ``1 / fps``.
    """
    duration = source.duration_seconds
    if duration <= max_seconds:
        places = np.arange(max(math.floor(duration * fps), at_least)) * source.average_fps / fps
    else:
        num_frames = int(max_seconds * fps)
        if num_frames >= source.num_frames:
            return np.arange(source.num_frames)
        places = np.linspace(0, duration, num_frames) * source.average_fps
    return np.unique(np.minimum(np.ceil(places).astype(np.int64), source.num_frames - 1))


def glm46v_fps(source: ServerSource, temporal_patch_size: int) -> float:
    """Sampled frames a second of GLM-4.6V, by the clip's length."""
    per_second = next((rate for longest, rate in GLM_RATES if source.duration_seconds <= longest), 0.5)
    return per_second * temporal_patch_size


def glm46v_indices(source: ServerSource, temporal_patch_size: int) -> Int64Array:
    """(S,) indices, each once: a number of frames by the clip's length, at most 640 (GLM-4.6V)."""
    fps = glm46v_fps(source, temporal_patch_size)
    seconds = min(source.duration_seconds, _GLM_MAX_SECONDS)
    # The order of the factors is that of the rule: it settles the last bit.
    num_frames = min(int(seconds * (fps / temporal_patch_size) * temporal_patch_size), GLM_MAX_FRAMES)
    if source.num_frames < num_frames:
        return np.unique(truncated_linspace_indices(source, num_frames))
    return timed_indices(source, fps, num_frames)


def timed_indices(source: ServerSource, fps: float, num_frames: int) -> Int64Array:
    """(S,) indices, each once: the first frame at or after each multiple of ``1 / fps``, up to the last whole second.

    Where these are not ``num_frames``, as many are spread evenly instead: between the first and the last of them
    where they are fewer, over the whole file where they are more.
    """
    interval, last_second = 1 / fps, int(source.duration_seconds)
    found: list[int] = []
    due = 0.0
    while len(found) <= num_frames:  # once there are more, it does not matter how many
        index = _first_frame_at(source, due)
        if found:
            index = max(index, found[-1] + 1)
        if index >= source.num_frames:
            break
        found.append(index)
        due += interval
        if due >= last_second:
            break
    if len(found) > num_frames:
        return np.unique(truncated_linspace_indices(source, num_frames))
    if len(found) < num_frames:
        return np.unique(np.linspace(found[0], found[-1], num_frames, dtype=np.int64))
    return np.array(found, dtype=np.int64)


def pad_to_even(indices: Int64Array) -> Int64Array:
    """The same with the last repeated where their number is odd (GLM)."""
    return np.append(indices, indices[-1:]) if len(indices) % 2 else indices


def _first_frame_at(source: ServerSource, seconds: float) -> int:
    """The first frame whose time, index times the frame interval in float64, is not before ``seconds``."""
    interval = 1 / source.average_fps if source.average_fps > 0 else 0.0
    if interval == 0:
        return 0 if seconds <= 0 else source.num_frames
    index = int(seconds / interval)
    while index > 0 and (index - 1) * interval >= seconds:
        index -= 1
    while index * interval < seconds:
        index += 1
    return index
