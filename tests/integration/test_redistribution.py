"""Placeholders after pruning, whole and in chunks, against sequences that are built twice from the same parts."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from drawn_cases import tried_on
from hypothesis import given
from hypothesis import strategies as st

from evs_cli.core.counts import tokens_per_frame
from evs_cli.errors import UsageError
from evs_cli.integration import (
    EVSConfig,
    EVSEmbeddingResult,
    chunk_placeholders,
    kept_places,
    move_offsets,
    redistribute_placeholders,
)

PROFILE = tried_on(300, deadline=None, derandomize=True)
FILLER = 0

# SGLang's worked example (facts/peers.md, section 2).
IDS = [1, 0, 0, 4, 5, 0, 0, 0, 9, 10, 0, 0, 12, 13]
SPANS = [(1, 2), (5, 7), (10, 11)]
COUNTS = [1, 4, 2]
REAL_IDS = [1, 0, 4, 5, 0, 0, 0, 0, 9, 10, 0, 0, 12, 13]
REAL_SPANS = [(1, 1), (4, 7), (10, 11)]


def result_of(counts, **more):
    return EVSEmbeddingResult(torch.zeros(sum(counts), 3), counts, **more)


# ------------------------------------------------------------------------------- sequences built from their parts


@dataclasses.dataclass
class Built:
    """A sequence before and after, and what stands at each place after: (medium, frame, row) or None."""

    before: list
    after: list
    labels: list
    spans_before: dict
    spans_after: dict
    counts: dict


def build(parts):
    """``("text", ids)`` and ``(medium, provisional, real)`` parts, in order, written out twice."""
    built = Built([], [], [], {}, {}, {})
    for name, *what in parts:
        if name == "text":
            built.before += what[0]
            built.after += what[0]
            built.labels += [None] * len(what[0])
            continue
        provisional, real = what
        frame = len(built.counts.setdefault(name, []))
        row = sum(built.counts[name])
        built.spans_before.setdefault(name, []).append((len(built.before), len(built.before) + provisional - 1))
        built.spans_after.setdefault(name, []).append((len(built.after), len(built.after) + real - 1))
        built.counts[name].append(real)
        built.before += [FILLER] * provisional
        built.after += [FILLER] * real
        built.labels += [(name, frame, row + i) for i in range(real)]
    return built


# The text holds the filler's id too: whoever looks for runs of it finds false ones.
TEXT = st.tuples(st.just("text"), st.lists(st.integers(0, 3), max_size=3))
FRAME = st.tuples(st.just("video"), st.integers(0, 4), st.integers(0, 5))
OTHER = st.integers(0, 4).map(lambda n: ("other", n, n))  # another medium, whose counts stay
PARTS = st.lists(st.one_of(TEXT, FRAME, OTHER), max_size=12).map(lambda parts: [*parts, ("video", 1, 2)])


@PROFILE
@given(parts=PARTS)
def test_whole(parts):
    built = build(parts)
    ids, spans = redistribute_placeholders(built.before, built.spans_before["video"], built.counts["video"], FILLER)
    assert ids == built.after
    assert spans == built.spans_after["video"]


@PROFILE
@given(parts=PARTS)
def test_spans_of_other_media_move_along(parts):
    built = build(parts)
    others = [span for span in built.spans_before.get("other", []) if span[1] >= span[0]]
    wanted = [span for span in built.spans_after.get("other", []) if span[1] >= span[0]]
    assert move_offsets(others, built.spans_before["video"], built.spans_after["video"]) == wanted
    assert move_offsets(wanted, built.spans_after["video"], built.spans_before["video"]) == others


@PROFILE
@given(parts=PARTS, data=st.data())
def test_chunks_of_any_cut_give_back_the_whole(parts, data):
    built = build(parts)
    total = len(built.after)
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=5)))
    edges = [0, *cuts, total]
    ids, rows = [], []
    for start, stop in itertools.pairwise(edges):
        chunk = chunk_placeholders(built.after, built.spans_after["video"], start, stop - start)
        labels = built.labels[start:stop]
        own = [(place, label) for place, label in enumerate(labels) if label and label[0] == "video"]
        assert chunk.input_ids == built.after[start:stop]
        assert list(range(*chunk.rows)) == [label[2] for _, label in own]
        assert len(chunk.frame_offsets) == len(built.counts["video"])
        for frame, (first, last) in enumerate(chunk.frame_offsets):
            assert 0 <= first <= last + 1 <= stop - start
            assert list(range(first, last + 1)) == [place for place, label in own if label[1] == frame]
        ids += chunk.input_ids
        rows += range(*chunk.rows)
    assert ids == built.after
    assert rows == list(range(sum(built.counts["video"])))


@PROFILE
@given(parts=PARTS, data=st.data())
def test_method_gives_the_same_chunk(parts, data):
    built = build(parts)
    prefix = data.draw(st.integers(0, len(built.after)))
    length = data.draw(st.integers(0, len(built.after) - prefix))
    ids, spans = result_of(built.counts["video"]).redistribute_pruned_frames_placeholders(
        torch.tensor(built.before, dtype=torch.int32),
        built.spans_before["video"],
        filler_token_id=FILLER,
        extend_prefix_len=prefix,
        extend_seq_len=length,
    )
    assert ids.dtype == torch.int32
    assert ids.tolist() == built.after[prefix : prefix + length]
    assert spans == built.spans_after["video"]


@PROFILE
@given(places=st.lists(st.booleans(), max_size=30), data=st.data())
def test_kept_places(places, data):
    tokens = sum(places)
    mask = data.draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens))
    cut = data.draw(st.integers(0, tokens))
    keep = kept_places(places, [mask[:cut], mask[cut:]])
    rest = iter(mask)
    assert keep.tolist() == [next(rest) if place else True for place in places]


# ------------------------------------------------------------------------------------------------ by hand


def test_worked_example():
    assert redistribute_placeholders(IDS, SPANS, COUNTS, FILLER) == (REAL_IDS, REAL_SPANS)
    given_list = result_of(COUNTS).redistribute_pruned_frames_placeholders(IDS, SPANS, filler_token_id=FILLER)
    assert given_list == (REAL_IDS, REAL_SPANS)
    ids, spans = result_of(COUNTS).redistribute_pruned_frames_placeholders(
        torch.tensor(IDS), SPANS, filler_token_id=FILLER
    )
    assert (ids.tolist(), ids.dtype, spans) == (REAL_IDS, torch.int64, REAL_SPANS)


def test_worked_example_in_chunks_that_cut_a_frame():
    first, second = chunk_placeholders(REAL_IDS, REAL_SPANS, 0, 6), chunk_placeholders(REAL_IDS, REAL_SPANS, 6, 8)
    assert (first.input_ids, first.frame_offsets, first.rows) == ([1, 0, 4, 5, 0, 0], [(1, 1), (4, 5), (6, 5)], (0, 3))
    assert second.input_ids == [0, 0, 9, 10, 0, 0, 12, 13]
    assert (second.frame_offsets, second.rows) == ([(0, -1), (0, 1), (4, 5)], (3, 7))


def test_empty_frames_keep_their_separators_and_an_empty_span():
    ids, spans = redistribute_placeholders([7, 0, 8, 0, 9, 0, 6], [(1, 1), (3, 3), (5, 5)], [3, 0, 0], FILLER)
    assert ids == [7, 0, 0, 0, 8, 9, 6]
    assert spans == [(1, 3), (5, 4), (6, 5)]


def test_provisional_split_of_more_frames_than_tokens():
    """K // T is 0 for all frames but the last: a search for runs of placeholders finds one frame of ten."""
    split = tokens_per_frame(q=0.95, num_frames=10, frame_num_tokens=4)
    assert split == [0] * 9 + [4]
    parts = [part for n in split for part in (("text", [5]), ("video", n, 0))]
    built = build(parts)
    counts = [4, *[0] * 9]
    ids, spans = redistribute_placeholders(built.before, built.spans_before["video"], counts, FILLER)
    assert ids == [5, 0, 0, 0, 0, *[5] * 9]
    assert spans == [(1, 4), *[(place, place - 1) for place in range(6, 15)]]


