"""``evs export``: the planned frames in the form that a server takes."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_output, with_source
from evs_cli.cli.values import token_count
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs export samples/crossing.mp4 --to vllm-frames --model qwen3-vl-8b -o crossing.json",
    "evs export samples/pan.mp4 --to vllm-frames --model qwen2.5-vl-7b --dialect vllm -o pan.json --curl",
)
EVERYDAY = (
    *("--to", "--output", "--model", "--fps", "--num-frames", "--prompt", "--q", "--dialect"),
    *("--curl", "--send", "--api-key", "--force", "--json"),
)

_FRAMES, _OUTPUT, _SERVER = "Frames", "Output", "Server"
_To = Annotated[str, typer.Option("--to", metavar="NAME", help="vllm-frames: JPEGs in the body of a chat completion.")]
_File = Annotated[
    str | None, typer.Option("--output", "-o", metavar="PATH", help="File to write, .json.", rich_help_panel=_OUTPUT)
]
_Curl = Annotated[bool, typer.Option("--curl", help="Print the line that posts it.", rich_help_panel=_OUTPUT)]
_At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="NAME",
        help="Size of the frames sent: planned, or source for the server to resize.",
        rich_help_panel=_FRAMES,
    ),
]
_JpegQuality = Annotated[
    int, typer.Option("--quality", metavar="N", help="Of the JPEGs, 1 to 100.", rich_help_panel=_FRAMES)
]
_ServerRate = Annotated[
    float | None,
    typer.Option(
        "--q",
        "--pruning-rate",
        "--video-pruning-rate",
        metavar="RATE",
        help="The server's --video-pruning-rate, to count what it keeps. Default: that of --server-cmd, else 0.",
        rich_help_panel=_SERVER,
    ),
]
_ServedModel = Annotated[
    str | None,
    typer.Option(
        "--served-model",
        metavar="NAME",
        help="The model's name in the request. Default: its folder or hub id.",
        rich_help_panel=_SERVER,
    ),
]
_Send = Annotated[
    str | None,
    typer.Option(
        "--send",
        metavar="URL",
        help="Post it to a running server, http://HOST:PORT, and print the answer.",
        rich_help_panel=_SERVER,
    ),
]


@with_output("export")
@with_source
def command(
    video: o.Video,
    request: RequestKeywords,
    sink: Sink,
    to: _To,
    at: _At = "planned",
    quality: _JpegQuality = 95,
    q: _ServerRate = None,
    reserve: o.Reserve = "0",
    served_model: _ServedModel = None,
    send: _Send = None,
    api_key: o.ApiKey = None,
    timeout: o.Timeout = 300.0,
    output: _File = None,
    force: o.Force = False,
    curl: _Curl = False,
) -> None:
    """Write the planned frames as a request to vLLM.

    vLLM takes them as they are. The model is told their true times, and the server samples nothing itself.
    """
    with sink.progress() as progress:
        progress.stage("load libraries")
        from evs_cli.jobs.export import ExportJob, check_target, server_of
        from evs_cli.jobs.frames_export import ExportRequest
        from evs_cli.pipeline.request import make_request
        from evs_cli.report.export import render_export

        check_target(to)
        kept_free = token_count("--reserve", reserve)
        job = ExportJob(
            video,
            output,
            server_of(send, api_key, timeout),
            ExportRequest(at, quality, q, served_model, kept_free or None),
            overwrite=force,
            with_curl=curl,
        )
        render_export(job.run(make_request(**request), progress), sink)
