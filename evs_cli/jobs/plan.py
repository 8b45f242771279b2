"""``plan`` and ``fit`` over files, a manifest or numbers alone: one model, no weights, no pixels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from evs_cli.dialects.requests import DEFAULT_PROMPT
from evs_cli.encoders.base import VideoEncoder
from evs_cli.errors import BudgetError, EvsError, UsageError
from evs_cli.jobs.budget import BudgetReport, budget, check_context, model_context_limit, read_manifest
from evs_cli.jobs.fit import FitReport, FitRequest, fit
from evs_cli.jobs.inputs import opened
from evs_cli.jobs.runner import one_by_one
from evs_cli.pipeline.clips import EvsClips, NumbersRequest, ServerClips, clips_of_file, clips_of_numbers
from evs_cli.pipeline.request import SessionRequest
from evs_cli.pipeline.session import open_requested
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE
from evs_cli.video.info import VideoInfo, probe_video
from evs_cli.video.sampling import SamplingRequest

Subject = str | NumbersRequest
"""A video: a path (``-`` for standard input), or numbers."""


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


Report = TypeVar("Report", BudgetReport, FitReport)


@dataclass(frozen=True)
class Outcome(Generic[Report]):
    """What became of one video of a plan or a fit: a report, or an error."""

    name: str
    report: Report | None = None
    error: EvsError | None = None


def _name(subject: Subject) -> str:
    return subject if isinstance(subject, str) else f"{subject.width}x{subject.height}"


def names_of(subjects: Sequence[Subject]) -> list[str]:
    """What outcomes call the videos."""
    return [_name(subject) for subject in subjects]


def _outcomes(
    subjects: Sequence[Subject], report_of: Callable[[Subject], Report], *, is_single: bool | None = None
) -> Iterator[Outcome[Report]]:
    return one_by_one(
        subjects,
        lambda subject: Outcome(_name(subject), report_of(subject)),
        lambda subject, error: Outcome(_name(subject), error=error),
        is_single=len(subjects) == 1 if is_single is None else is_single,
    )


def probe_named(video: str) -> VideoInfo:
    """The facts of a video as named on the command line."""
    with opened(video) as source:
        return probe_video(source)


class BudgetJob:
    """One model under one dialect, and what it makes of videos before they are encoded.

    Args:
        request: what the user asks for.
        probe: scans a video as named.
        encoder: the model where it is open already; None opens it.

    Raises:
        ModelError: no such model, or an unknown family.
        UsageError: an option without meaning for the model, or a decoder that is not installed.
    """

    def __init__(
        self,
        request: SessionRequest,
        probe: Callable[[str], VideoInfo] = probe_named,
        encoder: VideoEncoder | None = None,
    ) -> None:
        self.request = request
        self.encoder = encoder or open_requested(request, counts_alone=True)
        self._probe = probe

    def plan(
        self,
        subjects: Sequence[Subject],
        rates: Sequence[float] | None,
        context: int | None,
        kv_budget_bytes: int | None = None,
        *,
        reserve: int = 0,
        is_single: bool | None = None,
    ) -> Iterator[Outcome[BudgetReport]]:
        """A report a video; a video that fails is an outcome with an error where there are several.

        Args:
            subjects: files and numbers.
            rates: rates to count at; None takes 0 and what the video would be pruned at.
            context: longest sequence; None takes the server's, else the model's own.
            kv_budget_bytes: memory for caches.
            reserve: tokens of a server's context kept for the answer.
            is_single: whether an error is raised; None where there is one video.

        Raises:
            UsageError: a context below 1.
        """
        check_context(context)
        context = self.context_of(context)

        def report_of(subject: Subject) -> BudgetReport:
            clips = self._clips(subject, rates)
            counted, notes = self._rates(clips, rates)
            report = budget(
                clips.sample(self._sampling(subject)),
                clips,
                self.encoder,
                self.request.options,
                counted,
                context_limit=context,
                reserve=reserve,
                kv_budget_bytes=kv_budget_bytes,
                min_dissimilarity=self.request.min_dissimilarity,
            )
            return replace(report, notes=(*report.notes, *notes))

        return _outcomes(subjects, report_of, is_single=is_single)

    def fit(self, subjects: Sequence[Subject], request: FitRequest) -> Iterator[Outcome[FitReport]]:
        """How each video fits a budget; a file is scanned once, however many samplings are tried.

        A video that fails, or cannot fit, is an outcome with an error where there are several.
        """

        def report_of(subject: Subject) -> FitReport:
            sampling = self._sampling(subject)
            clips = self._clips(subject, None, may_configure=True)
            session, asked = replace(self.request, sampling=sampling), request
            if isinstance(clips, ServerClips):
                # What is printed is a whole chat, so a whole chat is what must fit, with room for the answer.
                if session.options.prompt is None and clips.planner.encoder.has_chat_template:
                    session = replace(session, options=replace(session.options, prompt=DEFAULT_PROMPT))
                if request.context is not None:
                    asked = replace(request, reserve=max(clips.dialect.context_margin, request.reserve))
            return fit(clips.sample(sampling), clips, self.encoder, session, asked)

        return _outcomes(subjects, report_of)

    def context_of(self, context: int | None) -> int | None:
        """The context asked for, else the server's."""
        return self.request.server.max_model_len if context is None else context

    def context_less_reserve(self, context: int | None, reserve: int) -> int | None:
        """The longest sequence of a plan by evs, the answer's tokens taken off; a server's walls do that themselves.

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

    def _rates(
        self, clips: EvsClips | ServerClips, rates: Sequence[float] | None
    ) -> tuple[Sequence[float], tuple[str, ...]]:
        """The rates to count at, and a sentence where those asked for have no effect."""
        if isinstance(clips, EvsClips):
            return rates or [0.0, self.encoder.default_pruning_rate or DEFAULT_PRUNING_RATE], ()
        pruning = clips.planner.pruning
        if not pruning.can_prune:
            return [0.0], (f"--q has no effect: {pruning.source}",) if rates and max(rates) > 0 else ()
        return rates or sorted({0.0, pruning.q}), ()

    def _sampling(self, subject: Subject) -> SamplingRequest:
        """The sampling asked for; a video that is said to be so many sampled frames is sampled as that many."""
        sampling = self.request.sampling
        if not isinstance(subject, NumbersRequest) or subject.frames is None:
            return sampling
        asked = (sampling.num_frames, sampling.max_frames, sampling.start_seconds, sampling.end_seconds)
        if any(value is not None for value in asked):
            raise UsageError(
                "--frames is the number of sampled frames: it excludes --num-frames, --max-frames, --start and --end."
            )
        return replace(sampling, fps=None, num_frames=subject.frames)

    def _clips(
        self, subject: Subject, rates: Sequence[float] | None, *, may_configure: bool = False
    ) -> EvsClips | ServerClips:
        """The clips of a video; a server is told the highest rate asked for, which some of its notes go by."""
        request = self.request
        server = replace(request.server, video_pruning_rate=max(rates)) if rates else request.server
        if isinstance(subject, NumbersRequest):
            return clips_of_numbers(
                subject, self.encoder, request.dialect, server, request.sampling, may_configure=may_configure
            )
        return clips_of_file(
            subject,
            self._probe(subject),
            self.encoder,
            request.dialect,
            server,
            request.sampling,
            may_configure=may_configure,
        )


def plan_models(
    requests: Sequence[SessionRequest], videos: Sequence[str], rates: Sequence[float], context: int | None
) -> Iterator[Outcome[BudgetReport]]:
    """The plans of the same videos for one model after another; a video is scanned once, as standard input must be."""
    probe = functools.cache(probe_named)
    for job in [BudgetJob(request, probe) for request in requests]:
        yield from job.plan(videos, rates, context)


def plan_dialects(
    requests: Sequence[SessionRequest],
    subjects: Sequence[Subject],
    rates: Sequence[float] | None,
    context: int | None,
    kv_budget_bytes: int | None = None,
    *,
    reserve: int = 0,
) -> Iterator[list[Outcome[BudgetReport]]]:
    """Of each video the plans under one dialect after another; what a server refuses is an outcome with an error.

    Args:
        requests: one a dialect, of one model.
        subjects: files and numbers.
        rates: see ``BudgetJob.plan``, as the others.
        context: longest sequence.
        kv_budget_bytes: memory for caches.
        reserve: tokens kept for the answer.
    """
    probe = functools.cache(probe_named)
    first = BudgetJob(requests[0], probe)
    jobs = [first, *(BudgetJob(request, probe, first.encoder) for request in requests[1:])]
    for subject in subjects:
        yield [
            replace(outcome, name=job.request.dialect.name)
            for job in jobs
            for outcome in job.plan(
                [subject], rates or job.own_rates(), context, kv_budget_bytes, reserve=reserve, is_single=False
            )
        ]


def require_fit(reports: Sequence[BudgetReport], context: int | None) -> None:
    """Raise ``BudgetError`` if a video exceeds ``--context``, or runs into a server's limit, at every rate asked for.

    Where no context was asked for, the model's own refuses nothing by itself; a server's limits always do.
    """
    for report in reports:
        if report.rates[0].walls:
            _require_walls(report)
            continue
        shortest = min(rate.sequence_length for rate in report.rates)
        if context is not None and shortest > context:
            verb, most = ("may not", "at most ") if report.is_at_most else ("does not", "")
            raise BudgetError(
                f"{report.source.name} {verb} fit {context:,} tokens: its sequence is {most}{shortest:,} at the "
                "highest rate asked.",
                hint=f"evs fit with --context {context} tells what would.",
            )


def fits(report: BudgetReport, context: int | None) -> bool:
    """Whether ``require_fit`` lets a report through."""
    try:
        require_fit([report], context)
    except BudgetError:
        return False
    return True


def _require_walls(report: BudgetReport) -> None:
    last = max(report.rates, key=lambda rate: rate.q)
    for wall in last.walls:
        if not wall.passes:
            longest = "" if wall.longest_seconds is None else f" Clips of {wall.reach} pass."
            raise BudgetError(
                f"{report.source.name} runs into the {wall.name} of {report.dialect}: {wall.used:,} {wall.unit} at "
                f"q = {last.q:g}, {wall.limit:,} are allowed.{longest}",
                hint=f"Raise {wall.option}, or see what fits: evs fit --dialect {report.dialect}.",
            )


def fit_request(encoder: VideoEncoder, context: int | None, max_tokens: int | None, reserve: int) -> FitRequest:
    """The budget of the options, by default the model's own context limit.

    Raises:
        UsageError: neither, and a model whose limit is not known.
    """
    if context is None and max_tokens is None:
        context = model_context_limit(encoder)
    return FitRequest(context=context, max_tokens=max_tokens, reserve=reserve)
