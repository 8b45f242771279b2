"""To what size the processors of Qwen and GLM resize a frame: pure arithmetic, with their own rounding.

transformers 5.24's rules, which the servers share where they resize nothing themselves (``dialects.resize``).
"""

from __future__ import annotations

import math

from evs_cli.errors import RefusedByServerError

MAX_ASPECT = 200

Size = tuple[int, int]
"""(height, width) in pixels."""


def qwen2_frame_size(height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int) -> Size:
    """The size of a frame under limits that hold for each frame (Qwen2-VL, Qwen2.5-VL; transformers and vLLM).

    Both sides are rounded half to even to multiples of ``factor``; where a limit binds, the sides are scaled by the
    square root of the area's excess and rounded towards the limit.

    Args:
        height: rows of the frame in pixels.
        width: columns of the frame in pixels.
        factor: pixels along a side of one token.
        min_pixels: least pixels of the resized frame.
        max_pixels: most pixels of the resized frame.

    Raises:
        RefusedByServerError: a side more than 200 times the other.
    """
    check_aspect(height, width)
    sides = rounded(height, factor), rounded(width, factor)
    if sides[0] * sides[1] > max_pixels:
        excess = math.sqrt((height * width) / max_pixels)
        return down_to(height / excess, width / excess, factor, at_least=factor)
    if sides[0] * sides[1] < min_pixels:
        lack = math.sqrt(min_pixels / (height * width))
        return up_to(height * lack, width * lack, factor)
    return sides


def qwen3_frame_size(
    height: int, width: int, *, num_frames: int, temporal_factor: int, factor: int, min_pixels: int, max_pixels: int
) -> Size:
    """The size of a frame under limits that hold for all frames together (Qwen3-VL, Qwen3.5, GLM; transformers, vLLM).

    Args:
        height: rows of the frame in pixels.
        width: columns of the frame in pixels.
        num_frames: sampled frames; the limits are compared with this rounded half to even to whole tubelets.
        temporal_factor: sampled frames of one tubelet.
        factor: pixels along a side of one token.
        min_pixels: least pixels of all resized frames.
        max_pixels: most pixels of all resized frames.

    Raises:
        RefusedByServerError: fewer frames than one tubelet, or a side more than 200 times the other.
    """
    if num_frames < temporal_factor:
        raise RefusedByServerError(
            f"a clip of {num_frames} sampled frame is refused by the processor. Expected at least {temporal_factor}."
        )
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    check_aspect(height, width)
    sides = rounded(height, factor), rounded(width, factor)
    pixels = round(num_frames / temporal_factor) * temporal_factor * sides[0] * sides[1]
    if pixels > max_pixels:
        excess = math.sqrt((num_frames * height * width) / max_pixels)
        return down_to(height / excess, width / excess, factor, at_least=factor)
    if pixels < min_pixels:
        lack = math.sqrt(min_pixels / (num_frames * height * width))
        return up_to(height * lack, width * lack, factor)
    return sides


def capped_frame_pixels(
    least: int, most: int, max_video_tokens: int, factor: int, temporal_patch_size: int, num_frames: int
) -> int:
    """Most pixels of a frame under ``cap_pixels_per_frame`` where limits hold for each frame (Qwen2-VL, Qwen2.5-VL)."""
    total = int(max_video_tokens * factor**2 * 0.9)
    return max(min(most, total * temporal_patch_size // num_frames), int(least * 1.05))


def capped_video_pixels(least: int, most: int, max_video_tokens: int, factor: int, num_frames: int) -> int:
    """Most pixels of all frames under ``cap_pixels_per_frame`` where limits hold for them together (Qwen3-VL)."""
    share = min(max_video_tokens * factor**2, most // num_frames)
    return max(share, int(least * 1.05)) * num_frames


def check_aspect(height: int, width: int) -> None:
    """Raise ``RefusedByServerError`` for a frame with a side more than 200 times the other."""
    if max(height, width) / min(height, width) > MAX_ASPECT:
        raise RefusedByServerError(
            f"a frame of {width}x{height} is refused: one side is more than {MAX_ASPECT} times the other."
        )


def rounded(side: float, factor: int) -> int:
    """A side in pixels to the nearest multiple of ``factor``."""
    return round(side / factor) * factor  # half to even, as all of these rules do


def down_to(height: float, width: float, factor: int, *, at_least: int) -> Size:
    """Both sides floored to multiples of ``factor``, none below ``at_least``."""
    return (
        max(at_least, math.floor(height / factor) * factor),
        max(at_least, math.floor(width / factor) * factor),
    )


def up_to(height: float, width: float, factor: int) -> Size:
    """Both sides raised to multiples of ``factor``."""
    return math.ceil(height / factor) * factor, math.ceil(width / factor) * factor
