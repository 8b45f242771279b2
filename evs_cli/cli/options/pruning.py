"""Rates, and the rule that chooses tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.options.values import DTYPES, METHODS, completed_from

_PRUNING = "Pruning"
_NAMES = ("--q", "--pruning-rate", "--video-pruning-rate")
_ALSO = "Also --pruning-rate, --video-pruning-rate."

PruneRates = Annotated[
    list[str] | None,
    typer.Option(
        *_NAMES,
        metavar="RATES",
        help="Share of the video tokens to drop, 0 <= q < 1. Of several, 0.5,0.7 or 0:0.9:0.1 (from, to, step), each "
        f"is a result of its own, from one encoding: -o out.pt writes out-q0.5.pt and out-q0.7.pt. {_ALSO} "
        "Default: the model's own, else 0.7.",
        rich_help_panel=_PRUNING,
    ),
]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        *_NAMES,
        metavar="RATES",
        help=f"Rates, 0.5,0.75 or 0:0.9:0.1 (from, to, step). The end is included. {_ALSO} Default: 0:0.9:0.1.",
        rich_help_panel=_PRUNING,
    ),
]
ViewRate = Annotated[
    str | None,
    typer.Option(
        *_NAMES,
        metavar="RATE",
        help=f"Share of the video tokens to drop, 0 <= q < 1. {_ALSO} Default: the file's own, or the model's, or 0.7.",
        rich_help_panel=_PRUNING,
    ),
]
PlanRates = Annotated[
    list[str] | None,
    typer.Option(
        *_NAMES,
        metavar="RATES",
        help=f"Rates, 0.5,0.75 or 0:0.9:0.1 (from, to, step). {_ALSO} Default: 0 and the model's own, else 0.7.",
        rich_help_panel=_PRUNING,
    ),
]
Keep = Annotated[
    float | None,
    typer.Option(
        "--keep", metavar="SHARE", help="Share of the tokens to keep, 1 - q, instead of --q.", rich_help_panel=_PRUNING
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="NAME",
        help="evs, or a control at the same count: uniform-frames, random.",
        autocompletion=completed_from(*METHODS),
        rich_help_panel=_PRUNING,
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="NAMES",
        help="evs, uniform-frames or random; several with commas, to compare. The last two are controls at the same "
        "count. All are of one encoding. Default: evs.",
        autocompletion=completed_from(*METHODS),
        rich_help_panel=_PRUNING,
    ),
]
MinDissimilarity = Annotated[
    float | None,
    typer.Option(
        "--min-dissimilarity",
        metavar="FLOOR",
        help="Floor: below it nothing is kept beyond frame 0, so counts depend on the content.",
        rich_help_panel=_PRUNING,
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of --method random.", rich_help_panel=_PRUNING)]
Quality = Annotated[
    bool,
    typer.Option(
        "--quality",
        help="Measure coverage and drift. Coverage is the cosine of a dropped token with the last one kept at its "
        "place.",
        rich_help_panel=_PRUNING,
    ),
]
ScoreDtype = Annotated[
    str | None,
    typer.Option(
        "--score-dtype",
        metavar="DTYPE",
        help="Dtype of the dissimilarity: float32, bfloat16 or float16. Default: the embeddings' own.",
        autocompletion=completed_from(*DTYPES[1:]),
        rich_help_panel=_PRUNING,
    ),
]
