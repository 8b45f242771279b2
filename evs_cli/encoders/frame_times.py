"""The times of sampled frames as processors are told and print them."""

from __future__ import annotations

from typing import Any

import numpy as np

from evs_cli.encoders.base import Clip, FloatArray, seconds


def true_times(clip: Clip, pts_seconds: FloatArray) -> dict[str, Any]:
    """``video_metadata`` that tells a processor the true times, in milliseconds as frame indices at a rate of 1000.

    Processors divide an index by a rate, and some round the frame interval to a whole millisecond first, which
    drifts by a second a minute at 24000/1001 frames a second. At a rate of 1000 the interval is exactly one.
    """
    return {
        "fps": 1000.0,
        "frames_indices": [round(1000 * t) for t in pts_seconds.tolist()],
        "total_num_frames": max(1, round(1000 * clip.window_seconds)),
        "duration": clip.window_seconds,
        "height": clip.height,
        "width": clip.width,
        "video_backend": "evs",
    }


def printed_seconds(pts_seconds: FloatArray, num_decimals: int) -> FloatArray:
    """Times in whole milliseconds, as processors are told them, to the decimals that they print."""
    return seconds([float(f"{round(1000 * t) / 1000:.{num_decimals}f}") for t in pts_seconds.tolist()])


def fill_tubelets(values: FloatArray, temporal_patch_size: int) -> FloatArray:
    """``values`` with the last repeated until it fills a whole tubelet."""
    missing = -len(values) % temporal_patch_size
    return seconds(np.concatenate([values, np.repeat(values[-1:], missing)]))
