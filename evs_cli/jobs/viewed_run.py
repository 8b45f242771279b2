"""What a view shows of one run: the ranking of a video's tokens, and what a sequence of them costs.

In: a pruned video, or an encoding. Out: a ``ViewedRun``, the same for both. Its rows are not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from evs_cli.core.counts import TokenGrid
from evs_cli.core.methods import RetentionRule
from evs_cli.core.pixel_region import WHOLE_FRAME, PixelRegion, recorded_region
from evs_cli.core.retention import NOISE_DISSIMILARITY, Ranking, Retention
from evs_cli.cost.language_model import read_language_model
from evs_cli.cost.report import cached_bytes, kv_bytes_by_window
from evs_cli.errors import ArtifactError, ModelError, UsageError
from evs_cli.jobs.budget import model_context_limit
from evs_cli.jobs.rates import SWEPT_RATES
from evs_cli.jobs.sweep import knee_of
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.files.encoding.reader import Encoding
    from evs_cli.jobs.budget import CostedModel
    from evs_cli.pipeline.encoded_video import EncodedClip

NEVER_KEPT = np.uint32(0xFFFFFFFF)
"""A rank that no count reaches."""


@dataclass(frozen=True, eq=False)
class SequenceCost:
    """What tells how much a sequence of any length costs a language model."""

    context_limit: int | None = None
    """Longest sequence; None where it is not known."""
    kv_bytes_by_window: Mapping[int | None, int] | None = None
    """Bytes a token by sliding window; None where the model's sizes are not known."""

    @classmethod
    def of(cls, model: CostedModel | None, context_limit: int | None) -> SequenceCost:
        """Of a model's configuration; ``context_limit`` is the user's word and goes before it."""
        if model is None or not model.has_language_model:
            return cls(context_limit)
        try:
            language = read_language_model(model.source.config)
        except ModelError:  # a language model of a kind the costs do not know
            language = None
        kv_bytes = None if language is None else kv_bytes_by_window(language)
        return cls(context_limit or model_context_limit(model), kv_bytes)

    def kv_cache_bytes(self, num_tokens: int) -> int | None:
        """Keys and values of a prompt of so many ids."""
        if self.kv_bytes_by_window is None:
            return None
        return cached_bytes(self.kv_bytes_by_window, num_tokens)


