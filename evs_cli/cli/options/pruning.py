"""Rates, and the rule that chooses tokens."""

from __future__ import annotations

from typing import Annotated

import typer

from evs_cli.cli.options.values import DTYPES, METHODS, completed_from

_PRUNING = "Pruning"

Rate = Annotated[
    float | None,
    typer.Option(
        "--q",
        help="Share of the video tokens to drop, 0 <= q < 1; also --pruning-rate, --video-pruning-rate. "
        "Default: the model's own, else 0.7.",
        rich_help_panel=_PRUNING,
    ),
]
# Aliases stand apart and hidden: in one row with the option they would be cut off in an 80-column help.
RateAlias = Annotated[float | None, typer.Option("--pruning-rate", "--video-pruning-rate", hidden=True)]
Rates = Annotated[
    str | None,
    typer.Option(
        "--q",
        help="Rates: 0.5,0.75 or 0:0.9:0.1 (from, to, step; the end is included); also --pruning-rate. "
        "Default: 0:0.9:0.1.",
        rich_help_panel=_PRUNING,
    ),
]
RatesAlias = Annotated[str | None, typer.Option("--pruning-rate", "--video-pruning-rate", hidden=True)]
PlanRates = Annotated[
    str | None,
    typer.Option(
        "--q",
        help="Rates: 0.7 or 0.5,0.75 or 0:0.9:0.1 (from, to, step). Default: 0 and the model's own, else 0.7.",
        rich_help_panel=_PRUNING,
    ),
]
Keep = Annotated[
    float | None,
    typer.Option("--keep", help="Share of the tokens to keep: 1 - q, instead of --q.", rich_help_panel=_PRUNING),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="evs, or a control at the same count: uniform-frames, random.",
        autocompletion=completed_from(*METHODS),
        rich_help_panel=_PRUNING,
    ),
]
MinDissimilarity = Annotated[
    float | None,
    typer.Option(
        "--min-dissimilarity",
        help="Floor: below it nothing is kept beyond frame 0, so counts depend on the content.",
        rich_help_panel=_PRUNING,
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of --method random.", rich_help_panel=_PRUNING)]
ScoreDtype = Annotated[
    str | None,
    typer.Option(
        "--score-dtype",
        help="Dtype of the dissimilarity: float32, bfloat16 or float16. Default: the embeddings' own.",
        autocompletion=completed_from(*DTYPES[1:]),
        rich_help_panel=_PRUNING,
    ),
]
Quality = Annotated[
    bool,
    typer.Option(
        "--quality",
        help="Measure coverage (cosine of a dropped token with the last kept at its place) and drift.",
        rich_help_panel=_PRUNING,
    ),
]
