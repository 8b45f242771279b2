"""One encoding, many rates: what each rate keeps, costs and loses.

In: an ``EncodedClip`` and rates. Out: a ``SweepRow`` a rate, all from the one ranking; nothing is encoded or sorted
twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from evs_cli.core.counts import exact_retained_tokens_count
from evs_cli.errors import UsageError
from evs_cli.jobs.budget import check_context, model_context_limit, rate_cost
from evs_cli.jobs.runner import Input, Outcome, announced, run_each

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.quality import Quality
    from evs_cli.core.retention import Retention
    from evs_cli.files.cache.store import EncodingCache
    from evs_cli.jobs.budget import CostedModel
    from evs_cli.jobs.encoded_input import EncodedInputs
    from evs_cli.pipeline.encoded_video import EncodedClip
    from evs_cli.pipeline.progress import Progress, Timings
    from evs_cli.pipeline.request import SessionRequest
    from evs_cli.video.source import VideoSource


@dataclass(frozen=True)
class SweepRow:
    """One rate of a sweep, by one method."""

    q: float
    method: str
    """What chose the tokens, a name in ``METHODS``."""
    retained_tokens: int
    """K."""
    exact_retained_tokens: int
    """K in decimal arithmetic, where the servers' float rule may be one token off."""
    retained_share: float
    """K / N, in (0, 1]."""
    sequence_length: int
    """Length of ``input_ids``."""
    sequence_share: float
    """Length of ``input_ids`` over that without pruning, in (0, 1]: clips of any length compare by it."""
    empty_frames: int
    """Frames that keep no token."""
    longest_empty_run: int
    """Most frames in a row that keep no token."""
    dissimilarity_kept: float
    """Share of the total dissimilarity outside frame 0 that is kept, in [0, 1]."""
    noise_tokens: int
    """Kept tokens outside frame 0 whose dissimilarity is within rounding of zero."""
    noise_share: float
    """Share of the tokens kept outside frame 0 that are noise, in [0, 1]; 0 where none are kept."""
    context_share: float | None
    """Sequence length over the model's context limit; None for a plain encoder."""
    kv_cache_bytes: int | None
    """Keys and values of such a prompt; None for a plain encoder or sizes that are not known."""
    prefill_flops: int | None
    """Work of its prefill; None likewise."""
    is_knee: bool = False
    """Whether this rate is the knee: farthest above the line from the first rate's change kept to the last's."""
    quality: Quality | None = None
    """Coverage and drift, where they were asked for."""


def sweep(
    encoded: EncodedClip,
    rates: Sequence[float],
    rule: RetentionRule | None = None,
    *,
    encoder: CostedModel | None = None,
    context_limit: int | None = None,
    with_quality: bool = False,
) -> list[SweepRow]:
    """A row a rate, in the order given; by EVS unless ``rule`` says otherwise.

    Args:
        encoded: the video; its rows are read for ``with_quality`` alone.
        rates: rates, each ``0 <= q < 1``.
        rule: how tokens are chosen.
        encoder: the model, or what a file tells of it, for what a prompt costs it; None leaves that out.
        context_limit: longest sequence; None takes the model's own.
        with_quality: whether to measure coverage and drift too, which reads the embeddings once a rate.

    Raises:
        UsageError: a rate outside [0, 1).
        TypeError: ``with_quality`` of an encoding whose rows are not there.
    """
    from evs_cli.core.methods import RetentionRule

    if context_limit is None and encoder is not None:
        context_limit = model_context_limit(encoder)
    rule = rule or RetentionRule()
    rows = [
        _row(encoded, retention, rule.method, encoder, context_limit, with_quality)
        for retention in rule.sweep(encoded.ranking, list(rates))
    ]
    knee = knee_of([(row.q, row.dissimilarity_kept) for row in rows])
    return rows if knee is None else [replace(row, is_knee=index == knee) for index, row in enumerate(rows)]


def _row(
    encoded: EncodedClip,
    retention: Retention,
    method: str,
    encoder: CostedModel | None,
    context_limit: int | None,
    with_quality: bool,
) -> SweepRow:
    plan = encoded.actual
    retained = retention.retained_tokens
    quota = retained - plan.tokens_per_frame
    length = plan.length_with(retained)
    report = None if encoder is None else rate_cost(plan, retained, encoder)
    cost = None if report is None else report.pruned
    quality = None
    if with_quality:
        from evs_cli.core.quality import quality_of_rows

        quality = quality_of_rows(encoded.rows_of, retention.retention_mask)
    return SweepRow(
        q=retention.q,
        method=method,
        retained_tokens=retained,
        exact_retained_tokens=exact_retained_tokens_count(plan.tokens_per_frame, plan.token_grid_thw.t, retention.q),
        retained_share=retained / plan.total_tokens,
        sequence_length=length,
        sequence_share=length / plan.sequence_length(),
        empty_frames=retention.empty_frames,
        longest_empty_run=retention.longest_empty_run,
        dissimilarity_kept=retention.dissimilarity_kept,
        noise_tokens=retention.noise_tokens,
        noise_share=retention.noise_tokens / quota if quota else 0.0,
        context_share=None if context_limit is None else length / context_limit,
        kv_cache_bytes=None if cost is None else cost.kv_cache_bytes,
        prefill_flops=None if cost is None else cost.prefill_flops,
        quality=quality,
    )


