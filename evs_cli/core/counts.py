"""The token grid of a video and how many of its tokens EVS keeps: arithmetic on ints and floats, no tensors.

Servers size their placeholders by these counts before a mask exists, so every count here follows the
Python-float arithmetic that SGLang, vLLM and transformers share, to the token.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, NamedTuple, SupportsInt, get_args

from evs_cli.errors import UsageError

PruningMethod = Literal["evs", "vidcom2"]
"""What vLLM's ``--video-pruning-method`` takes. The two differ in the least that they keep: a whole frame, or one token
of every frame (VidCom2, arXiv 2505.14454)."""
PRUNING_METHODS: tuple[PruningMethod, ...] = get_args(PruningMethod)


class TokenGrid(NamedTuple):
    """The tokens of a video in time, height and width, after merge or pooling; it equals the plain triple."""

    t: int
    """T, frames of tokens."""
    h: int
    w: int

    @property
    def tokens_per_frame(self) -> int:
        """``h * w``, tokens of one frame before pruning."""
        return self.h * self.w

    @property
    def num_tokens(self) -> int:
        """N, video tokens before pruning."""
        return self.t * self.tokens_per_frame

    def retained_tokens(self, q: float, method: PruningMethod = "evs") -> int:
        """K, video tokens kept at rate q, ``0 <= q < 1``."""
        return compute_retained_tokens_count(self.tokens_per_frame, self.t, q, method)

    def __repr__(self) -> str:
        # Messages and ``PrunedVideo``'s repr show it as the field is documented: (T, h, w).
        return f"({self.t}, {self.h}, {self.w})"


def check_pruning_rate(q: float) -> float:
    """Return ``q`` as a float, or raise.

    Args:
        q: the share of video tokens to drop, ``0 <= q < 1``. A number of numpy or a tensor of one number counts as the
            decimal it prints as: K at ``float32(0.7)`` is K at 0.7, not at the 0.699999988 that float32 holds.

    Raises:
        UsageError: for anything outside ``[0, 1)``, NaN included.
    """
    if type(q) is float:
        if 0 <= q < 1:  # NaN fails every comparison
            return q
    elif hasattr(q, "dtype"):
        q = _printed_value(q)
    number: object = q  # callers without types pass strings and None too
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= q < 1:
        is_percent = isinstance(number, (int, float)) and 1 < number <= 100
        raise UsageError(
            f"Invalid pruning rate {q!r}. Expected 0 <= q < 1.",
            hint="A rate is a share: 0.7 drops 70 percent." if is_percent else None,
        )
    return float(q)


def _printed_value(q: Any) -> Any:
    """A numpy number, or an array or tensor of one, as the shortest decimal that its dtype rounds to the same value."""
    if getattr(q, "shape", ()) not in ((), (1,)):
        return q
    value = q.item()
    if not isinstance(value, float) or not 0 < value < 1:
        return value
    for digits in range(1, 17):
        decimal = float(f"{value:.{digits}g}")
        rounded = q.new_tensor(decimal, device="cpu") if hasattr(q, "new_tensor") else q.dtype.type(decimal)
        if rounded.item() == value:
            return decimal
    return value


def check_min_dissimilarity(floor: float | None) -> None:
    """Raise ``UsageError`` unless the floor is None or in ``[0, 2]``, the range of ``1 - cosine``."""
    if floor is not None and not 0 <= floor <= 2:  # NaN fails every comparison
        raise UsageError(f"Invalid min_dissimilarity {floor!r}. Expected 0 <= min_dissimilarity <= 2.")


def check_grid(num_frames: int, height: int, width: int) -> None:
    """Raise ``UsageError`` unless the token grid ``(T, h, w)`` has at least one token."""
    if min(num_frames, height, width) < 1:
        raise UsageError(
            f"Invalid token grid ({num_frames}, {height}, {width}). Expected (T, h, w) with every entry at least 1."
        )


def merged_grid(grid_thw: Iterable[SupportsInt], spatial_merge_size: int) -> TokenGrid:
    """``(T, h, w)`` in tokens of a grid ``(T, H, W)`` before the spatial merge.

    Raises:
        UsageError: an empty grid, or a height or width that the merge does not divide.
    """
    num_frames, height, width = (int(n) for n in grid_thw)
    if spatial_merge_size < 1 or height % spatial_merge_size or width % spatial_merge_size:
        raise UsageError(
            f"Invalid grid ({num_frames}, {height}, {width}) for spatial_merge_size {spatial_merge_size}. "
            "Expected a height and width that it divides."
        )
    grid = TokenGrid(num_frames, height // spatial_merge_size, width // spatial_merge_size)
    check_grid(*grid)
    return grid


def compute_retained_tokens_count(
    tokens_per_frame: int, num_frames: int, q: float, method: PruningMethod = "evs"
) -> int:
    """K, the number of tokens kept of a video of ``num_frames * tokens_per_frame``.

    ``max(tokens_per_frame, int(N * (1 - q)))`` in Python floats, the peers' rule (SGLang, vLLM, transformers'
    nemotron_h_omni). The float result is the one that counts: 10 frames of 256 at q = 0.8 keep 511, not 512.
    VidCom2 keeps ``max(num_frames, int(N * (1 - q)))`` (vLLM 0.33, ``multimodal/video_prune/vidcom2.py``).

    Args:
        tokens_per_frame: tokens of one frame, ``h * w`` after the spatial merge, at least 1.
        num_frames: frames of the token grid T (tubelets where the family has them), at least 1.
        q: pruning rate, ``0 <= q < 1``.
        method: what chooses the tokens; it settles the least that is kept.

    Raises:
        UsageError: q outside ``[0, 1)`` or an empty grid.
    """
    q = check_pruning_rate(q)
    check_grid(num_frames, 1, tokens_per_frame)
    return max(_least(tokens_per_frame, num_frames, method), int(num_frames * tokens_per_frame * (1 - q)))


def exact_retained_tokens_count(tokens_per_frame: int, num_frames: int, q: float, method: PruningMethod = "evs") -> int:
    """K as decimal arithmetic has it, where the float rule may be one token off.

    Shown beside K where the two differ (at q = 0.8 on about a third of all grids); nothing is sized by it.
    ``q`` is taken as the decimal number that prints as ``repr(q)``.
    """
    q = check_pruning_rate(q)
    check_grid(num_frames, 1, tokens_per_frame)
    kept = int(num_frames * tokens_per_frame * (1 - Fraction(repr(q))))
    return max(_least(tokens_per_frame, num_frames, method), kept)


def _least(tokens_per_frame: int, num_frames: int, method: PruningMethod) -> int:
    """Tokens that are kept at any rate: of the first frame all, or one of every frame."""
    return tokens_per_frame if method == "evs" else num_frames


def tokens_per_frame(*, q: float, num_frames: int, frame_num_tokens: int) -> list[int]:
    """A provisional split of K over the frames, for placeholders needed before the mask exists.

    SGLang's split: ``K // T`` for each frame and the remainder on the last, so the sum is right while no
    entry needs to be. The real counts are ``Retention.num_tokens_per_frame``.

    Args:
        q: pruning rate, ``0 <= q < 1``.
        num_frames: frames of the token grid, T.
        frame_num_tokens: tokens of one frame before pruning, ``h * w``.

    Returns:
        T counts whose sum is K.
    """
    retained = compute_retained_tokens_count(frame_num_tokens, num_frames, q)
    each, rest = divmod(retained, num_frames)
    return [each] * (num_frames - 1) + [each + rest]
