"""What must be true of an encoding's file before anything is built on it: names, shapes, counts, order, sequence.

In: the record and the small tensors as read, and where the rows lie. Out: an ``EncodedClip``, and what the rows are.
The rows themselves are checked as they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from evs_cli.core.dissimilarity import FIRST_FRAME_DISSIMILARITY
from evs_cli.core.dtypes import dtype_name
from evs_cli.core.placeholders import SequenceLayout
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import EncodePlan
from evs_cli.errors import UsageError
from evs_cli.files.encoding.container import TensorEntry
from evs_cli.files.encoding.digests import CHECKSUM_SUFFIX
from evs_cli.files.encoding.dtypes import DTYPES
from evs_cli.files.encoding.record import INPUT_PREFIX, SCALE_SUFFIX, StoreFacts, level_name
from evs_cli.files.encoding.stored_rows import StoreError, has_scales
from evs_cli.files.record_checks import Fault, describe, is_int, is_int_from, is_json, is_number, is_triple, require
from evs_cli.pipeline.encoded_video import ClipCounts, EncodedClip

_LEAST_INTEGERS = {"spatial_merge_size": 1, "temporal_patch_size": 1, "placeholder_token_id": 0}
_MAPPINGS = ("planned", "store", "model", "processing", "provenance")
_SCORE_DTYPES = ("float32", "bfloat16", "float16")
_FLOATS = (*_SCORE_DTYPES, "float64")


def check_store(record: Mapping[str, Any], rows: Mapping[str, TensorEntry], num_tokens: int) -> StoreFacts:
    """What the rows are, by the record and by where they lie.

    Args:
        record: the metadata, its plain values checked.
        rows: the entries of the rows' tensors.
        num_tokens: N by the grid.

    Raises:
        Fault: they contradict each other.
    """
    store = record["store"]
    require(set(store) == set(StoreFacts.__dataclass_fields__), "store has other entries than expected")
    dims, errors, num_levels = store["dims"], store["errors"], store["num_model_levels"]
    require(isinstance(dims, list) and all(is_int_from(1, n) for n in dims), f"store.dims is {describe(dims)}")
    require(len(dims) >= 1 and is_int_from(len(dims), num_levels), "store has no level, or more than its model")
    require(isinstance(errors, list) and len(errors) == len(dims), f"store.errors is {describe(errors)}")
    require(store["embedding_dtype"] in _FLOATS, f"store.embedding_dtype is {describe(store['embedding_dtype'])}")
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
    is_right = isinstance(error, Mapping) and set(error) == names and all(is_number(n) for n in error.values())
    require(is_right, f"store.errors holds {describe(error)}")
    return StoreError(**error)


def check_values(record: Mapping[str, Any]) -> None:
    """The values that are no tensors.

    Raises:
        Fault: one is missing or of another kind.
    """

    def need(key: str, is_right: Callable[[Any], bool], expected: str) -> None:
        require(key in record, f"{key} is missing")
        require(is_right(record[key]), f"{key} is {describe(record[key])}, expected {expected}")

    for key in ("token_grid_thw", "model_grid_thw"):
        need(key, is_triple, "three positive integers")
    need("frame_size", lambda value: is_triple([1, *value]) if isinstance(value, list) else False, "two integers")
    for key, least in _LEAST_INTEGERS.items():
        need(key, partial(_is_int64_from, least), f"an integer of at least {least}")
    for key in _MAPPINGS:
        need(key, lambda value: isinstance(value, Mapping) and is_json(value), "an object of plain values")
    need("modality", lambda value: isinstance(value, str), "a string")
    need("features_are_batched", lambda value: isinstance(value, bool), "true or false")
    need("score_dtype", lambda value: value in _SCORE_DTYPES, f"one of {', '.join(_SCORE_DTYPES)}")
    need("zero_frames", lambda value: isinstance(value, list), "a list")
    zero, num_frames = record["zero_frames"], record["token_grid_thw"][0]
    is_right = all(is_int(n) and 0 <= n < num_frames for n in zero) and zero == sorted(set(zero))
    require(is_right, f"zero_frames are {describe(zero)}, expected ascending frames below {num_frames}")
    for part in ("model", "video"):
        found = record["provenance"].get(part, {})
        require(isinstance(found, Mapping), f"provenance.{part} is {describe(found)}, expected an object")
    reused = record["provenance"].get("reused_frames", 0)
    require(is_int_from(0, reused), f"provenance.reused_frames is {describe(reused)}")
    require("default_pruning_rate" in record["model"], "model.default_pruning_rate is not told")
    config, rate = record["model"].get("config"), record["model"]["default_pruning_rate"]
    require(isinstance(config, Mapping), f"model.config is {describe(config)}, expected an object")
    require(isinstance(record["model"].get("has_language_model"), bool), "model.has_language_model is not told")
    require(rate is None or (is_number(rate) and 0 <= rate < 1), f"model.default_pruning_rate is {describe(rate)}")


def _is_int64_from(least: int, value: Any) -> bool:
    return is_int_from(least, value) and value < 2**63


def check_tensors(record: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], store: StoreFacts) -> None:
    """Every small tensor's shape, dtype and range.

    Raises:
        Fault: one is missing, unknown, of another shape, or holds what cannot be.
    """
    grid = tuple(record["token_grid_thw"])
    total = grid[0] * grid[1] * grid[2]
    length, extra, sampled = (len(tensors.get(key, ())) for key in ("input_ids", "extra_positions", "pts_seconds"))
    embedding_dtype: torch.dtype = getattr(torch, store.embedding_dtype)
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "input_ids": ((length,), torch.int64),
        "token_positions": ((total,), torch.int64),
        "extra_positions": ((extra,), torch.int64),
        "frame_indices": ((sampled,), torch.int64),
        "pts_seconds": ((sampled,), torch.float64),
        "prompt_seconds": ((grid[0],), torch.float64),
        "dissimilarity": (grid, torch.float32),
        "token_index": ((total,), torch.int32),
        "extra_embeddings": ((extra, store.dims[0]), embedding_dtype),
    }
    if "own_dissimilarity" in tensors:
        expected["own_dissimilarity"] = (grid, torch.float32)
    expected |= {name: ((length,), torch.int64) for name in tensors if name.startswith(INPUT_PREFIX)}
    names = [level_name(level) for level in range(len(store.dims))]
    expected |= {name + CHECKSUM_SUFFIX: ((total,), torch.int32) for name in names}
    if has_scales(getattr(torch, store.dtype)):
        expected |= {name + SCALE_SUFFIX: ((total,), torch.float32) for name in names}
    if "position_ids" in tensors:
        shape = tuple(tensors["position_ids"].shape)
        expected["position_ids"] = (shape if shape == (3, length) else (length,), torch.int64)
    for name, (shape, dtype) in expected.items():
        require(name in tensors, f"{name} is missing")
        tensor = tensors[name]
        is_right = tuple(tensor.shape) == shape and tensor.dtype == dtype
        require(is_right, f"{name} is {describe(tensor)}, expected {shape} {dtype_name(dtype)}")
        require(bool(tensor.isfinite().all()), f"{name} holds NaN or infinite values")
    unknown = sorted(set(tensors) - set(expected))
    require(not unknown, f"{', '.join(unknown)} is nothing that an encoding holds")
    require(-(-sampled // record["temporal_patch_size"]) == grid[0], f"{sampled} frames do not fill the grid {grid}")
    for name, least in (("frame_indices", 0), ("pts_seconds", None)):
        values = tensors[name]
        require(bool((values.diff() >= 0).all()), f"{name} descend")
        require(least is None or bool((values >= least).all()), f"{name} are below {least}")


def check_ranking(record: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Ranking:
    """The ranking, after checking that the rows stand in its order.

    Raises:
        Fault: they do not.
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
        Fault: parts that contradict each other.
    """
    ids, positions = tensors["input_ids"], tensors["token_positions"]
    grid = tuple(record["token_grid_thw"])
    try:
        layout = SequenceLayout(
            ids.numpy(),
            positions.numpy(),
            tensors["extra_positions"].numpy(),
            grid[0],
            record["placeholder_token_id"],
        )
    except UsageError as error:
        raise Fault(error.message.rstrip(".").removeprefix("Invalid layout: ")) from error
    owned = torch.zeros(len(ids), dtype=torch.bool)
    owned[positions] = owned[tensors["extra_positions"]] = True
    require(
        bool(((ids == record["placeholder_token_id"]) == owned).all()),
        "the placeholders of input_ids are not those of the tokens",
    )
    own = tensors.get("own_dissimilarity")
    plan = EncodePlan(
        frame_size=tuple(record["frame_size"]),
        token_grid_thw=grid,
        model_grid_thw=tuple(record["model_grid_thw"]),
        spatial_merge_size=record["spatial_merge_size"],
        temporal_patch_size=record["temporal_patch_size"],
        layout=layout,
        pts_seconds=tensors["pts_seconds"].numpy(),
        prompt_seconds=tensors["prompt_seconds"].numpy(),
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
    is_right = set(found) == set(ClipCounts.__dataclass_fields__) and is_triple(found["token_grid_thw"])
    require(is_right, f"planned is {describe(dict(found))}, expected the counts of a plan")
    planned = ClipCounts(found["num_sampled_frames"], tuple(found["token_grid_thw"]), found["sequence_length"])
    actual = ClipCounts.of(plan)
    pairs = (
        (planned.num_sampled_frames, actual.num_sampled_frames),
        (planned.sequence_length, actual.sequence_length),
        (planned.token_grid_thw[0], actual.token_grid_thw[0]),
    )
    is_right = all(is_int(more) and more >= less for more, less in pairs)
    is_right = is_right and planned.token_grid_thw[1:] == actual.token_grid_thw[1:]
    require(is_right, f"planned is {describe(dict(found))}, less than what is there")
    return planned
