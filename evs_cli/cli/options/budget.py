"""Limits of tokens and memory."""

from __future__ import annotations

from typing import Annotated

import typer

_BUDGET = "Budget"
_UNITS = "32k is 32,768 (k = 1024), 1M is 1,048,576."

Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        "--max-model-len",
        "--context-length",
        metavar="TOKENS",
        help=f"Longest sequence allowed, such as 32k. {_UNITS} Also --max-model-len, --context-length. "
        "Default: the model's own.",
        rich_help_panel=_BUDGET,
    ),
]
MaxTokens = Annotated[
    str | None,
    typer.Option("--max-tokens", metavar="TOKENS", help=f"Longest prompt allowed. {_UNITS}", rich_help_panel=_BUDGET),
]
KvBudget = Annotated[
    str | None,
    typer.Option(
        "--kv-budget",
        metavar="SIZE",
        help="Memory for KV caches, in GiB or with a unit: how many such prompts fit. 24, 24GiB, 80GB, 512MiB.",
        rich_help_panel=_BUDGET,
    ),
]
Reserve = Annotated[
    str,
    typer.Option(
        "--reserve",
        metavar="TOKENS",
        help=f"Tokens of the context kept for the answer. {_UNITS}",
        rich_help_panel=_BUDGET,
    ),
]
