"""What EVS is told and what it gives, as SGLang names them: ``EVSConfig`` and ``EVSEmbeddingResult``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import torch

from evs_cli.core.counts import check_pruning_rate
from evs_cli.core.placeholders import as_list
from evs_cli.core.retention import Retention
from evs_cli.errors import UsageError
from evs_cli.integration.redistribution import Span, redistribute_placeholders


@dataclass(frozen=True)
class EVSConfig:
    """How a model prunes.

    Raises:
        UsageError: a rate outside [0, 1), a merge below 1.
    """

    video_pruning_rate: float
    """The share of video tokens to drop, in [0, 1); 0 prunes nothing."""
    spatial_merge_size: int = 1
    """Side of the square of patches that became one token; grids are told before this merge."""

    def __post_init__(self) -> None:
        check_pruning_rate(self.video_pruning_rate)
        merge: object = self.spatial_merge_size
        if isinstance(merge, bool) or not isinstance(merge, int) or merge < 1:
            raise UsageError(f"Invalid spatial_merge_size {merge!r}. Expected a whole number of at least 1.")

    @property
    def enabled(self) -> bool:
        """Whether anything is pruned at all."""
        return self.video_pruning_rate > 0


class _Redistribution(TypedDict, total=False):
    filler_token_id: int | None
    item: Any
    extend_prefix_len: int
    extend_seq_len: int | None


@dataclass(frozen=True, eq=False)
class EVSEmbeddingResult:
    """Pruned embeddings of one item, of one video or several, and how many tokens each frame kept.

    Raises:
        UsageError: counts that do not add up to the rows, or that do not fit the videos.
    """

    embedding: torch.Tensor
    """(K, D) kept rows, video after video, in their original order."""
    num_tokens_per_frame: Sequence[int]
    """Kept tokens of each frame, video after video; sums to K, 0 allowed."""
    retentions: tuple[Retention, ...] = ()
    """Mask and figures of each video; empty where only the counts are known."""

    def __post_init__(self) -> None:
        counts = [int(count) for count in as_list(self.num_tokens_per_frame)]
        object.__setattr__(self, "num_tokens_per_frame", counts)
        if self.embedding.ndim != 2 or any(count < 0 for count in counts) or sum(counts) != len(self.embedding):
            raise UsageError(
                f"Invalid num_tokens_per_frame: {len(counts)} counts, {sum(counts)} in all, for an embedding of "
                f"shape {tuple(self.embedding.shape)}. Expected counts of at least 0 that add up to the rows of (K, D)."
            )
        if self.retentions and frame_counts(self.retentions) != counts:
            raise UsageError("Invalid retentions: their counts are not num_tokens_per_frame. Expected the same counts.")

    @overload
    def redistribute_pruned_frames_placeholders(
        self, input_ids: torch.Tensor, offsets: Sequence[Span], **kwargs: Unpack[_Redistribution]
    ) -> tuple[torch.Tensor, list[Span]]: ...

    @overload
    def redistribute_pruned_frames_placeholders(
        self, input_ids: Sequence[int], offsets: Sequence[Span], **kwargs: Unpack[_Redistribution]
    ) -> tuple[list[int], list[Span]]: ...

    def redistribute_pruned_frames_placeholders(
        self,
        input_ids: torch.Tensor | Sequence[int],
        offsets: Sequence[Span],
        *,
        filler_token_id: int | None = None,
        item: Any = None,
        extend_prefix_len: int = 0,
        extend_seq_len: int | None = None,
    ) -> tuple[torch.Tensor | list[int], list[Span]]:
        """Put as many placeholders into each frame's span as the frame kept.

        A chunk alone cannot tell how far earlier frames moved it, so the whole provisional sequence is needed: as
        ``input_ids``, or, as SGLang gives it, in ``item`` beside the chunk that ``input_ids`` then is. Spans are taken
        as given, so those of other media, and runs of the same id elsewhere, are left alone.

        Args:
            input_ids: ``(L,)`` whole sequence before pruning or with provisional counts, or with ``item`` the chunk of
                it; a tensor or a list.
            offsets: this item's inclusive spans in the whole: one a frame, one a video (needs ``retentions``), or one
                for all.
            filler_token_id: the placeholder's id; None takes the item's ``pad_value``.
            item: a video's data item with ``pre_chunked_input_ids`` (the whole) and ``pad_value``.
            extend_prefix_len: ids in front of the chunk asked for.
            extend_seq_len: ids in the chunk; None is all that follow the prefix.

        Returns:
            Ids of the chunk, of the kind ``input_ids`` is; and the spans in the whole real sequence, one for each of
            ``offsets``, an empty one with end = start - 1. ``chunk_placeholders`` cuts the spans as well.

        Raises:
            UsageError: spans or a chunk that leave the sequence, numbers that do not match, or an item without the ids.
        """
        whole, filler = input_ids, filler_token_id
        if item is not None:
            whole, filler = _whole_of(item, filler)
            if extend_seq_len is not None and len(input_ids) != extend_seq_len:
                raise UsageError(f"Invalid chunk: {len(input_ids)} ids. Expected extend_seq_len, {extend_seq_len}.")
        if filler is None:
            raise UsageError("No placeholder id. Expected filler_token_id, or an item with a pad_value.")
        ids, spans = redistribute_placeholders(whole, offsets, self._counts_for(len(offsets)), filler)
        if item is not None and len(ids) != len(whole):  # a chunk's place is counted in both sequences
            raise UsageError(
                f"Invalid offsets: the item's {len(whole)} ids become {len(ids)} with {len(self.embedding)} kept "
                "tokens. Expected spans that hold as many placeholders as tokens are kept."
            )
        stop = len(ids) if extend_seq_len is None else extend_prefix_len + extend_seq_len
        if not 0 <= extend_prefix_len <= stop <= len(ids):
            raise UsageError(f"Invalid chunk [{extend_prefix_len}, {stop}). Expected a part of the {len(ids)} ids.")
        chunk = ids[extend_prefix_len:stop]
        return (input_ids.new_tensor(chunk) if isinstance(input_ids, torch.Tensor) else chunk), spans

    def _counts_for(self, num_spans: int) -> Sequence[int]:
        """Counts a video where there is a span for each, else a frame."""
        if num_spans == len(self.retentions):
            return [retention.retained_tokens for retention in self.retentions]
        return self.num_tokens_per_frame

    @classmethod
    def of(cls, features: Any) -> EVSEmbeddingResult:
        """The result of pruned features, as ``get_video_features`` of a model with EVS returns them.

        Args:
            features: an output whose ``pooler_output`` is pruned, a tensor or a sequence of tensors.

        Raises:
            UsageError: if EVS did not prune them.
        """
        from evs_cli.integration.features import retentions_of, rows_of

        retentions = retentions_of(features)
        return cls(rows_of(features), frame_counts(retentions), retentions)


def frame_counts(retentions: Sequence[Retention]) -> list[int]:
    """Tokens kept of each frame, video after video."""
    return [count for retention in retentions for count in retention.num_tokens_per_frame.tolist()]


def _whole_of(item: Any, filler_token_id: int | None) -> tuple[Any, int | None]:
    """The whole provisional sequence of a video's data item, and its placeholder's id."""
    whole = getattr(item, "pre_chunked_input_ids", None)
    if whole is None or not item.is_video():
        raise UsageError(
            f"Invalid item: {item.modality} without pre_chunked_input_ids. Expected a video's, made by EVSProcessor."
        )
    return whole, item.pad_value if filler_token_id is None else filler_token_id
