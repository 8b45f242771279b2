"""Which tokens EVS keeps: one ranking of a video's tokens, and the mask at any rate as a view of it.

In: dissimilarities ``(T, h, w)``. Out: ``Ranking`` and, at a rate q, ``Retention``. The rule is the one SGLang,
vLLM and transformers' nemotron_h_omni share: sort by dissimilarity, largest first, earlier token first among
equals, and keep the first K.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from evs_cli.core.counts import TokenGrid, check_grid, check_pruning_rate, merged_grid
from evs_cli.core.dissimilarity import FIRST_FRAME_DISSIMILARITY, compute_dissimilarity
from evs_cli.core.dtypes import in_double
from evs_cli.errors import UsageError

NOISE_DISSIMILARITY = {torch.float64: 1e-6, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Below this, two equal tokens of any dimension up to 32,768 can differ by rounding alone.

Measured on equal vectors: 1.1e-6 in float32 at D = 32,768, where the sum rounds most; in the half types 1.95e-3 and
1.56e-2 at D of 2 to 16, and half of that from D = 100 on.
"""


@dataclass(frozen=True, eq=False)
class Retention:
    """The tokens kept of one video at one rate."""

    q: float
    """Pruning rate asked for, in [0, 1)."""
    retention_mask: torch.Tensor
    """(T, h, w) bool, True where the token is kept."""
    num_tokens_per_frame: torch.Tensor
    """(T,) int64, kept tokens of each frame; sums to K. Frame 0 is whole."""
    noise_tokens: int
    """Kept tokens outside frame 0 whose dissimilarity is within rounding of zero."""
    dissimilarity_kept: float
    """Share of the total dissimilarity outside frame 0 that the kept tokens hold, in [0, 1]; 1 where there is none."""

    @property
    def retained_tokens(self) -> int:
        """K, the number of tokens kept."""
        return int(self.num_tokens_per_frame.sum())

    @property
    def empty_frames(self) -> int:
        """Frames that keep no token at all; their separators stay in the sequence."""
        return int((self.num_tokens_per_frame == 0).sum())

    @property
    def longest_empty_run(self) -> int:
        """Most frames in a row that keep no token."""
        longest = current = 0
        for count in self.num_tokens_per_frame.tolist():
            current = 0 if count else current + 1
            longest = max(longest, current)
        return longest

    @cached_property
    def token_thw(self) -> torch.Tensor:
        """(K, 3) int32, the original (t, h, w) place of each kept token, in the original order."""
        return self.retention_mask.nonzero().to(torch.int32)

    def select(self, embeddings: torch.Tensor) -> torch.Tensor:
        """The kept rows ``(K, D)`` of ``embeddings (T, h, w, D)``, in the original order."""
        if embeddings.shape[:3] != self.retention_mask.shape:
            raise UsageError(
                f"Invalid embeddings of shape {tuple(embeddings.shape)}. "
                f"Expected (T, h, w) = {tuple(self.retention_mask.shape)} in front."
            )
        return embeddings[self.retention_mask.to(embeddings.device)]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Every token of a video in the order EVS would keep it; every rate is a view of this.

    Raises:
        UsageError: if ``dissimilarity`` is not a ``(T, h, w)`` float tensor with at least one token, or holds NaN.
    """

    dissimilarity: torch.Tensor
    """(T, h, w) in the dtype it was computed in; frame 0 stands as 255."""

    def __post_init__(self) -> None:
        if self.dissimilarity.ndim != 3:
            raise UsageError(f"Invalid dissimilarity of shape {tuple(self.dissimilarity.shape)}. Expected (T, h, w).")
        check_grid(*self.dissimilarity.shape)
        if self.dissimilarity.dtype not in NOISE_DISSIMILARITY or bool(self.dissimilarity.isnan().any()):
            raise UsageError(f"Invalid dissimilarity ({self.dissimilarity.dtype}). Expected floats without NaN.")

    @property
    def token_grid_thw(self) -> TokenGrid:
        """The token grid (T, h, w)."""
        return TokenGrid(*self.dissimilarity.shape)

    @cached_property
    def rank(self) -> torch.Tensor:
        """(T, h, w) int64: place of each token, 0 first. ``rank < K`` is the mask at K. Costs one stable sort."""
        order = self.order()
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        return rank.view(self.dissimilarity.shape)

    def order(self) -> torch.Tensor:
        """(N,) int64: the tokens, counted in (t, h, w) order, by rank. Costs one stable sort."""
        # Stable, as the servers sort: among equals the earlier token comes first. Still videos are full of equals.
        return torch.argsort(self.dissimilarity.flatten(), descending=True, stable=True)

    def retained_tokens(self, q: float) -> int:
        """K at rate q for this grid."""
        return self.token_grid_thw.retained_tokens(q)

    def at(self, q: float) -> Retention:
        """The retention by EVS at one rate, ``0 <= q < 1``."""
        return self.retention(q, self.first(self.retained_tokens(q)))

    def sweep(self, rates: list[float]) -> list[Retention]:
        """The retention by EVS at each of many rates, from one sort."""
        _ = self.rank  # sorts once and keeps it; ``first`` is then a comparison
        return [self.at(q) for q in rates]

    def first(self, retained: int) -> torch.Tensor:
        """(T, h, w) bool mask of the ``retained`` tokens that rank first.

        Without ``rank`` at hand it takes the K-th value and the first ties, a third of the sort's time; the mask
        is the same bit for bit.
        """
        if "rank" in self.__dict__:
            return self.rank < retained
        return first_ranked(self.dissimilarity.flatten(), retained).view(self.dissimilarity.shape)

    def retention(self, q: float, mask: torch.Tensor) -> Retention:
        """The ``Retention`` of a ``(T, h, w)`` bool mask at rate q, whichever rule made the mask."""
        positive = self._positive
        later = mask[1:]
        kept = float((positive * later.to(positive.device)).sum())
        noise = (self.dissimilarity[1:] < NOISE_DISSIMILARITY[self.dissimilarity.dtype]) & later
        return Retention(
            q=check_pruning_rate(q),
            retention_mask=mask,
            num_tokens_per_frame=mask.sum(dim=(1, 2)),
            noise_tokens=int(noise.sum()),
            dissimilarity_kept=kept / self._total if self._total > 0 else 1.0,
        )

    @cached_property
    def _positive(self) -> torch.Tensor:
        """(T - 1, h, w) float64 scores behind frame 0; rounding scatters equal tokens around 0, so from 0 up alone."""
        return in_double(self.dissimilarity[1:]).clamp_min(0)

    @cached_property
    def _total(self) -> float:
        return float(self._positive.sum())


def first_ranked(scores: torch.Tensor, count: int) -> torch.Tensor:
    """(n,) bool mask of the ``count`` of ``scores (n,)`` that rank first: the largest, the earlier among equals.

    Args:
        scores: floats without NaN.
        count: ``1 <= count <= n``.
    """
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()  # widening keeps the order, and kthvalue wants it on some devices
    threshold = scores.kthvalue(scores.numel() - count + 1).values
    mask = scores > threshold
    ties = (scores == threshold).nonzero().flatten()
    mask[ties[: count - int(mask.sum())]] = True
    return mask


def compute_retention_mask(
    video_embeds: torch.Tensor, video_size_thw: tuple[int, int, int] | torch.Tensor, spatial_merge_size: int, q: float
) -> torch.Tensor:
    """The mask the servers compute, under their own signature (SGLang, vLLM).

    Under ``torch.compile`` it traces as one graph and checks no values: NaN rows then sort first, as at the servers.

    Args:
        video_embeds: ``(T * h * w, D)`` float embeddings after the spatial merge, or ``(T, h * w, D)``, or
            ``(T, h, w, D)``.
        video_size_thw: grid ``(T, H, W)`` before the merge, so ``h = H / spatial_merge_size``.
        spatial_merge_size: side of the square of patches that became one token, at least 1.
        q: pruning rate, ``0 <= q < 1``; a tensor of one number is taken.

    Returns:
        ``(T * h * w,)`` bool, True where the token is kept.

    Raises:
        UsageError: q outside [0, 1), a grid that does not divide by the merge or does not fit the embeddings.
        ModelError: a non-finite embedding, naming the frame; not where every token is kept, whatever it is.
    """
    grid = merged_grid(video_size_thw, spatial_merge_size)
    shapes = (grid.num_tokens,), (grid.t, grid.tokens_per_frame), tuple(grid)
    if tuple(video_embeds.shape[:-1]) not in shapes:
        raise UsageError(
            f"Invalid embeddings of shape {tuple(video_embeds.shape)}. "
            f"Expected ({grid.num_tokens}, D) for the token grid {grid}."
        )
    rows = video_embeds.reshape(*grid, video_embeds.shape[-1])
    retained = grid.retained_tokens(q)
    if torch.compiler.is_compiling():
        return _traced_mask(rows, retained)
    if retained == grid.num_tokens:
        return torch.ones(retained, dtype=torch.bool, device=rows.device)
    return Ranking(compute_dissimilarity(rows)).first(retained).flatten()


def _traced_mask(rows: torch.Tensor, retained: int) -> torch.Tensor:
    """``(N,)`` bool, the mask of ``rows (T, h, w, D)`` at K = ``retained``, without a branch on a value."""
    similarity = torch.nn.functional.cosine_similarity(rows[1:], rows[:-1], dim=-1)
    first = torch.full_like(rows[:1, ..., 0], FIRST_FRAME_DISSIMILARITY)
    scores = torch.cat([first, 1 - similarity]).flatten()
    order = torch.argsort(scores, descending=True, stable=True)
    return torch.zeros_like(scores, dtype=torch.bool).index_fill(0, order[:retained], True)
