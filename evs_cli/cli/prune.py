"""``evs prune``: the main job."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from evs_cli.cli import options as o
from evs_cli.cli.shared import for_encodings, with_model, with_output
from evs_cli.cli.values import printed_parts, pruning_rates
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs prune samples/crossing.mp4 --q 0.7 -o crossing.pt",
    "evs prune samples/slides.mp4 --fps 1 --json",
    "evs prune samples/pan.mp4 samples/cuts.mp4 --keep 0.3 -o pruned/",
    "evs prune samples/pan.mp4 samples/cuts.mp4 -o pruned/ --name '{parent}/{stem}' --skip-existing",
    "evs prune crossing.safetensors --q 0.9 -o crossing.pt",
    "evs prune samples/slides.mp4 --q 0.5,0.9 -o slides.pt",
)
EVERYDAY = (
    *("--q", "--output", "--model", "--fps", "--num-frames", "--prompt", "--device"),
    *("--cache", "--force", "--dry-run", "--json", "--quiet", "--verbose"),
)


@with_output("prune")
@with_model
def command(
    ctx: typer.Context,
    videos: o.Inputs,
    request: RequestKeywords,
    sink: Sink,
    q: o.PruneRates = None,
    keep: o.Keep = None,
    output: o.Output = None,
    name: o.Name = None,
    suffix: o.Suffix = None,
    skip_existing: o.SkipExisting = False,
    force: o.Force = False,
    dry_run: o.DryRun = False,
    cache: o.Cache = False,
    printed: o.Print = None,
) -> None:
    """Drop the video tokens that repeat the frame before.

    Frame 0 is kept whole, and of the others the tokens that differ most from the frame before. Prints the tokens of
    every frame and the rebuilt sequence; -o writes the pruned embeddings, and with -q prints the written paths
    alone. A file of `evs encode` in place of a video is read, not encoded: as many rows of it as are
    kept.
    """
    parts = printed_parts(printed)
    if parts:
        sink.force_json()
    rates = pruning_rates(q, keep)
    with sink.progress() as progress:
        progress.stage("load libraries")
        from evs_cli.jobs.cache import open_cache
        from evs_cli.jobs.outputs import OutputRequest
        from evs_cli.jobs.prune import PruneRequest, run_prune
        from evs_cli.jobs.stored_session import are_encodings
        from evs_cli.pipeline.request import make_request
        from evs_cli.report.render import render_prune

        if are_encodings(videos):
            request = for_encodings(request, ctx)
        job = PruneRequest(
            videos,
            make_request(**request),
            rates,
            OutputRequest(output, name, suffix, overwrite=force, skips_existing=skip_existing),
            cache=open_cache() if cache else None,
            dry_run=dry_run,
        )
        written = render_prune(run_prune(job, progress), sink, parts, num_videos=len(videos))
    if len(written) == 1 and len(videos) == 1:
        path = written[0]
        named = output if output and Path(output) == path else str(path)
        sink.hint(f"evs view {shlex.quote(named)}{_video_option(videos[0], path)} -o report.html")


def _video_option(video: str, written: Path) -> str:
    """``--video`` for ``evs view``, where that would not find the video by itself: beside the file, or here."""
    from evs_cli.video.own_files import is_own_file

    is_found = Path(video).parent.resolve() in (written.parent.resolve(), Path.cwd())
    return "" if video == "-" or is_own_file(video) or is_found else f" --video {shlex.quote(video)}"
