"""To what size each server and processor resizes a frame: pure arithmetic, every rule with its own rounding.

The rules agree on most sizes and part at the edges: where a side is rounded half to even, where a pixel limit binds,
and where a side is shorter than one token. Sources: transformers 5.24, vLLM 0.33 and SGLang 0.5.23.
"""

from __future__ import annotations

import math

from evs_cli.encoders.frame_size import (
    MAX_ASPECT,
    Size,
    check_aspect,
    down_to,
    qwen2_frame_size,
    qwen3_frame_size,
    rounded,
    up_to,
)
from evs_cli.errors import RefusedByServerError

__all__ = [
    "MAX_ASPECT",
    "Size",
    "qwen2_frame_size",
    "qwen3_frame_size",
    "sglang_frame_size",
    "sglang_glm_frame_size",
    "sglang_target_patches",
]


def sglang_frame_size(height: int, width: int, *, factor: int, min_pixels: float, max_pixels: float) -> Size:
    """The size SGLang 0.5.23 and qwen-vl-utils 0.0.14 give a frame of a Qwen-VL video before the processor sees it.

    As ``qwen2_frame_size``, but a side shorter than half a token becomes one token, and one that a limit shrinks is
    not kept above one.

    Raises:
        RefusedByServerError: a side more than 200 times the other, or one that a limit shrinks to nothing.
    """
    check_aspect(height, width)
    sides = max(factor, rounded(height, factor)), max(factor, rounded(width, factor))
    if sides[0] * sides[1] > max_pixels:
        excess = math.sqrt((height * width) / max_pixels)
        sides = down_to(height / excess, width / excess, factor, at_least=0)
        if 0 in sides:
            raise RefusedByServerError(
                f"a frame of {width}x{height} is refused: its limit of pixels leaves a side of 0."
            )
        return sides
    if sides[0] * sides[1] < min_pixels:
        lack = math.sqrt(min_pixels / (height * width))
        return up_to(height * lack, width * lack, factor)
    return sides


GLM_LOADER_FACTOR = 112
"""Pixels along a side that SGLang's own resize of a GLM frame rounds to."""


def sglang_glm_frame_size(height: int, width: int, *, max_tokens_per_frame: int) -> Size:
    """The size SGLang 0.5.23 gives a GLM frame before the processor sees it, where ``max_tokens_per_frame`` is given.

    Args:
        height: rows of the frame in pixels.
        width: columns of the frame in pixels.
        max_tokens_per_frame: most tokens of 28 x 28 pixels; below 16, one square of 112 pixels is left.
    """
    factor = GLM_LOADER_FACTOR
    most = max(max_tokens_per_frame * 28 * 28, factor * factor)
    sides = max(factor, rounded(height, factor)), max(factor, rounded(width, factor))
    if sides[0] * sides[1] <= most:
        return sides
    excess = math.sqrt((height * width) / most)
    return down_to(height / excess, width / excess, factor, at_least=factor)


def sglang_target_patches(
    height: int, width: int, *, target_num_patches: int, merge_size: int, keeps_aspect: bool
) -> tuple[int, int]:
    """(rows, columns) of patches near a target, each side rounded to whole tokens (Nemotron; SGLang 0.5.23).

    transformers and vLLM round both sides the same way, up or down (``encoders.nemotron_h_omni.target_patches``).

    Args:
        height: rows of the frame in pixels.
        width: columns of the frame in pixels.
        target_num_patches: patches a frame should have.
        merge_size: patches along a side of one token.
        keeps_aspect: whether the frame's aspect is kept; else the frame becomes a square.
    """
    if not keeps_aspect:
        side = max(merge_size, round(int(math.sqrt(target_num_patches)) / merge_size) * merge_size)
        return side, side
    aspect = width / max(height, 1)
    rows = math.sqrt(target_num_patches / max(aspect, 1e-6))
    columns = rows * aspect
    return (
        max(merge_size, round(rows / merge_size) * merge_size),
        max(merge_size, round(columns / merge_size) * merge_size),
    )
