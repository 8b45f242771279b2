"""``evs show``: what is in a file that evs wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_output
from evs_cli.cli.values import one_rate, printed_parts
from evs_cli.errors import UsageError
from evs_cli.report.console import Sink

if TYPE_CHECKING:
    from evs_cli.jobs.viewed_run import ViewedRun

EXAMPLES = (
    "evs show crossing.pt",
    "evs show crossing.pt --frames",
    "evs show crossing.safetensors --frames --q 0.9 --max-frames 12",
    "evs show crossing.pt --json",
)
EVERYDAY = ("--frames", "--q", "--max-frames", "--print", "--format", "--json", "--quiet", "--verbose")

Frames = Annotated[
    bool,
    typer.Option("--frames", help="Draw which tokens of each frame are kept, with its time and a bar of its count."),
]
ShownRate = Annotated[
    str | None,
    typer.Option(
        "--q",
        "--pruning-rate",
        "--video-pruning-rate",
        metavar="RATE",
        help="Rate to draw with --frames, 0 <= q < 1. Default: the file's own; of an encoding the model's, or 0.7.",
    ),
]
MaxShown = Annotated[
    int | None,
    typer.Option("--max-frames", metavar="N", help="Most frames drawn with --frames, evenly spread. Default: 64."),
]


@with_output("show")
def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that `evs prune` or `evs encode` wrote.")],
    sink: Sink,
    frames: Frames = False,
    q: ShownRate = None,
    max_frames: MaxShown = None,
    printed: o.Print = None,
) -> None:
    """Print what is in a file that evs wrote.

    It is read back and checked against itself first. With --frames each frame is a small map of its tokens; JSON and
    CSV then have each mask as run lengths, kept first.
    """
    parts, rate = printed_parts(printed), one_rate(q)
    _check_drawing(frames, q, max_frames)
    if parts:
        sink.force_json()
    with sink.progress() as progress:
        progress.stage("read")
        from evs_cli.files.artifact import load
        from evs_cli.files.encoding.reader import holds_encoding, open_encoding
        from evs_cli.jobs.viewed_run import run_of_artifact, run_of_encoding
        from evs_cli.report.encodings import render_encoding
        from evs_cli.report.render import render_show
        from evs_cli.report.shown_frames import DEFAULT_MAX_FRAMES, FramesView

        def view(run: ViewedRun) -> FramesView:
            return FramesView(run, max_frames or DEFAULT_MAX_FRAMES)

        if not holds_encoding(file):
            pruned = load(file, sink.notice)
            drawn = view(run_of_artifact(pruned, file, q=rate)) if frames else None
            render_show(file, pruned, sink, parts, drawn)
            return
        if parts:
            raise UsageError(f"--print has no effect on {file}, a whole encoding. Expected a pruned video.")
        with open_encoding(file) as encoding:
            drawn = view(run_of_encoding(encoding, file, q=rate)) if frames else None
            render_encoding(file, encoding, sink, drawn)


def _check_drawing(frames: bool, q: str | None, max_frames: int | None) -> None:
    """Refuse what means something to ``--frames`` alone, or nothing at all.

    Raises:
        UsageError: ``--q`` or ``--max-frames`` without ``--frames``, or too few frames.
    """
    for flag, value in (("--q", q), ("--max-frames", max_frames)):
        if value is not None and not frames:
            raise UsageError(f"{flag} has no effect without --frames. Expected both, or neither.")
    if max_frames is not None and max_frames < 1:
        raise UsageError(f"Invalid --max-frames ({max_frames}). Expected at least 1.")
