"""The comparison of planned and served ids, kind by kind, over drawn prompts in which one kind is changed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.servers.comparison import (
    CheckReport,
    CheckSubject,
    PlannedPrompt,
    compare_context,
    compare_count,
    compare_ids,
    first_divergence,
    frame_parts,
    split_prompts,
)

PAD, START, END = 90, 91, 92
TEXT = st.lists(st.integers(1, 20), min_size=1, max_size=6)  # a chat has text on both sides
TIMES = st.lists(st.integers(30, 39), min_size=1, max_size=4)


def decode(ids):
    return " ".join({PAD: "pad", START: "start", END: "end"}.get(token, str(token)) for token in ids)


def prompt(before, times, counts, behind, *, outer=True):
    """A prompt as Qwen3-VL's: in front of every frame its time, around all of them markers where ``outer``."""
    video = [START] if outer else []
    for time, count in zip(times, counts, strict=True):
        video += [*time, START, *[PAD] * count, END]
    video += [END] if outer else []
    ids = (*before, *video, *behind)
    return PlannedPrompt(ids, len(before), len(behind), PAD, START, END, max(counts), tells_frames=True)


@st.composite
def prompts(draw):
    """What ``prompt`` is made from, every frame as large as the others."""
    num_frames = draw(st.integers(1, 5))
    times = draw(st.lists(TIMES, min_size=num_frames, max_size=num_frames))
    return {
        "before": draw(TEXT),
        "times": times,
        "counts": [draw(st.integers(1, 5))] * num_frames,
        "behind": draw(TEXT),
        "outer": draw(st.booleans()),
    }


def differing(planned, ids):
    return {comparison.kind for comparison in compare_ids(planned, ids, decode) if comparison.differs}


@settings(max_examples=200, deadline=None)
@given(prompts())
def test_equal_prompts_differ_in_nothing(parts):
    planned = prompt(**parts)
    comparisons = compare_ids(planned, planned.input_ids, decode)
    assert not any(comparison.differs or comparison.detail for comparison in comparisons)
    kinds = {comparison.kind: comparison.planned for comparison in comparisons}
    assert kinds["prompt tokens"] == sum(
        kinds[kind] for kind in kinds if kind not in ("prompt tokens", "frames of tokens")
    )
    assert kinds["frames of tokens"] == len(parts["times"])
    assert kinds["video tokens"] == sum(parts["counts"])
    assert (kinds["text before"], kinds["text behind"]) == (len(parts["before"]), len(parts["behind"]))
    assert first_divergence(planned, planned.input_ids, decode) is None


@settings(max_examples=200, deadline=None)
@given(prompts(), st.sampled_from(["before", "behind"]), st.lists(st.integers(50, 59), min_size=1, max_size=5))
def test_another_text_is_a_text(parts, side, text):
    planned = prompt(**parts)
    served = prompt(**{**parts, side: [*parts[side], *text] if side == "behind" else [*text, *parts[side]]})
    found = differing(planned, served.input_ids)
    assert found - {"prompt tokens"} == {f"text {side}"}
    detail = next(c.detail for c in compare_ids(planned, served.input_ids, decode) if c.kind == f"text {side}")
    assert detail == f"{decode(text)!r} instead of nothing"


@settings(max_examples=200, deadline=None)
@given(prompts(), st.data())
def test_another_time_is_a_separator(parts, data):
    place = data.draw(st.integers(0, len(parts["times"]) - 1))
    time = data.draw(st.lists(st.integers(40, 49), min_size=1, max_size=4))
    served = prompt(**{**parts, "times": [*parts["times"][:place], time, *parts["times"][place + 1 :]]})
    planned = prompt(**parts)
    assert differing(planned, served.input_ids) - {"prompt tokens"} == {"separators"}
    (separators,) = [c for c in compare_ids(planned, served.input_ids, decode) if c.kind == "separators"]
    assert separators.detail.startswith(f"frame {place + 1}: ")
    assert decode(time) in separators.detail
    assert separators.served - separators.planned == len(time) - len(parts["times"][place])
    parting = first_divergence(planned, served.input_ids, decode)
    assert planned.input_ids[: parting.position] == served.input_ids[: parting.position]
    assert planned.input_ids[parting.position] != served.input_ids[parting.position]


@settings(max_examples=200, deadline=None)
@given(prompts(), st.integers(1, 4), TIMES)
def test_more_frames_are_frames_tokens_and_separators(parts, more, time):
    served = prompt(
        **{
            **parts,
            "times": [*parts["times"], *[time] * more],
            "counts": [*parts["counts"], *parts["counts"][:1] * more],
        }
    )
    planned = prompt(**parts)
    assert differing(planned, served.input_ids) == {"prompt tokens", "frames of tokens", "video tokens", "separators"}
    frames = next(c for c in compare_ids(planned, served.input_ids, decode) if c.kind == "frames of tokens")
    assert (frames.served - frames.planned, frames.detail) == (more, f"+{more}")


def test_frames_of_another_size():
    parts = {"before": [1], "times": [[30], [31]], "behind": [2]}
    planned, served = prompt(counts=[4, 4], **parts), prompt(counts=[6, 6], **parts)
    assert differing(planned, served.input_ids) == {"prompt tokens", "video tokens"}
    (tokens,) = [c for c in compare_ids(planned, served.input_ids, decode) if c.kind == "video tokens"]
    assert (tokens.planned, tokens.served, tokens.detail) == (8, 12, "+4: 6 a frame instead of 4")
    pruned = prompt(counts=[5, 0], **parts)  # all of what is kept under the first frame is no size of frames
    (tokens,) = [c for c in compare_ids(planned, pruned.input_ids, decode) if c.kind == "video tokens"]
    assert tokens.detail == "-3"


