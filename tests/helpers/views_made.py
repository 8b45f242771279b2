"""Views made of drawn scores, so that a page or picture needs no model."""

from __future__ import annotations

import numpy as np
import torch

from evs_cli.core.methods import RetentionRule
from evs_cli.core.pixel_region import WHOLE_FRAME
from evs_cli.core.retention import Ranking
from evs_cli.jobs.view import View
from evs_cli.jobs.viewed_run import SequenceCost, ViewedRun


def make_run(grid=(6, 4, 5), *, q=0.5, seed=0, label="run.pt", region=WHOLE_FRAME, rule=None, cost=None, **more):
    """A run whose scores are drawn: a third of the tokens repeat, some scores are equal."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(grid, generator=generator).mul(20).round().div(20)  # in steps, so that ties are common
    scores[torch.rand(grid, generator=generator) < 0.3] = 0
    scores[0] = 255
    ranking, rule = Ranking(scores), rule or RetentionRule()
    num_frames = grid[0]
    return ViewedRun(
        label=label,
        model="a-model",
        ranking=ranking,
        rule=rule,
        q=q,
        frame_indices=np.arange(num_frames),
        pts_seconds=np.arange(num_frames) / 2,
        unpruned_sequence_length=scores.numel() + 2 * num_frames,
        frame_size=(grid[1] * 14, grid[2] * 14),
        pixel_region=region,
        provenance={
            "video": {"name": "clip.mp4", "sha256": "0", "width": grid[2] * 14, "height": grid[1] * 14},
            **more,
        },
        cost=cost or SequenceCost(),
        retention=rule.retain(ranking, q),
    )


def make_view(*runs, frames=None, notes=()):
    """A view of runs, without pictures unless ``frames`` gives them."""
    return View(runs or (make_run(),), frames, notes)
