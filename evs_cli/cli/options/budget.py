"""Limits of tokens and memory."""

from __future__ import annotations

from typing import Annotated

import typer

_BUDGET = "Budget"

Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        help="Longest sequence allowed; also --max-model-len, --context-length. Default: the model's own.",
        rich_help_panel=_BUDGET,
    ),
]
ContextAlias = Annotated[int | None, typer.Option("--max-model-len", "--context-length", hidden=True)]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Longest prompt allowed.", rich_help_panel=_BUDGET)]
KvBudget = Annotated[
    float | None,
    typer.Option("--kv-budget", help="GiB of memory for caches: how many such prompts fit.", rich_help_panel=_BUDGET),
]
Reserve = Annotated[
    int,
    typer.Option("--reserve", help="Tokens of the context kept for the answer.", rich_help_panel=_BUDGET),
]