def test_the_same_number_in_other_frames_differs():
    parts = {"before": [1], "times": [[30], [31]], "behind": [2]}
    planned, served = prompt(counts=[4, 4], **parts), prompt(counts=[8, 0], **parts)
    assert differing(planned, served.input_ids) == {"video tokens"}
    (tokens,) = [c for c in compare_ids(planned, served.input_ids, decode) if c.kind == "video tokens"]
    assert tokens.detail == "the same in all, but frame 1 holds 8 instead of 4"


def test_one_span_tells_no_frames_but_how_many_they_would_be():
    def span(count):
        ids = (1, 2, START, *[PAD] * count, END, 3)
        return PlannedPrompt(ids, 2, 1, PAD, START, END, 6, tells_frames=False)

    comparisons = {c.kind: c for c in compare_ids(span(30), span(42).input_ids, decode)}
    assert "frames of tokens" not in comparisons
    assert comparisons["video tokens"].detail == "+12: 2 frames of 6"
    assert comparisons["separators"].planned == comparisons["separators"].served == 2
    assert {c.kind: c for c in compare_ids(span(30), span(29).input_ids, decode)}["video tokens"].detail == "-1"
    assert compare_ids(span(30), span(24).input_ids, decode)[2].detail == "-6: 1 frame of 6"


def test_a_server_that_leaves_the_video_out():
    planned = prompt([1, 2], [[30]], [4], [3])
    assert differing(planned, [1, 2, 3]) == {"prompt tokens", "frames of tokens", "video tokens", "separators"}
    assert differing(planned, []) > {"text before", "text behind", "video tokens"}


def test_a_time_in_front_of_the_first_marker_is_the_videos_where_the_text_is_known():
    """Nemotron's frames begin with a text: it is told apart from the prompt's by the plan alone."""
    planned = prompt([1, 2], [[30], [31]], [2, 2], [3], outer=False)
    served = prompt([1, 2], [[33], [31]], [2, 2], [3], outer=False)
    assert differing(planned, served.input_ids) == {"separators"}
    mine, theirs = split_prompts(planned, served.input_ids)
    assert (mine.before, theirs.before) == ((1, 2), (1, 2))
    other = prompt([1, 9], [[30], [31]], [2, 2], [3], outer=False)
    assert differing(planned, other.input_ids) == {"text before"}


def test_parts_put_together_are_the_whole():
    planned = prompt([1, 2], [[30], [31]], [2, 2], [3])
    for ids in ((), (7,), (1, 2, 3), (PAD,), (END, START), (1, 2, START, PAD, 3), planned.input_ids, (3, 1, 2)):
        mine, theirs = split_prompts(planned, ids)
        assert (*theirs.before, *theirs.video, *theirs.behind) == tuple(ids)
        assert (*mine.before, *mine.video, *mine.behind) == planned.input_ids
        parts = frame_parts(theirs.video, planned)
        assert sum(len(part.separator_ids) + part.video_tokens for part in parts) == len(theirs.video)


def test_where_they_part_runs_are_counted_and_not_written_out():
    parts = {"before": [1], "times": [[30], [31]], "behind": [2]}
    planned, served = prompt(counts=[40, 40], **parts), prompt(counts=[90, 0], **parts)
    parting = first_divergence(planned, served.input_ids, decode)
    assert parting.position == 1 + 3 + 40
    assert parting.planned == "pad x 40 'end 31 start' pad x 40"
    assert parting.served == "pad x 90"
    shorter = first_divergence(planned, planned.input_ids[:-1], decode)
    assert shorter.position == len(planned.input_ids) - 1
    assert first_divergence(planned, [], decode).served == "the end"


def test_a_number_alone():
    planned = prompt([1, 2], [[30]], [4], [3])
    assert compare_count(planned, len(planned.input_ids))[0].differs is False
    (whole,) = compare_count(planned, len(planned.input_ids) - 3)
    assert (whole.kind, whole.differs, whole.detail) == ("prompt tokens", True, "-3")


@pytest.mark.parametrize(
    ("planned", "served", "is_asked", "expected"),
    [
        (4096, None, True, None),
        (4096, 4096, True, (False, "")),
        (4096, 2048, True, (True, "")),
        (4096, 2048, False, (False, "the plan's is the model's own")),
        (None, 2048, False, (False, "")),
    ],
)
def test_the_longest_sequence(planned, served, is_asked, expected):
    rows = compare_context(planned, served, is_asked=is_asked)
    assert [(row.differs, row.detail) for row in rows] == ([] if expected is None else [expected])


def test_a_report_differs_where_a_row_does():
    planned = prompt([1], [[30]], [4], [3])
    asked = CheckSubject("a.mp4", "m", "hf", 0.0, "http://h", "usage", "m", None, None, False)
    equal = CheckReport(asked, compare_count(planned, len(planned.input_ids)), None, (), ())
    assert not equal.differs
    assert CheckReport(asked, compare_count(planned, 1), None, (), ()).differs
