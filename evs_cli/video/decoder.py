"""The decoders by name; the modules behind them are imported when one is used."""

from __future__ import annotations

import importlib.util
from typing import Literal

from evs_cli.errors import UsageError

Decoder = Literal["pyav", "decord"]
DECODERS: tuple[Decoder, ...] = ("pyav", "decord")


def check_decoder(decoder: str) -> None:
    """Refuse a decoder before any work is done for it.

    Raises:
        UsageError: an unknown decoder, or one that is not installed.
    """
    if decoder not in DECODERS:
        raise UsageError(f"Invalid decoder ({decoder!r}). Expected one of: {', '.join(DECODERS)}.")
    if decoder == "decord" and importlib.util.find_spec("decord") is None:
        raise UsageError(
            "the decoder decord is not installed",
            hint="pip install decord (decord2 on arm64), or use --decoder pyav",
        )
