"""Scores tokens as they are encoded, and passes their rows on.

In: the tokens of a video, batch by batch. Out: its ranking, its extra rows, and in a ``TokenSink`` the rows themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evs_cli.core.dissimilarity import DissimilarityScorer
from evs_cli.core.retention import Ranking
from evs_cli.core.row_accumulator import RowAccumulator
from evs_cli.errors import ModelError

if TYPE_CHECKING:
    import torch

    from evs_cli.core.streaming import TokenSink
    from evs_cli.core.video_tokens import VideoTokens
    from evs_cli.encoders.base import EncodePlan
    from evs_cli.pipeline.progress import Timings


class TokenScores:
    """The scores of one video's tokens.

    Args:
        plan: the planned video.
        score_dtype: dtype of the dissimilarity; None is the embeddings' own.
        sink: takes the rows.
        timings: where the seconds go, under ``rank``.
    """

    def __init__(self, plan: EncodePlan, score_dtype: torch.dtype | None, sink: TokenSink, timings: Timings) -> None:
        self._sink, self._timings = sink, timings
        self._scorer = DissimilarityScorer(score_dtype=score_dtype)
        self._scores = RowAccumulator(plan.token_grid_thw.t)
        # Scores in the embeddings' own dtype as well, to say how many tokens the other dtype moves.
        self._own_scorer = None if score_dtype is None else DissimilarityScorer()
        self._own_scores = RowAccumulator(plan.token_grid_thw.t)
        self._extra = RowAccumulator(len(plan.layout.extra_positions))
        self._no_rows: torch.Tensor | None = None  # (0, D) of the main level, once one has come

    def add(self, tokens: VideoTokens) -> None:
        """Score the tokens of the next frames and give their rows to the sink."""
        levels = tokens.levels
        with self._timings.measure("rank"):
            scores = self._scorer.update(levels).cpu()
            self._scores.append(scores)
            self._add_own(levels)
            self._sink.add(tuple(level.cpu() for level in levels), scores)
        self._no_rows = levels[0].new_empty((0, levels[0].shape[-1]), device="cpu")
        if tokens.extra is not None:
            self._extra.append(tokens.extra)

    def _add_own(self, levels: tuple[torch.Tensor, ...]) -> None:
        """Score in the embeddings' own dtype too, to compare with."""
        if self._own_scorer is None:
            return
        try:
            self._own_scores.append(self._own_scorer.update(levels))
        except ModelError:  # such as a float16 norm that overflows, which is why another dtype was asked for
            self._own_scorer = None
            self._own_scores.clear()

    @property
    def zero_frames(self) -> tuple[int, ...]:
        """Frames that hold an all-zero token."""
        return tuple(self._scorer.zero_frames)

    def ranking(self) -> Ranking:
        """The ranking of every token that was encoded."""
        with self._timings.measure("rank"):
            return Ranking(self._scores.rows)

    def own_ranking(self) -> Ranking | None:
        """The ranking in the embeddings' own dtype, where another was asked for."""
        return Ranking(self._own_scores.rows) if len(self._own_scores) else None

    def extra_embeddings(self, closing: torch.Tensor | None) -> torch.Tensor:
        """``(E, D)`` rows that are no grid token, in the order of their placeholders; ``closing`` ones come last."""
        if closing is not None:
            self._extra.append(closing)
        assert self._no_rows is not None
        return self._extra.rows if len(self._extra) else self._no_rows
