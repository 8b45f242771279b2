"""Sweeps of made scores, for what draws them: any number of clips and methods, without a video."""

import torch

from evs_cli.core.methods import RetentionRule
from evs_cli.core.retention import Ranking
from evs_cli.jobs.sweep import Sweep, SweepRow

RATES = [0.1 * step for step in range(10)]
ALL = ("evs", "uniform-frames", "random")


def sweep_of(seed, methods=("evs",), num_frames=12, model="dinov2-small"):
    """The rates of made scores."""
    scores = torch.rand((num_frames, 4, 5), generator=torch.Generator().manual_seed(seed)) ** (1 + seed % 4)
    scores[0] = 255
    ranking, total, overhead = Ranking(scores), scores.numel(), 2 * num_frames
    rows = []
    for q in RATES:
        for method in methods:
            kept = RetentionRule(method).retain(ranking, q)
            count = kept.retained_tokens
            length = count + overhead
            rows.append(
                SweepRow(
                    q=q,
                    method=method,
                    retained_tokens=count,
                    exact_retained_tokens=count,
                    retained_share=count / total,
                    sequence_length=length,
                    sequence_share=length / (total + overhead),
                    empty_frames=kept.empty_frames,
                    longest_empty_run=kept.longest_empty_run,
                    dissimilarity_kept=kept.dissimilarity_kept,
                    noise_tokens=0,
                    noise_share=0.0,
                    context_share=None,
                    kv_cache_bytes=None,
                    prefill_flops=None,
                )
            )
    return Sweep(model, tuple(rows))


def sweeps_of(count, methods=("evs",), **options):
    return [(f"clips/clip{seed}.mp4", sweep_of(seed, methods, **options)) for seed in range(count)]
