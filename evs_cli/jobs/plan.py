"""``plan`` over files, a manifest or numbers alone: one model, no weights, no pixels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evs_cli.encoders.base import VideoEncoder
from evs_cli.errors import BudgetError, UsageError
from evs_cli.jobs.budget import BudgetReport, budget, check_context, read_manifest
from evs_cli.jobs.fit import FitRequest
from evs_cli.jobs.inputs import STDIN, opened
from evs_cli.jobs.runner import Input, Outcome, announced, run_each
from evs_cli.pipeline.clips import NumbersRequest
from evs_cli.pipeline.planner import Planner, Subject
from evs_cli.pipeline.progress import Progress, SilentProgress, Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.session import open_requested
from evs_cli.video.info import VideoInfo, probe_video


def subjects_of(videos: Sequence[str], manifest: str | None, numbers: NumbersRequest | None) -> list[Subject]:
    """What to plan: files, the files of a manifest, or numbers.

    Raises:
        UsageError: nothing, or numbers beside files.
    """
    subjects: list[Subject] = [*videos, *(read_manifest(manifest) if manifest is not None else [])]
    if numbers is not None and subjects:
        raise UsageError("Numbers (--frames, --height, --width, --duration) and videos exclude each other. Give one.")
    if numbers is not None:
        return [numbers]
    if not subjects:
        raise UsageError("No video is given. Expected VIDEO, --manifest, or --height and --width with --frames.")
    return subjects


def numbers_of(
    frames: int | None, height: int | None, width: int | None, duration: float | None, source_fps: float | None
) -> NumbersRequest | None:
    """The numbers of the options, or None where none is given.

    Raises:
        UsageError: a height without a width, or other numbers without both.
    """
    if all(value is None for value in (frames, height, width, duration, source_fps)):
        return None
    if height is None or width is None:
        raise UsageError("A video from numbers needs its size. Expected --height and --width beside the others.")
    if source_fps is None:
        return NumbersRequest(height, width, frames, duration)
    return NumbersRequest(height, width, frames, duration, source_fps)


def probe_named(video: str) -> VideoInfo:
    """The facts of a video as named on the command line."""
    with opened(video) as source:
        if video == STDIN:
            assert isinstance(source, Path)
            source = source.open("rb")  # read again where a server takes another stream, or seeks to the end
        return probe_video(source)


@dataclass(frozen=True)
class PlanRequest:
    """What is counted of every video.

    Raises:
        UsageError: a context below 1.
    """

    rates: Sequence[float] | None = None
    """Rates to count at; None takes 0 and what the video would be pruned at."""
    context: int | None = None
    """Longest sequence; None takes the server's, else the model's own."""
    kv_budget_bytes: int | None = None
    """Memory for caches, to tell how many such prompts fit."""
    reserve: int = 0
    """Tokens of a server's context kept for the answer."""
    may_refuse: bool = True
    """Whether a video that is longer than ``context`` is refused; a server's limits always do."""
    with_details: bool = True
    """See ``budget``."""

    def __post_init__(self) -> None:
        check_context(self.context)


