"""``fit`` over files, a manifest or numbers alone: the budget of the options, and a report a video."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from evs_cli.dialects.requests import DEFAULT_PROMPT, DEFAULT_SYSTEM
from evs_cli.encoders.base import VideoEncoder
from evs_cli.jobs.budget import model_context_limit
from evs_cli.jobs.fit import FitReport, FitRequest
from evs_cli.jobs.fit_search import fit
from evs_cli.jobs.plan import BudgetJob
from evs_cli.jobs.runner import Input, Outcome, announced, run_each
from evs_cli.pipeline.clips import Clips
from evs_cli.pipeline.planner import Subject
from evs_cli.pipeline.progress import Timings
from evs_cli.pipeline.request import SessionRequest


def run_fit(job: BudgetJob, subjects: Sequence[Subject], request: FitRequest) -> Iterator[Outcome[FitReport]]:
    """How each video fits a budget; a file is scanned once, however many samplings are tried.

    A video that fails, or cannot fit, is an outcome with an error where there are several.
    """

    def report_of(subject: Subject, _: Timings) -> FitReport:
        job.progress.stage("plan")
        planner = job.planner(None, may_configure=True)
        sampling = planner.sampling_of(subject)
        clips = planner.clips(subject, job.probe)
        session, asked = replace(job.request, sampling=sampling), request
        if clips.planner is not None:
            # What is printed is a whole chat, so a whole chat is what must fit, with room for the answer.
            if session.options.prompt is None and clips.planner.encoder.has_chat_template:
                session = replace(session, options=replace(session.options, prompt=DEFAULT_PROMPT))
            if request.context is not None:
                asked = replace(request, reserve=max(clips.planner.rules.context_margin, request.reserve))
        report = fit(clips, job.encoder, session, asked)
        if clips.planner is None:
            return report
        note = _text_before_note(clips, session, report)
        if note is None or session.options.system is not None:
            return replace(report, notes=() if note is None else (note,))
        # Its ids count too, so that all is searched again.
        session = replace(session, options=replace(session.options, system=DEFAULT_SYSTEM))
        note = f"the requests have the system message {DEFAULT_SYSTEM!r}. {note}"
        return replace(fit(clips, job.encoder, session, asked), notes=(note,))

    named = ((Input(str(subject)), subject) for subject in announced(subjects, job.progress))
    return run_each(named, report_of, is_single=len(subjects) == 1)


def _text_before_note(clips: Clips, session: SessionRequest, report: FitReport) -> str | None:
    """What a server needs in front of a video that a choice of the report prunes; None where it needs nothing."""
    planner, highest = clips.planner, max(choice.q for choice in report.choices)
    served = clips.plan(session.sampling, session.options).served
    assert planner is not None
    assert served is not None
    return planner.text_before_note(served.server, highest, session.options)


def fit_request(encoder: VideoEncoder, context: int | None, max_tokens: int | None, reserve: int) -> FitRequest:
    """The budget of the options, by default the model's own context limit.

    Raises:
        UsageError: neither, and a model whose limit is not known.
    """
    if context is None and max_tokens is None:
        context = model_context_limit(encoder)
    return FitRequest(context=context, max_tokens=max_tokens, reserve=reserve)
