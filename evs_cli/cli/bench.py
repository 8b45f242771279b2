"""``evs bench``: how fast this machine is."""

from __future__ import annotations

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_encoder, with_output
from evs_cli.pipeline.keywords import EncodeKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs bench samples/pan.mp4 --num-frames 8",
    "evs bench --num-frames 8 --repeats 1 --json",
)
EVERYDAY = ("--repeats", "--model", "--fps", "--num-frames", "--device", "--dtype", "--batch-frames", "--json")


@with_output("bench")
@with_encoder
def command(
    request: EncodeKeywords,
    sink: Sink,
    video: o.OptionalVideo = None,
    repeats: o.Repeats = 3,
) -> None:
    """Measure how fast each step runs on this machine.

    The steps are decode, preprocess, encode, mask, and all of them together. All of it is local: nothing is
    sent anywhere. Each step runs once to warm up and then --repeats times; medians are shown. The mask stands
    beside the plain formula on the same embeddings. "encoder busy" is the share of a pass, once it is planned,
    in which the encoder worked and did not wait for frames.
    """
    with sink.progress() as progress:
        progress.stage("load libraries")
        from evs_cli.jobs.bench import run_bench
        from evs_cli.pipeline.request import make_request
        from evs_cli.report.bench import render_bench

        render_bench(run_bench(video, make_request(**request), repeats=repeats, progress=progress), sink)