def test_the_split_is_the_masks_own():
    """Placeholders spread evenly would put frame 0's tokens under frame 1's timestamp."""
    even = [7, 0, 0, 8, 0, 0]
    assert redistribute_placeholders(even, [(1, 2), (4, 5)], [4, 0], FILLER)[0] == [7, 0, 0, 0, 0, 8]


def test_single_span_takes_the_sum():
    assert redistribute_placeholders([5, 0, 0, 6], [(1, 2)], [3, 0, 1], FILLER) == ([5, 0, 0, 0, 0, 6], [(1, 4)])


def test_a_later_medium_moves_and_is_not_touched():
    """A video of full size, then an image with the same placeholder: chunked prefill must find the image."""
    ids, video, image = [1, 0, 0, 0, 0, 2, 0, 0, 3], [(1, 2), (3, 4)], [(6, 7)]
    real, spans = redistribute_placeholders(ids, video, [2, 0], FILLER)
    moved = move_offsets(image, video, spans)
    assert (real, moved) == ([1, 0, 0, 2, 0, 0, 3], [(4, 5)])
    assert [chunk_placeholders(real, moved, start, 3).rows for start in (0, 3)] == [(0, 0), (0, 2)]
    assert [chunk_placeholders(real, spans, start, 3).rows for start in (0, 3)] == [(0, 2), (2, 2)]


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(("prefix", "length"), [(-1, 2), (0, -1), (0, 15), (14, 1), (99, 0)])
def test_chunk_outside_the_sequence(prefix, length):
    with pytest.raises(UsageError, match=r"Invalid chunk .* Expected a part of the 14 ids"):
        chunk_placeholders(REAL_IDS, REAL_SPANS, prefix, length)
    with pytest.raises(UsageError, match=r"Invalid chunk .* Expected a part of the 14 ids"):
        result_of(COUNTS).redistribute_pruned_frames_placeholders(
            IDS, SPANS, filler_token_id=0, extend_prefix_len=prefix, extend_seq_len=length
        )


