"""Placeholder sequences: where video tokens lie in ``input_ids``, and the same sequence after pruning.

Spans are carried as data and never searched for, so a frame that keeps no token keeps its separators and its
(empty) span. Numpy only: a plan needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evs_cli.core.counts import TokenGrid
from evs_cli.errors import UsageError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def as_array(values: Any, dtype: Any = None) -> npt.NDArray[Any]:
    """An array of a list, an array or a tensor; a tensor is copied from its device in one piece.

    numpy refuses a tensor on an accelerator, and one that requires a gradient.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=dtype)


def as_list(values: Any) -> Any:
    """A tensor as plain lists of numbers, copied from its device in one piece; anything else as it is."""
    return values.tolist() if hasattr(values, "detach") else values


@dataclass(frozen=True, eq=False)
class SequenceLayout:
    """An unpruned sequence and the place of every video token in it.

    Raises:
        UsageError: positions outside the sequence or out of order, or frames of unequal or scattered tokens.
    """

    input_ids: IntArray
    """(L,) int64 ids with every placeholder written out."""
    token_positions: IntArray
    """(N,) int64, strictly ascending: where grid token i, in (t, h, w) order, stands in ``input_ids``."""
    extra_positions: IntArray
    """(E,) int64: placeholders of rows that are no grid token (a newline, a CLS); never pruned."""
    num_frames: int
    """T, frames of the token grid."""
    placeholder_token_id: int
    """The id that stands for one video token."""

    def __post_init__(self) -> None:
        positions, extra, length = self.token_positions, self.extra_positions, len(self.input_ids)
        if self.num_frames < 1 or len(positions) == 0 or len(positions) % self.num_frames:
            raise UsageError(
                f"Invalid layout: {len(positions)} video tokens in {self.num_frames} frames. "
                "Expected the same number, at least 1, in each frame."
            )
        for name, places in (("token_positions", positions), ("extra_positions", extra)):
            if len(places) and (places[0] < 0 or places[-1] >= length or bool((np.diff(places) <= 0).any())):
                raise UsageError(
                    f"Invalid layout: {name} from {places[0]} to {places[-1]} in a sequence of {length}. "
                    "Expected strictly ascending positions inside it."
                )
        if bool((np.diff(positions.reshape(self.num_frames, -1), axis=1) != 1).any()):
            raise UsageError("Invalid layout: the tokens of a frame lie apart. Expected one run of them a frame.")
        if len(extra) and len(np.intersect1d(positions, extra)):
            raise UsageError("Invalid layout: an extra row stands at a video token's position. Expected its own.")

    @property
    def sequence_length(self) -> int:
        """L before pruning."""
        return len(self.input_ids)

    def prune(self, retention_mask: npt.ArrayLike) -> PrunedSequence:
        """The sequence with the tokens outside ``retention_mask`` taken out.

        Args:
            retention_mask: N bools in (t, h, w) order, of any shape.
        """
        return prune_sequence([self], [retention_mask])[0]


@dataclass(frozen=True, eq=False)
class PrunedSequence:
    """A sequence after pruning; separators, timestamps and markers of empty frames are still there."""

    input_ids: IntArray
    """(L,) int64 ids."""
    kept_positions: IntArray
    """(L,) int64: place of each id in the unpruned sequence; it selects positions too."""
    frame_offsets: IntArray
    """(T, 2) int64 inclusive (start, end) of each frame's tokens; an empty frame has end = start - 1."""
    extra_positions: IntArray
    """(E,) int64: where the extra rows' placeholders stand now."""


def layouts_of_videos(
    input_ids: npt.ArrayLike,
    placeholder_token_id: int,
    token_grids_thw: Sequence[tuple[int, int, int]],
    *,
    is_video: npt.ArrayLike | None = None,
) -> list[SequenceLayout]:
    """The layouts of several videos in one sequence, in order: each owns as many placeholders as its grid has tokens.

    Args:
        input_ids: ``(L,)`` ids with every placeholder written out; other media stand there untouched.
        placeholder_token_id: the id of the videos' placeholders.
        token_grids_thw: ``(T, h, w)`` in tokens of each video.
        is_video: ``(L,)`` bool that tells the videos' placeholders from an image's, for families that write both with
            the same id (``mm_token_type_ids == 2``); None where no image uses it.

    Raises:
        UsageError: more or fewer placeholders than the grids have tokens.
    """
    ids: IntArray = as_array(input_ids, np.int64)
    found = ids == placeholder_token_id
    if is_video is not None:
        found &= as_array(is_video, np.bool_)
    positions: IntArray = np.flatnonzero(found).astype(np.int64)
    sizes = [TokenGrid(*grid).num_tokens for grid in token_grids_thw]
    if sum(sizes) != len(positions):
        raise UsageError(
            f"Invalid sequence: {len(positions)} placeholders of id {placeholder_token_id}. "
            f"Expected {sum(sizes)} for the token grids {list(token_grids_thw)}."
        )
    ends = np.cumsum(sizes)
    none: IntArray = np.empty(0, dtype=np.int64)
    return [
        SequenceLayout(ids, positions[end - size : end], none, grid[0], placeholder_token_id)
        for end, size, grid in zip(ends, sizes, token_grids_thw, strict=True)
    ]


