"""Files that are written, and how a result looks."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.options.values import FORMATS, LEVELS, STORE_DTYPES, completed_from

_OUTPUT = "Output"

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="File to write, .pt or .safetensors; a folder for several videos. Default: print only.",
        rich_help_panel=_OUTPUT,
    ),
]
EncodingOutput = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="File to write, .safetensors; a folder for several videos.",
        rich_help_panel=_OUTPUT,
    ),
]
StoreDtype = Annotated[
    str | None,
    typer.Option(
        "--store-dtype",
        help="Dtype of the rows in the file: bfloat16, float16, int8 or fp8 (these two with a scale a row). The error "
        "is measured and told. Default: the embeddings' own, without any.",
        autocompletion=completed_from(*STORE_DTYPES),
        rich_help_panel=_OUTPUT,
    ),
]
Levels = Annotated[
    str,
    typer.Option(
        "--levels",
        help="all, or main to leave further levels (DeepStack) out.",
        autocompletion=completed_from(*LEVELS),
        rich_help_panel=_OUTPUT,
    ),
]
Plot = Annotated[
    str | None,
    typer.Option("--plot", help="Draw the curves: .png, .svg or .pdf, with a .csv beside.", rich_help_panel=_OUTPUT),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an output that exists.", rich_help_panel=_OUTPUT)]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Say what would be read, computed and written; load no weights.", rich_help_panel=_OUTPUT
    ),
]
Print = Annotated[
    str | None,
    typer.Option(
        "--print",
        metavar="PARTS",
        help="Print ids, embeddings or both (ids,embeddings) whole, as JSON.",
        rich_help_panel=_OUTPUT,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", help="table, json or csv.", autocompletion=completed_from(*FORMATS), rich_help_panel=_OUTPUT
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The result and errors alone.", rich_help_panel=_OUTPUT)]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        help="More about the run; twice for the libraries' own logs.",
        rich_help_panel=_OUTPUT,
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours.", rich_help_panel=_OUTPUT)]
Debug = Annotated[bool, typer.Option("--debug", envvar="EVS_DEBUG", help="Show tracebacks.", rich_help_panel=_OUTPUT)]