@pytest.mark.parametrize("spans", [[(5, 3)], [(1, 3), (3, 4)], [(4, 5), (1, 2)], [(-1, 0)], [(12, 14)]])
def test_spans_that_are_none(spans):
    with pytest.raises(UsageError, match="Invalid span"):
        chunk_placeholders(REAL_IDS, spans, 0, 3)
    with pytest.raises(UsageError, match="Invalid span"):
        redistribute_placeholders(IDS, spans, [1] * len(spans), FILLER)


@pytest.mark.parametrize("span", [(2, 3), (0, 1), (6, 6), (0, 13), (6, 5)])
def test_other_media_inside_a_frame(span):
    with pytest.raises(UsageError, match="Expected spans that stay apart"):
        move_offsets([span], SPANS, REAL_SPANS)


def test_spans_before_and_after_differ_in_number():
    with pytest.raises(UsageError, match="3 before, 2 after"):
        move_offsets([], SPANS, REAL_SPANS[:2])


def test_counts_and_spans_differ_in_number():
    with pytest.raises(UsageError, match="2 for 3 frames"):
        result_of(COUNTS).redistribute_pruned_frames_placeholders(IDS, SPANS[:2], filler_token_id=0)


@pytest.mark.parametrize(("places", "masks"), [([1, 1], [[True]]), ([1], [[True], [False]]), ([[1]], [[True]])])
def test_masks_that_do_not_fit_the_places(places, masks):
    with pytest.raises(UsageError, match="place for every token, kept or not"):
        kept_places(np.array(places), masks)


@pytest.mark.parametrize("counts", [[1, 2], [5, -1], []])
def test_result_whose_counts_are_not_its_rows(counts):
    with pytest.raises(UsageError, match=r"shape \(4, 3\)"):
        EVSEmbeddingResult(torch.zeros(4, 3), counts)
    with pytest.raises(UsageError, match=r"add up to the rows of \(K, D\)"):
        EVSEmbeddingResult(torch.zeros(1, 4, 3), [1])


def test_result_and_config_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        result_of(COUNTS).num_tokens_per_frame = [7]
    with pytest.raises(dataclasses.FrozenInstanceError):
        EVSConfig(0.5).video_pruning_rate = 0.7


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan"), None, "0.5", True])
def test_config_refuses_rates(rate):
    with pytest.raises(UsageError, match=r"Expected 0 <= q < 1"):
        EVSConfig(rate)


@pytest.mark.parametrize("merge", [0, -2, 1.5, None, True])
def test_config_refuses_merges(merge):
    with pytest.raises(UsageError, match="Invalid spatial_merge_size"):
        EVSConfig(0.5, merge)


def test_config_defaults():
    assert EVSConfig(0.7) == EVSConfig(video_pruning_rate=0.7, spatial_merge_size=1)
    assert (EVSConfig(0.0).enabled, EVSConfig(0.1).enabled) == (False, True)
