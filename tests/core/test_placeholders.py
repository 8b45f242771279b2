"""Placeholders: SGLang's worked example, then drawn layouts against a walk over the ids one by one."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.core.placeholders import SequenceLayout, replace_offsets_with_tokens_per_frame, run_lengths
from evs_cli.errors import UsageError

PROFILE = settings(max_examples=300, deadline=None, derandomize=True)
VIDEO = 151656  # the placeholder's id; text ids below are small, so they cannot be taken for it


class Drawn(NamedTuple):
    """A layout drawn for a test, as Python lists."""

    ids: list
    tokens: list
    extras: list
    num_frames: int
    mask: list

    def layout(self):
        return SequenceLayout(
            input_ids=np.array(self.ids, dtype=np.int64),
            token_positions=np.array(self.tokens, dtype=np.int64),
            extra_positions=np.array(self.extras, dtype=np.int64),
            num_frames=self.num_frames,
            placeholder_token_id=VIDEO,
        )

    def frames(self):
        """Token positions of each frame."""
        per_frame = len(self.tokens) // self.num_frames
        return [self.tokens[i : i + per_frame] for i in range(0, len(self.tokens), per_frame)]

    def frame_masks(self):
        per_frame = len(self.tokens) // self.num_frames
        return [self.mask[i : i + per_frame] for i in range(0, len(self.tokens), per_frame)]


TEXT = st.lists(st.integers(0, 9), max_size=4)


@st.composite
def layouts(draw, kinds=("one span", "separators", "extra rows")):
    """A prompt, T frames of tokens, a prompt; between frames nothing, text, or text and extra rows.

    Masks keep frame 0 whole, as every mask does, and any number of later tokens, often none in a frame (T > K).
    """
    kind = draw(st.sampled_from(kinds))
    num_frames, per_frame = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    ids, tokens, extras = list(draw(TEXT)), [], []
    for frame in range(num_frames):
        if kind != "one span" and (frame or draw(st.booleans())):
            ids += draw(TEXT)
        tokens += range(len(ids), len(ids) + per_frame)
        ids += [VIDEO] * per_frame
        if kind == "extra rows":
            rows = draw(st.integers(0, 2))
            extras += range(len(ids), len(ids) + rows)
            ids += [VIDEO] * rows
    ids += draw(TEXT)
    rate = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    random = draw(st.randoms(use_true_random=False))
    later = [random.random() < rate for _ in range((num_frames - 1) * per_frame)]
    return Drawn(ids, tokens, extras, num_frames, [True] * per_frame + later)


# SequenceLayout.prune


@PROFILE
@given(drawn=layouts())
def test_prune_equals_the_walk_over_single_tokens(drawn):
    pruned = drawn.layout().prune(drawn.mask)
    ids, kept, spans, extras = oracle.rebuild(*drawn)
    assert pruned.input_ids.tolist() == ids
    assert pruned.kept_positions.tolist() == kept
    assert pruned.frame_offsets.tolist() == spans
    assert pruned.extra_positions.tolist() == extras
    for array in (pruned.input_ids, pruned.kept_positions, pruned.frame_offsets, pruned.extra_positions):
        assert array.dtype == np.int64


@PROFILE
@given(drawn=layouts())
def test_what_prune_promises_about_each_frame(drawn):
    layout = drawn.layout()
    pruned = layout.prune(drawn.mask)
    assert len(pruned.input_ids) == layout.sequence_length - drawn.mask.count(False)
    assert np.array_equal(layout.input_ids[pruned.kept_positions], pruned.input_ids)
    for (start, end), positions, mask in zip(
        pruned.frame_offsets.tolist(), drawn.frames(), drawn.frame_masks(), strict=True
    ):
        wanted = [position for position, kept in zip(positions, mask, strict=True) if kept]
        assert end - start + 1 == len(wanted)
        assert pruned.kept_positions[start : end + 1].tolist() == wanted
        # What came before the frame still comes before it, empty or not.
        assert (pruned.kept_positions[:start] < positions[0]).all()
        assert (pruned.kept_positions[end + 1 :] > positions[-1]).all()
    assert (pruned.input_ids[pruned.extra_positions] == VIDEO).all()
    assert (pruned.input_ids == VIDEO).sum() == sum(drawn.mask) + len(drawn.extras)
    separators = [token_id for token_id in drawn.ids if token_id != VIDEO]
    assert pruned.input_ids[pruned.input_ids != VIDEO].tolist() == separators


@PROFILE
@given(drawn=layouts())
def test_q_0_gives_the_very_same_ids(drawn):
    layout = drawn.layout()
    pruned = layout.prune(np.ones(len(drawn.tokens), dtype=bool))
    assert pruned.input_ids.tolist() == drawn.ids
    assert pruned.kept_positions.tolist() == list(range(len(drawn.ids)))
    assert pruned.frame_offsets.tolist() == [[frame[0], frame[-1]] for frame in drawn.frames()]
    assert pruned.extra_positions.tolist() == drawn.extras


@PROFILE
@given(drawn=layouts())
def test_replacing_spans_agrees_with_prune(drawn):
    spans = [(frame[0], frame[-1]) for frame in drawn.frames()]
    counts = [sum(mask) for mask in drawn.frame_masks()]
    ids = replace_offsets_with_tokens_per_frame(drawn.ids, counts, spans, VIDEO)
    assert ids == drawn.layout().prune(drawn.mask).input_ids.tolist()


@PROFILE
@given(drawn=layouts(kinds=("one span",)))
def test_a_single_span_takes_the_sum_of_all_frames(drawn):
    counts = [sum(mask) for mask in drawn.frame_masks()]
    ids = replace_offsets_with_tokens_per_frame(drawn.ids, counts, [(drawn.tokens[0], drawn.tokens[-1])], VIDEO)
    assert ids == drawn.layout().prune(drawn.mask).input_ids.tolist()


def test_an_empty_frame_keeps_its_separators_by_hand():
    # <text 1> frame 0 <2 3> frame 1 <4> frame 2 <5>, two tokens a frame; frame 1 keeps none.
    ids = [1, VIDEO, VIDEO, 2, 3, VIDEO, VIDEO, 4, VIDEO, VIDEO, 5]
    layout = Drawn(ids, [1, 2, 5, 6, 8, 9], [], 3, []).layout()
    pruned = layout.prune([1, 1, 0, 0, 0, 1])
    assert pruned.input_ids.tolist() == [1, VIDEO, VIDEO, 2, 3, 4, VIDEO, 5]
    assert pruned.frame_offsets.tolist() == [[1, 2], [5, 4], [6, 6]]
    assert pruned.kept_positions.tolist() == [0, 1, 2, 3, 4, 7, 9, 10]


@pytest.mark.parametrize("convert", [np.array, torch.tensor, list])
def test_masks_of_any_shape_and_kind(convert):
    layout = Drawn([VIDEO] * 8, list(range(8)), [], 2, []).layout()
    mask = [[[True, True], [True, True]], [[False, True], [False, False]]]
    assert layout.prune(convert(mask)).kept_positions.tolist() == [0, 1, 2, 3, 5]


def test_prune_leaves_the_layout_alone():
    layout = Drawn([7, VIDEO, VIDEO, 8], [1, 2], [], 2, []).layout()
    pruned = layout.prune([True, True])
    pruned.input_ids[:] = 0
    pruned.extra_positions[:] = 0
    assert layout.input_ids.tolist() == [7, VIDEO, VIDEO, 8]


@pytest.mark.parametrize("entries", [0, 1, 3, 5])
def test_masks_of_another_length_are_refused(entries):
    layout = Drawn([VIDEO] * 4, list(range(4)), [], 2, []).layout()
    with pytest.raises(UsageError, match=rf"Invalid retention mask: {entries} entries.* 4 video tokens") as error:
        layout.prune([True] * entries)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("tokens", "num_frames", "message"),
    [
        ([], 1, r"0 video tokens in 1 frames"),
        ([0, 1, 2], 2, r"3 video tokens in 2 frames"),
        ([0, 1], 0, r"2 video tokens in 0 frames"),
        ([0, 1], -1, r"2 video tokens in -1 frames"),
        ([0, 6], 1, r"from 0 to 6 in a sequence of 6"),
        ([-1, 2], 1, r"from -1 to 2"),
        ([2, 1], 1, r"strictly ascending"),
        ([1, 1], 1, r"strictly ascending"),
        ([0, 3, 2, 5], 2, r"strictly ascending"),
    ],
)
def test_layouts_that_cannot_be_are_refused(tokens, num_frames, message):
    with pytest.raises(UsageError, match=message):
        Drawn([VIDEO] * 6, tokens, [], num_frames, []).layout()


@pytest.mark.parametrize("extras", [[6], [-1], [1]], ids=["past the end", "before the start", "on a video token"])
def test_extra_rows_that_cannot_be_are_refused(extras):
    with pytest.raises(UsageError, match="Invalid layout"):
        Drawn([VIDEO] * 6, [0, 1], extras, 1, []).layout()


def test_frames_that_are_not_one_run_are_refused():
    # frame_offsets is (start, start + count - 1), which holds only when nothing stands between a frame's tokens.
    with pytest.raises(UsageError, match="Invalid layout"):
        Drawn([VIDEO, 5, VIDEO, VIDEO], [0, 2], [], 1, []).layout()


# replace_offsets_with_tokens_per_frame

EXAMPLE = [1, 0, 0, 4, 5, 0, 0, 0, 9, 10, 0, 0, 12, 13]


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor])
def test_the_worked_example_of_sglang(convert):
    ids = replace_offsets_with_tokens_per_frame(
        convert(EXAMPLE), convert([1, 4, 2]), convert([(1, 2), (5, 7), (10, 11)]), 0
    )
    assert ids == [1, 0, 4, 5, 0, 0, 0, 0, 9, 10, 0, 0, 12, 13]
    assert all(type(token_id) is int for token_id in ids)


@pytest.mark.parametrize(
    ("ids", "counts", "spans", "expected"),
    [
        ([1, 0, 0, 4], [1], [(1, 2)], [1, 0, 4]),
        ([1, 0, 0, 4], [1, 0, 2], [(1, 2)], [1, 0, 0, 0, 4]),  # one span, three frames: the sum
        ([1, 0, 0, 4], [0, 0], [(1, 2)], [1, 4]),
        ([1, 0, 0, 4], [0], [(1, 2)], [1, 4]),
        ([1, 2], [3, 1], [(1, 0), (2, 1)], [1, 0, 0, 0, 2, 0]),  # empty spans, at the end too
        ([1, 2], [2, 1], [(0, -1), (1, 0)], [0, 0, 1, 0, 2]),
        ([1, 2], [1, 2], [(1, 0), (1, 0)], [1, 0, 0, 0, 2]),  # two empty spans at one place
        ([0, 0, 0, 0], [1, 2], [(0, 1), (2, 3)], [0, 0, 0]),  # spans that touch
        ([1, 0, 2, 0], [0, 1], [(1, 1), (3, 3)], [1, 2, 0]),
        ([], [2], [(0, -1)], [0, 0]),
        ([1, 2], [], [], [1, 2]),
    ],
)
def test_spans_by_hand(ids, counts, spans, expected):
    assert replace_offsets_with_tokens_per_frame(ids, counts, spans, 0) == expected


def test_the_filler_is_written_and_the_input_left_alone():
    ids = np.array([1, 5, 5, 4])
    assert replace_offsets_with_tokens_per_frame(ids, [3], [(1, 2)], 9) == [1, 9, 9, 9, 4]
    assert ids.tolist() == [1, 5, 5, 4]


@pytest.mark.parametrize(
    ("counts", "spans", "message"),
    [
        ([1, 1], [(1, 3), (3, 5)], r"Invalid span \(3, 5\).*stay apart.*the last one ended at 3"),
        ([1, 1], [(1, 3), (2, 2)], r"Invalid span \(2, 2\)"),
        ([1, 1], [(4, 5), (1, 2)], r"Invalid span \(1, 2\).*ascend"),
        ([1, 1], [(1, 3), (3, 2)], r"Invalid span \(3, 2\)"),  # an empty span inside another
        ([1], [(-1, 2)], r"Invalid span \(-1, 2\)"),
        ([1], [(4, 6)], r"Invalid span \(4, 6\) in a sequence of 6"),
        ([1], [(7, 6)], r"Invalid span \(7, 6\)"),  # an empty span past the end
        ([1], [(3, 1)], r"Invalid span \(3, 1\)"),
        ([1, 1], [(0, 1), (2, 3), (4, 5)], r"Invalid spans: 3 for 2 frames"),
        ([1, 1, 1], [(0, 1), (2, 3)], r"Invalid spans: 2 for 3 frames"),
        ([1], [], r"Invalid spans: 0 for 1 frames"),
        ([1, -1], [(0, 1), (2, 3)], r"Invalid num_tokens_per_frame \[1, -1\]"),
        ([-1], [(0, 1)], r"Invalid num_tokens_per_frame \[-1\]"),
    ],
)
def test_spans_that_cannot_be_are_refused(counts, spans, message):
    with pytest.raises(UsageError, match=message) as error:
        replace_offsets_with_tokens_per_frame([0] * 6, counts, spans, 0)
    assert error.value.exit_code == 2


def test_a_negative_count_is_refused_in_a_single_span_too():
    with pytest.raises(UsageError, match="Invalid num_tokens_per_frame"):
        replace_offsets_with_tokens_per_frame([1, 0, 0, 4], [5, -3], [(1, 2)], 0)


# run_lengths


@PROFILE
@given(ids=st.lists(st.sampled_from([0, 1, VIDEO, -1]), max_size=30))
def test_run_lengths_round_trip(ids):
    runs = run_lengths(ids)
    assert [token_id for token_id, length in runs for _ in range(length)] == ids
    assert all(length >= 1 for _, length in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))


def test_run_lengths_by_hand():
    assert run_lengths([]) == []
    assert run_lengths(np.array([], dtype=np.int64)) == []
    assert run_lengths([7, 7, 7]) == [(7, 3)]
    assert run_lengths(np.array([1, 0, 0, 4])) == [(1, 1), (0, 2), (4, 1)]
    assert run_lengths(EXAMPLE)[:3] == [(1, 1), (0, 2), (4, 1)]