def prune_sequence(layouts: Sequence[SequenceLayout], retention_masks: Sequence[npt.ArrayLike]) -> list[PrunedSequence]:
    """One sequence with several videos, each pruned by its own mask; everything else in it stays.

    Args:
        layouts: the videos' layouts over the same ``input_ids``.
        retention_masks: N bools a video in (t, h, w) order, of any shape.

    Returns:
        A ``PrunedSequence`` a video: the same ids and kept positions, each video's own frame offsets.

    Raises:
        UsageError: masks that do not fit their layouts.
    """
    ids = layouts[0].input_ids
    kept = np.ones(len(ids), dtype=np.bool_)
    counts: list[IntArray] = []
    for layout, retention_mask in zip(layouts, retention_masks, strict=True):
        mask = as_array(retention_mask, np.bool_).ravel()
        if len(mask) != len(layout.token_positions):
            raise UsageError(
                f"Invalid retention mask: {len(mask)} entries. Expected one for each of the "
                f"{len(layout.token_positions)} video tokens."
            )
        kept[layout.token_positions[~mask]] = False
        counts.append(mask.reshape(layout.num_frames, -1).sum(axis=1))
    # Place of every unpruned position in the pruned sequence; for a dropped one, where it would have stood.
    new_positions: IntArray = np.cumsum(kept) - kept
    kept_positions, kept_ids = np.flatnonzero(kept), ids[kept]
    sequences = []
    for layout, count in zip(layouts, counts, strict=True):
        starts: IntArray = new_positions[layout.token_positions.reshape(layout.num_frames, -1)[:, 0]]
        sequences.append(
            PrunedSequence(
                input_ids=kept_ids,
                kept_positions=kept_positions,
                frame_offsets=np.stack([starts, starts + count - 1], axis=1),
                extra_positions=new_positions[layout.extra_positions],
            )
        )
    return sequences


def replace_offsets_with_tokens_per_frame(
    pre_chunked_input_ids: Sequence[int] | Any,
    num_tokens_per_frame: Sequence[int] | Any,
    frame_offsets_inclusive: Sequence[tuple[int, int]] | Any,
    filler_token_id: int,
) -> list[int]:
    """Replace each span of placeholders by as many as its frame kept (SGLang's function, by its name).

    Args:
        pre_chunked_input_ids: ``(L,)`` ids, a list or any 1-d array.
        num_tokens_per_frame: kept tokens of each frame, T entries.
        frame_offsets_inclusive: T spans (start, end), both ends included, ascending and apart; an empty span has
            end = start - 1. A single span takes the sum of all counts.
        filler_token_id: the placeholder's id.

    Returns:
        The ids with every span at its real length.

    Examples:
        >>> ids = [7, 0, 0, 0, 8, 0, 0, 0, 9]
        >>> replace_offsets_with_tokens_per_frame(ids, [4, 2], [(1, 3), (5, 7)], filler_token_id=0)
        [7, 0, 0, 0, 0, 8, 0, 0, 9]
        >>> replace_offsets_with_tokens_per_frame(ids, [0, 3], [(1, 3), (5, 7)], filler_token_id=0)
        [7, 8, 0, 0, 0, 9]
        >>> replace_offsets_with_tokens_per_frame([7, 0, 0, 9], [1, 2], [(1, 2)], filler_token_id=0)
        [7, 0, 0, 0, 9]

    Raises:
        UsageError: spans that overlap or leave the sequence, negative counts, or numbers that do not match.
    """
    ids = as_array(pre_chunked_input_ids, np.int64)
    counts = [int(count) for count in as_list(num_tokens_per_frame)]
    spans = [(int(start), int(end)) for start, end in as_list(frame_offsets_inclusive)]
    if any(count < 0 for count in counts):
        raise UsageError(f"Invalid num_tokens_per_frame {counts}. Expected counts of at least 0.")
    if len(spans) == 1:
        counts = [sum(counts)]
    if len(spans) != len(counts):
        raise UsageError(
            f"Invalid spans: {len(spans)} for {len(counts)} frames. Expected one a frame, or a single one."
        )
    pieces: list[IntArray] = []
    done = 0
    for (start, end), count in zip(spans, counts, strict=True):
        if start < done or end < start - 1 or end >= len(ids):
            raise UsageError(
                f"Invalid span ({start}, {end}) in a sequence of {len(ids)}. "
                f"Expected spans that ascend, stay apart and end inside it (the last one ended at {done - 1})."
            )
        pieces += [ids[done:start], np.full(count, filler_token_id, dtype=np.int64)]
        done = end + 1
    real: list[int] = np.concatenate([*pieces, ids[done:]]).tolist()
    return real


def run_lengths(ids: npt.ArrayLike) -> list[tuple[int, int]]:
    """``(id, length)`` of each run of equal ids, in order: the short form of a sequence that is mostly one id."""
    array = as_array(ids)
    if len(array) == 0:
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(array)) + 1])
    lengths = np.diff(np.concatenate([starts, [len(array)]]))
    return [(int(array[start]), int(length)) for start, length in zip(starts, lengths, strict=True)]
