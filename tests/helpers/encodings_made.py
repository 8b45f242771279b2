"""Encodings made of numbers, and files of them: what the tests of ``files.encoding`` draw from."""

import dataclasses

import numpy as np
import torch

from evs_cli.core.counts import TokenGrid
from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.placeholders import SequenceLayout
from evs_cli.core.pruned_video import PrunedVideo
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import EncodePlan
from evs_cli.encoders.source import ModelSource
from evs_cli.files.encoding.record import StoredModel
from evs_cli.files.encoding.row_spool import RowSpool
from evs_cli.files.encoding.writer import write_encoding
from evs_cli.pipeline.encoded_video import ClipCounts, EncodedVideo

PLACEHOLDER = 9
MODEL = StoredModel(
    ModelSource("tiny", "tiny", None, {"model_type": "dinov2", "hidden_size": 5, "_name_or_path": "/home/someone"}),
    has_language_model=False,
    default_pruning_rate=None,
)


def make_encoded(
    grid=(4, 2, 3),
    dims=(5,),
    *,
    dtype=torch.float32,
    score_dtype=None,
    num_extras=2,
    positions=3,
    token_inputs=(),
    tubelet=1,
    lost_frames=0,
    values=None,
    seed=0,
):
    """An encoding drawn at random: separators before each frame, extra rows behind some, times, positions.

    Args:
        grid: (T, h, w).
        dims: D of each level.
        values: draw elements from so many values only, so that scores tie; None draws normal ones.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        if values is None:
            return torch.randn(shape, generator=generator).to(dtype)
        return torch.randint(1, 1 + values, shape, generator=generator).to(dtype)

    num_frames, places = grid[0], grid[1] * grid[2]
    ids, tokens, extras = [1, 2], [], []
    for frame in range(num_frames):
        ids.append(20 + frame % 3)
        tokens += range(len(ids), len(ids) + places)
        ids += [PLACEHOLDER] * places
        if len(extras) < num_extras:
            extras.append(len(ids))
            ids.append(PLACEHOLDER)
    ids.append(3)
    layout = SequenceLayout(np.array(ids), np.array(tokens), np.array(extras, dtype=np.int64), num_frames, PLACEHOLDER)
    sampled = num_frames * tubelet
    plan = EncodePlan(
        frame_size=(28 * grid[1], 28 * grid[2]),
        token_grid_thw=TokenGrid(*grid),
        model_grid_thw=(grid[0], 2 * grid[1], 2 * grid[2]),
        spatial_merge_size=2,
        temporal_patch_size=tubelet,
        layout=layout,
        pts_seconds=np.arange(sampled) / 3,
        prompt_seconds=np.arange(num_frames) / 3 + 0.1,
        modality="video",
        features_are_batched=bool(seed % 2),
        token_inputs={name: np.arange(len(ids)) * k for k, name in enumerate(token_inputs, 2)},
        processing={"b": 1.0, "a": [1, None]},
    )
    levels = tuple(drawn(*grid, dim) for dim in dims)
    whole = torch.stack([torch.arange(len(ids)) * (k + 1) for k in range(3)])
    counts = ClipCounts.of(plan)
    lost = lost_frames * places
    return EncodedVideo(
        planned=ClipCounts(
            counts.num_sampled_frames + lost_frames * tubelet,
            TokenGrid(num_frames + lost_frames, *grid[1:]),
            counts.sequence_length + lost,
        ),
        actual=plan,
        frame_indices=np.arange(sampled) * 2,
        extra_embeddings=drawn(len(extras), dims[0]),
        ranking=Ranking(compute_dissimilarity(list(levels), score_dtype=score_dtype)),
        own_ranking=None if score_dtype is None else Ranking(compute_dissimilarity(list(levels))),
        zero_frames=(num_frames - 1,),
        position_ids={3: whole, 1: whole[0], 0: None}[positions],
        provenance={"video": {"name": "ünï [x].mp4", "fps": 2.5, "none": None}, "model": {"id": "tiny"}, "on": True},
        timings_seconds={},
        levels=levels,
    )


def write(encoded, path, *, chunk=3, store_dtype=None, main_only=False, model=MODEL):
    """Spool the rows of an encoding in chunks of frames and write its file; its size in bytes."""
    with RowSpool(path, store_dtype, main_only=main_only) as spool:
        for start in range(0, encoded.actual.token_grid_thw[0], chunk):
            part = slice(start, start + chunk)
            spool.add(tuple(level[part] for level in encoded.levels), encoded.ranking.dissimilarity[part])
        return write_encoding(encoded, spool, model, path, overwrite=True)


def assert_same(a, b, *, but=()):
    """Two pruned videos, field by field: tensors bit for bit, with dtype and shape."""
    for field in dataclasses.fields(PrunedVideo):
        if field.name in but:
            continue
        x, y = getattr(a, field.name), getattr(b, field.name)
        for left, right in _pairs(field.name, x, y):
            if isinstance(left, torch.Tensor):
                assert left.dtype == right.dtype, field.name
                assert torch.equal(left, right), field.name
            else:
                assert left == right, field.name


def _pairs(name, x, y):
    if name == "deepstack_embeddings":
        return zip(x, y, strict=True)
    if name == "token_inputs":
        assert list(x) == list(y) or sorted(x) == sorted(y)
        return [(x[key], y[key]) for key in x]
    return [(x, y)]
