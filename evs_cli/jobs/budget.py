"""What a video will cost before anything is encoded: every factor of its token count, at any rate.

In: a planned clip, of a file or of numbers alone. Out: a ``BudgetReport`` of plain values. No pixel is decoded and no
weight is read; a plain encoder's budget needs no torch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from evs_cli.core.counts import TokenGrid, check_min_dissimilarity, check_pruning_rate, exact_retained_tokens_count
from evs_cli.cost import CostReport, cost_report, read_language_model
from evs_cli.dialects.base import PruningRate, ServerSource
from evs_cli.dialects.limits import ServerLimit
from evs_cli.encoders.base import EncodeOptions, EncodePlan, VideoEncoder
from evs_cli.errors import ModelError, UsageError
from evs_cli.pipeline.clip_plan import ClipPlan, SourceFacts
from evs_cli.pipeline.clips import Clips
from evs_cli.video.sampling import FrameSelection, SamplingRequest

if TYPE_CHECKING:
    from evs_cli.encoders.source import ModelSource


class CostedModel(Protocol):
    """What costs ask of a model: an encoder, or what a file of ours tells of one."""

    @property
    def source(self) -> ModelSource:
        """Its name and configuration."""

    @property
    def has_language_model(self) -> bool:
        """Whether its tokens go into a language model."""


@dataclass(frozen=True)
class SampledFrame:
    """One sampled frame."""

    index: int
    """Frame of the source."""
    pts_seconds: float
    """Its presentation time."""
    prompt_seconds: float
    """The time the model is told for the frame of tokens it is part of."""


@dataclass(frozen=True)
class RateBudget:
    """The counts at one rate."""

    q: float
    retained_tokens: int
    """K, video tokens kept."""
    exact_retained_tokens: int
    """K in decimal arithmetic, where the servers' float rule may be one token off."""
    sequence_length: int
    """L, length of ``input_ids``."""
    context_share: float | None
    """L over the context limit; None where no limit is known."""
    cost: CostReport | None
    """Cache, prefill and vision work, and the rows on disk; None where the model's sizes are not known to evs."""
    server_limits: tuple[ServerLimit, ...] = ()
    """Every limit of the server the video is planned for; none for ``evs``."""

    @property
    def limit_hit(self) -> str | None:
        """The name of the first of them that the clip exceeds."""
        return next((limit.name for limit in self.server_limits if not limit.passes), None)


@dataclass(frozen=True)
class BudgetReport:
    """Everything countable of one video and one model."""

    dialect: str
    """Whose rules sample, resize and write the video."""
    source: SourceFacts
    server_source: ServerSource | None
    """The file as the server sees it; None for ``evs``."""
    model: str
    frames: tuple[SampledFrame, ...]
    frame_size: tuple[int, int]
    """(height, width) in pixels after the resize."""
    token_grid_thw: TokenGrid
    video_grid_thw: tuple[int, int, int]
    factors: tuple[str, ...]
    """The count, factor by factor, in words."""
    total_tokens: int
    """N, video tokens before pruning."""
    separator_tokens: int
    """Ids of the video's part that are no video token: markers, timestamps, extra rows."""
    outer_tokens: int
    """Of those separators, the markers around the whole video."""
    text_tokens: int
    """Ids around the video's part: the prompt and the chat template."""
    context_limit: int | None
    """Longest sequence of the model, or what the user said; None where neither is known."""
    rates: tuple[RateBudget, ...]
    pruning: PruningRate | None
    """The server's own rate and where it comes from; None for ``evs``."""
    is_at_most: bool
    """Whether a floor may drop more, by the content: K and L of every rate are then the most."""
    notes: tuple[str, ...]

    @property
    def unpruned_sequence_length(self) -> int:
        """L at q = 0."""
        return self.total_tokens + self.separator_tokens + self.text_tokens


def budget(
    clips: Clips,
    encoder: VideoEncoder,
    sampling: SamplingRequest,
    options: EncodeOptions,
    rates: Sequence[float],
    *,
    context_limit: int | None = None,
    reserve: int = 0,
    kv_budget_bytes: int | None = None,
    min_dissimilarity: float | None = None,
    with_details: bool = True,
) -> BudgetReport:
    """Count one video for one model.

    Args:
        clips: what plans the video.
        encoder: the model; its weights are not touched.
        sampling: the frames asked for.
        options: the user's options for the model.
        rates: rates to count at, each ``0 <= q < 1``.
        context_limit: longest sequence allowed; None takes the model's own, where its configuration says one.
        reserve: tokens of a server's context kept for the answer.
        kv_budget_bytes: memory for caches, to tell how many such prompts fit.
        min_dissimilarity: a floor, which makes the counts the most there can be.
        with_details: whether each frame, the costs and the longest clips that pass are told beside the counts.

    Raises:
        UsageError: a rate outside [0, 1), a floor outside [0, 2], or options the model has no use for.
        RefusedByServerError: a clip that the server would refuse or fail on.
    """
    check_min_dissimilarity(min_dissimilarity)
    planned = clips.plan(sampling, options)
    plan, served = planned.encode, planned.served
    part_length = clips.part_length(planned)
    limit = context_limit if context_limit is not None else model_context_limit(encoder)
    return BudgetReport(
        dialect=planned.dialect,
        source=planned.source,
        server_source=None if served is None else served.source,
        model=encoder.source.name,
        frames=_sampled_frames(planned.selection, plan) if with_details else (),
        frame_size=plan.frame_size,
        token_grid_thw=plan.token_grid_thw,
        video_grid_thw=plan.video_grid_thw,
        factors=_factors(planned),
        total_tokens=plan.total_tokens,
        separator_tokens=part_length - plan.total_tokens,
        outer_tokens=encoder.outer_tokens if served is None else served.outer_tokens,
        text_tokens=plan.layout.sequence_length - part_length,
        context_limit=limit,
        rates=tuple(
            _rate_budget(
                plan,
                q,
                limit,
                rate_cost(plan, plan.retained_tokens(q), encoder, limit, kv_budget_bytes) if with_details else None,
                clips.limits(planned, q, limit, reserve, with_longest=with_details),
            )
            for q in rates
        ),
        pruning=None if served is None else served.server.pruning,
        is_at_most=min_dissimilarity is not None,
        notes=(*planned.notes, *_no_effect_notes(encoder, kv_budget_bytes)),
    )


