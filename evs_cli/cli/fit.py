"""``evs fit``: how to make a video fit."""

from __future__ import annotations

from evs_cli.cli import options as o
from evs_cli.cli.shared import NumbersKeywords, with_numbers, with_output, with_source
from evs_cli.cli.values import refuse_rows, token_count
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs fit samples/crossing.mp4 --model qwen3-vl-8b --dialect vllm --context 1024",
    "evs fit samples/pan.mp4 samples/cuts.mp4 --context 4k --reserve 512",
    "evs fit samples/pan.mp4 samples/cuts.mp4 --together --context 8k",
    "evs fit --frames 64 --height 448 --width 448 --max-tokens 8192",
)
EVERYDAY = (
    *("--context", "--max-tokens", "--reserve", "--model", "--fps", "--num-frames", "--prompt", "--dialect"),
    *("--manifest", "--together", "--sort", "--frames", "--height", "--width", "--duration", "--json"),
)


@with_output("fit")
@with_source
@with_numbers
def command(
    request: RequestKeywords,
    numbers: NumbersKeywords,
    sink: Sink,
    videos: o.OptionalVideos = None,
    manifest: o.Manifest = None,
    context: o.Context = None,
    max_tokens: o.MaxTokens = None,
    reserve: o.Reserve = "0",
    together: o.Together = False,
    sort: o.FitSort = None,
    details: o.Details = False,
) -> None:
    """Find the smallest pruning rate at which a video fits.

    Other ways to make it fit are told too. Each choice comes with the line that does it. No weight is loaded. Of
    several videos it prints a row each, and the one rate that fits all.

    With --dialect, it also comes with the line that starts the server and the request to send.
    """
    with sink.progress() as progress:
        progress.stage("plan")
        from evs_cli.jobs.fit_run import fit_request, fit_together, run_fit
        from evs_cli.jobs.plan import BudgetJob, numbers_of, subjects_of
        from evs_cli.pipeline.request import make_request
        from evs_cli.report.fit import render_fit, render_together_fit

        subjects = subjects_of(videos or [], manifest, numbers_of(**numbers))
        sink.inputs = [str(subject) for subject in subjects]
        job = BudgetJob(make_request(**request), progress=progress)
        limit = job.context_of(token_count("--context", context))
        most, kept_free = token_count("--max-tokens", max_tokens), token_count("--reserve", reserve) or 0
        asked = fit_request(job.encoder, limit, most, kept_free)
        if together:
            refuse_rows(sort, details, "with --together: it is of one request")
            render_together_fit(fit_together(job, subjects, asked), sink)
            return
        outcomes = run_fit(job, subjects, asked)
        render_fit(outcomes, sink, is_row_each=len(subjects) > 1 and not details, sort=sort)
