"""``plan`` and ``fit`` over files, a manifest or numbers alone: one model, no weights, no pixels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from evs_cli.budget import (
    BudgetReport,
    NumbersRequest,
    budget,
    check_context,
    model_context_limit,
    read_manifest,
    sample_file,
    sample_numbers,
)
from evs_cli.encoders.base import VideoEncoder
from evs_cli.errors import BudgetError, EvsError, UsageError
from evs_cli.fit import FitReport, FitRequest, Resample, fit
from evs_cli.session import SessionRequest, one_by_one, open_requested, opened
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


def _outcomes(subjects: Sequence[Subject], report_of: Callable[[Subject], Report]) -> Iterator[Outcome[Report]]:
    return one_by_one(
        subjects,
        lambda subject: Outcome(_name(subject), report_of(subject)),
        lambda subject, error: Outcome(_name(subject), error=error),
        is_single=len(subjects) == 1,
    )


def probe_named(video: str) -> VideoInfo:
    """The facts of a video as named on the command line."""
    with opened(video) as source:
        return probe_video(source)


class BudgetJob:
    """One model, and what it makes of videos before they are encoded.

    Raises:
        ModelError: no such model, or an unknown family.
        UsageError: an option without meaning for the model, or a decoder that is not installed.
    """

    def __init__(self, request: SessionRequest, probe: Callable[[str], VideoInfo] = probe_named) -> None:
        self.request = request
        self.encoder = open_requested(request)
        self._probe = probe

    def plan(
        self,
        subjects: Sequence[Subject],
        rates: Sequence[float],
        context: int | None,
        kv_budget_bytes: int | None = None,
    ) -> Iterator[Outcome[BudgetReport]]:
        """A report a video; a video that fails is an outcome with an error where there are several.

        Raises:
            UsageError: a context below 1.
        """
        check_context(context)

        def report_of(subject: Subject) -> BudgetReport:
            return budget(
                self._resample(subject)(self._sampling(subject)),
                self.encoder,
                self.request.options,
                rates,
                context_limit=context,
                kv_budget_bytes=kv_budget_bytes,
                min_dissimilarity=self.request.min_dissimilarity,
            )

        return _outcomes(subjects, report_of)

    def fit(self, subjects: Sequence[Subject], request: FitRequest) -> Iterator[Outcome[FitReport]]:
        """How each video fits a budget; a file is scanned once, however many samplings are tried.

        A video that fails, or cannot fit, is an outcome with an error where there are several.
        """

        def report_of(subject: Subject) -> FitReport:
            resample, sampling = self._resample(subject), self._sampling(subject)
            session = replace(self.request, sampling=sampling)
            return fit(resample(sampling), self.encoder, session, request, resample)

        return _outcomes(subjects, report_of)

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

    def _resample(self, subject: Subject) -> Resample:
        if isinstance(subject, NumbersRequest):
            numbers = subject.at_rate(self.request.sampling.fps)
            return lambda sampling: sample_numbers(numbers, sampling, self.encoder)
        video = self._probe(subject)
        return lambda sampling: sample_file(subject, video, sampling, self.encoder)


def plan_all(
    requests: Sequence[SessionRequest], videos: Sequence[str], rates: Sequence[float], context: int | None
) -> Iterator[Outcome[BudgetReport]]:
    """The plans of the same videos for one model after another; a video is scanned once, as standard input must be."""
    probe = functools.cache(probe_named)
    for job in [BudgetJob(request, probe) for request in requests]:
        yield from job.plan(videos, rates, context)


def require_fit(reports: Sequence[BudgetReport], context: int | None) -> None:
    """Raise ``BudgetError`` if a video exceeds ``--context`` at every rate asked for.

    Where no context was asked for, nothing is refused.
    """
    if context is None:
        return
    for report in reports:
        shortest = min(rate.sequence_length for rate in report.rates)
        if shortest > context:
            verb, most = ("may not", "at most ") if report.is_at_most else ("does not", "")
            raise BudgetError(
                f"{report.source.name} {verb} fit {context:,} tokens: its sequence is {most}{shortest:,} at the "
                "highest rate asked.",
                hint=f"evs fit with --context {context} tells what would.",
            )


def fit_request(encoder: VideoEncoder, context: int | None, max_tokens: int | None, reserve: int) -> FitRequest:
    """The budget of the options, by default the model's own context limit.

    Raises:
        UsageError: neither, and a model whose limit is not known.
    """
    if context is None and max_tokens is None:
        context = model_context_limit(encoder)
    return FitRequest(context=context, max_tokens=max_tokens, reserve=reserve)
