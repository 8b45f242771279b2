"""evs: the token budget of video in vision-language models.

``prune_video`` runs the main job and ``load`` reads its artifact back; ``encode_video`` keeps everything once, and
``open_encoding`` serves any rate from that. ``plan_video`` and ``fit_video`` count a video before any work,
``check_video`` and ``export_video`` talk to a server. The rule's own functions are here too.
Names are imported when they are first used, so ``import evs_cli`` costs nothing.

The rooms of the house, lowest first; a room imports from rooms above it in this list, never from one below it:

``core`` decides which tokens are kept (dissimilarity, ranking, retention) and holds the result, ``PrunedVideo``.
``video`` reads video files: their facts, which frames to take, the pixels.
``cost`` counts what a prompt costs a model, from its ``config.json``.
``encoders`` turn frames into tokens, one file a model family.
``integration`` puts EVS inside other people's models and servers.
``dialects`` hold the rules of servers; those of vLLM are ``vllm_*.py``.
``pipeline`` runs one video: request, plan, decode, encode, rank.
``files`` write and read what evs keeps: pruned videos, whole encodings, the cache.
``servers`` talk to a running server and compare its answer with a plan.
``jobs`` do the work of each command, and ``api`` offers it to Python.
``report`` shows results; its ``console`` alone prints. ``cli`` declares the commands and their options.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evs_cli._version import __version__

if TYPE_CHECKING:
    from evs_cli.api import (
        check_video,
        encode_video,
        export_video,
        fit_video,
        plan_video,
        prune_video,
        sweep_video,
    )
    from evs_cli.core.counts import compute_retained_tokens_count, tokens_per_frame
    from evs_cli.core.dissimilarity import compute_dissimilarity
    from evs_cli.core.placeholders import replace_offsets_with_tokens_per_frame
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.core.retention import Ranking, Retention, compute_retention_mask
    from evs_cli.files.artifact import load, save
    from evs_cli.files.encoding.reader import Encoding, open_encoding
    from evs_cli.pipeline.clips import NumbersRequest

_HOMES = {
    "check_video": "api",
    "encode_video": "api",
    "export_video": "api",
    "fit_video": "api",
    "plan_video": "api",
    "prune_video": "api",
    "sweep_video": "api",
    "load": "files.artifact",
    "save": "files.artifact",
    "compute_retained_tokens_count": "core.counts",
    "tokens_per_frame": "core.counts",
    "compute_dissimilarity": "core.dissimilarity",
    "replace_offsets_with_tokens_per_frame": "core.placeholders",
    "PrunedVideo": "core.pruned_video",
    "Ranking": "core.retention",
    "Retention": "core.retention",
    "compute_retention_mask": "core.retention",
    "Encoding": "files.encoding.reader",
    "NumbersRequest": "pipeline.clips",
    "open_encoding": "files.encoding.reader",
}

__all__ = [
    "Encoding",
    "NumbersRequest",
    "PrunedVideo",
    "Ranking",
    "Retention",
    "__version__",
    "check_video",
    "compute_dissimilarity",
    "compute_retained_tokens_count",
    "compute_retention_mask",
    "encode_video",
    "export_video",
    "fit_video",
    "load",
    "open_encoding",
    "plan_video",
    "prune_video",
    "replace_offsets_with_tokens_per_frame",
    "save",
    "sweep_video",
    "tokens_per_frame",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evs_cli' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"evs_cli.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