@dataclass(frozen=True, eq=False)
class ViewedRun:
    """One model on one video: what was kept, and what any other rate would keep."""

    label: str
    """The file, or the model where a video was encoded for the view."""
    model: str
    ranking: Ranking
    rule: RetentionRule
    q: float
    frame_indices: np.ndarray[Any, np.dtype[np.int64]]
    """(T,) the sampled frame of the source that is shown for each frame of tokens: the first of a tubelet."""
    pts_seconds: np.ndarray[Any, np.dtype[np.float64]]
    """(T,) when it is shown."""
    unpruned_sequence_length: int
    frame_size: tuple[int, int]
    """(height, width) in pixels of a frame as the model sees it."""
    pixel_region: PixelRegion
    provenance: Mapping[str, Any]
    cost: SequenceCost
    retention: Retention
    """What is kept at ``q``; of a file, its own mask."""
    notes: tuple[str, ...] = ()
    """Sentences on what the file does not tell."""

    @property
    def video_name(self) -> str:
        """The file's name."""
        return str(self.provenance.get("video", {}).get("name", "a video without a name"))

    @property
    def token_grid_thw(self) -> TokenGrid:
        """Tokens in time, height, width."""
        return self.ranking.token_grid_thw

    @property
    def total_tokens(self) -> int:
        """N, before pruning."""
        return self.ranking.dissimilarity.numel()

    def sequence_length(self, retained_tokens: int) -> int:
        """Length of ``input_ids`` with so many tokens kept."""
        return self.unpruned_sequence_length - self.total_tokens + retained_tokens

    @cached_property
    def rank(self) -> torch.Tensor:
        """(T, h, w) int64 by which EVS keeps tokens: those of the file's own mask first.

        The file holds float32 scores. Where they were made in float64, two that round to the same float32 may stand in
        another order; the mask that was written settles it at its own rate.
        """
        if self.rule.method != "evs" or self.rule.min_dissimilarity is not None:
            return self.ranking.rank
        order = self.ranking.order()
        is_kept = self.retention.retention_mask.flatten()[order]
        order = torch.cat([order[is_kept], order[~is_kept]])
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order))
        return rank.view(self.ranking.dissimilarity.shape)

    def rank_numbers(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """(T, h, w) uint32 ranks; a token below the floor of ``min_dissimilarity`` has ``NEVER_KEPT``."""
        ranks = self.rank.numpy().astype(np.uint32)
        if self.rule.min_dissimilarity is None:
            return ranks
        is_below = self.ranking.dissimilarity.double().numpy() < self.rule.min_dissimilarity
        return np.where(is_below, NEVER_KEPT, ranks)

    def random_rank_numbers(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """(T, h, w) uint32 ranks of the method ``random`` with the rule's seed."""
        scores = RetentionRule("random", seed=self.rule.seed).own_scores(self.token_grid_thw)
        assert scores is not None  # random ranks by scores of its own
        return Ranking(scores).rank.numpy().astype(np.uint32)

    def score_numbers(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(T, h, w) float32 dissimilarities; NaN in frame 0, whose 255 means that it has none."""
        scores = self.ranking.dissimilarity.float().numpy().copy()
        scores[0] = np.nan
        return scores

    def mean_scores(self) -> list[float]:
        """(T,) mean dissimilarity of each frame; that of frame 0 means nothing."""
        means: list[float] = self.ranking.dissimilarity.double().mean(dim=(1, 2)).tolist()
        return means

    @cached_property
    def knee(self) -> float | None:
        """The rate that ``evs sweep`` calls the knee; None where there is none."""
        retentions = self.rule.sweep(self.ranking, list(SWEPT_RATES))
        index = knee_of([(each.q, each.dissimilarity_kept) for each in retentions])
        return None if index is None else SWEPT_RATES[index]

    @cached_property
    def noise_rate(self) -> float | None:
        """The highest rate, to the hundredth, at which nothing is dropped but what repeats the frame before."""
        scores = self.ranking.dissimilarity
        changed = int((scores[1:] >= NOISE_DISSIMILARITY[scores.dtype]).sum()) + scores[0].numel()
        rates = [step / 100 for step in range(99, -1, -1)]
        return next((q for q in rates if self.ranking.retained_tokens(q) >= changed), None)


def run_of_artifact(
    pruned: PrunedVideo,
    label: str,
    *,
    q: float | None = None,
    rule: RetentionRule | None = None,
    model: CostedModel | None = None,
    context_limit: int | None = None,
) -> ViewedRun:
    """The run that a file of ``evs prune`` tells of.

    Args:
        pruned: the file, read.
        label: its name.
        q: another rate than its own.
        rule: another way to choose than its own.
        model: its model, for what a prompt costs.
        context_limit: longest sequence; None takes the model's own.

    Raises:
        ArtifactError: a record of the pixels that is none.
    """
    ranking = Ranking(pruned.dissimilarity)
    is_own = q is None and rule is None
    rule = rule or RetentionRule(pruned.method, pruned.min_dissimilarity, pruned.seed or 0)
    q = pruned.q if q is None else q
    retention = ranking.retention(q, pruned.retention_mask) if is_own else rule.retain(ranking, q)
    region, notes = _region(pruned.provenance, label)
    return ViewedRun(
        label=label,
        model=_model_name(pruned.provenance),
        ranking=ranking,
        rule=rule,
        q=q,
        frame_indices=pruned.frame_indices.numpy()[:: pruned.temporal_patch_size],
        pts_seconds=pruned.frame_pts_seconds.numpy(),
        unpruned_sequence_length=pruned.unpruned_sequence_length,
        frame_size=_frame_size(pruned.provenance),
        pixel_region=region,
        provenance=pruned.provenance,
        cost=SequenceCost.of(model, context_limit),
        retention=retention,
        notes=notes,
    )


def run_of_clip(
    clip: EncodedClip,
    label: str | None = None,
    *,
    q: float,
    rule: RetentionRule,
    model: CostedModel | None = None,
    context_limit: int | None = None,
) -> ViewedRun:
    """The run of a video that was encoded, or of a file of ``evs encode``; arguments as for ``run_of_artifact``.

    A run without a label is called by its model.

    Raises:
        ArtifactError: a record of the pixels that is none.
    """
    plan = clip.actual
    region, notes = _region(clip.provenance, label or "the encoding")
    return ViewedRun(
        label=label or _model_name(clip.provenance),
        model=_model_name(clip.provenance),
        ranking=clip.ranking,
        rule=rule,
        q=q,
        frame_indices=clip.frame_indices[:: plan.temporal_patch_size],
        pts_seconds=plan.frame_pts_seconds,
        unpruned_sequence_length=plan.sequence_length(),
        frame_size=plan.frame_size,
        pixel_region=region,
        provenance=clip.provenance,
        cost=SequenceCost.of(model, context_limit),
        retention=rule.retain(clip.ranking, q),
        notes=notes,
    )


def run_of_encoding(
    encoding: Encoding,
    label: str,
    *,
    q: float | None = None,
    rule: RetentionRule | None = None,
    context_limit: int | None = None,
) -> ViewedRun:
    """The run of a file of ``evs encode``; arguments as for ``run_of_artifact``.

    A file that holds every token has no rate: None is the model's own, else the default.
    """
    own = encoding.model.default_pruning_rate
    return run_of_clip(
        encoding.video,
        label,
        q=q if q is not None else DEFAULT_PRUNING_RATE if own is None else own,
        rule=rule or RetentionRule(),
        model=encoding.model,
        context_limit=context_limit,
    )


def _model_name(provenance: Mapping[str, Any]) -> str:
    """Without folders, as it is recorded: a page is handed on, and paths are nobody's business."""
    return str(provenance.get("model", {}).get("id", "a model without a name"))


def _region(provenance: Mapping[str, Any], label: str) -> tuple[PixelRegion, tuple[str, ...]]:
    try:
        region = recorded_region(provenance)
    except UsageError as error:
        raise ArtifactError(f"cannot use {label}: {error.message}", hint="It is damaged or was changed.") from error
    if region is not None:
        return region, ()
    return WHOLE_FRAME, (
        f"{label} was written by an evs that did not record what its model sees of a frame: cells are drawn over the "
        "whole frame, which is wrong where the model crops it.",
    )


def _frame_size(provenance: Mapping[str, Any]) -> tuple[int, int]:
    """The recorded size; 224 rows, of no more effect than the size of a picture, where none is."""
    size = provenance.get("frame_size")
    is_size = isinstance(size, list) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size)
    return (size[0], size[1]) if is_size and size is not None else (224, 224)
