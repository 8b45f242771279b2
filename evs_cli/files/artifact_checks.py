"""Validates an artifact that was read: names, shapes, dtypes, counts, spans and scores, each against the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from evs_cli.errors import ArtifactError
from evs_cli.files import record_checks as r
from evs_cli.files.artifact_checksums import check_checksums
from evs_cli.files.record_checks import RecordFault, describe, is_int, require
from evs_cli.files.untrusted_record import check_record

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo

_VALUES = {
    **dict.fromkeys(("token_grid_thw", "video_grid_thw", "model_grid_thw"), r.TRIPLE),
    **dict.fromkeys(("spatial_merge_size", "temporal_patch_size"), r.at_least(1)),
    **dict.fromkeys(("placeholder_token_id", "noise_tokens"), r.at_least(0)),
    **dict.fromkeys(("planned", "actual", "provenance", "provenance.model?", "provenance.video?"), r.PLAIN),
    "token_inputs": r.DICT,
    **dict.fromkeys(("zero_frames", "deepstack_embeddings"), r.LIST),
    **dict.fromkeys(("method", "modality"), r.TEXT),
    "features_are_batched": r.FLAG,
    "seed": r.INTEGER.or_none,
    "min_dissimilarity": r.ValueCheck("0 to 2", lambda floor: r.is_number(floor) and 0 <= floor <= 2).or_none,
    "q": r.RATE,
}
_KEPT = {"embeddings": "(K, D) F", "retention_mask": "(T, h, w) bool"}
_TENSORS = {
    "deepstack_embeddings.": "(K, _) F",
    "extra_embeddings": "(E, D) F",
    "extra_positions": "(E,) int64",
    "dissimilarity": "(T, h, w) float32",
    "num_tokens_per_frame": "(T,) int64",
    "token_thw": "(K, 3) int32",
    "input_ids": "(L,) int64",
    "position_ids?": "(L,) int64 or (3, L) int64",
    "token_inputs.": "(L,) int64",
    "frame_offsets": "(T, 2) int64",
    "frame_indices": "(S,) int64 ascending",
    "pts_seconds": "(S,) float64 ascending",
    "frame_pts_seconds": "(T,) float64",
    "prompt_seconds": "(T,) float64",
}
"""Sizes: (T, h, w) the token grid, K tokens kept, E extra rows, L ids, S sampled frames, D of an embedding."""


def check_pruned_video(record: Mapping[str, Any], name: str, *, has_checksums: bool) -> PrunedVideo:
    """A ``PrunedVideo`` of a record, after checking it against itself.

    Args:
        record: the dict as read.
        name: the file's name, for the message.
        has_checksums: whether its schema has them.

    Raises:
        ArtifactError: what is missing, of the wrong kind, or contradicts the rest.
    """
    from evs_cli.core.pruned_video import PrunedVideo

    try:
        check_record(record)
        values = _present(record)
        r.check_values(values, _VALUES)
        for key in ("token_grid_thw", "video_grid_thw", "model_grid_thw", "zero_frames", "deepstack_embeddings"):
            values[key] = tuple(values[key])
        _check_tensors(values)
        pruned = PrunedVideo(**values)
        for check in (_check_numbers, _check_mask, _check_scores, _check_sequence, _check_counts):
            check(pruned)
        if has_checksums:  # last: what is missing or of the wrong kind is told by its name
            check_checksums(record)
    except RecordFault as fault:
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


def _check_tensors(values: Mapping[str, Any]) -> None:
    """Every tensor by the table, its letters bound to the grid and to what is there."""
    named = {f"deepstack_embeddings.{level}": rows for level, rows in enumerate(values["deepstack_embeddings"])}
    named |= {f"token_inputs.{name}": tensor for name, tensor in values["token_inputs"].items()}
    named |= values
    sizes: dict[str, Any] = dict(zip("Thw", values["token_grid_thw"], strict=True))
    r.check_tensors(named, _KEPT, sizes)
    kept = int(values["retention_mask"].sum())  # before the other tensors: each of them would be called wrong
    require(sizes["K"] == kept, f"{sizes['K']} embeddings, the retention mask keeps {kept}")
    require(sizes["D"] > 0, "embeddings have no dimension")
    r.check_tensors(named, _TENSORS, sizes)


def _check_numbers(pruned: PrunedVideo) -> None:
    """The grids, and numbers of frames."""
    num_frames, height, width = pruned.token_grid_thw
    merge = pruned.spatial_merge_size
    require(
        pruned.video_grid_thw == (num_frames, height * merge, width * merge),
        f"video_grid_thw is {pruned.video_grid_thw}, expected the token grid times {merge}",
    )
    require(bool((pruned.frame_indices >= 0).all()), "frame_indices are below 0")
    if str(pruned.embeddings.dtype) == "torch.float64":  # norms of the others are no more than float64 holds
        require(bool(pruned.embedding_norms().isfinite().all()), "embeddings are too large for their norms")
    r.check_zero_frames(pruned.zero_frames, num_frames)


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
    from evs_cli.core.methods import METHODS
    from evs_cli.core.retention import Ranking

    scores = pruned.dissimilarity
    require(pruned.method in METHODS, f"method is {describe(pruned.method)}, expected one of {', '.join(METHODS)}")
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
    length = pruned.actual.get("sequence_length", pruned.sequence_length)
    require(length == pruned.sequence_length, f"actual says {describe(length)} ids, there are {pruned.sequence_length}")
    kept = pruned.retained_tokens
    actual, planned = (counts.get("retained_tokens", kept) for counts in (pruned.actual, pruned.planned))
    require(actual == kept, f"actual says {describe(actual)} tokens, {kept} are kept")
    require(is_int(planned) and planned >= kept, f"planned says {describe(planned)} tokens, {kept} are kept")


def _rule_count(pruned: PrunedVideo) -> int:
    return pruned.token_grid_thw.retained_tokens(pruned.q)
