"""``evs sweep``: one encoding, many rates."""

from __future__ import annotations

import typer

from evs_cli.cli import options as o
from evs_cli.cli.shared import for_encodings, of_each_model, with_models, with_output
from evs_cli.cli.values import given_rates, token_count
from evs_cli.errors import UsageError
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs sweep samples/crossing.mp4 --q 0:0.9:0.1",
    "evs sweep samples/slides.mp4 --q 0.5,0.9,0.95 --quality --format csv",
    "evs sweep samples/pan.mp4 samples/cuts.mp4 --plot sweep.png",
    "evs sweep crossing.safetensors --method evs,uniform-frames,random",
)
EVERYDAY = (
    *("--q", "--method", "--plot", "--quality", "--model", "--fps", "--num-frames", "--prompt", "--context"),
    *("--device", "--cache", "--json", "--quiet", "--verbose"),
)


@with_output("sweep")
@with_models
def command(
    ctx: typer.Context,
    request: RequestKeywords,
    models: list[str] | None,
    methods: tuple[str, ...],
    sink: Sink,
    videos: o.Inputs,
    q: o.Rates = None,
    context: o.Context = None,
    quality: o.Quality = False,
    plot: o.Plot = None,
    force: o.Force = False,
    dry_run: o.DryRun = False,
    cache: o.Cache = False,
) -> None:
    """Show what each pruning rate keeps, costs and loses.

    A video is encoded once for all rates and methods, and a file of `evs encode` is read.

    "change kept" is the share of all dissimilarity outside frame 0 that the kept tokens hold; "knee" marks the rate
    farthest above the straight line from the first to the last. "noise" is the share of the tokens kept outside frame 0
    that differ from the frame before by no more than rounding.
    """
    request = {**request, "method": methods[0]}
    with sink.progress() as progress:
        progress.stage("load libraries")
        from pathlib import Path

        from evs_cli.core.methods import RetentionRule
        from evs_cli.encoders.source import DEFAULT_MODEL
        from evs_cli.jobs.cache import open_cache
        from evs_cli.jobs.plan import PlanRequest, plan_models
        from evs_cli.jobs.rates import SWEPT_RATES
        from evs_cli.jobs.stored_session import are_encodings
        from evs_cli.jobs.sweep import SweepRequest, run_sweep
        from evs_cli.report.budget import render_plan
        from evs_cli.report.plot import check_plot_path
        from evs_cli.report.sweep import render_sweeps

        rates = given_rates(q) or list(SWEPT_RATES)
        picture = None if plot is None else Path(plot)
        if picture is not None:
            check_plot_path(picture, overwrite=force)
        if are_encodings(videos):
            request = for_encodings(request, ctx)
            models = [DEFAULT_MODEL]
            if dry_run:
                raise UsageError("--dry-run has no effect on an encoding, which is swept without any work. Leave it.")
        requests = of_each_model(request, models)
        rules = [RetentionRule(method, request["min_dissimilarity"], request["seed"]) for method in methods]
        limit = token_count("--context", context)
        if dry_run:
            render_plan(plan_models(requests, videos, PlanRequest(rates, limit, may_refuse=False)), sink)
            return
        job = SweepRequest(
            tuple(videos),
            tuple(requests),
            tuple(rates),
            tuple(rules),
            with_quality=quality,
            context_limit=limit,
            cache=open_cache() if cache else None,
        )
        render_sweeps(run_sweep(job, progress), sink, picture, overwrite=force)
