"""Pruned videos made of numbers."""

import numpy as np
import torch

from evs_cli.core.placeholders import SequenceLayout
from evs_cli.core.pruned_video import PrunedVideo
from evs_cli.core.retention import Ranking

PLACEHOLDER = 9


def make_pruned(*, q=0.5, dtype=torch.float32, num_levels=2, num_extras=2, positions=3, seed=0):
    """A pruned video of 4 frames of 2 x 3 tokens with everything in it a family may have, drawn at random.

    Its sequence is text, four spans with a separator before each, a row that is no grid token every second span.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (4, 2, 3)
    scores = torch.rand(shape, generator=generator)
    scores[0] = 255
    scores[2] = 0  # at 0.5 and above the third frame keeps nothing
    retention = Ranking(scores).at(q)
    ids, tokens, extras = [1, 2, 3], [], []
    for frame in range(4):
        ids.append(20 + frame)
        tokens += range(len(ids), len(ids) + 6)
        ids += [PLACEHOLDER] * 6
        if frame % 2 and len(extras) < num_extras:
            extras.append(len(ids))
            ids.append(PLACEHOLDER)
    ids += [4, 5]
    layout = SequenceLayout(np.array(ids), np.array(tokens), np.array(extras, dtype=np.int64), 4, PLACEHOLDER)
    sequence = layout.prune(retention.retention_mask.numpy())
    levels = [torch.randn((*shape, 5), generator=generator).to(dtype) for _ in range(num_levels + 1)]
    main, *further = (retention.select(level) for level in levels)
    whole = torch.stack([torch.arange(len(ids)) + k for k in range(3)])
    kept = torch.from_numpy(sequence.kept_positions)
    return PrunedVideo(
        embeddings=main,
        deepstack_embeddings=tuple(further),
        extra_embeddings=torch.randn((len(extras), 5), generator=generator).to(dtype),
        extra_positions=torch.from_numpy(sequence.extra_positions),
        retention_mask=retention.retention_mask,
        dissimilarity=scores,
        num_tokens_per_frame=retention.num_tokens_per_frame,
        token_thw=retention.token_thw,
        input_ids=torch.from_numpy(sequence.input_ids),
        frame_offsets=torch.from_numpy(sequence.frame_offsets),
        position_ids={3: whole[:, kept], 1: whole[0, kept], 0: None}[positions],
        frame_indices=torch.arange(0, 40, 5),
        pts_seconds=torch.arange(8, dtype=torch.float64) / 4,
        frame_pts_seconds=torch.arange(4, dtype=torch.float64) / 2,
        prompt_seconds=torch.arange(4, dtype=torch.float64) / 2 + 0.125,
        token_grid_thw=shape,
        video_grid_thw=(4, 4, 6),
        model_grid_thw=(4, 4, 6),
        spatial_merge_size=2,
        temporal_patch_size=2,
        placeholder_token_id=PLACEHOLDER,
        modality="video",
        features_are_batched=False,
        token_inputs={},
        q=q,
        method="evs",
        min_dissimilarity=None,
        seed=None,
        noise_tokens=retention.noise_tokens,
        zero_frames=(1,),
        planned={"num_sampled_frames": 8, "retained_tokens": retention.retained_tokens},
        actual={"num_sampled_frames": 8, "retained_tokens": retention.retained_tokens},
        provenance={
            "evs": "0",
            "video": {"name": "ünï [x].mp4", "fps": 2.5, "none": None},
            "sizes": [1, 2],
            "on": True,
        },
    )
