"""``evs sweep``: one encoding, many rates."""

from __future__ import annotations

from typing import Any

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_model, with_output
from evs_cli.console import Sink

EXAMPLES = (
    "evs sweep samples/crossing.mp4 --q 0:0.9:0.1",
    "evs sweep samples/slides.mp4 --q 0.5,0.9,0.95 --format csv",
)


@with_output
@with_model
def command(video: o.Video, request: dict[str, Any], sink: Sink, q: o.Rates = "0:0.9:0.1") -> None:
    """Encode a video once and tell what each pruning rate keeps and loses.

    "change kept" is the share of all dissimilarity outside frame 0 that the kept tokens hold.

    "noise tokens" are kept although they differ from the frame before by no more than rounding.
    """
    with sink.progress() as progress:
        progress.stage("load libraries")
        from evs_cli.api import make_request
        from evs_cli.report.render import render_sweep
        from evs_cli.sweep import parse_rates, sweep_named

        rows = sweep_named(video, parse_rates(q), make_request(**request), progress)
        render_sweep(video, request["model"], rows, sink)
