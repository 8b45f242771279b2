"""The numbers of a view as the page reads them: ranks, scores, times and costs in one JSON document.

In: a ``ViewedRun``. Out: plain values. A rank is a little-endian uint32 and a score a float16, base64 in row-major
(t, h, w) order. The mask at a rate is ``rank < K``, and K is counted in the page as ``core.counts`` counts it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from evs_cli.jobs.viewed_run import ViewedRun


def run_numbers(run: ViewedRun) -> dict[str, Any]:
    """Everything the page needs to redraw a run at any rate by any method."""
    return {
        "label": run.label,
        "model": run.model,
        "q": run.q,
        "method": run.rule.method,
        "seed": run.rule.seed,
        "min_dissimilarity": run.rule.min_dissimilarity,
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
        "rank": _encoded(run.rank_numbers().astype("<u4")),
        "random_rank": _encoded(run.random_rank_numbers().astype("<u4")),
        "scores": _encoded(run.score_numbers().astype("<f2")),
        "mean_scores": [None, *(round(value, 6) for value in run.mean_scores()[1:])],
        "provenance": {key: _text(value) for key, value in _flat(run.provenance)},
    }


def to_script(document: Mapping[str, Any]) -> str:
    """JSON that may stand inside a ``<script>`` element: no ``<``, so that no text can close it, and no NaN.

    A byte of a file name that is no UTF-8, which Python holds as half of a pair, becomes the sign for such bytes.
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    text = re.sub("[\ud800-\udfff]", r"\\ufffd", text)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


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
