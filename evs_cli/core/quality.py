"""What is lost at a rate: how well a dropped token is stood for by the last one kept at its place.

In: embeddings and masks. Out: a ``Quality`` a mask, from a fixed sample of the dropped tokens. EVS compares each token
with the frame before alone, so slow change can add up unseen; this measures how far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from evs_cli.core.dtypes import in_double

SAMPLE_TOKENS = 4096
"""Dropped tokens looked at for each mask; all of them where there are fewer."""
_SEED = 0


@dataclass(frozen=True)
class Quality:
    """How a mask's dropped tokens compare with what stands for them; None where nothing is dropped."""

    coverage_mean: float | None
    """Mean cosine of a dropped token with the last kept token at its place."""
    coverage_error: float | None
    """Standard error of that mean, from the sample; 0 where every dropped token was looked at."""
    coverage_p5: float | None
    """5th percentile of the same cosines: the worst-covered tokens."""
    drift_per_frame: float | None
    """How much the cosine falls with each further frame of the gap: the least-squares slope, negated."""
    longest_gap_frames: int
    """Most frames from a dropped token back to the last kept one at its place."""


def measure_quality(embeddings: torch.Tensor, retention_mask: torch.Tensor) -> Quality:
    """Coverage and drift of a mask.

    Args:
        embeddings: ``(T, h, w, D)`` float, of the main level.
        retention_mask: ``(T, h, w)`` bool with frame 0 whole.
    """
    return quality_of_rows(embeddings.flatten(0, 2).__getitem__, retention_mask)


def quality_of_rows(rows: Callable[[torch.Tensor], torch.Tensor], retention_mask: torch.Tensor) -> Quality:
    """As ``measure_quality``, of rows that are fetched: of the sampled tokens and what stands for them, no others.

    Args:
        rows: rows ``(n, D)`` of tokens ``(n,)`` int64, counted in (t, h, w) order; a token may come twice.
        retention_mask: ``(T, h, w)`` bool with frame 0 whole.
    """
    num_frames = retention_mask.shape[0]
    mask = retention_mask.reshape(num_frames, -1).cpu()
    frames = torch.arange(num_frames).unsqueeze(1)
    last_kept = torch.where(mask, frames, -1).cummax(dim=0).values
    gaps = frames - last_kept
    dropped = (~mask).nonzero()
    if not len(dropped):
        return Quality(None, None, None, None, 0)
    total = len(dropped)
    if total > SAMPLE_TOKENS:
        chosen = torch.randperm(total, generator=torch.Generator().manual_seed(_SEED))[:SAMPLE_TOKENS]
        dropped = dropped[chosen]
    t, place = dropped.unbind(dim=1)
    num_places = mask.shape[1]
    cosines = torch.nn.functional.cosine_similarity(
        rows(t * num_places + place).float(), rows(last_kept[t, place] * num_places + place).float(), dim=-1
    )
    cosines = in_double(cosines).cpu()
    return Quality(
        coverage_mean=float(cosines.mean()),
        coverage_error=_standard_error(cosines, total),
        coverage_p5=float(cosines.quantile(0.05)),
        drift_per_frame=_drift(gaps[t, place].double(), cosines),
        longest_gap_frames=int(gaps.max()),
    )


def _standard_error(values: torch.Tensor, total: int) -> float:
    """Standard error of the mean of a sample without replacement out of ``total``."""
    count = len(values)
    if count == total or count < 2:
        return 0.0
    finite = math.sqrt(1 - count / total)  # a sample without replacement knows the more the larger its share is
    return float(values.std()) / math.sqrt(count) * finite


def _drift(gaps: torch.Tensor, cosines: torch.Tensor) -> float | None:
    """Fall of the cosine a frame of gap; None where all gaps are the same."""
    centred = gaps - gaps.mean()
    spread = float((centred * centred).sum())
    if spread == 0:
        return None
    return -float((centred * (cosines - cosines.mean())).sum()) / spread
