"""Values that shells complete: fixed lists, so that completion needs no torch."""

from __future__ import annotations

from collections.abc import Callable

from evs_cli.dialects import ALL

MODELS = ("dinov2-small", "dinov2-base", "dinov3-small", "siglip-base", "clip-base", "qwen2.5-vl-7b", "qwen3-vl-8b")
FORMATS = ("table", "json", "csv")
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("auto", "float32", "bfloat16", "float16")
DIALECTS = (*(dialect.name for dialect in ALL), "all")
DECODERS = ("pyav", "decord")
METHODS = ("evs", "uniform-frames", "random")
ENDPOINTS = ("auto", "tokenize", "usage")
STORE_DTYPES = ("bfloat16", "float16", "int8", "fp8")
PLAN_SORTS = ("name", "duration", "frames", "tokens", "sequence")
FIT_SORTS = ("name", "duration", "tokens", "q")
LEVELS = ("all", "main")


def completed_from(*values: str) -> Callable[[str], list[str]]:
    """A completion from a fixed list."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete
