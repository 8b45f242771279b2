"""How much a token differs from the token at its place one frame earlier: the score EVS ranks by.

In: embeddings ``(t, h, w, D)`` in chunks of frames, one tensor a level. Out: scores ``(t, h, w)``. The scores
equal ``1 - cosine_similarity`` of torch bit for bit, in the embeddings' dtype, for any cut into chunks; this
module knows nothing of rates, masks or videos.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evs_cli.core.counts import check_grid
from evs_cli.core.dtypes import dtype_name
from evs_cli.errors import ModelError, UsageError

FIRST_FRAME_DISSIMILARITY = 255.0
"""What frame 0 is given, so that it sorts before everything (a dissimilarity is at most 2). Exact in every dtype."""

_COSINE_EPS = 1e-8  # torch's default for cosine_similarity; it underflows to 0 in float16, as it does there
# On a CPU one block's normalised rows and products stay in cache (tests/bench/bench_mask.py measures what that is
# worth). On CUDA launches cost more than memory, so the blocks are large there.
_BLOCK_BYTES_CPU = 1 << 20
_BLOCK_BYTES_ACCELERATOR = 1 << 28
_FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class DissimilarityScorer:
    """Scores embeddings that arrive in chunks of frames, each frame normalised once.

    The cut into chunks does not change a bit of the scores: only the normalised last frame is carried over.

    Args:
        score_dtype: dtype the arithmetic is done in; None takes the embeddings' own, as the peers do.
    """

    def __init__(self, *, score_dtype: torch.dtype | None = None) -> None:
        if score_dtype is not None and score_dtype not in _FLOAT_DTYPES:
            raise UsageError(f"Invalid score dtype {score_dtype}. Expected one of {_names(_FLOAT_DTYPES)}.")
        self.score_dtype = score_dtype
        self.num_frames = 0
        self.zero_frames: list[int] = []
        """Frames with at least one all-zero token: the rule counts such tokens as new, on entering and on leaving."""
        self._form: _Form | None = None
        self._previous: torch.Tensor | None = None  # (h*w, sum of D), normalised last frame of the chunk before

    @torch.no_grad()
    def update(self, levels: Sequence[torch.Tensor]) -> torch.Tensor:
        """Score the next frames.

        Args:
            levels: one ``(t, h, w, D_level)`` float tensor a level, the main one first; levels are compared side
                by side, as one row of ``sum(D_level)``.

        Returns:
            ``(t, h, w)`` scores in the score dtype; the video's first frame stands as 255.

        Raises:
            UsageError: shapes or dtypes that do not fit each other or the chunk before.
            ModelError: a non-finite embedding or norm, naming the frame.
        """
        form = _check_levels(levels)
        if self._form is not None and form != self._form:
            raise UsageError(f"Invalid chunk: {form}. Expected {self._form}, as in the chunk before.")
        dtype = self.score_dtype or levels[0].dtype
        num_frames, num_places = levels[0].shape[0], form.height * form.width
        flat_levels = [level.reshape(num_frames, num_places, -1) for level in levels]
        scores = levels[0].new_empty((num_frames, num_places), dtype=dtype)
        norms = torch.empty_like(scores)
        last = levels[0].new_empty((num_places, sum(form.dims)), dtype=dtype)
        self._score_blocks(flat_levels, scores, norms, last)
        if self._previous is None:
            scores[0] = FIRST_FRAME_DISSIMILARITY
        self._check_finite(flat_levels, scores, norms)
        self._form, self._previous = form, last
        self.num_frames += num_frames
        return scores.view(num_frames, form.height, form.width)

    def _score_blocks(
        self, levels: Sequence[torch.Tensor], scores: torch.Tensor, norms: torch.Tensor, last: torch.Tensor
    ) -> None:
        """Fill ``scores`` and ``norms`` ``(t, h*w)``, block by block of places and, inside, of frames.

        Frames run innermost so that the normalised frame before is still in cache; two buffers take turns, so that
        it stays where it is. ``last`` ``(h*w, D)`` gets the
        last frame, normalised; nothing of the chunk before is written to, so a chunk that is refused may be retried.
        """
        num_frames, num_places = scores.shape
        dim = last.shape[1]
        budget = (_BLOCK_BYTES_CPU if scores.device.type == "cpu" else _BLOCK_BYTES_ACCELERATOR) // last.itemsize
        most_places = max(1, min(num_places, budget // dim))
        block_places = math.ceil(num_places / math.ceil(num_places / most_places))  # blocks of even size
        block_frames = max(1, min(num_frames, budget // (dim * block_places)))
        products = last.new_empty((block_frames, block_places, dim))
        normalised, spare = torch.empty_like(products), torch.empty_like(products)
        gathered = None if _is_ready(levels, last.dtype) else torch.empty_like(products)
        for place in range(0, num_places, block_places):
            places = slice(place, min(place + block_places, num_places))
            n = places.stop - places.start
            # Whatever lies there before the first frame, whose scores are overwritten.
            before = spare[0, :n] if self._previous is None else self._previous[places]
            for frame in range(0, num_frames, block_frames):
                frames = slice(frame, min(frame + block_frames, num_frames))
                t = frames.stop - frames.start
                rows = _gather(levels, frames, places, gathered)
                norm = _norms(rows)
                norms[frames, places] = norm[..., 0]
                torch.div(rows, norm.clamp_min_(_COSINE_EPS), out=normalised[:t, :n])
                torch.mul(normalised[0, :n], before, out=products[0, :n])
                if t > 1:
                    torch.mul(normalised[1:t, :n], normalised[: t - 1, :n], out=products[1:t, :n])
                scores[frames, places] = _row_sums(products[:t, :n])
                before = normalised[t - 1, :n]
                normalised, spare = spare, normalised
            last[places] = before
        scores.neg_().add_(1)  # 1 - similarity, for all blocks at once

    def _check_finite(self, levels: Sequence[torch.Tensor], scores: torch.Tensor, norms: torch.Tensor) -> None:
        """Refuse scores that would rank by noise, and remember the frames that hold a zero token."""
        bad = ~(norms.isfinite() & scores.isfinite()).all(dim=1)
        if bool(bad.any()):
            index = int(bad.nonzero()[0])
            if bool(norms[index].isfinite().all()) and not bool((norms[index] == 0).any()):
                index -= 1  # the score is spoilt by the frame it is compared with
            rows = [level[index] for level in levels] if index >= 0 else []
            self._raise_non_finite(index, rows, levels[0].dtype, scores.dtype)
        zero = (norms == 0).any(dim=1).nonzero().flatten().tolist()
        self.zero_frames.extend(self.num_frames + index for index in zero)

    def _raise_non_finite(
        self, index: int, rows: Sequence[torch.Tensor], dtype: torch.dtype, score_dtype: torch.dtype
    ) -> None:
        frame = self.num_frames + index
        if not all(bool(row.isfinite().all()) for row in rows):
            raise ModelError(
                f"cannot rank the tokens of frame {frame}: its {dtype_name(dtype)} embeddings hold NaN or infinite "
                "values. Expected finite embeddings.",
                hint="float16 overflow is the usual cause: try --dtype bfloat16 or --dtype float32.",
            )
        raise ModelError(
            f"cannot rank the tokens of frame {frame}: its embeddings are finite, but a norm or a similarity is not in "
            f"{dtype_name(score_dtype)}. Expected norms between 1e-3 and 6e4 in float16.",
            hint="Score in a wider dtype: --score-dtype float32.",
        )


def compute_dissimilarity(
    video_embeds: torch.Tensor | Sequence[torch.Tensor], *, score_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``1 - cosine_similarity`` of every token with the token at its place one frame earlier.

    Args:
        video_embeds: ``(T, h, w, D)`` float embeddings after the spatial merge, or a sequence of such levels
            (DeepStack), compared side by side.
        score_dtype: dtype of the arithmetic; None is the embeddings' own.

    Returns:
        ``(T, h, w)`` in the score dtype; frame 0 stands as 255.

    Raises:
        UsageError: shapes or dtypes that do not fit.
        ModelError: a non-finite embedding or norm, naming the frame.
    """
    levels = [video_embeds] if isinstance(video_embeds, torch.Tensor) else list(video_embeds)
    return DissimilarityScorer(score_dtype=score_dtype).update(levels)


