"""Row selections: which rows of a video a caller keeps (none, all, those of some rates), or a sink that takes them.

A selection works for both sources of an encoding. ``open`` and ``finish`` keep rows while the video is encoded;
``read`` takes them from an encoding that is stored already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol, TypeVar

from evs_cli.core.counts import TokenGrid
from evs_cli.pipeline.encoded_video import EncodedClip, EncodedVideo, RetainedVideo, StoredVideo
from evs_cli.pipeline.memory import free_memory_bytes

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.streaming import AllTokens, NoTokens, StreamingRetention, TokenSink

SinkT = TypeVar("SinkT", bound="TokenSink")
Clip_co = TypeVar("Clip_co", bound=EncodedClip, covariant=True)

_REPLAY_TOKENS = 4096  # a batch, where all stored rows go to a sink


class RowSelection(Protocol[SinkT, Clip_co]):
    """The rows that are kept of a video."""

    def open(self, token_grid_thw: TokenGrid) -> SinkT:
        """What takes the rows of a video of which ``token_grid_thw`` is planned."""

    def finish(self, clip: EncodedClip, sink: SinkT) -> Clip_co:
        """The encoding with the rows that ``sink`` has taken."""

    def read(self, stored: StoredVideo) -> Clip_co:
        """Read the rows of a stored encoding."""


class NoRows:
    """Keeps no row, for the ranking and the counts alone."""

    def open(self, token_grid_thw: TokenGrid) -> NoTokens:
        """See ``RowSelection.open``."""
        from evs_cli.core.streaming import NoTokens

        return NoTokens()

    def finish(self, clip: EncodedClip, sink: NoTokens) -> EncodedClip:
        """See ``RowSelection.finish``."""
        return clip

    def read(self, stored: StoredVideo) -> EncodedClip:
        """See ``RowSelection.read``."""
        return stored


class AllRows:
    """Keeps every row; of a stored encoding, rows are read as they are asked for."""

    def open(self, token_grid_thw: TokenGrid) -> AllTokens:
        """See ``RowSelection.open``."""
        from evs_cli.core.streaming import AllTokens

        return AllTokens(token_grid_thw.t, free_bytes=free_memory_bytes())

    def finish(self, clip: EncodedClip, sink: AllTokens) -> EncodedVideo:
        """See ``RowSelection.finish``."""
        return EncodedVideo(**vars(clip), levels=sink.levels)

    def read(self, stored: StoredVideo) -> StoredVideo:
        """See ``RowSelection.read``."""
        return stored


@dataclass(frozen=True)
class RowsAtRates:
    """Keeps the rows that some rate keeps; memory grows with those, not with the video."""

    rates: Sequence[float]
    """At least one."""
    rule: RetentionRule

    def open(self, token_grid_thw: TokenGrid) -> StreamingRetention:
        """See ``RowSelection.open``."""
        from evs_cli.core.streaming import StreamingRetention

        return StreamingRetention(
            self.rule.most_rows(token_grid_thw, self.rates),
            min_dissimilarity=self.rule.min_dissimilarity,
            scores=self.rule.own_scores(token_grid_thw),
            free_bytes=free_memory_bytes(),
        )

    def finish(self, clip: EncodedClip, sink: StreamingRetention) -> RetainedVideo:
        """See ``RowSelection.finish``; frames that do not decode leave fewer rows than were planned."""
        rows = sink.finish(self.rule.most_rows(clip.actual.token_grid_thw, self.rates))
        return RetainedVideo(**vars(clip), rule=self.rule, rows=rows)

    def read(self, stored: StoredVideo) -> RetainedVideo:
        """See ``RowSelection.read``; no other row is read."""
        import torch

        from evs_cli.core.streaming import RetainedRows

        masks = [retention.retention_mask for retention in self.rule.sweep(stored.ranking, list(self.rates))]
        tokens = torch.stack(masks).any(dim=0).flatten().nonzero().flatten()
        rows = RetainedRows(tuple(stored.rows_of(tokens, level) for level in range(stored.num_levels)), tokens)
        parts = {field.name: getattr(stored, field.name) for field in fields(EncodedClip)}
        return RetainedVideo(**parts, rule=self.rule, rows=rows)


@dataclass(frozen=True)
class RowsToSink:
    """Gives every row to a sink of the caller's, which ``open_sink`` makes for the planned grid.

    It may be called twice where a stored encoding turns out to be damaged; the later sink counts then.
    """

    open_sink: Callable[[TokenGrid], TokenSink]

    def open(self, token_grid_thw: TokenGrid) -> TokenSink:
        """See ``RowSelection.open``."""
        return self.open_sink(token_grid_thw)

    def finish(self, clip: EncodedClip, sink: TokenSink) -> EncodedClip:
        """See ``RowSelection.finish``."""
        return clip

    def read(self, stored: StoredVideo) -> EncodedClip:
        """See ``RowSelection.read``; the sink is given the rows as if they were just encoded."""
        import torch

        sink = self.open_sink(stored.planned.token_grid_thw)
        num_frames, height, width = stored.actual.token_grid_thw
        places = stored.actual.tokens_per_frame
        step = max(1, _REPLAY_TOKENS // places)
        for first in range(0, num_frames, step):
            last = min(num_frames, first + step)
            tokens = torch.arange(first * places, last * places)
            rows = (stored.rows_of(tokens, level) for level in range(stored.num_levels))
            levels = tuple(level.view(last - first, height, width, -1) for level in rows)
            sink.add(levels, stored.ranking.dissimilarity[first:last])
        return stored
