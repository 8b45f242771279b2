"""Sinks receive a video's tokens batch by batch. Each keeps a different part: all rows, none, or the K highest ranked.

In: embeddings ``(t, h, w, D)`` a level and their scores ``(t, h, w)``, in the order of time. Out: the rows
that the sink keeps. ``StreamingRetention`` keeps the same rows as a ranking of the whole video would, bit for bit,
however the video is cut into batches. A sink knows tensors alone: no video, no model, no file of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from evs_cli.core.retention import first_ranked
from evs_cli.core.row_buffer import RowBuffer, row_bytes

_LARGE_BYTES = 2 * 10**9  # rows that take more get by with fewer candidates beside them
_CANDIDATE_SHARE, _LARGE_CANDIDATE_SHARE = 0.25, 0.05


class TokenSink(Protocol):
    """Takes the tokens of a video, in order, as they are encoded."""

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """Take the tokens of the next t frames.

        Args:
            levels: ``(t, h, w, D)`` a level on the CPU, the main one first. They are the sink's to read during the
                call alone: what is to be kept is copied.
            dissimilarity: ``(t, h, w)`` on the CPU, in the dtype it was scored in; the video's first frame is 255.
        """


class NoTokens:
    """Keeps no row, where scores are all that is wanted."""

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """See ``TokenSink.add``."""


class BothSinks:
    """Hands what comes to two sinks in turn."""

    def __init__(self, first: TokenSink, second: TokenSink) -> None:
        self._sinks = first, second

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """See ``TokenSink.add``."""
        for sink in self._sinks:
            sink.add(levels, dissimilarity)


class AllTokens:
    """Keeps every row.

    Args:
        num_frames: T as planned; fewer frames may come.
        free_bytes: as of ``RowBuffer``.
    """

    def __init__(self, num_frames: int, *, free_bytes: int | None = None) -> None:
        self._num_frames, self._free_bytes = num_frames, free_bytes
        self._rows: RowBuffer | None = None
        self._frame: tuple[int, int] = (0, 0)  # h, w

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """See ``TokenSink.add``."""
        if self._rows is None:
            _, height, width = dissimilarity.shape
            self._frame = height, width
            self._rows = RowBuffer(self._num_frames * height * width, levels, free_bytes=self._free_bytes)
        rows = [level.flatten(0, 2) for level in levels]
        self._rows.append(rows, torch.arange(len(rows[0])))

    @property
    def levels(self) -> tuple[torch.Tensor, ...]:
        """``(T, h, w, D)`` a level: what came, the main one first."""
        assert self._rows is not None
        return tuple(level.view(-1, *self._frame, level.shape[-1]) for level in self._rows.levels)


@dataclass(frozen=True, eq=False)
class RetainedRows:
    """The rows that are left of a video, in their original order."""

    levels: tuple[torch.Tensor, ...]
    """``(K, D)`` a level, the main one first; each owns exactly its storage."""
    positions: torch.Tensor
    """(K,) int64 ascending: which tokens they are, counted over frames, rows and columns."""


class StreamingRetention:
    """Keeps the K rows that rank first, however the video is cut into batches.

    Rows wait in two buffers: exactly K, and a quarter of that (a twentieth above 2 GB) for candidates. When both are
    full, the K that rank first among all that are there close up to the front of the K, in their order, and from then
    on a newcomer counts only if it scores strictly above the least of them: among equals the earlier one goes first.
    A token that is dropped so could not be kept later, as K never grows.

    Args:
        num_rows: K, at least 1: the most that will be asked for. When frames are lost, it may be fewer.
        min_dissimilarity: below it nothing is kept; None for no floor.
        scores: ``(T, h, w)`` what to rank by in place of the dissimilarity, for at least the frames that come.
        free_bytes: as of ``RowBuffer``, for the K rows.
    """

    def __init__(
        self,
        num_rows: int,
        *,
        min_dissimilarity: float | None = None,
        scores: torch.Tensor | None = None,
        free_bytes: int | None = None,
    ) -> None:
        self._num_rows, self._floor, self._free_bytes = num_rows, min_dissimilarity, free_bytes
        self._own_scores = None if scores is None else scores.flatten().double()
        self._num_seen = 0
        self._threshold: float | None = None
        self._kept: RowBuffer | None = None
        self._candidates: RowBuffer | None = None
        # Of every row that is there, kept ones first: its place in the video and its score, exact in double.
        self._positions = torch.empty(0, dtype=torch.int64)
        self._scores = torch.empty(0, dtype=torch.float64)

    def add(self, levels: tuple[torch.Tensor, ...], dissimilarity: torch.Tensor) -> None:
        """See ``TokenSink.add``."""
        kept, candidates = self._buffers(levels)
        rows = [level.flatten(0, 2) for level in levels]
        scores = dissimilarity.flatten().double()
        is_eligible = scores >= self._floor if self._floor is not None else torch.ones_like(scores, dtype=torch.bool)
        first = self._num_seen
        self._num_seen += len(scores)
        if self._own_scores is not None:
            scores = self._own_scores[first : self._num_seen]
        if self._threshold is not None:
            is_eligible &= scores > self._threshold
        picked = is_eligible.nonzero().flatten()
        if len(picked) > kept.room + candidates.room:
            picked = picked[self._thin(scores[picked], self._num_rows)]
        self._positions = torch.cat([self._positions, first + picked])
        self._scores = torch.cat([self._scores, scores[picked]])
        room = kept.room
        kept.append(rows, picked[:room])
        candidates.append(rows, picked[room:])

    def _buffers(self, levels: tuple[torch.Tensor, ...]) -> tuple[RowBuffer, RowBuffer]:
        if self._kept is None or self._candidates is None:
            self._kept = RowBuffer(self._num_rows, levels, free_bytes=self._free_bytes)
            is_large = self._num_rows * row_bytes(levels) > _LARGE_BYTES
            share = _LARGE_CANDIDATE_SHARE if is_large else _CANDIDATE_SHARE
            self._candidates = RowBuffer(int(share * self._num_rows), levels)
        return self._kept, self._candidates

    def _thin(self, newcomers: torch.Tensor, num_rows: int) -> torch.Tensor:
        """Leave of the rows that are there what ranks among the first ``num_rows``, all of it in the K rows' buffer.

        Args:
            newcomers: (n,) float64 scores of tokens that come after all that are there, and compete with them.
            num_rows: at most K.

        Returns:
            (n,) bool, which newcomers rank among the first.
        """
        assert self._kept is not None
        assert self._candidates is not None
        scores = torch.cat([self._scores, newcomers])
        is_first = first_ranked(scores, num_rows)
        self._threshold = float(scores[is_first].min())
        stays = is_first[: len(self._scores)]
        num_kept = self._kept.filled
        self._kept.thin(stays[:num_kept])
        self._candidates.move_to(self._kept, stays[num_kept:])
        self._positions, self._scores = self._positions[stays], self._scores[stays]
        return is_first[len(stays) :]

    def finish(self, num_rows: int) -> RetainedRows:
        """The first ``num_rows`` of all tokens that came, at most K and never more than that; fewer with a floor."""
        assert self._kept is not None
        if len(self._positions) > num_rows:
            self._thin(self._scores[:0], num_rows)
        self._candidates = None
        return RetainedRows(self._kept.levels, self._positions)