@dataclass(frozen=True)
class _Form:
    """What every chunk of a video has in common."""

    height: int
    width: int
    dims: tuple[int, ...]
    """D of each level."""
    dtype: torch.dtype
    device: torch.device

    def __str__(self) -> str:
        levels = " + ".join(str(dim) for dim in self.dims)
        return f"{self.height} x {self.width} tokens of {levels} dimensions, {dtype_name(self.dtype)} on {self.device}"


def _check_levels(levels: Sequence[torch.Tensor]) -> _Form:
    """What the levels have in common, or ``UsageError``."""
    if not levels:
        raise UsageError("Invalid embeddings: no level given. Expected at least one (T, h, w, D) tensor.")
    main = levels[0]
    for level in levels:
        if level.ndim != 4 or level.shape[-1] < 1 or level.dtype not in _FLOAT_DTYPES:
            raise UsageError(
                f"Invalid embeddings of shape {tuple(level.shape)} and dtype {dtype_name(level.dtype)}. "
                f"Expected (T, h, w, D), D at least 1, in one of {_names(_FLOAT_DTYPES)}."
            )
        if level.shape[:3] != main.shape[:3] or level.dtype != main.dtype:
            raise UsageError(
                f"Invalid level of shape {tuple(level.shape)}, {dtype_name(level.dtype)}. "
                f"Expected the first level's grid {tuple(main.shape[:3])} and dtype {dtype_name(main.dtype)}."
            )
    check_grid(*main.shape[:3])
    return _Form(main.shape[1], main.shape[2], tuple(level.shape[3] for level in levels), main.dtype, main.device)