def knee_of(points: Sequence[tuple[float, float]]) -> int | None:
    """Index of the point farthest above the line from the first to the last, x ascending; None where none is.

    Up to the knee of a curve that falls, a step in x costs less than it does on the average.
    """
    if len(points) < 3:
        return None
    (x0, y0), (x1, y1) = points[0], points[-1]
    heights = [y - (y0 + (y1 - y0) * (x - x0) / (x1 - x0)) for x, y in points] if x1 > x0 else [0.0]
    best = max(range(len(heights)), key=heights.__getitem__)
    return best if heights[best] > 1e-9 else None


@dataclass(frozen=True)
class Sweep:
    """The rates of one video with one model."""

    model: str
    """As it was named; of an encoding as that tells."""
    rows: tuple[SweepRow, ...]
    """By rate; of several methods, those of one rate in the order they were asked for."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, each once."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    def of_method(self, method: str) -> tuple[SweepRow, ...]:
        """The rows of one method."""
        return tuple(row for row in self.rows if row.method == method)


@dataclass(frozen=True)
class SweepRequest:
    """Videos and models to sweep."""

    videos: tuple[str, ...]
    """Videos, or files of ``evs encode``."""
    sessions: tuple[SessionRequest, ...]
    """One a model."""
    rates: tuple[float, ...]
    rules: tuple[RetentionRule, ...] = ()
    """What chooses the tokens, one after the other from the same encoding; none is the session's own rule."""
    with_quality: bool = False
    context_limit: int | None = None
    """Longest sequence, at least 1; None is each model's own."""
    cache: EncodingCache | None = None
    """Where encodings are kept and taken from; None for nowhere."""

    def __post_init__(self) -> None:
        check_context(self.context_limit)


def run_sweep(request: SweepRequest, progress: Progress) -> Iterator[Outcome[Sweep]]:
    """Encode each video once a model, or read each encoding. One that fails of several is an outcome with an error.

    Raises:
        ModelError, UsageError: what concerns a model and all its videos.
    """
    from evs_cli.jobs.encoded_input import open_inputs
    from evs_cli.jobs.inputs import opened
    from evs_cli.jobs.stored_session import are_encodings

    if are_encodings(request.videos) and len(request.sessions) > 1:
        raise UsageError("--model has no effect on an encoding, which is of one model already. Expected none.")
    models = [
        open_inputs(request.videos, session, None, progress, request.cache) for session in request.sessions
    ]  # a bad one is found before any work
    with ExitStack() as stack:
        sources = {video: stack.enter_context(opened(video)) for video in request.videos}  # stdin comes but once
        for inputs in models:
            yield from run_each(
                (
                    (Input(video, model=inputs.model), source)
                    for video, source in announced(list(sources.items()), progress)
                ),
                partial(_sweep_one, inputs, request),
                is_single=len(request.videos) == 1,
            )


def _sweep_one(inputs: EncodedInputs, request: SweepRequest, source: VideoSource, _: Timings) -> Sweep:
    with inputs.opened(source) as video:
        encoded = video.encode(with_rows=request.with_quality)
        by_rule = [
            sweep(
                encoded,
                request.rates,
                rule,
                encoder=video.model,
                context_limit=request.context_limit,
                with_quality=request.with_quality,
            )
            for rule in request.rules or (inputs.rule,)
        ]
        return Sweep(video.model_name, tuple(chain.from_iterable(zip(*by_rule, strict=True))))


@dataclass(frozen=True)
class SweepSummary:
    """One rate of one model and method over several videos."""

    model: str
    method: str
    q: float
    num_videos: int
    retained_tokens: int
    """Sum over the videos."""
    sequence_length: int
    """Sum over the videos."""
    empty_frames: int
    """Sum over the videos."""
    dissimilarity_kept: float
    """Mean over the videos."""


def summarise(sweeps: Sequence[Sweep]) -> list[SweepSummary]:
    """A row a model, rate and method over the videos that were encoded."""
    groups: dict[tuple[str, str, float], list[SweepRow]] = {}
    for each in sweeps:
        for row in each.rows:
            groups.setdefault((each.model, row.method, row.q), []).append(row)
    return [
        SweepSummary(
            model=model,
            method=method,
            q=q,
            num_videos=len(rows),
            retained_tokens=sum(row.retained_tokens for row in rows),
            sequence_length=sum(row.sequence_length for row in rows),
            empty_frames=sum(row.empty_frames for row in rows),
            dissimilarity_kept=sum(row.dissimilarity_kept for row in rows) / len(rows),
        )
        for (model, method, q), rows in groups.items()
    ]
