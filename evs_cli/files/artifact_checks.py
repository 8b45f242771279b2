"""What must be true of an artifact before anything is built on it: names, shapes, dtypes, counts, spans, scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from evs_cli.core.counts import check_pruning_rate, compute_retained_tokens_count
from evs_cli.core.dtypes import dtype_name
from evs_cli.errors import ArtifactError, UsageError
from evs_cli.files.record_checks import Fault, describe, is_int, is_int_from, is_json, is_number, is_triple, require

if TYPE_CHECKING:
    import torch

    from evs_cli.core.pruned_video import PrunedVideo

_TRIPLES = ("token_grid_thw", "video_grid_thw", "model_grid_thw")
_LEAST_INTEGERS = {"spatial_merge_size": 1, "temporal_patch_size": 1, "placeholder_token_id": 0, "noise_tokens": 0}
_MAPPINGS = ("planned", "actual", "provenance", "token_inputs")


def check_pruned_video(record: Mapping[str, Any], name: str) -> PrunedVideo:
    """A ``PrunedVideo`` of a record, after checking it against itself.

    Args:
        record: the dict as read.
        name: the file's name, for the message.

    Raises:
        ArtifactError: what is missing, of the wrong kind, or contradicts the rest.
    """
    from evs_cli.core.pruned_video import PrunedVideo

    try:
        values = _present(record)
        _check_plain(values)
        for key in (*_TRIPLES, "zero_frames", "deepstack_embeddings"):
            values[key] = tuple(values[key])
        pruned = PrunedVideo(**values)
        for check in (_check_tensors, _check_numbers, _check_mask, _check_scores, _check_sequence, _check_counts):
            check(pruned)
    except Fault as fault:
        raise ArtifactError(
            f"cannot use {name}: {fault}.", hint="It is damaged or was changed; prune the video again."
        ) from fault
    return pruned


def _present(record: Mapping[str, Any]) -> dict[str, Any]:
    from evs_cli.core.pruned_video import PrunedVideo

    values: dict[str, Any] = {}
    for field in fields(PrunedVideo):
        require(field.name in record, f"{field.name} is missing")
        values[field.name] = record[field.name]
    return values


def _check_plain(values: Mapping[str, Any]) -> None:
    """The values that are no tensors."""
    from evs_cli.core.methods import METHODS

    def need(key: str, is_right: Callable[[Any], bool], expected: str) -> None:
        require(is_right(values[key]), f"{key} is {describe(values[key])}, expected {expected}")

    for key in _TRIPLES:
        need(key, is_triple, "three positive integers")
    for key, least in _LEAST_INTEGERS.items():
        need(key, partial(is_int_from, least), f"an integer of at least {least}")
    for key in _MAPPINGS:
        need(key, lambda value: isinstance(value, Mapping), "a dict")
    for key in ("zero_frames", "deepstack_embeddings"):
        need(key, lambda value: isinstance(value, (list, tuple)), "a list")
    for key in ("method", "modality"):
        need(key, lambda value: isinstance(value, str), "a string")
    need("features_are_batched", lambda value: isinstance(value, bool), "True or False")
    need("method", lambda value: value in METHODS, f"one of {', '.join(METHODS)}")
    need("seed", lambda value: value is None or is_int(value), "an integer or None")
    need("min_dissimilarity", lambda value: value is None or is_number(value), "a number or None")
    need("q", _is_rate, "0 <= q < 1")
    for part in ("model", "video"):
        if part in values["provenance"]:
            found = values["provenance"][part]
            require(isinstance(found, Mapping), f"provenance.{part} is {describe(found)}, expected a dict")


def _check_tensors(pruned: PrunedVideo) -> None:
    """Every tensor's shape and dtype, from the grid, the mask's count and the sequence's length."""
    import torch

    num_frames = pruned.token_grid_thw[0]
    for key, ndim in (("embeddings", 2), ("extra_embeddings", 2), ("input_ids", 1), ("frame_indices", 1)):
        tensor = getattr(pruned, key)
        is_right = isinstance(tensor, torch.Tensor) and tensor.ndim == ndim
        require(is_right, f"{key} is {describe(tensor)}, expected a tensor of {ndim} dimensions")
    require(pruned.embeddings.is_floating_point(), f"embeddings are {pruned.embeddings.dtype}, expected floats")
    require(pruned.embeddings.shape[1] > 0, "embeddings have no dimension")
    kept = pruned.embeddings.shape[0]
    extra, length, sampled = len(pruned.extra_embeddings), len(pruned.input_ids), len(pruned.frame_indices)
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "extra_embeddings": ((extra, pruned.embeddings.shape[1]), pruned.embeddings.dtype),
        "extra_positions": ((extra,), torch.int64),
        "retention_mask": (pruned.token_grid_thw, torch.bool),
        "dissimilarity": (pruned.token_grid_thw, torch.float32),
        "num_tokens_per_frame": ((num_frames,), torch.int64),
        "token_thw": ((kept, 3), torch.int32),
        "input_ids": ((length,), torch.int64),
        "frame_offsets": ((num_frames, 2), torch.int64),
        "frame_indices": ((sampled,), torch.int64),
        "pts_seconds": ((sampled,), torch.float64),
        "frame_pts_seconds": ((num_frames,), torch.float64),
        "prompt_seconds": ((num_frames,), torch.float64),
    }
    mask = pruned.retention_mask
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and tuple(mask.shape) == pruned.token_grid_thw:
        require(int(mask.sum()) == kept, f"{kept} embeddings, the retention mask keeps {int(mask.sum())}")
    for key, (shape, dtype) in expected.items():
        tensor = getattr(pruned, key)
        is_right = isinstance(tensor, torch.Tensor) and tuple(tensor.shape) == shape and tensor.dtype == dtype
        require(is_right, f"{key} is {describe(tensor)}, expected {shape} {dtype_name(dtype)}")
    for level in pruned.deepstack_embeddings:
        is_right = isinstance(level, torch.Tensor) and level.ndim == 2 and len(level) == kept
        is_right = is_right and level.dtype == pruned.embeddings.dtype
        require(is_right, f"deepstack_embeddings hold {describe(level)}, expected {kept} rows as the main level's")
    for key, values in pruned.token_inputs.items():
        is_right = isinstance(values, torch.Tensor) and tuple(values.shape) == (length,) and values.dtype == torch.int64
        require(is_right, f"token_inputs.{key} is {describe(values)}, expected ({length},) int64")
    positions = pruned.position_ids
    is_right = positions is None or (
        isinstance(positions, torch.Tensor)
        and positions.dtype == torch.int64
        and tuple(positions.shape) in ((length,), (3, length))
    )
    require(is_right, f"position_ids are {describe(positions)}, expected ({length},) or (3, {length}) int64")


