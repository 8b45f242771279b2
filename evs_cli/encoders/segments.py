"""A sequence before it is ids: texts, and runs of placeholders between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evs_cli.core.placeholders import IntArray

Segment = str | int
"""A text, or so many placeholders."""


def joined(segments: Sequence[Segment]) -> list[Segment]:
    """Adjacent texts as one; runs of placeholders keep them apart, as the tokenizer itself does at special tokens."""
    out: list[Segment] = []
    texts: list[str] = []
    for segment in segments:
        if isinstance(segment, str):
            texts.append(segment)
            continue
        out += ["".join(texts), segment] if texts else [segment]
        texts = []
    return [*out, "".join(texts)] if texts else out


def segment_ids(
    segments: Sequence[Segment],
    text_ids: Callable[[Sequence[str]], list[list[int]]],
    placeholder_id: int,
    start_ids: Sequence[int] = (),
) -> IntArray:
    """(L,) int64 ids of segments, each text tokenized by itself.

    Args:
        segments: texts and runs of placeholders.
        text_ids: the ids of each text.
        placeholder_id: of one placeholder.
        start_ids: what the tokenizer puts in front of every text.
    """
    texts = iter(text_ids([segment for segment in segments if isinstance(segment, str)]))
    pieces = [start_ids, *((segment if isinstance(segment, int) else next(texts)) for segment in segments)]
    lengths = [piece if isinstance(piece, int) else len(piece) for piece in pieces]
    ids: IntArray = np.full(sum(lengths), placeholder_id, dtype=np.int64)
    end = 0
    for piece, length in zip(pieces, lengths, strict=True):
        if not isinstance(piece, int):
            ids[end : end + length] = piece
        end += length
    return ids
