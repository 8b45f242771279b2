"""``evs view``: see what was kept."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli import options as o
from evs_cli.cli.shared import named_on_command_line, of_each_model, with_output, with_viewed
from evs_cli.cli.values import pruning_rates, token_count
from evs_cli.errors import UsageError
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs view crossing.pt -o report.html",
    "evs view samples/slides.mp4 --q 0.9 -o report.html",
    "evs view crossing.safetensors --q 0.5 -o report.html --force",
    "evs view crossing.pt -o sheet.png -o masks.mp4",
    "evs view crossing.pt --max-frames 4 -o strip.pdf -o frames/",
)
EVERYDAY = (
    *("--output", "--q", "--video", "--max-frames", "--model", "--context", "--method", "--fps", "--num-frames"),
    *("--device", "--cache", "--force", "--json", "--quiet", "--verbose"),
)
_RULE = ("method", "min_dissimilarity", "seed")

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="A video, or what `evs prune` or `evs encode` wrote of it, side by side.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="What to draw: report.html, sheet.png, masks.mp4, frames/ or strip.svg. The suffix says what: .html is "
        "the page with a slider, .png a contact sheet, .mp4 a film, .svg or .pdf a strip for a paper with its .csv, "
        "and a folder gets a PNG a frame and their sheet. Give it again for more.",
    ),
]
SourceVideo = Annotated[
    str | None,
    typer.Option(
        "--video",
        metavar="FILE",
        help="The video a FILE was made from, checked by its SHA-256. Default: found by its name, beside FILE or here.",
    ),
]
MaxDrawn = Annotated[
    int | None,
    typer.Option(
        "--max-frames",
        metavar="N",
        help="Most frames drawn, evenly spread; all are counted. Default: 64 on a page, 24 on a sheet, 8 in a strip, "
        "all in a film or a folder.",
    ),
]


@with_output("view")
@with_viewed
def command(
    ctx: typer.Context,
    request: RequestKeywords,
    models: list[str] | None,
    sink: Sink,
    files: Inputs,
    output: Outputs = None,
    q: o.ViewRate = None,
    keep: o.Keep = None,
    video: SourceVideo = None,
    max_frames: MaxDrawn = None,
    context: o.Context = None,
    force: o.Force = False,
    cache: o.Cache = False,
) -> None:
    """See what was kept of a video, on a page or in pictures.

    Kept tokens are clear, dropped ones grey and dark, with an outline between. The page has a slider for the rate, and
    is one file that needs no network. FILE is what `evs prune` or `evs encode` wrote; its pictures come from the video,
    if that is at hand. A video in its place is encoded first. Several files of one video, or --model given again, stand
    side by side.
    """
    rates = pruning_rates(None if q is None else [q], keep)
    if rates is not None and len(rates) > 1:
        raise UsageError(f"--q gives {len(rates)} rates ({q}). Expected one; the page's slider shows every other.")
    if max_frames is not None and max_frames < 1:
        raise UsageError(f"Invalid --max-frames ({max_frames}). Expected at least 1.")
    from evs_cli.report.view import render_view, settle_view_outputs
    from evs_cli.video.own_files import is_own_file

    # An output that cannot be written is refused before libraries are loaded, which takes seconds.
    is_of_files = all(map(is_own_file, files))
    num_runs = len(files) if is_of_files else len(models or [None])
    inputs = [*files, *([] if video is None else [video])]
    outputs = settle_view_outputs(output or [], num_runs=num_runs, overwrite=force, inputs=inputs)
    with sink.progress() as progress:
        progress.stage("load libraries")
        from evs_cli.core.methods import RetentionRule
        from evs_cli.jobs.cache import open_cache
        from evs_cli.jobs.view import ViewRequest, run_view

        named = named_on_command_line(ctx, request)
        rule = None
        if any(option in named for option in _RULE):
            rule = RetentionRule(request["method"], request["min_dissimilarity"], request["seed"])
        if is_of_files and (settled := [flag for option, flag in named.items() if option not in _RULE]):
            raise UsageError(
                f"{settled[0]} has no effect on {files[0]}, whose frames are sampled and encoded already. "
                "Expected none; or give the video."
            )
        job = ViewRequest(
            tuple(files),
            tuple(of_each_model(request, models)),
            rates[0] if rates else None,
            rule,
            video,
            token_count("--context", context),
            has_model=bool(models),
            cache=open_cache() if cache else None,
        )
        render_view(run_view(job, progress), outputs, sink, progress, max_frames)
