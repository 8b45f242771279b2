"""Several videos in one request: one account against every limit.

In: a job and the videos. Out: a ``TogetherReport`` of plain values. As ``plan``, it reads no weight and no pixel.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evs_cli.core.counts import check_pruning_rate
from evs_cli.dialects.limits import UsedLimit
from evs_cli.errors import BudgetError, UsageError
from evs_cli.jobs.budget import BudgetReport, model_context_limit
from evs_cli.jobs.plan import BudgetJob, PlanRequest
from evs_cli.jobs.runner import Outcome
from evs_cli.pipeline.planner import Subject
from evs_cli.pipeline.together import RequestClips


@dataclass(frozen=True)
class TogetherRate:
    """The request at one rate."""

    q: float
    retained_tokens: int
    """Video tokens kept, of all videos."""
    sequence_length: int
    """L, ids of the whole prompt."""
    context_share: float | None
    """L over the context limit; None where no limit is known."""
    limits: tuple[UsedLimit, ...]
    """Every limit of the server; none for ``evs``."""

    @property
    def limit_hit(self) -> str | None:
        """The name of the first of them that the request exceeds."""
        return next((limit.name for limit in self.limits if not limit.passes), None)


@dataclass(frozen=True)
class TogetherReport:
    """One request with several videos."""

    dialect: str
    model: str
    videos: tuple[str, ...]
    """As they were named, in the order of the request."""
    total_tokens: int
    """Video tokens before pruning, of all videos."""
    separator_tokens: int
    """Ids of the videos' parts that are no video token."""
    text_tokens: int
    """Ids around the videos' parts: the prompt and the chat template, once."""
    context_limit: int | None
    rates: tuple[TogetherRate, ...]

    @property
    def unpruned_sequence_length(self) -> int:
        """L at q = 0."""
        return self.total_tokens + self.separator_tokens + self.text_tokens


def check_together(subjects: Sequence[Subject]) -> None:
    """Raise ``UsageError`` for fewer than two videos."""
    if len(subjects) < 2:
        raise UsageError("--together is of one request with several videos. Expected two VIDEO or more.")


def plan_each_and_together(
    job: BudgetJob, subjects: Sequence[Subject], plan: PlanRequest
) -> tuple[list[Outcome[BudgetReport]], TogetherReport | None]:
    """The plan of each video, which is judged by none of its limits, and the account of one request with all of them.

    The account is None where a video cannot be planned. A video is scanned once. Errors as ``plan_together``.
    """
    check_together(subjects)
    job = BudgetJob(job.request, functools.cache(job.probe), job.encoder, job.progress)
    each = [replace(outcome, refusal=None) for outcome in job.plan(subjects, plan)]
    failed = any(outcome.result is None for outcome in each)
    return each, None if failed else plan_together(job, subjects, plan)


def plan_together(job: BudgetJob, subjects: Sequence[Subject], plan: PlanRequest) -> TogetherReport:
    """The account of one request with all videos, at every rate asked for.

    Raises:
        UsageError: fewer than two videos, or a floor, which makes the counts the most there can be.
        RefusedByServerError: videos that the server does not take, or not together.
    """
    check_together(subjects)
    if job.request.min_dissimilarity is not None:
        raise UsageError("--min-dissimilarity has no effect on --together: it counts what a rate alone keeps.")
    planner = job.planner(plan.rates)
    options, sampling = job.request.options, planner.sampling_of(subjects[0])
    each = [planner.clips(subject, job.probe) for subject in subjects]
    clips = RequestClips(each, job.encoder)
    rates, _ = each[0].rates(plan.rates)
    planned = clips.plan(sampling, options)
    context = job.context_of(plan.context)
    limit = context if context is not None else model_context_limit(job.encoder)
    text = clips.text_tokens(options)
    return TogetherReport(
        dialect=job.request.dialect.name,
        model=job.encoder.source.name,
        videos=tuple(str(subject) for subject in subjects),
        total_tokens=planned.total_tokens,
        separator_tokens=planned.other_tokens - text,
        text_tokens=text,
        context_limit=limit,
        rates=tuple(
            TogetherRate(
                check_pruning_rate(q),
                planned.retained_tokens(q),
                planned.sequence_length(q),
                None if limit is None else planned.sequence_length(q) / limit,
                clips.limits(planned, q, limit, plan.reserve),
            )
            for q in rates
        ),
    )


def together_refusal(report: TogetherReport, context: int | None) -> BudgetError | None:
    """Why the request does not fit at any rate asked for; None where it does. As ``refusal_of``, of one video."""
    last = max(report.rates, key=lambda rate: rate.q)
    videos = f"one request with {len(report.videos)} videos"
    hit = next((limit for limit in last.limits if not limit.passes), None)
    if hit is not None:
        at_rate = "" if hit.unit == "videos" else f" at q = {last.q:g}"
        what = f"see what fits: evs fit --together --dialect {report.dialect}"
        if hit.unit == "videos":
            what = f"send at most {hit.limit} in one request"
        return BudgetError(
            f"{videos} runs into the {hit.name} of {report.dialect}: {hit.used:,} {hit.unit}{at_rate}, "
            f"{hit.limit:,} are allowed.",
            hint=hit.next_step(what),
        )
    if last.limits or context is None or last.sequence_length <= context:
        return None
    return BudgetError(
        f"{videos} does not fit {context:,} tokens: its sequence is {last.sequence_length:,} at the highest rate "
        "asked.",
        hint=f"evs fit --together with --context {context} tells what would.",
    )
