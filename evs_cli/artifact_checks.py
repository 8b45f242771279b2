"""What must be true of an artifact before anything is built on it: names, shapes, dtypes, counts, spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from evs_cli.core.counts import check_pruning_rate, compute_retained_tokens_count
from evs_cli.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo

_TRIPLES = ("token_grid_thw", "video_grid_thw", "model_grid_thw")
_INTEGERS = ("spatial_merge_size", "temporal_patch_size", "placeholder_token_id", "noise_tokens")
_MAPPINGS = ("planned", "actual", "provenance")


def check_pruned_video(record: Mapping[str, Any], name: str) -> PrunedVideo:
    """A ``PrunedVideo`` of a record, after checking it against itself.

    Args:
        record: the dict as read.
        name: the file's name, for the message.

    Raises:
        ArtifactError: what is missing, of the wrong shape, or contradicts the mask.
    """
    from evs_cli.core.pruned_video import PrunedVideo

    values: dict[str, Any] = {}
    for field in fields(PrunedVideo):
        if field.name not in record and field.name != "position_ids":  # safetensors holds no None
            raise _fault(name, f"{field.name} is missing")
        values[field.name] = record.get(field.name)
    _check_plain(values, name)
    for key in (*_TRIPLES, "zero_frames", "deepstack_embeddings"):
        values[key] = tuple(values[key])
    pruned = PrunedVideo(**values)
    _check_shapes(pruned, name)
    _check_mask(pruned, name)
    _check_sequence(pruned, name)
    return pruned


def _fault(name: str, what: str) -> ArtifactError:
    return ArtifactError(f"cannot use {name}: {what}.", hint="It is damaged or was changed; prune the video again.")


def _check_plain(values: Mapping[str, Any], name: str) -> None:
    """The values that are no tensors."""
    for key in _TRIPLES:
        value = values[key]
        if not isinstance(value, (list, tuple)) or len(value) != 3 or not all(_is_int(n) and n > 0 for n in value):
            raise _fault(name, f"{key} is {value!r}, expected three positive integers")
    for key in _INTEGERS:
        if not _is_int(values[key]):
            raise _fault(name, f"{key} is {values[key]!r}, expected an integer")
    for key in _MAPPINGS:
        if not isinstance(values[key], Mapping):
            raise _fault(name, f"{key} is {type(values[key]).__name__}, expected a dict")
    for key in ("zero_frames", "deepstack_embeddings"):
        if not isinstance(values[key], (list, tuple)):
            raise _fault(name, f"{key} is {type(values[key]).__name__}, expected a list")
    for key in ("method", "modality"):
        if not isinstance(values[key], str):
            raise _fault(name, f"{key} is {values[key]!r}, expected a string")
    if values["seed"] is not None and not _is_int(values["seed"]):
        raise _fault(name, f"seed is {values['seed']!r}, expected an integer or None")
    if values["min_dissimilarity"] is not None and not isinstance(values["min_dissimilarity"], (int, float)):
        raise _fault(name, f"min_dissimilarity is {values['min_dissimilarity']!r}, expected a number or None")
    try:
        check_pruning_rate(values["q"])
    except UsageError as error:
        raise _fault(name, f"q is {values['q']!r}, expected 0 <= q < 1") from error


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_shapes(pruned: PrunedVideo, name: str) -> None:
    """Every tensor's shape and dtype, from the grid, the mask's count and the sequence's length."""
    import torch

    grid = tuple(pruned.token_grid_thw)
    tensors = ("embeddings", "retention_mask", "input_ids", "frame_indices", "extra_embeddings")
    for key in tensors:
        if not isinstance(getattr(pruned, key), torch.Tensor):
            raise _fault(name, f"{key} is {type(getattr(pruned, key)).__name__}, expected a tensor")
    kept, length = pruned.embeddings.shape[:1], pruned.input_ids.shape[:1]
    extra, sampled = pruned.extra_embeddings.shape[:1], pruned.frame_indices.shape[:1]
    expected: dict[str, tuple[tuple[int, ...], torch.dtype | None]] = {
        "embeddings": ((*kept, *pruned.embeddings.shape[1:2]), None),
        "extra_embeddings": ((*extra, *pruned.embeddings.shape[1:2]), pruned.embeddings.dtype),
        "extra_positions": (tuple(extra), torch.int64),
        "retention_mask": (grid, torch.bool),
        "dissimilarity": (grid, torch.float32),
        "num_tokens_per_frame": (grid[:1], torch.int64),
        "token_thw": ((*kept, 3), torch.int32),
        "input_ids": (tuple(length), torch.int64),
        "frame_offsets": ((grid[0], 2), torch.int64),
        "frame_indices": (tuple(sampled), torch.int64),
        "pts_seconds": (tuple(sampled), torch.float64),
        "frame_pts_seconds": (grid[:1], torch.float64),
        "prompt_seconds": (grid[:1], torch.float64),
    }
    for key, (shape, dtype) in expected.items():
        tensor = getattr(pruned, key)
        if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != shape or dtype not in (None, tensor.dtype):
            found = f"{tuple(tensor.shape)} {tensor.dtype}" if isinstance(tensor, torch.Tensor) else repr(tensor)
            raise _fault(name, f"{key} is {found}, expected {shape}{'' if dtype is None else f' {dtype}'}")
    for level in pruned.deepstack_embeddings:
        if not isinstance(level, torch.Tensor) or level.shape[:1] != kept or level.ndim != 2:
            raise _fault(name, "a level of deepstack_embeddings does not have one row a kept token")
    positions = pruned.position_ids
    if positions is not None and (
        not isinstance(positions, torch.Tensor)
        or positions.dtype != torch.int64
        or tuple(positions.shape) not in ((*length,), (3, *length))
    ):
        raise _fault(name, f"position_ids do not fit a sequence of {length[0]}")


