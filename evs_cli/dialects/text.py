"""The text between the tokens of frames: the times a model is told, and how each server writes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evs_cli.dialects.base import FloatArray, Int64Array


def tubelet_mean_seconds(indices: Int64Array, average_fps: float, temporal_patch_size: int) -> FloatArray:
    """(T,) the mean time of each tubelet's first and last frame, index over rate (Qwen3-VL); the last is repeated."""
    missing = -len(indices) % temporal_patch_size
    times = np.concatenate([indices, np.repeat(indices[-1:], missing)]) / average_fps
    means: FloatArray = (times[::temporal_patch_size] + times[temporal_patch_size - 1 :: temporal_patch_size]) / 2
    return means


def whole_millisecond_seconds(indices: Int64Array, average_fps: float) -> FloatArray:
    """(S,) index times the frame interval in whole milliseconds (Nemotron): drifts where the interval is not whole.

    An unknown rate gives an interval of 0.
    """
    interval_ms = int(1000 / average_fps) if average_fps > 0 else 0
    seconds: FloatArray = indices * interval_ms / 1000.0
    return seconds


def seconds_texts(seconds: FloatArray) -> list[str]:
    """``<0.2 seconds>`` a frame of tokens (Qwen3-VL)."""
    return [f"<{value:.1f} seconds>" for value in seconds.tolist()]


def sampled_at_texts(seconds: Sequence[float], temporal_patch_size: int, separator: str) -> list[str]:
    """``Frame 1 sampled at 0.00 seconds and frame 2 sampled at 0.50 seconds: `` a tubelet (Nemotron).

    Args:
        seconds: S times, one a sampled frame.
        temporal_patch_size: sampled frames of a tubelet; a short last one names those it has.
        separator: what stands before every text but the first.
    """
    texts = []
    for start in range(0, len(seconds), temporal_patch_size):
        tubelet = list(enumerate(seconds[start : start + temporal_patch_size], start + 1))
        frames = " and ".join(
            f"{'Frame' if number == start + 1 else 'frame'} {number} sampled at {value:.2f} seconds"
            for number, value in tubelet
        )
        texts.append(f"{separator if start else ''}{frames}: ")
    return texts


def whole_seconds_texts(seconds: FloatArray) -> list[str]:
    """``12`` a frame of tokens, cut to whole seconds (GLM-4.1V, GLM-4.5V)."""
    return [str(int(value)) for value in seconds.tolist()]


def tenths_texts(seconds: FloatArray) -> list[str]:
    """``12.5 seconds`` a frame of tokens (GLM-4.6V)."""
    return [f"{value:.1f} seconds" for value in seconds.tolist()]


def numbered_texts(num_frames: int, start: str) -> list[str]:
    """``Frame1: `` and the start marker a frame, a newline before every one but the first (InternVL)."""
    separators = ["", *["\n"] * (num_frames - 1)]
    return [f"{separator}Frame{number}: {start}" for number, separator in enumerate(separators, 1)]