def _is_ready(levels: Sequence[torch.Tensor], dtype: torch.dtype) -> bool:
    """Whether blocks can be read where they lie: one level, the right dtype, rows contiguous in D.

    A stride in D makes torch sum in another order and changes bits, hence the gathering copy of such rows.
    """
    return len(levels) == 1 and levels[0].dtype == dtype and (levels[0].shape[-1] == 1 or levels[0].stride(-1) == 1)


def _gather(
    levels: Sequence[torch.Tensor], frames: slice, places: slice, gathered: torch.Tensor | None
) -> torch.Tensor:
    """One block ``(t, n, sum of D)`` with rows contiguous in D; a view where the levels allow it."""
    if gathered is None:
        return levels[0][frames, places]
    block = gathered[: frames.stop - frames.start, : places.stop - places.start]
    start = 0
    for level in levels:
        block[..., start : start + level.shape[-1]] = level[frames, places]
        start += level.shape[-1]
    return block


def _norms(rows: torch.Tensor) -> torch.Tensor:
    """``(t, n, 1)`` Euclidean norms of ``rows (t, n, D)``."""
    if rows.shape[0] * rows.shape[1] == 1:
        return _norms(rows.expand(2, -1, -1))[:1]
    norms: torch.Tensor = torch.linalg.vector_norm(rows, 2, dim=-1, keepdim=True)
    return norms


def _row_sums(rows: torch.Tensor) -> torch.Tensor:
    """``(t, n)`` sums over D.

    torch splits the reduction of a lone row of 32,768 or more over its threads, which changes bits; two rows it
    does not split. So a lone row is summed twice and the chunking stays out of the result.
    """
    if rows.shape[0] * rows.shape[1] == 1:
        return _row_sums(rows.expand(2, -1, -1))[:1]
    return rows.sum(dim=-1)


def _names(dtypes: Sequence[torch.dtype]) -> str:
    return ", ".join(dtype_name(dtype) for dtype in dtypes)
