"""``fit`` over files, a manifest or numbers alone: the budget of the options, and a report a video or a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from evs_cli.dialects.requests import DEFAULT_PROMPT, DEFAULT_SYSTEM
from evs_cli.encoders.base import EncodeOptions, VideoEncoder
from evs_cli.jobs.budget import model_context_limit
from evs_cli.jobs.fit import ChoiceT, FitChoice, FitReport, FitRequest, FittedVideo, TogetherChoice, TogetherFit, Way
from evs_cli.jobs.fit_lines import prune_command, server_recipe
from evs_cli.jobs.fit_search import Ways, search_ways
from evs_cli.jobs.plan import BudgetJob
from evs_cli.jobs.runner import Input, Outcome, announced, run_each
from evs_cli.jobs.together import check_together
from evs_cli.pipeline.clip_plan import SourceFacts
from evs_cli.pipeline.planner import Subject
from evs_cli.pipeline.progress import Timings
from evs_cli.pipeline.together import RequestClips, RequestPlan


def run_fit(job: BudgetJob, subjects: Sequence[Subject], request: FitRequest) -> Iterator[Outcome[FitReport]]:
    """How each video fits a budget; a file is scanned once, however many samplings are tried.

    A video that fails, or cannot fit, is an outcome with an error where there are several.
    """

    def report_of(subject: Subject, _: Timings) -> FitReport:
        job.progress.stage("plan")
        found = _find(job, [subject], request, _choice)
        return FitReport(**found.facts(job), source=found.sources[0])

    named = ((Input(str(subject)), subject) for subject in announced(subjects, job.progress))
    return run_each(named, report_of, is_single=len(subjects) == 1)


def fit_together(job: BudgetJob, subjects: Sequence[Subject], request: FitRequest) -> TogetherFit:
    """How several videos fit a budget in one request.

    Raises:
        UsageError: fewer than two videos.
        BudgetError: nothing makes them fit.
        EvsError: one of them cannot be planned.
    """
    check_together(subjects)
    job.progress.stage("plan")
    found = _find(job, subjects, request, _together_choice)
    return TogetherFit(**found.facts(job), sources=found.sources)


def fit_request(encoder: VideoEncoder, context: int | None, max_tokens: int | None, reserve: int) -> FitRequest:
    """The budget of the options, by default the model's own context limit.

    Raises:
        UsageError: neither, and a model whose limit is not known.
    """
    if context is None and max_tokens is None:
        context = model_context_limit(encoder)
    return FitRequest(context=context, max_tokens=max_tokens, reserve=reserve)


@dataclass(frozen=True, eq=False)
class _Found(Generic[ChoiceT]):
    """What a search found, and for what."""

    sources: tuple[SourceFacts, ...]
    budget: int
    ways: Ways[ChoiceT]
    notes: tuple[str, ...]

    def facts(self, job: BudgetJob) -> dict[str, Any]:
        """The fields of a ``Fit``."""
        model = job.encoder.source.name
        return {
            "dialect": job.request.dialect.name,
            "model": model,
            "budget": self.budget,
            **vars(self.ways),
            "notes": self.notes,
        }


def _find(
    job: BudgetJob, subjects: Sequence[Subject], request: FitRequest, choice: Callable[[RequestPlan, Way], ChoiceT]
) -> _Found[ChoiceT]:
    """The ways to fit the videos of one request; ``choice`` says what is told of a plan."""
    planner, options = job.planner(None, may_configure=True), job.request.options
    sampling = planner.sampling_of(subjects[0])
    clips = RequestClips([planner.clips(subject, job.probe) for subject in subjects], job.encoder)
    if clips.planner is not None:
        # What is printed is a whole chat, so a whole chat is what must fit, with room for the answer.
        if options.prompt is None and clips.planner.encoder.has_chat_template:
            options = replace(options, prompt=DEFAULT_PROMPT)
        if request.context is not None:
            request = replace(request, reserve=max(clips.planner.rules.context_margin, request.reserve))

    def told(plan: RequestPlan, q: float) -> ChoiceT:
        way = Way(
            q=q,
            sequence_length=plan.sequence_length(q),
            retained_tokens=plan.retained_tokens(q),
            total_tokens=plan.total_tokens,
            command=prune_command(plan, clips, job.request, q),
            server=server_recipe(plan, clips, request, q),
        )
        return choice(plan, way)

    plan = clips.plan(sampling, options)
    ways, notes = search_ways(clips, job.encoder, plan, request, told), []
    note = _text_before_note(clips, plan, ways, options)
    if note is not None and options.system is None:
        # Its ids count too, so that all is searched again.
        options = replace(options, system=DEFAULT_SYSTEM)
        ways = search_ways(clips, job.encoder, clips.plan(sampling, options), request, told)
        notes = [f"the requests have the system message {DEFAULT_SYSTEM!r}. {note}"]
    elif note is not None:
        notes = [note]
    return _Found(tuple(clip.source for clip in plan.clips), request.budget, ways, tuple(notes))


def _text_before_note(
    clips: RequestClips, plan: RequestPlan, ways: Ways[ChoiceT], options: EncodeOptions
) -> str | None:
    """What a server needs in front of a video that one of the ways prunes; None where it needs nothing."""
    served = plan.clips[0].served
    if clips.planner is None or served is None:
        return None
    highest = max(choice.q for choice in (*ways.others, *([] if ways.present is None else [ways.present])))
    return clips.planner.text_before_note(served.server, highest, options)


def _choice(plan: RequestPlan, way: Way) -> FitChoice:
    (clip,) = plan.clips
    encode = clip.encode
    return FitChoice(
        **vars(way),
        num_sampled_frames=clip.num_sampled_frames,
        frame_size=encode.frame_size,
        token_grid_thw=encode.token_grid_thw,
    )


def _together_choice(plan: RequestPlan, way: Way) -> TogetherChoice:
    videos = tuple(
        FittedVideo(
            clip.source.path or clip.source.name,
            clip.num_sampled_frames,
            clip.encode.frame_size,
            clip.encode.token_grid_thw,
            clip.encode.retained_tokens(way.q),
        )
        for clip in plan.clips
    )
    return TogetherChoice(**vars(way), videos=videos)
