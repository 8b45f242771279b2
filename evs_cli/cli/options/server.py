"""Whose rules hold: a server that is imagined, and one that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.options.values import DIALECTS, ENDPOINTS, completed_from
from evs_cli.core.counts import PRUNING_METHODS

_SERVER = "Server"

Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="SERVER",
        help="Whose rules hold: evs, a server's or a trainer's. Names: hf, vllm, sglang, qwen-vl-utils, llamafactory, "
        "ms-swift, verl. A version is named as vllm@0.33; plan takes all. Default: evs.",
        autocompletion=completed_from(*DIALECTS),
        rich_help_panel=_SERVER,
    ),
]
ServerDialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="SERVER",
        help="Whose rules the plan goes by: vllm, sglang, hf. Default: what the server says it is.",
        autocompletion=completed_from(*DIALECTS[1:-1]),
        rich_help_panel=_SERVER,
    ),
]
ServerCmd = Annotated[
    str | None,
    typer.Option(
        "--server-cmd",
        metavar="LINE",
        help="The server's command line, 'vllm serve ...'. In place of --dialect and the other options of a server. "
        "Its numbers are read as it reads them.",
        rich_help_panel=_SERVER,
    ),
]
MediaIoKwargs = Annotated[
    str | None, typer.Option("--media-io-kwargs", metavar="JSON", help="As vLLM takes it.", rich_help_panel=_SERVER)
]
MmProcessorKwargs = Annotated[
    str | None,
    typer.Option(
        "--mm-processor-kwargs",
        metavar="JSON",
        help="As vLLM takes it; for hf, arguments of the processor.",
        rich_help_panel=_SERVER,
    ),
]
MmProcessConfig = Annotated[
    str | None, typer.Option("--mm-process-config", metavar="JSON", help="As SGLang takes it.", rich_help_panel=_SERVER)
]
VideoKwargs = Annotated[
    str | None,
    typer.Option(
        "--video-kwargs",
        metavar="JSON",
        help="What qwen-vl-utils, verl, ms-swift or llamafactory is told of a video: the keys of its message or its "
        "arguments, and environment variables.",
        rich_help_panel=_SERVER,
    ),
]
MaxNumBatchedTokens = Annotated[
    str | None,
    typer.Option(
        "--max-num-batched-tokens",
        metavar="TOKENS",
        help="As vLLM takes it: the least its encoder cache holds. 8k is 8,192 here. Default: 8192, its own on an "
        "80 GB GPU.",
        rich_help_panel=_SERVER,
    ),
]
VideoPruningMethod = Annotated[
    str | None,
    typer.Option(
        "--video-pruning-method",
        metavar="NAME",
        help="As vLLM takes it: evs, or vidcom2 (Qwen3-VL), which is counted and not run. Default: evs.",
        autocompletion=completed_from(*PRUNING_METHODS),
        rich_help_panel=_SERVER,
    ),
]
DecodeFirst = Annotated[
    bool,
    typer.Option(
        "--decode-first",
        help="Decode the whole file before it is planned, as vLLM does, to find frames that do not decode. A plan "
        "takes them for whole otherwise.",
        rich_help_panel=_SERVER,
    ),
]
ServerRate = Annotated[
    float | None,
    typer.Option(
        "--q",
        "--pruning-rate",
        "--video-pruning-rate",
        metavar="RATE",
        help="The rate the server prunes at. Also --video-pruning-rate. Default: the server's own.",
        rich_help_panel=_SERVER,
    ),
]
Url = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", help="The running server, such as http://localhost:8000.", rich_help_panel=_SERVER
    ),
]
ServedModel = Annotated[
    str | None,
    typer.Option(
        "--served-model",
        metavar="NAME",
        help="The model's name at the server. Default: as it lists it.",
        rich_help_panel=_SERVER,
    ),
]
Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        metavar="NAME",
        help="auto, tokenize (ids, of vLLM) or usage (a number, of any server).",
        autocompletion=completed_from(*ENDPOINTS),
        rich_help_panel=_SERVER,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="VARIABLE",
        help="The environment variable that holds the server's key.",
        rich_help_panel=_SERVER,
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for an answer.", rich_help_panel=_SERVER)
]
AsUrl = Annotated[
    str | None,
    typer.Option(
        "--as-url",
        metavar="URL",
        help="By which the server reads the clip, or file for file:// and its path. Default: inside the request.",
        rich_help_panel=_SERVER,
    ),
]
