"""Which tokens to keep, given scores and K: EVS itself, its floor, and controls at the same K.

A method takes a ``Ranking`` and a count and gives a mask. The controls exist to be compared with: what a rate costs
in quality shows only beside a selection that knows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from evs_cli.core.counts import TokenGrid, check_min_dissimilarity
from evs_cli.core.dtypes import in_double
from evs_cli.core.retention import Ranking, Retention
from evs_cli.errors import UsageError


@dataclass(frozen=True)
class RetentionRule:
    """How the tokens of a video are chosen.

    Raises:
        UsageError: an unknown method, a negative floor, or a floor on a method without scores.
    """

    method: str = "evs"
    """A name in ``METHODS``."""
    min_dissimilarity: float | None = None
    """Floor: below it nothing is kept beyond frame 0. The counts then depend on the content; K is the most."""
    seed: int = 0
    """Seed of the method ``random``."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"Invalid method {self.method!r}. Expected one of {', '.join(METHODS)}.")
        if not -(2**63) <= self.seed < 2**63:
            raise UsageError(f"Invalid seed {self.seed}. Expected an integer of 64 bits.")
        floor = self.min_dissimilarity
        check_min_dissimilarity(floor)
        if floor is not None and self.method != "evs":
            raise UsageError(f"min_dissimilarity has no effect on the method {self.method}. Expected the method evs.")

    def retain(self, ranking: Ranking, q: float) -> Retention:
        """The retention of a ranked video at rate q, ``0 <= q < 1``."""
        mask = METHODS[self.method](ranking, ranking.retained_tokens(q), self.seed)
        if self.min_dissimilarity is not None:
            # In double: bfloat16 would round the floor. Frame 0 stands at 255.
            mask = mask & (in_double(ranking.dissimilarity) >= self.min_dissimilarity).to(mask.device)
        return ranking.retention(q, mask)

    def most_rows(self, token_grid_thw: TokenGrid, rates: Iterable[float]) -> int:
        """Rows that must be there to serve each of ``rates`` of a video of that grid, or one with fewer frames."""
        if self.method == "uniform-frames":  # which frames it takes depends on how many decode
            return token_grid_thw.num_tokens
        return max(token_grid_thw.retained_tokens(q) for q in rates)

    def own_scores(self, token_grid_thw: TokenGrid) -> torch.Tensor | None:
        """``(T, h, w)`` float64 that the method ranks by in place of the dissimilarity; None where it does not.

        The scores of a video with fewer frames are the first of these.
        """
        return _random_scores(token_grid_thw, self.seed) if self.method == "random" else None

    def sweep(self, ranking: Ranking, rates: list[float]) -> list[Retention]:
        """The retention at each of many rates, from one sort."""
        _ = ranking.rank  # sorts once and keeps it; each mask is then a comparison
        return [self.retain(ranking, q) for q in rates]


def _evs(ranking: Ranking, retained: int, seed: int) -> torch.Tensor:
    """The tokens that differ most from the frame before."""
    return ranking.first(retained)


def _uniform_frames(ranking: Ranking, retained: int, seed: int) -> torch.Tensor:
    """Whole frames spread evenly from frame 0 on; the last one is cut, in reading order, so that K is met."""
    num_frames, height, width = ranking.token_grid_thw
    num_places = height * width
    num_chosen = math.ceil(retained / num_places)
    mask = torch.zeros((num_frames, num_places), dtype=torch.bool, device=ranking.dissimilarity.device)
    chosen = [index * num_frames // num_chosen for index in range(num_chosen)]
    mask[chosen] = True
    mask[chosen[-1], retained - (num_chosen - 1) * num_places :] = False
    return mask.view(num_frames, height, width)


def _random(ranking: Ranking, retained: int, seed: int) -> torch.Tensor:
    """Frame 0, and others drawn evenly; the same seed draws the same, and a higher rate a subset."""
    scores = _random_scores(ranking.token_grid_thw, seed)
    return Ranking(scores).first(retained).to(ranking.dissimilarity.device)


def _random_scores(token_grid_thw: TokenGrid, seed: int) -> torch.Tensor:
    """``(T, h, w)`` float64 in [0, 1), frame 0 above; a grid of fewer frames gets the first of them."""
    scores = torch.rand(token_grid_thw, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scores[0] = 2
    return scores


METHODS: dict[str, Callable[[Ranking, int, int], torch.Tensor]] = {
    "evs": _evs,
    "uniform-frames": _uniform_frames,
    "random": _random,
}
"""By name: a function of (ranking, K, seed) to a (T, h, w) bool mask of K tokens with frame 0 whole."""
