"""The numbers of a view as the page reads them: ranks, scores, times and costs in one JSON document.

In: a ``ViewedRun``. Out: plain values. A rank is a little-endian uint32 and a score a float16, base64 in row-major
(t, h, w) order. The mask at a rate is ``rank < K``, and K is counted in the page as ``core.counts`` counts it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from evs_cli.core.methods import RetentionRule
from evs_cli.core.retention import Ranking

if TYPE_CHECKING:
    from evs_cli.jobs.viewed_run import ViewedRun

NEVER_KEPT = 0xFFFFFFFF
"""Rank of a token below the floor of ``min_dissimilarity``: no count reaches it."""


def run_numbers(run: ViewedRun) -> dict[str, Any]:
    """Everything the page needs to redraw a run at any rate by any method."""
    scores = run.ranking.dissimilarity.double()
    ranks = run.rank.numpy().astype(np.uint32)
    floor = run.rule.min_dissimilarity
    if floor is not None:
        ranks = np.where((scores < floor).numpy(), np.uint32(NEVER_KEPT), ranks)
    random_scores = RetentionRule("random", seed=run.rule.seed).own_scores(run.token_grid_thw)
    assert random_scores is not None
    return {
        "label": run.label,
        "model": run.model,
        "q": run.q,
        "method": run.rule.method,
        "seed": run.rule.seed,
        "min_dissimilarity": floor,
        "token_grid_thw": list(run.token_grid_thw),
        "pts_seconds": [round(t, 6) for t in run.pts_seconds.tolist()],
        "ids_beside_tokens": run.sequence_length(0),
        "context_limit": run.cost.context_limit,
        # Windows as a list of pairs: a JSON key cannot be null, which stands for full attention.
        "kv_bytes_by_window": None
        if run.cost.kv_bytes_by_window is None
        else [[window, each] for window, each in run.cost.kv_bytes_by_window.items()],
        "knee": run.knee,
        "noise_rate": run.noise_rate,
        "region": run.pixel_region.as_list(),
        "rank": _encoded(ranks.astype("<u4")),
        "random_rank": _encoded(Ranking(random_scores).rank.numpy().astype("<u4")),
        "scores": _encoded(_page_scores(run.ranking.dissimilarity).astype("<f2")),
        "mean_scores": [None, *(round(value, 6) for value in scores[1:].mean(dim=(1, 2)).tolist())],
        "provenance": {key: _text(value) for key, value in _flat(run.provenance)},
    }


def to_script(document: Mapping[str, Any]) -> str:
    """JSON that may stand inside a ``<script>`` element: no ``<``, so that no text can close it, and no NaN."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _page_scores(dissimilarity: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(T, h, w) scores for the heat map; frame 0, whose 255 means that it has none, is NaN."""
    scores = dissimilarity.float().numpy().copy()
    scores[0] = math.nan
    return scores


def _encoded(values: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _flat(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """``(name, value)`` of a record, those of inner records as ``outer.inner``."""
    pairs: list[tuple[str, Any]] = []
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            pairs += _flat(value, f"{prefix}{name}.")
        else:
            pairs.append((prefix + name, value))
    return pairs


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