def _check_mask(pruned: PrunedVideo, name: str) -> None:
    """Counts against the mask: per frame, in all, and by the rule."""
    mask = pruned.retention_mask
    counts = mask.sum(dim=(1, 2))
    if not bool((counts == pruned.num_tokens_per_frame).all()):
        raise _fault(name, "num_tokens_per_frame does not match the retention mask")
    if int(counts.sum()) != pruned.embeddings.shape[0]:
        raise _fault(name, f"{pruned.embeddings.shape[0]} embeddings for {int(counts.sum())} kept tokens")
    if not bool(mask[0].all()):
        raise _fault(name, "frame 0 is not whole")
    num_frames, height, width = pruned.token_grid_thw
    retained, kept = compute_retained_tokens_count(height * width, num_frames, pruned.q), int(counts.sum())
    if kept > retained or (kept < retained and pruned.min_dissimilarity is None):
        raise _fault(name, f"{kept} tokens are kept, q = {pruned.q:g} keeps {retained}")
    if not bool((mask.nonzero() == pruned.token_thw).all()):
        raise _fault(name, "token_thw does not match the retention mask")


def _check_sequence(pruned: PrunedVideo, name: str) -> None:
    """The spans of ``input_ids`` against the per-frame counts, and what stands in them."""
    import torch

    offsets, length = pruned.frame_offsets, pruned.input_ids.shape[0]
    starts, ends = offsets[:, 0], offsets[:, 1]
    if not bool((ends - starts + 1 == pruned.num_tokens_per_frame).all()):
        raise _fault(name, "frame_offsets do not match num_tokens_per_frame")
    if int(starts[0]) < 0 or int(ends.max()) >= length or not bool((starts[1:] > ends[:-1]).all()):
        raise _fault(name, "frame_offsets leave the sequence or overlap")
    inside = torch.zeros(length, dtype=torch.bool)
    for start, end in offsets.tolist():
        inside[start : end + 1] = True
    if not bool((pruned.input_ids[inside] == pruned.placeholder_token_id).all()):
        raise _fault(name, "a span of input_ids holds something other than placeholders")
    extra = pruned.extra_positions
    if len(extra) and (int(extra.min()) < 0 or int(extra.max()) >= length or bool(inside[extra].any())):
        raise _fault(name, "extra_positions leave the sequence or fall into a frame's span")
