"""``evs check``: whether a running server counts a video as it is planned."""

from __future__ import annotations

from evs_cli.cli import options as o
from evs_cli.cli.shared import with_output, with_served
from evs_cli.cli.values import token_count
from evs_cli.pipeline.keywords import RequestKeywords
from evs_cli.report.console import Sink

EXAMPLES = (
    "evs check samples/crossing.mp4 --url http://localhost:8000 --model qwen3-vl-8b",
    "evs check samples/crossing.mp4 --url http://localhost:8000 --model qwen3-vl-8b --fps 1 --json",
)
EVERYDAY = (
    *("--url", "--model", "--served-model", "--dialect", "--q", "--fps", "--num-frames", "--prompt"),
    *("--as-url", "--api-key", "--timeout", "--json"),
)


@with_output("check")
@with_served
def command(
    request: RequestKeywords,
    sink: Sink,
    video: o.Video,
    url: o.Url,
    served_model: o.ServedModel = None,
    endpoint: o.Endpoint = "auto",
    api_key: o.ApiKey = None,
    timeout: o.Timeout = 300.0,
    as_url: o.AsUrl = None,
    q: o.ServerRate = None,
    context: o.Context = None,
) -> None:
    """Compare a running server's count of tokens with the plan.

    The server is asked how many tokens a video is, kind by kind. The clip is posted to /tokenize, which tells
    the ids (vLLM), else sent as a chat of one token, whose usage tells their number. Without --model and
    --dialect the server is asked what it is. Exit code 6 where they differ.
    """
    with sink.progress() as progress:
        progress.stage("ask the server")
        from evs_cli.jobs.check import CheckRequest, run_check
        from evs_cli.report.check import render_check

        check = CheckRequest(
            video=video,
            url=url,
            endpoint=endpoint,
            served_model=served_model,
            api_key_variable=api_key,
            timeout_seconds=timeout,
            as_url=as_url,
        )
        limit = token_count("--context", context)
        plan: RequestKeywords = {**request, "video_pruning_rate": q, "max_model_len": limit}
        render_check(run_check(check, progress, **plan), sink)