def _check_numbers(pruned: PrunedVideo) -> None:
    """Numbers that must be finite, and lists that must ascend."""
    num_frames, height, width = pruned.token_grid_thw
    merge = pruned.spatial_merge_size
    require(
        pruned.video_grid_thw == (num_frames, height * merge, width * merge),
        f"video_grid_thw is {pruned.video_grid_thw}, expected the token grid times {merge}",
    )
    for key in ("embeddings", "extra_embeddings", "pts_seconds", "frame_pts_seconds", "prompt_seconds"):
        require(bool(getattr(pruned, key).isfinite().all()), f"{key} hold NaN or infinite values")
    for level in pruned.deepstack_embeddings:
        require(bool(level.isfinite().all()), "deepstack_embeddings hold NaN or infinite values")
    indices = pruned.frame_indices
    require(bool((indices >= 0).all() and (indices.diff() >= 0).all()), "frame_indices are negative or descend")
    require(bool((pruned.pts_seconds.diff() >= 0).all()), "pts_seconds descend")
    zero = pruned.zero_frames
    is_right = all(is_int(frame) and 0 <= frame < num_frames for frame in zero) and list(zero) == sorted(set(zero))
    require(is_right, f"zero_frames are {list(zero)!r}, expected ascending frames below {num_frames}")


