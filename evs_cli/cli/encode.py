"""``evs encode``: everything once, in rank order."""

from __future__ import annotations

import shlex
from pathlib import Path

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_encoder, with_output
from evs_cli.pipeline.keywords import EncodeKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs encode samples/crossing.mp4 -o crossing.safetensors",
    "evs encode samples/pan.mp4 samples/cuts.mp4 --fps 1 --store-dtype int8 -o encodings/",
)
EVERYDAY = (
    *("--output", "--model", "--fps", "--num-frames", "--prompt", "--store-dtype", "--device"),
    *("--cache", "--force", "--dry-run", "--json", "--quiet", "--verbose"),
)


@with_output("encode")
@with_encoder
def command(
    videos: o.Videos,
    request: EncodeKeywords,
    sink: Sink,
    output: o.EncodingOutput,
    name: o.Name = None,
    skip_existing: o.SkipExisting = False,
    store_dtype: o.StoreDtype = None,
    levels: o.Levels = "all",
    force: o.Force = False,
    dry_run: o.DryRun = False,
    cache: o.Cache = False,
) -> None:
    """Keep every token once, so that any pruning rate is a read.

    Rows are stored in rank order: what a rate keeps stands at the front. `evs prune`, `evs sweep` and `evs show` take
    the file in place of the video, and need neither model nor pixels. Memory does not grow with the video, but the
    disk holds its rows twice while the file is made. -q prints the paths of the written files alone.
    """
    with sink.progress() as progress:
        progress.stage("load libraries")
        from evs_cli.jobs.cache import open_cache
        from evs_cli.jobs.encode import EncodeRequest, StoreRequest, run_encode
        from evs_cli.jobs.outputs import OutputRequest
        from evs_cli.pipeline.request import make_request
        from evs_cli.report.encodings import render_encodings

        job = EncodeRequest(
            videos,
            OutputRequest(output, name, overwrite=force, skips_existing=skip_existing),
            StoreRequest(store_dtype, levels),
            make_request(**request),
            cache=open_cache() if cache else None,
            dry_run=dry_run,
        )
        written = render_encodings(run_encode(job, progress), sink)
    if len(written) == 1 and len(videos) == 1:
        sink.hint(f"evs sweep {shlex.quote(output if Path(output) == written[0] else str(written[0]))}")
