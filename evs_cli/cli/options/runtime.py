"""How a model is run."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.options.values import DEVICES, DTYPES, completed_from

_RUNTIME = "Runtime"

Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        envvar="EVS_DEVICE",
        help="auto, cpu, cuda, cuda:1, mps, or another of torch.",
        autocompletion=completed_from(*DEVICES),
        rich_help_panel=_RUNTIME,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="auto, float32, bfloat16 or float16. auto is float32 on the CPU, bfloat16 elsewhere.",
        autocompletion=completed_from(*DTYPES),
        rich_help_panel=_RUNTIME,
    ),
]
BatchFrames = Annotated[
    str,
    typer.Option(
        "--batch-frames",
        metavar="N|auto",
        help="Frames to encode at once; auto is 16, or 4 on the CPU, and fewer where memory is short.",
        rich_help_panel=_RUNTIME,
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Keep the encoding, and take it from there next time. No pixel is read then, and no weights are loaded. "
        "At most 10 GB, or EVS_CACHE_SIZE (in GB); see `evs cache`.",
        rich_help_panel=_RUNTIME,
    ),
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse/--no-reuse",
        help="Encode a frame that repeats the one before bit for bit only once: slides and screen recordings gain, "
        "camera video does not.",
        rich_help_panel=_RUNTIME,
    ),
]
Repeats = Annotated[
    int, typer.Option("--repeats", metavar="N", help="Runs of each step that are counted.", rich_help_panel=_RUNTIME)
]
