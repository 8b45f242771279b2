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
    "prune_features": "integration.features",
    "retentions_of": "integration.features",
    "EVS": "integration.mixin",
    "FramesAsImages": "integration.mixin",
    "disable_evs": "integration.mixin",
    "enable_evs": "integration.mixin",
    "EVSProcessor": "integration.processor",
    "Modality": "integration.data_items",
    "MultimodalDataItem": "integration.data_items",
    "PlaceholderChunk": "integration.redistribution",
    "chunk_placeholders": "integration.redistribution",
    "kept_places": "integration.redistribution",
    "move_offsets": "integration.redistribution",
    "redistribute_placeholders": "integration.redistribution",
    "EVSConfig": "integration.results",
    "EVSEmbeddingResult": "integration.results",
    "compute_retained_tokens_count": "core.counts",
    "tokens_per_frame": "core.counts",
    "compute_retention_mask": "core.retention",
    "replace_offsets_with_tokens_per_frame": "core.placeholders",
}

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
    if name not in _HOMES:
        raise AttributeError(f"module 'evs_cli.integration' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"evs_cli.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
