"""Validates the front of an encoding's file: names, shapes, counts, order and sequence, each against the others.

In: the record and the small tensors as read, and where the rows lie. Out: an ``EncodedClip``, and what the rows are.
The rows themselves are checked as they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from evs_cli.core.counts import TokenGrid
from evs_cli.core.dissimilarity import FIRST_FRAME_DISSIMILARITY
from evs_cli.core.dtypes import dtype_name
from evs_cli.core.pixel_region import WHOLE_FRAME, recorded_region
from evs_cli.core.placeholders import SequenceLayout
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import EncodePlan
from evs_cli.errors import UsageError
from evs_cli.files import record_checks as r
from evs_cli.files.encoding.container import TensorEntry
from evs_cli.files.encoding.digests import CHECKSUM_SUFFIX
from evs_cli.files.encoding.dtypes import DTYPES
from evs_cli.files.encoding.record import INPUT_PREFIX, SCALE_SUFFIX, StoreFacts, level_name
from evs_cli.files.encoding.stored_rows import StoreError, has_scales
from evs_cli.files.record_checks import RecordFault, describe, require
from evs_cli.pipeline.encoded_video import ClipCounts, EncodedClip

_SCORE_DTYPES = ("float32", "bfloat16", "float16")
_VALUES = {
    **dict.fromkeys(("token_grid_thw", "model_grid_thw"), r.TRIPLE),
    "frame_size": r.ValueCheck("two integers", lambda value: r.POSITIVE.is_right(value) and len(value) == 2),
    **dict.fromkeys(("spatial_merge_size", "temporal_patch_size"), r.at_least(1)),
    "placeholder_token_id": r.at_least(0),
    **dict.fromkeys(("planned", "store", "model", "processing", "provenance"), r.PLAIN),
    **dict.fromkeys(("planned.num_sampled_frames", "planned.sequence_length"), r.at_least(0)),
    "planned.token_grid_thw": r.TRIPLE,
    "modality": r.TEXT,
    "features_are_batched": r.FLAG,
    "score_dtype": r.one_of(_SCORE_DTYPES),
    "zero_frames": r.LIST,
    "model.default_pruning_rate": r.RATE.or_none,
    **dict.fromkeys(("provenance.model?", "provenance.video?", "model.config"), r.PLAIN),
    "provenance.reused_frames?": r.at_least(0),
    "model.has_language_model": r.FLAG,
    "store.dims": r.POSITIVE,
    "store.num_model_levels": r.at_least(1),
    "store.errors": r.LIST,
    "store.dtype": r.TEXT,
    "store.embedding_dtype": r.one_of((*_SCORE_DTYPES, "float64")),
}
_TENSORS = {
    "input_ids": "(L,) int64",
    "token_positions": "(N,) int64",
    "extra_positions": "(E,) int64",
    "frame_indices": "(S,) int64 ascending",
    "pts_seconds": "(S,) float64 ascending",
    "prompt_seconds": "(T,) float64",
    "dissimilarity": "(T, h, w) float32",
    "own_dissimilarity?": "(T, h, w) float32",
    "token_index": "(N,) int32",
    "extra_embeddings": "(E, D) F",
    "position_ids?": "(L,) int64 or (3, L) int64",
    INPUT_PREFIX: "(L,) int64",
}
"""Sizes: (T, h, w) the token grid, N its tokens, E extra rows, L ids, S sampled frames, D of the main level."""


def check_store(record: Mapping[str, Any], rows: Mapping[str, TensorEntry], num_tokens: int) -> StoreFacts:
    """What the rows are, by the record and by where they lie.

    Args:
        record: the metadata, its plain values checked.
        rows: the entries of the rows' tensors.
        num_tokens: N by the grid.

    Raises:
        RecordFault: they contradict each other.
    """
    store = record["store"]
    require(set(store) == set(StoreFacts.__dataclass_fields__), "store has other entries than expected")
    dims, errors, num_levels = store["dims"], store["errors"], store["num_model_levels"]
    require(1 <= len(dims) <= num_levels, "store has no level, or more than its model")
    require(len(errors) == len(dims), f"store.errors is {describe(errors)}")
    for level, dim in enumerate(dims):
        entry = rows.get(level_name(level))
        require(entry is not None and entry.shape == (num_tokens, dim), f"{level_name(level)} is not {num_tokens} rows")
        assert entry is not None
        dtype = DTYPES.get(entry.dtype)
        require(
            dtype is not None and dtype_name(dtype) == store["dtype"], f"{level_name(level)} is not {store['dtype']}"
        )
    require(len(rows) == len(dims), "there are levels that store does not tell of")
    return StoreFacts(
        dtype=store["dtype"],
        embedding_dtype=store["embedding_dtype"],
        dims=tuple(dims),
        num_model_levels=num_levels,
        errors=tuple(_store_error(error) for error in errors),
    )


def _store_error(error: Any) -> StoreError | None:
    if error is None:
        return None
    names = set(StoreError.__dataclass_fields__)
    is_right = isinstance(error, Mapping) and set(error) == names and all(r.is_number(n) for n in error.values())
    require(is_right, f"store.errors holds {describe(error)}")
    return StoreError(**error)


def check_values(record: Mapping[str, Any]) -> None:
    """The values that are no tensors.

    Raises:
        RecordFault: one is missing or of another kind.
    """

    r.check_values(record, _VALUES)
    r.check_zero_frames(record["zero_frames"], record["token_grid_thw"][0])


def check_tensors(record: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], store: StoreFacts) -> None:
    """Every small tensor's shape, dtype and range.

    Raises:
        RecordFault: one is missing, unknown, of another shape, or holds what cannot be.
    """
    num_frames, height, width = record["token_grid_thw"]
    names = [level_name(level) for level in range(len(store.dims))]
    table = _TENSORS | {name + CHECKSUM_SUFFIX: "(N,) int32" for name in names}
    if has_scales(getattr(torch, store.dtype)):
        table |= {name + SCALE_SUFFIX: "(N,) float32" for name in names}
    sizes = {"T": num_frames, "h": height, "w": width, "N": num_frames * height * width}
    sizes |= {"D": store.dims[0], "F": store.embedding_dtype}
    r.check_tensors(tensors, table, sizes)
    known = {name.removesuffix("?") for name in table}
    unknown = sorted(name for name in tensors if name not in known and not name.startswith(INPUT_PREFIX))
    require(not unknown, f"{', '.join(unknown)} is nothing that an encoding holds")
    is_right = -(-sizes["S"] // record["temporal_patch_size"]) == num_frames
    require(is_right, f"{sizes['S']} frames do not fill the grid {(num_frames, height, width)}")
    require(bool((tensors["frame_indices"] >= 0).all()), "frame_indices are below 0")


def check_ranking(record: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Ranking:
    """The ranking, after checking that the rows stand in its order.

    Raises:
        RecordFault: they do not.
    """
    scores = tensors["dissimilarity"]
    require(bool((scores[0] == FIRST_FRAME_DISSIMILARITY).all()), "dissimilarity of frame 0 is not 255")
    ranking = Ranking(scores.to(getattr(torch, record["score_dtype"])))
    require(bool((ranking.dissimilarity.float() == scores).all()), f"dissimilarity is no {record['score_dtype']}")
    order, total = tensors["token_index"].long(), scores.numel()
    is_inside = bool((order >= 0).all() and (order < total).all())
    require(
        is_inside and bool((ranking.rank.flatten()[order] == torch.arange(total)).all()),
        "token_index is not the order that dissimilarity gives",
    )
    return ranking


def check_clip(record: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], store: StoreFacts) -> EncodedClip:
    """The encoding but for its rows.

    Raises:
        RecordFault: parts that contradict each other.
    """
    ids, positions = tensors["input_ids"], tensors["token_positions"]
    grid = TokenGrid(*record["token_grid_thw"])
    try:
        layout = SequenceLayout(
            ids.numpy(),
            positions.numpy(),
            tensors["extra_positions"].numpy(),
            grid[0],
            record["placeholder_token_id"],
        )
    except UsageError as error:
        raise RecordFault(error.message.rstrip(".").removeprefix("Invalid layout: ")) from error
    owned = torch.zeros(len(ids), dtype=torch.bool)
    owned[positions] = owned[tensors["extra_positions"]] = True
    require(
        bool(((ids == record["placeholder_token_id"]) == owned).all()),
        "the placeholders of input_ids are not those of the tokens",
    )
    own = tensors.get("own_dissimilarity")
    try:
        region = recorded_region(record["provenance"]) or WHOLE_FRAME
    except UsageError as error:
        raise RecordFault(error.message.rstrip(".").removeprefix("Invalid ")) from error
    plan = EncodePlan(
        frame_size=tuple(record["frame_size"]),
        token_grid_thw=grid,
        model_grid_thw=tuple(record["model_grid_thw"]),
        spatial_merge_size=record["spatial_merge_size"],
        temporal_patch_size=record["temporal_patch_size"],
        layout=layout,
        pts_seconds=tensors["pts_seconds"].numpy(),
        prompt_seconds=tensors["prompt_seconds"].numpy(),
        pixel_region=region,
        modality=record["modality"],
        features_are_batched=record["features_are_batched"],
        token_inputs={
            name.removeprefix(INPUT_PREFIX): values.numpy()
            for name, values in tensors.items()
            if name.startswith(INPUT_PREFIX)
        },
        processing=record["processing"],
    )
    return EncodedClip(
        planned=_planned(record["planned"], plan),
        actual=plan,
        frame_indices=tensors["frame_indices"].numpy(),
        extra_embeddings=tensors["extra_embeddings"],
        ranking=check_ranking(record, tensors),
        own_ranking=None if own is None else Ranking(own.to(getattr(torch, store.embedding_dtype))),
        zero_frames=tuple(record["zero_frames"]),
        position_ids=tensors.get("position_ids"),
        provenance={**record["provenance"], **store.losses},
        timings_seconds={},
    )


def _planned(found: Mapping[str, Any], plan: EncodePlan) -> ClipCounts:
    """The planned counts: no smaller than the actual ones, for frames are lost and never won."""
    planned = ClipCounts(found["num_sampled_frames"], TokenGrid(*found["token_grid_thw"]), found["sequence_length"])
    actual = ClipCounts.of(plan)
    is_right = len(found) == len(ClipCounts.__dataclass_fields__)
    is_right = is_right and planned.num_sampled_frames >= actual.num_sampled_frames
    is_right = is_right and planned.sequence_length >= actual.sequence_length
    is_right = is_right and planned.token_grid_thw.t >= actual.token_grid_thw.t
    is_right = is_right and planned.token_grid_thw[1:] == actual.token_grid_thw[1:]
    require(is_right, f"planned is {describe(dict(found))}, less than what is there")
    return planned