def check_context(context: int | None) -> None:
    """Raise ``UsageError`` for a context limit below 1; None is none."""
    if context is not None and context < 1:
        raise UsageError(f"Invalid context ({context}). Expected at least 1.")


def model_context_limit(encoder: CostedModel) -> int | None:
    """``max_position_embeddings`` of the language model, or None for a plain encoder."""
    return _context_limit(encoder.source) if encoder.has_language_model else None


@functools.lru_cache(maxsize=64)  # of a source, which is as it is for good: reading every layer takes a plan's time
def _context_limit(source: ModelSource) -> int | None:
    try:
        language = read_language_model(source.config)
    except ModelError:  # a language model of a kind the costs do not know
        text = source.config.get("llm_config") or source.config.get("text_config") or {}
        limit = text.get("max_position_embeddings")
        return limit if isinstance(limit, int) else None
    return None if language is None else language.context_limit_tokens


def _no_effect_notes(encoder: VideoEncoder, kv_budget_bytes: int | None) -> list[str]:
    """Sentences on what was asked for and had no effect."""
    if kv_budget_bytes is not None and not encoder.has_language_model:
        return [f"--kv-budget has no effect on {encoder.source.name}, which has no language model"]
    return []


def rate_cost(
    plan: EncodePlan,
    retained_tokens: int,
    encoder: CostedModel,
    context_limit: int | None = None,
    kv_budget_bytes: int | None = None,
) -> CostReport | None:
    """What a prompt with ``retained_tokens`` video tokens costs; None where config.json does not tell the sizes.

    Args:
        plan: of the video.
        retained_tokens: K.
        encoder: the model, or what a file of ours tells of it.
        context_limit: longest sequence; None is the model's own.
        kv_budget_bytes: memory for caches, to tell how many such prompts fit.
    """
    try:
        return cost_report(
            encoder.source.config,
            unpruned_tokens=plan.sequence_length(),
            pruned_tokens=plan.length_with(retained_tokens),
            retained_video_tokens=retained_tokens,
            patch_grid_thw=plan.model_grid_thw,
            context_limit=context_limit,
            kv_budget_bytes=kv_budget_bytes,
        )
    except ModelError:
        return None


def _rate_budget(
    plan: EncodePlan,
    q: float,
    limit: int | None,
    cost: CostReport | None,
    server_limits: tuple[ServerLimit, ...],
) -> RateBudget:
    q, length = check_pruning_rate(q), plan.sequence_length(q)
    return RateBudget(
        q=q,
        retained_tokens=plan.retained_tokens(q),
        exact_retained_tokens=exact_retained_tokens_count(
            plan.tokens_per_frame, plan.token_grid_thw.t, q, plan.pruning_method
        ),
        sequence_length=length,
        context_share=None if limit is None else length / limit,
        cost=cost,
        server_limits=server_limits,
    )


def _sampled_frames(selection: FrameSelection, plan: EncodePlan) -> tuple[SampledFrame, ...]:
    told = np.repeat(plan.prompt_seconds, plan.temporal_patch_size)[: len(selection.frame_indices)]
    rows = zip(selection.frame_indices.tolist(), selection.pts_seconds.tolist(), told.tolist(), strict=True)
    return tuple(SampledFrame(*row) for row in rows)


def _factors(planned: ClipPlan) -> tuple[str, ...]:
    """The token count, factor by factor."""
    selection, plan, num_sampled = planned.selection, planned.encode, planned.num_sampled_frames
    source = planned.source if planned.served is None else planned.served.source
    num_frames, height, width = plan.token_grid_thw
    rule = selection.rule
    if rule == "fps":
        rule = f"{selection.requested_fps:g} fps"
    elif rule == "num_frames":
        rule = f"{selection.requested_num_frames} frames asked"
    bound = ", max_frames bound" if selection.max_frames_bound else ""
    resizes = dict.fromkeys(size for size in (plan.loader_size, plan.frame_size) if size is not None)
    sizes = [f"{width}x{height}" for height, width in resizes]
    lines = [
        f"{source.num_frames:,} frames in {source.duration_seconds:.2f} s: {num_sampled} sampled ({rule}{bound})",
        f"resize {source.width}x{source.height} to {', then '.join(sizes)}",
    ]
    if plan.temporal_patch_size > 1:
        lines.append(f"temporal patch {plan.temporal_patch_size}: {num_sampled} frames become {num_frames}")
    _, grid_h, grid_w = plan.model_grid_thw
    if (grid_h, grid_w) != (height, width):
        lines.append(f"patches {grid_h} x {grid_w}, merged {plan.spatial_merge_size} x {plan.spatial_merge_size}")
    lines.append(f"{num_frames} x {height} x {width} = {plan.total_tokens:,} video tokens")
    return tuple(lines)


def read_manifest(path: str) -> list[str]:
    """The videos named in a text file, one a line; blank lines and lines that begin with # are left out.

    Raises:
        UsageError: a file that cannot be read, or names nothing.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"Invalid manifest {path}: {reason}. Expected a text file of one video a line.") from error
    videos = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not videos:
        raise UsageError(f"Invalid manifest {path}: it names no video. Expected one a line.")
    return videos
