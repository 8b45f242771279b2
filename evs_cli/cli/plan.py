"""``evs plan``: what videos will cost, before anything is decoded or loaded."""

from __future__ import annotations

from evs_cli.cli import options as o
from evs_cli.cli.shared import NumbersKeywords, with_numbers, with_output, with_source
from evs_cli.cli.values import byte_count, plan_rates, refuse_rows, token_count
from evs_cli.errors import UsageError
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs plan samples/crossing.mp4",
    "evs plan samples/pan.mp4 samples/cuts.mp4 --q 0,0.5,0.9 --json",
    "evs plan samples/pan.mp4 samples/cuts.mp4 --context 4k --sort tokens",
    "evs plan samples/pan.mp4 samples/cuts.mp4 --together --context 16k",
    "evs plan samples/crossing.mp4 --model qwen3-vl-8b --dialect all",
    "evs plan --frames 32 --height 448 --width 448 --duration 60 --context 8k",
)
EVERYDAY = (
    *("--q", "--model", "--fps", "--num-frames", "--prompt", "--context", "--dialect", "--manifest", "--together"),
    *("--sort", "--details", "--frames", "--height", "--width", "--duration", "--json"),
)


@with_output("plan")
@with_source
@with_numbers
def command(
    request: RequestKeywords,
    numbers: NumbersKeywords,
    sink: Sink,
    videos: o.OptionalVideos = None,
    manifest: o.Manifest = None,
    q: o.PlanRates = None,
    keep: o.Keep = None,
    min_dissimilarity: o.MinDissimilarity = None,
    context: o.Context = None,
    reserve: o.Reserve = "0",
    kv_budget: o.KvBudget = None,
    together: o.Together = False,
    sort: o.PlanSort = None,
    details: o.Details = False,
) -> None:
    """Count a video's tokens and their cost before any run.

    The counts are exact, from the file's facts and the model's configuration alone; no weights are loaded.
    Prints the sampled frames, every factor of the count and the sequence length at each rate; of several videos a row
    each.

    With --dialect, what a server will count, and every limit it has.
    """
    with sink.progress() as progress:
        progress.stage("plan")
        from evs_cli.jobs.plan import BudgetJob, PlanRequest, numbers_of, plan_dialects, subjects_of
        from evs_cli.jobs.together import plan_each_and_together
        from evs_cli.pipeline.request import make_requests
        from evs_cli.report.budget import render_plan
        from evs_cli.report.comparison import render_dialects
        from evs_cli.report.together import render_together

        subjects = subjects_of(videos or [], manifest, numbers_of(**numbers))
        sink.inputs = [str(subject) for subject in subjects]
        rates = plan_rates(q, keep)
        limit = token_count("--context", context)
        kept_free = token_count("--reserve", reserve) or 0
        budget_bytes = byte_count("--kv-budget", kv_budget)
        asked: RequestKeywords = {**request, "min_dissimilarity": min_dissimilarity}
        requests = make_requests(**asked)
        if together:
            refuse_rows(sort, details, "with --together: it is of one request")
        if len(requests) > 1:
            refuse_rows(sort, details, "with several dialects")
            if together:
                raise UsageError("--together has no effect with several dialects. Expected one.")
            plan = PlanRequest(rates, limit, budget_bytes, kept_free)
            render_dialects(plan_dialects(requests, subjects, plan, progress), sink)
        else:
            job = BudgetJob(requests[0], progress=progress)
            plan = PlanRequest(rates, job.context_less_reserve(limit, kept_free), budget_bytes, kept_free)
            if together:
                each, account = plan_each_and_together(job, subjects, plan)
                render_together(each, account, sink, context=plan.context)
                return
            is_row_each = len(subjects) > 1 and not details
            render_plan(job.plan(subjects, plan), sink, is_row_each=is_row_each, sort=sort)