class BudgetJob:
    """One model under one dialect, and what it makes of videos before they are encoded.

    Args:
        request: what the user asks for.
        probe: scans a video as named.
        encoder: the model where it is open already; None opens it.
        progress: told of each video.

    Raises:
        ModelError: no such model, or an unknown family.
        UsageError: an option without meaning for the model, or a decoder that is not installed.
    """

    def __init__(
        self,
        request: SessionRequest,
        probe: Callable[[str], VideoInfo] = probe_named,
        encoder: VideoEncoder | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.request = request
        self.progress = progress or SilentProgress()
        self.encoder = encoder or open_requested(request, counts_alone=True)
        self.probe = probe

    def plan(
        self, subjects: Sequence[Subject], plan: PlanRequest, *, is_single: bool | None = None
    ) -> Iterator[Outcome[BudgetReport]]:
        """A report a video; a video that fails is an outcome with an error where there are several.

        Args:
            subjects: files and numbers.
            plan: what is counted.
            is_single: whether an error is raised; None where there is one video.
        """

        def report_of(subject: Subject, _: Timings) -> BudgetReport:
            self.progress.stage("plan")
            planner = self.planner(plan.rates)
            clips = planner.clips(subject, self.probe)
            counted, notes = clips.rates(plan.rates)
            report = budget(
                clips,
                self.encoder,
                planner.sampling_of(subject),
                self.request.options,
                counted,
                context_limit=self.context_of(plan.context),
                reserve=plan.reserve,
                kv_budget_bytes=plan.kv_budget_bytes,
                min_dissimilarity=self.request.min_dissimilarity,
                with_details=plan.with_details,
            )
            return replace(report, notes=(*report.notes, *notes))

        return run_each(
            ((Input(str(subject)), subject) for subject in announced(subjects, self.progress)),
            report_of,
            is_single=len(subjects) == 1 if is_single is None else is_single,
            refuses=lambda report: refusal_of(report, plan.context if plan.may_refuse else None),
        )

    def context_of(self, context: int | None) -> int | None:
        """The context asked for, else the server's."""
        return self.request.server.max_model_len if context is None else context

    def context_less_reserve(self, context: int | None, reserve: int) -> int | None:
        """The longest sequence of a plan by evs, the answer's tokens taken off; a server's limits do that themselves.

        Raises:
            UsageError: a reserve without a context, or one that leaves nothing.
        """
        if not self.request.dialect.is_evs or reserve == 0:
            return context
        return FitRequest(context=context, max_tokens=None if context else 1, reserve=reserve).budget

    def own_rates(self) -> list[float] | None:
        """0 and the model's own rate, for ``evs`` beside servers, whose own rates are 0 unless they say otherwise."""
        own = self.encoder.default_pruning_rate
        return sorted({0.0, own or 0.0}) if self.request.dialect.is_evs else None

    def planner(self, rates: Sequence[float] | None, *, may_configure: bool = False) -> Planner:
        """The planner of the request; see ``Planner.of``."""
        return Planner.of(self.request, self.encoder, rates=rates, may_configure=may_configure)


def plan_models(
    requests: Sequence[SessionRequest], videos: Sequence[str], plan: PlanRequest
) -> Iterator[Outcome[BudgetReport]]:
    """The plans of the same videos for one model after another; a video is scanned once, as standard input must be."""
    probe = functools.cache(probe_named)
    # A list, so that every model is opened, and a bad one refused, before the first plan is shown.
    for job in [BudgetJob(request, probe) for request in requests]:
        yield from job.plan(videos, plan)


def plan_dialects(
    requests: Sequence[SessionRequest],
    subjects: Sequence[Subject],
    plan: PlanRequest,
    progress: Progress | None = None,
) -> Iterator[list[Outcome[BudgetReport]]]:
    """Of each video the plans under one dialect after another; what a server refuses is an outcome with an error.

    Args:
        requests: one a dialect, of one model.
        subjects: files and numbers.
        plan: what is counted; without rates, each dialect counts at its own.
        progress: told of each video.
    """
    probe = functools.cache(probe_named)
    first = BudgetJob(requests[0], probe)
    jobs = [first, *(BudgetJob(request, probe, first.encoder) for request in requests[1:])]
    progress = progress or SilentProgress()
    for subject in announced(subjects, progress):
        progress.stage("plan")
        yield [
            replace(outcome, input=replace(outcome.input, dialect=job.request.dialect.name))
            for job in jobs
            for outcome in job.plan([subject], replace(plan, rates=plan.rates or job.own_rates()), is_single=False)
        ]


def refusal_of(report: BudgetReport, context: int | None) -> BudgetError | None:
    """Why a video does not fit: it exceeds ``--context``, or runs into a server's limit, at every rate asked for.

    Where no context was asked for, the model's own refuses nothing by itself; a server's limits always do.
    """
    if report.rates[0].server_limits:
        return _limit_refusal(report)
    shortest = min(rate.sequence_length for rate in report.rates)
    if context is None or shortest <= context:
        return None
    verb, most = ("may not", "at most ") if report.is_at_most else ("does not", "")
    return BudgetError(
        f"{report.source.name} {verb} fit {context:,} tokens: its sequence is {most}{shortest:,} at the highest rate "
        "asked.",
        hint=f"evs fit with --context {context} tells what would.",
    )


def _limit_refusal(report: BudgetReport) -> BudgetError | None:
    last = max(report.rates, key=lambda rate: rate.q)
    limit = next((limit for limit in last.server_limits if not limit.passes), None)
    if limit is None:
        return None
    longest = "" if limit.longest_seconds is None else f" Clips of {limit.reach} pass."
    return BudgetError(
        f"{report.source.name} runs into the {limit.name} of {report.dialect}: {limit.used:,} {limit.unit} at "
        f"q = {last.q:g}, {limit.limit:,} are allowed.{longest}",
        hint=limit.next_step(f"see what fits: evs fit --dialect {report.dialect}"),
    )
