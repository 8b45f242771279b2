"""Rules by which servers and processors choose frames from a count and a rate: pure arithmetic on a ``ServerSource``.

Each is the published rule of transformers 5.24, vLLM 0.33 or SGLang 0.5.23; the modules of the dialects say which
server uses which, and with what limits.
"""

from __future__ import annotations

import math

import numpy as np

from evs_cli.dialects.base import Int64Array, RefusedByServerError, ServerSource


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
            f"a file of {source.num_frames} frame(s) holds no whole tubelet of {temporal_patch_size}, and the sampling "
            "divides by the number of tubelets."
        )
    return num_frames


def float32_arange_indices(source: ServerSource, num_frames: int) -> Int64Array:
    """(num_frames or one more,) indices, one step of ``total / num_frames`` in float32 apart, truncated.

    Rounding in float32 may yield a last index equal to the number of frames; transformers leaves it, vLLM clamps it.
    """
    import torch  # its own arange: blocks of a vector's width round otherwise than numpy's

    step = source.num_frames / num_frames
    indices: Int64Array = torch.arange(0, source.num_frames, step).int().numpy().astype(np.int64)
    return indices


def qwen3_num_frames(source: ServerSource, fps: float, *, min_frames: int, max_frames: int) -> int:
    """Frames at ``fps`` within bounds, odd ones allowed (Qwen3-VL); an unknown rate counts as 24."""
    wanted = int(source.num_frames / (source.average_fps or 24.0) * fps)
    return min(max(wanted, min_frames), max_frames, source.num_frames)


def rounded_linspace_indices(source: ServerSource, num_frames: int) -> Int64Array:
    """(num_frames,) indices from the first frame to the last, rounded half to even."""
    indices: Int64Array = np.linspace(0, source.num_frames - 1, num_frames).round().astype(np.int64)
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
