"""EVS for those who write models and servers: the parts SGLang has, for use outside of it.

``enable_evs`` and ``EVS`` make a model's own feature method prune, ``EVSEmbeddingResult`` puts the placeholders
where the mask wants them, ``EVSProcessor`` writes prompts of the reduced size. Names are imported when they are
first used: the placeholder functions need no torch, and nothing here imports transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evs_cli.integration.features import prune_features, retentions_of
    from evs_cli.integration.mixin import EVS, FramesAsImages, disable_evs, enable_evs
    from evs_cli.integration.processor import EVSDataItem, EVSProcessor, MultimodalDataItem, VideoEVSDataItem
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
    "EVSDataItem": "processor",
    "EVSProcessor": "processor",
    "MultimodalDataItem": "processor",
    "VideoEVSDataItem": "processor",
    "PlaceholderChunk": "redistribution",
    "chunk_placeholders": "redistribution",
    "kept_places": "redistribution",
    "move_offsets": "redistribution",
    "redistribute_placeholders": "redistribution",
    "EVSConfig": "results",
    "EVSEmbeddingResult": "results",
}

__all__ = [
    "EVS",
    "EVSConfig",
    "EVSDataItem",
    "EVSEmbeddingResult",
    "EVSProcessor",
    "FramesAsImages",
    "MultimodalDataItem",
    "PlaceholderChunk",
    "VideoEVSDataItem",
    "chunk_placeholders",
    "disable_evs",
    "enable_evs",
    "kept_places",
    "move_offsets",
    "prune_features",
    "redistribute_placeholders",
    "retentions_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evs_cli.integration' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"evs_cli.integration.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
