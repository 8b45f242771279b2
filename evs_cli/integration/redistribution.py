"""Placeholders after pruning: pure functions from explicit spans to explicit spans.

In: a sequence with provisional placeholders, the span of each frame, the counts of the mask. Out: the real sequence
and spans, whole or for one chunk of a chunked prefill. A span is an inclusive ``(start, end)``; an empty one has
``end = start - 1``. No span is ever searched for, so frames that keep nothing cost nothing and lose nothing.
Numpy only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evs_cli.core.placeholders import BoolArray, as_array, as_list, replace_offsets_with_tokens_per_frame
from evs_cli.errors import UsageError

Span = tuple[int, int]
"""Inclusive (start, end); an empty span has end = start - 1."""


def redistribute_placeholders(
    input_ids: Sequence[int] | Any,
    offsets: Sequence[Span] | Any,
    num_tokens_per_frame: Sequence[int] | Any,
    filler_token_id: int,
) -> tuple[list[int], list[Span]]:
    """The sequence and the spans once each frame has the tokens its mask kept.

    Args:
        input_ids: ``(L,)`` ids with provisional placeholders, a list or any 1-d array.
        offsets: a span a frame, of whatever length, ascending and apart; or a single one, which takes all counts.
        num_tokens_per_frame: kept tokens of each frame, 0 allowed.
        filler_token_id: the placeholder's id.

    Returns:
        The real ids, and one span for each of ``offsets``. What lies between spans is as it was.

    Raises:
        UsageError: spans that overlap or leave the sequence, negative counts, numbers that do not match.
    """
    spans = as_spans(offsets)
    counts = [int(count) for count in as_list(num_tokens_per_frame)]
    ids = replace_offsets_with_tokens_per_frame(input_ids, counts, spans, filler_token_id)
    if len(spans) == 1:
        counts = [sum(counts)]
    moved: list[Span] = []
    shift = 0
    for (start, end), count in zip(spans, counts, strict=True):
        moved.append((start + shift, start + shift + count - 1))
        shift += count - (end - start + 1)
    return ids, moved


def move_offsets(
    offsets: Sequence[Span] | Any, before: Sequence[Span] | Any, after: Sequence[Span] | Any
) -> list[Span]:
    """The spans of other media, once ``before`` have become ``after`` in the same sequence.

    Args:
        offsets: spans of other media, in the sequence that held ``before``; in any order.
        before: spans as given to ``redistribute_placeholders``, ascending.
        after: spans as it returned them.

    Raises:
        UsageError: if ``before`` and ``after`` differ in number, or a span of ``offsets`` lies in one of ``before``.
    """
    old, new = as_spans(before), as_spans(after)
    if len(old) != len(new):
        raise UsageError(f"Invalid spans: {len(old)} before, {len(new)} after. Expected as many after as before.")
    stops = np.array([end + 1 for _, end in old], dtype=np.int64)
    moved = []
    for start, end in as_spans(offsets):
        passed = int(np.searchsorted(stops, start, side="right"))  # spans that end in front of this one
        if passed < len(old) and old[passed][0] <= end:
            raise UsageError(
                f"Invalid span ({start}, {end}): it meets the frame at {old[passed]}. Expected spans that stay apart."
            )
        shift = new[passed - 1][1] - old[passed - 1][1] if passed else 0
        moved.append((start + shift, end + shift))
    return moved


@dataclass(frozen=True)
class PlaceholderChunk:
    """One chunk of a sequence, and what of a medium belongs in it."""

    input_ids: list[int]
    """(len,) ids of the chunk."""
    frame_offsets: list[Span]
    """A span a frame, in places of the chunk and cut to it; empty where none of the frame lies in the chunk."""
    rows: tuple[int, int]
    """Half-open range of the embedding's rows whose placeholders lie in the chunk."""


def chunk_placeholders(
    input_ids: Sequence[int] | Any, offsets: Sequence[Span] | Any, prefix: int, length: int
) -> PlaceholderChunk:
    """Ids, spans and embedding rows of the chunk ``[prefix, prefix + length)`` of a sequence.

    Right wherever the cut falls: inside a span, between two media, beside a frame that keeps nothing. The chunks
    of any cut give back the sequence, and their ``rows`` follow each other without gap or overlap.

    Args:
        input_ids: ``(L,)`` the whole sequence, as ``redistribute_placeholders`` returned it.
        offsets: its spans, those of one medium, ascending.
        prefix: ids in front of the chunk.
        length: ids in the chunk; 0 is allowed.

    Raises:
        UsageError: if the chunk leaves the sequence, or a span does.
    """
    total = len(input_ids)
    if prefix < 0 or length < 0 or prefix + length > total:
        raise UsageError(f"Invalid chunk [{prefix}, {prefix + length}). Expected a part of the {total} ids.")
    spans = as_spans(offsets)
    done = 0
    for start, end in spans:
        if start < done or end < start - 1 or end >= total:
            raise UsageError(
                f"Invalid span ({start}, {end}) in a sequence of {total}. Expected ascending spans inside it."
            )
        done = end + 1
    cut = [_cut(span, prefix, length) for span in spans]
    first = sum(min(max(prefix - start, 0), end - start + 1) for start, end in spans)
    inside = sum(end - start + 1 for start, end in cut)
    ids = [int(i) for i in as_list(input_ids[prefix : prefix + length])]
    return PlaceholderChunk(input_ids=ids, frame_offsets=cut, rows=(first, first + inside))


def kept_places(video_placeholders: npt.ArrayLike, retention_masks: Iterable[npt.ArrayLike]) -> BoolArray:
    """Which places of an *unpruned* sequence stay: all text, and the video tokens that the masks keep.

    Selects ids (``input_ids[:, keep]``) and positions (``position_ids[..., keep]``) alike, so that kept tokens have
    the positions they had. For families that need positions of the unpruned ids (mrope) this is the only way.

    Args:
        video_placeholders: ``(L,)`` bool, True where a token of the videos stands.
        retention_masks: the mask of each video in the order of the sequence, of any shape in (t, h, w) order.

    Returns:
        ``(L,)`` bool.

    Raises:
        UsageError: if there are not as many placeholders as mask entries.
    """
    places = as_array(video_placeholders, np.bool_)
    masks = [as_array(mask, np.bool_).ravel() for mask in retention_masks]
    entries = sum(len(mask) for mask in masks)
    if places.ndim != 1 or int(places.sum()) != entries:
        raise UsageError(
            f"Invalid placeholders: {int(places.sum())} of shape {places.shape} for masks of {entries} tokens. "
            "Expected one row with a place for every token, kept or not."
        )
    keep = ~places
    keep[places] = np.concatenate([*masks, np.zeros(0, dtype=np.bool_)])
    return keep


def as_spans(offsets: Sequence[Span] | Any) -> list[Span]:
    """Spans as pairs of Python's integers, from any sequence or a tensor."""
    return [(int(start), int(end)) for start, end in as_list(offsets)]


def _cut(span: Span, prefix: int, length: int) -> Span:
    """The part of a span inside ``[prefix, prefix + length)``, counted from ``prefix``."""
    start = min(max(span[0] - prefix, 0), length)
    stop = min(max(span[1] + 1 - prefix, start), length)
    return start, stop - 1
