"""EVS for those who write models and servers: the parts SGLang has, for use outside of it.

``enable_evs`` and ``EVS`` make a model's own feature method prune, ``EVSEmbeddingResult`` puts the placeholders
where the mask wants them, ``EVSProcessor`` writes prompts of the reduced size. Code and tests of SGLang 0.5.23's EVS
run with its imports changed to this package. Names are imported when they are first used: the placeholder functions
need no torch, and nothing here imports transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evs_cli.core.counts import compute_retained_tokens_count, tokens_per_frame
    from evs_cli.core.placeholders import replace_offsets_with_tokens_per_frame
    from evs_cli.core.retention import compute_retention_mask
    from evs_cli.integration.data_items import Modality, MultimodalDataItem
    from evs_cli.integration.features import prune_features, retentions_of
    from evs_cli.integration.mixin import EVS, FramesAsImages, disable_evs, enable_evs
    from evs_cli.integration.processor import EVSProcessor
    from evs_cli.integration.redistribution import (
        PlaceholderChunk,
        chunk_placeholders,
        kept_places,
        move_offsets,
        redistribute_placeholders,
    )
    from evs_cli.integration.results import EVSConfig, EVSEmbeddingResult

_HOMES = {
    "prune_features": "features",
    "retentions_of": "features",
    "EVS": "mixin",
    "FramesAsImages": "mixin",
    "disable_evs": "mixin",
    "enable_evs": "mixin",
    "EVSProcessor": "processor",
    "Modality": "data_items",
    "MultimodalDataItem": "data_items",
    "PlaceholderChunk": "redistribution",
    "chunk_placeholders": "redistribution",
    "kept_places": "redistribution",
    "move_offsets": "redistribution",
    "redistribute_placeholders": "redistribution",
    "EVSConfig": "results",
    "EVSEmbeddingResult": "results",
}
_CORE_HOMES = {
    "compute_retained_tokens_count": "counts",
    "compute_retention_mask": "retention",
    "replace_offsets_with_tokens_per_frame": "placeholders",
    "tokens_per_frame": "counts",
}
"""The rule's functions under SGLang's names."""

__all__ = [
    "EVS",
    "EVSConfig",
    "EVSEmbeddingResult",
    "EVSProcessor",
    "FramesAsImages",
    "Modality",
    "MultimodalDataItem",
    "PlaceholderChunk",
    "chunk_placeholders",
    "compute_retained_tokens_count",
    "compute_retention_mask",
    "disable_evs",
    "enable_evs",
    "kept_places",
    "move_offsets",
    "prune_features",
    "redistribute_placeholders",
    "replace_offsets_with_tokens_per_frame",
    "retentions_of",
    "tokens_per_frame",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = importlib.import_module(f"evs_cli.integration.{_HOMES[name]}")
    elif name in _CORE_HOMES:
        home = importlib.import_module(f"evs_cli.core.{_CORE_HOMES[name]}")
    else:
        raise AttributeError(f"module 'evs_cli.integration' has no attribute {name!r}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