def _check_mask(pruned: PrunedVideo) -> None:
    """Counts against the mask: per frame, in all, and by the rate."""
    mask = pruned.retention_mask
    counts = mask.sum(dim=(1, 2))
    require(
        bool((counts == pruned.num_tokens_per_frame).all()), "num_tokens_per_frame does not match the retention mask"
    )
    require(bool(mask[0].all()), "the retention mask does not keep frame 0 whole")
    retained, kept = _rule_count(pruned), int(counts.sum())
    is_right = kept == retained or (kept < retained and pruned.min_dissimilarity is not None)
    require(is_right, f"{kept} tokens are kept, q = {pruned.q:g} keeps {retained}")
    require(bool((mask.nonzero() == pruned.token_thw).all()), "token_thw does not match the retention mask")


def _check_scores(pruned: PrunedVideo) -> None:
    """The scores, and for ``evs`` that they give this very mask."""
    from evs_cli.core.dissimilarity import FIRST_FRAME_DISSIMILARITY
    from evs_cli.core.retention import Ranking

    scores = pruned.dissimilarity
    require(bool(scores.isfinite().all()), "dissimilarity holds NaN or infinite values")
    require(bool((scores[0] == FIRST_FRAME_DISSIMILARITY).all()), "dissimilarity of frame 0 is not 255")
    require(pruned.noise_tokens <= pruned.retained_tokens, f"noise_tokens is {pruned.noise_tokens}, more than are kept")
    if pruned.method == "evs":
        mask = Ranking(scores).first(_rule_count(pruned))
        if pruned.min_dissimilarity is not None:
            mask &= scores.double() >= pruned.min_dissimilarity
        require(bool((mask == pruned.retention_mask).all()), "the retention mask is not the one dissimilarity gives")


def _check_sequence(pruned: PrunedVideo) -> None:
    """The spans of ``input_ids`` against the per-frame counts, and what stands in them and beside them."""
    import torch

    offsets, length = pruned.frame_offsets, len(pruned.input_ids)
    starts, ends = offsets[:, 0], offsets[:, 1]
    is_right = bool((ends - starts + 1 == pruned.num_tokens_per_frame).all())
    require(is_right, "frame_offsets do not match num_tokens_per_frame")
    is_right = int(starts[0]) >= 0 and int(ends.max()) < length and bool((starts[1:] > ends[:-1]).all())
    require(is_right, "frame_offsets leave the sequence or overlap")
    extra = pruned.extra_positions
    is_right = not len(extra) or (int(extra[0]) >= 0 and int(extra[-1]) < length and bool((extra.diff() > 0).all()))
    require(is_right, "extra_positions leave the sequence or do not ascend")
    owned = torch.zeros(length, dtype=torch.bool)
    for start, end in offsets.tolist():
        owned[start : end + 1] = True
    require(not bool(owned[extra].any()), "extra_positions fall into a frame's span")
    owned[extra] = True
    is_placeholder = pruned.input_ids == pruned.placeholder_token_id
    require(bool((is_placeholder == owned).all()), "the placeholders of input_ids are not those of the spans")


def _check_counts(pruned: PrunedVideo) -> None:
    """What the records of counts say against what is there."""
    for key in ("planned", "actual", "provenance"):
        require(is_json(getattr(pruned, key)), f"{key} holds something other than plain values")
    length = pruned.actual.get("sequence_length", pruned.sequence_length)
    require(length == pruned.sequence_length, f"actual says {describe(length)} ids, there are {pruned.sequence_length}")
    kept = pruned.retained_tokens
    actual, planned = (counts.get("retained_tokens", kept) for counts in (pruned.actual, pruned.planned))
    require(actual == kept, f"actual says {describe(actual)} tokens, {kept} are kept")
    require(is_int(planned) and planned >= kept, f"planned says {describe(planned)} tokens, {kept} are kept")


def _rule_count(pruned: PrunedVideo) -> int:
    num_frames, height, width = pruned.token_grid_thw
    return compute_retained_tokens_count(height * width, num_frames, pruned.q)


def _is_rate(value: Any) -> bool:
    try:
        check_pruning_rate(value)
    except UsageError:
        return False
    return True
