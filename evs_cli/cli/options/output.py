"""Files that are written, and how a result looks."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.command import show_whole_help
from evs_cli.cli.options.values import FIT_SORTS, FORMATS, LEVELS, PLAN_SORTS, STORE_DTYPES, completed_from

_OUTPUT = "Output"

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="File to write, .pt or .safetensors. Of several videos a folder, which takes {stem}.pt of each; several "
        "rates put -q0.5 behind the stem. Default: print only.",
        rich_help_panel=_OUTPUT,
    ),
]
EncodingOutput = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="File to write, .safetensors, or a folder for several videos.",
        rich_help_panel=_OUTPUT,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="PATTERN",
        help="Path of each result in the folder -o, of {stem}, {parent} (the video's folder), {name} (with its "
        "suffix), {index} (from 1) and, of prune, {q}: '{parent}/{stem}'. Default: {stem}.",
        rich_help_panel=_OUTPUT,
    ),
]
Suffix = Annotated[
    str | None,
    typer.Option(
        "--suffix",
        metavar="SUFFIX",
        help="Of the files in the folder -o: .pt or .safetensors. Default: .pt.",
        rich_help_panel=_OUTPUT,
    ),
]
SkipExisting = Annotated[
    bool,
    typer.Option(
        "--skip-existing",
        help="Leave out videos whose result is there already. It is whole, as files are written whole or not at all.",
        rich_help_panel=_OUTPUT,
    ),
]
StoreDtype = Annotated[
    str | None,
    typer.Option(
        "--store-dtype",
        metavar="DTYPE",
        help="Dtype of the rows: bfloat16, float16, int8, fp8. The last two have a scale a row. The error "
        "is measured and told. Default: the embeddings' own, without any.",
        autocompletion=completed_from(*STORE_DTYPES),
        rich_help_panel=_OUTPUT,
    ),
]
Levels = Annotated[
    str,
    typer.Option(
        "--levels",
        metavar="NAME",
        help="all, or main to leave further levels (DeepStack) out.",
        autocompletion=completed_from(*LEVELS),
        rich_help_panel=_OUTPUT,
    ),
]
Plot = Annotated[
    str | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help="Draw the curves: .png, .svg or .pdf, with a .csv beside.",
        rich_help_panel=_OUTPUT,
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite an output that exists.", rich_help_panel=_OUTPUT)]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only say what would be done. No weights are loaded.", rich_help_panel=_OUTPUT),
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
PlanSort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="COLUMN",
        help="Order of several videos, such as tokens. One of name, duration, frames, tokens, sequence. The largest "
        "first, failed ones last. Default: as named.",
        autocompletion=completed_from(*PLAN_SORTS),
        rich_help_panel=_OUTPUT,
    ),
]
FitSort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="COLUMN",
        help="Order of several videos, such as q. One of name, duration, tokens, q. The largest first, failed ones "
        "last. Default: as named.",
        autocompletion=completed_from(*FIT_SORTS),
        rich_help_panel=_OUTPUT,
    ),
]
Details = Annotated[
    bool,
    typer.Option("--details", help="Print all of each video, not a row.", rich_help_panel=_OUTPUT),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="table, json or csv.",
        autocompletion=completed_from(*FORMATS),
        rich_help_panel=_OUTPUT,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=_OUTPUT)]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print the result and errors alone.",
        rich_help_panel=_OUTPUT,
    ),
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        help="Tell more about the run. Twice for the libraries' own logs.",
        rich_help_panel=_OUTPUT,
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours.", rich_help_panel=_OUTPUT)]
Debug = Annotated[bool, typer.Option("--debug", envvar="EVS_DEBUG", help="Show tracebacks.", rich_help_panel=_OUTPUT)]
HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        is_eager=True,
        callback=show_whole_help,
        help="Show all options and stop.",
        rich_help_panel=_OUTPUT,
    ),
]
