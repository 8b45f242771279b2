"""Which frames are sampled: fixed cases, and a slow second implementation of the rules in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.errors import UsageError
from evs_cli.video.sampling import EVS_DEFAULTS, SamplingDefaults, SamplingRequest, select_frames

NO_LIMITS = SamplingDefaults()


def constant(num_frames, fps):
    """Times and duration of a constant rate."""
    return np.arange(num_frames) / fps, num_frames / fps


def milliseconds(num_frames, fps):
    """The same as mkv stores it."""
    return np.round(np.arange(num_frames) * 1000 / fps) / 1000, round(num_frames * 1000 / fps) / 1000


def indices(times, request, defaults=NO_LIMITS):
    return select_frames(*times, request, defaults).frame_indices.tolist()


# --- the rule "fps" -------------------------------------------------------------------------------------------------


def test_frames_a_second():
    selection = select_frames(*constant(300, 30), SamplingRequest(fps=2), NO_LIMITS)
    assert selection.frame_indices.tolist() == list(range(0, 300, 15))
    assert selection.frame_indices.dtype == np.int64
    np.testing.assert_allclose(selection.pts_seconds, np.arange(20) / 2)
    assert (selection.rule, selection.requested_fps, selection.requested_num_frames) == ("fps", 2, None)
    assert (selection.start_seconds, selection.window_seconds) == (0, 10)
    assert not selection.max_frames_bound
    assert selection.notes == ()
    assert repr(selection) == "FrameSelection(20 frames of 10.000 s by fps)"


def test_a_frame_held_on_screen_is_sampled_again():
    pts = np.array([0.0, 0.1, 0.2, 3.0, 3.1])
    selection = select_frames(pts, 4.0, SamplingRequest(fps=1), NO_LIMITS)
    assert selection.frame_indices.tolist() == [0, 2, 2, 3]
    assert selection.pts_seconds.tolist() == [0.0, 0.2, 0.2, 3.0]


def test_a_sample_time_before_the_first_frame_takes_the_first():
    assert indices((np.array([0.4, 0.5, 5.0]), 6.0), SamplingRequest(fps=1, end_seconds=2)) == [0, 1]


def test_one_microsecond_of_tolerance_and_no_more():
    assert indices((np.array([0.0, 0.5 + 0.9e-6, 3.0]), 3.1), SamplingRequest(fps=2, end_seconds=1)) == [0, 1]
    assert indices((np.array([0.0, 0.5 + 1.1e-6, 3.0]), 3.1), SamplingRequest(fps=2, end_seconds=1)) == [0, 0]


def test_an_end_within_the_tolerance_adds_no_sample():
    pts = np.arange(300) / 30
    assert len(indices((pts, 10 + 0.9e-6), SamplingRequest(fps=2))) == 20
    assert len(indices((pts, 10 + 1.1e-6), SamplingRequest(fps=2))) == 21


@pytest.mark.parametrize("fps", [30, 30000 / 1001, 25, 24000 / 1001, 12.5, 59.94])
@pytest.mark.parametrize("num_frames", [1, 2, 3, 14, 300])
@pytest.mark.parametrize("times", [constant, milliseconds])
def test_the_rate_of_the_source_or_more_takes_every_frame_once(fps, num_frames, times):
    for asked in (fps, round(fps, 2), fps * 1.5, 1000):
        assert indices(times(num_frames, fps), SamplingRequest(fps=asked)) == list(range(num_frames))


def test_rounding_to_centiseconds_is_a_constant_rate_too():
    pts = np.floor(np.arange(90) * 100 / 30) / 100  # a gif of 30 fps
    assert indices((pts, 3.0), SamplingRequest(fps=30)) == list(range(90))


def test_a_dropped_frame_is_no_constant_rate():
    pts = np.delete(np.arange(20) / 10, 7)
    assert indices((pts, 2.0), SamplingRequest(fps=10)) == [0, 1, 2, 3, 4, 5, 6, 6, *range(7, 19)]


def test_asking_for_more_than_the_source_has_is_noted():
    selection = select_frames(*constant(20, 10), SamplingRequest(fps=30), NO_LIMITS)
    assert selection.notes == ("30 fps asked: the video has 10; every frame is taken once",)


# --- the rule "num_frames" ------------------------------------------------------------------------------------------


def test_number_of_frames_with_first_and_last():
    selection = select_frames(*constant(101, 10), SamplingRequest(num_frames=5), NO_LIMITS)
    assert selection.frame_indices.tolist() == [0, 25, 50, 75, 100]
    assert (selection.rule, selection.requested_fps, selection.requested_num_frames) == ("num_frames", None, 5)


def test_even_is_by_time_and_not_by_index():
    pts = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 4.0])
    assert indices((pts, 4.1), SamplingRequest(num_frames=3)) == [0, 4, 5]


@pytest.mark.parametrize("num_frames", [14, 15, 1000])
def test_no_more_frames_than_there_are(num_frames):
    selection = select_frames(*constant(14, 25), SamplingRequest(num_frames=num_frames), NO_LIMITS)
    assert selection.frame_indices.tolist() == list(range(14))
    expected = () if num_frames == 14 else (f"num_frames {num_frames} asked: the video has only 14 frames there",)
    assert selection.notes == expected


def test_one_frame_is_the_first():
    assert indices(constant(14, 25), SamplingRequest(num_frames=1)) == [0]


def test_rounded_times_neither_double_nor_drop_an_end():
    times = milliseconds(300, 30000 / 1001)
    for num_frames in range(2, 300):
        chosen = indices(times, SamplingRequest(num_frames=num_frames))
        assert len(set(chosen)) == len(chosen) == num_frames
        assert (chosen[0], chosen[-1]) == (0, 299)


# --- limits and defaults --------------------------------------------------------------------------------------------


def test_max_frames_spreads_evenly_and_says_so():
    selection = select_frames(*constant(1394, 10), SamplingRequest(), EVS_DEFAULTS)
    assert selection.max_frames_bound
    assert selection.notes == ("max_frames 128 bound: 2 fps of 139.4 s would be 279 frames",)
    assert len(selection.frame_indices) == 128
    assert (selection.frame_indices[0], selection.frame_indices[-1]) == (0, 1393)
    assert set(np.diff(selection.frame_indices)) <= {10, 11}
    assert selection.rule == "fps"


def test_the_limit_bounds_an_explicit_fps_but_not_an_explicit_number():
    times = constant(1000, 10)
    defaults = SamplingDefaults(fps=1, max_frames=16)
    assert len(indices(times, SamplingRequest(fps=5), defaults)) == 16
    assert len(indices(times, SamplingRequest(fps=5, max_frames=300), defaults)) == 300
    assert len(indices(times, SamplingRequest(fps=5, max_frames=500), defaults)) == 500
    assert len(indices(times, SamplingRequest(num_frames=64), defaults)) == 64
    selection = select_frames(*times, SamplingRequest(num_frames=64, max_frames=32), defaults)
    assert len(selection.frame_indices) == 32
    assert selection.max_frames_bound
    assert selection.notes == ("max_frames 32 bound: num_frames 64 asked",)


def test_a_limit_that_does_not_bind_is_not_noted():
    selection = select_frames(*constant(300, 30), SamplingRequest(fps=2, max_frames=20), NO_LIMITS)
    assert len(selection.frame_indices) == 20
    assert not selection.max_frames_bound
    assert selection.notes == ()
    few = select_frames(*constant(10, 30), SamplingRequest(num_frames=64, max_frames=32), NO_LIMITS)
    assert not few.max_frames_bound


def test_what_is_not_asked_is_the_defaults():
    times = constant(1000, 10)
    assert len(indices(times, SamplingRequest(), SamplingDefaults(num_frames=8))) == 8
    assert len(indices(times, SamplingRequest(), SamplingDefaults(fps=1, num_frames=8))) == 100
    assert len(indices(times, SamplingRequest(max_frames=4), SamplingDefaults(num_frames=8))) == 4
    assert len(indices(times, SamplingRequest(), NO_LIMITS)) == 200  # 2 fps where nobody says


def test_min_frames_holds_where_there_are_as_many():
    defaults = SamplingDefaults(fps=2, min_frames=4, max_frames=768)
    selection = select_frames(*constant(25, 25), SamplingRequest(), defaults)
    assert selection.frame_indices.tolist() == [0, 8, 16, 24]
    assert selection.notes == ("min_frames 4 bound: 2 fps of 1.0 s would be 2 frames",)
    assert indices(constant(3, 25), SamplingRequest(), defaults) == [0, 1, 2]
    assert len(indices(constant(25, 25), SamplingRequest(max_frames=2), defaults)) == 2
    assert len(indices(constant(25, 25), SamplingRequest(num_frames=1), defaults)) == 1


# --- the window -----------------------------------------------------------------------------------------------------


def test_the_window_is_closed_at_its_start_and_open_at_its_end():
    request = SamplingRequest(fps=1, start_seconds=2, end_seconds=5)
    selection = select_frames(*constant(100, 10), request, NO_LIMITS)
    assert selection.frame_indices.tolist() == [20, 30, 40]
    assert (selection.start_seconds, selection.window_seconds) == (2, 3)
    assert indices(constant(100, 10), SamplingRequest(num_frames=3, start_seconds=2, end_seconds=5)) == [20, 34, 49]
    assert indices(constant(100, 10), SamplingRequest(fps=10, start_seconds=2, end_seconds=2.3)) == [20, 21, 22]


@pytest.mark.parametrize("request_", [{"fps": 2}, {"num_frames": 8}])
def test_a_window_between_two_frames_takes_the_one_on_screen(request_):
    times = (np.array([0.0, 1.0, 5.0]), 6.0)
    assert set(indices(times, SamplingRequest(start_seconds=2, end_seconds=2.4, **request_))) == {1}


def test_an_end_past_the_video_is_its_end_and_noted():
    selection = select_frames(*constant(100, 10), SamplingRequest(fps=1, end_seconds=12), NO_LIMITS)
    assert len(selection.frame_indices) == 10
    assert selection.window_seconds == 10
    assert selection.notes == ("end 12 s is past the end of the video, 10.000 s",)


@pytest.mark.parametrize("start", [10.0, 10.5, 1e9])
def test_a_start_past_the_video_is_refused(start):
    with pytest.raises(UsageError, match=r"Invalid start_seconds \(.*\)\. Expected less than the video's 10\.000 s"):
        select_frames(*constant(100, 10), SamplingRequest(start_seconds=start), NO_LIMITS)


def test_a_video_of_no_known_length_still_gives_its_frame():
    assert indices((np.array([0.0]), 0.0), SamplingRequest(fps=2)) == [0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fps": 2, "num_frames": 8}, r"fps \(2\) and num_frames \(8\) exclude each other"),
        ({"fps": 0}, r"Invalid fps \(0\)\. Expected 0 < fps <= 1000"),
        ({"fps": -1}, r"Invalid fps \(-1\)"),
        ({"fps": math.nan}, r"Invalid fps \(nan\)"),
        ({"fps": math.inf}, r"Invalid fps \(inf\)"),
        ({"fps": 1001}, r"Invalid fps \(1001\)"),
        ({"num_frames": 0}, r"Invalid num_frames \(0\)\. Expected num_frames >= 1"),
        ({"max_frames": 0}, r"Invalid max_frames \(0\)\. Expected max_frames >= 1"),
        ({"start_seconds": -0.1}, r"Invalid start_seconds \(-0\.1\)\. Expected 0 <= start_seconds"),
        ({"start_seconds": math.nan}, r"Invalid start_seconds \(nan\)"),
        ({"end_seconds": math.inf}, r"Invalid end_seconds \(inf\)"),
        ({"start_seconds": 3, "end_seconds": 3}, r"Invalid end_seconds \(3\)\. Expected more than the start \(3 s\)"),
        ({"end_seconds": 0}, r"Invalid end_seconds \(0\)"),
    ],
)
def test_requests_out_of_range(values, message):
    with pytest.raises(UsageError, match=message):
        SamplingRequest(**values)


# --- properties -----------------------------------------------------------------------------------------------------

RATES = st.sampled_from([0.5, 1, 2, 3, 7, 10, 12.5, 24, 29.97])
MILLISECONDS = st.integers(1, 400)


@st.composite
def varying_rates(draw):
    """Times in milliseconds with one gap that no constant rate has, and a duration."""
    gaps = draw(st.lists(MILLISECONDS, min_size=3, max_size=30))
    gaps[draw(st.integers(0, len(gaps) - 1))] = sum(gaps) + 500
    ticks = [0]
    for gap in gaps:
        ticks.append(ticks[-1] + gap)
    return ticks, ticks[-1] + draw(MILLISECONDS)


@st.composite
def windows(draw, duration):
    start = draw(st.integers(0, duration - 1))
    return start, draw(st.integers(start + 1, duration + 100))


def oracle_by_fps(ticks, start, end, fps):
    """Walk the sample times one by one in exact arithmetic (milliseconds), with the tolerance of a microsecond."""
    tolerance = Fraction(1, 1000)
    chosen, k = [], 0
    while True:
        time = start + Fraction(k) * 1000 / Fraction(fps)
        if k > 0 and time >= end - tolerance:
            return chosen
        begun = [i for i, tick in enumerate(ticks) if tick <= time + tolerance]
        chosen.append(begun[-1] if begun else 0)
        k += 1


@given(st.data(), varying_rates(), RATES)
@settings(max_examples=150, deadline=None)
def test_by_fps_equals_the_oracle(data, video, fps):
    ticks, duration = video
    start, end = data.draw(windows(duration))
    request = SamplingRequest(fps=fps, start_seconds=start / 1000, end_seconds=end / 1000)
    selection = select_frames(np.array(ticks) / 1000, duration / 1000, request, NO_LIMITS)
    assert selection.frame_indices.tolist() == oracle_by_fps(ticks, start, min(end, duration), fps)


@given(st.data(), varying_rates(), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_by_number_equals_the_oracle(data, video, num_frames):
    ticks, duration = video
    start, end = data.draw(windows(duration))
    request = SamplingRequest(num_frames=num_frames, start_seconds=start / 1000, end_seconds=end / 1000)
    selection = select_frames(np.array(ticks) / 1000, duration / 1000, request, NO_LIMITS)

    shown = [i for i, tick in enumerate(ticks) if tick < end and [*ticks[1:], duration][i] > start]
    if len(shown) <= num_frames:
        expected = shown
    elif num_frames == 1:
        expected = shown[:1]
    else:
        span = ticks[shown[-1]] - ticks[shown[0]]
        times = [ticks[shown[0]] + Fraction(span * k, num_frames - 1) for k in range(num_frames)]
        expected = [max(i for i in shown if ticks[i] <= time + Fraction(1, 1000)) for time in times]
    assert selection.frame_indices.tolist() == expected


@given(
    st.integers(1, 400),
    st.sampled_from([10, 12.5, 24000 / 1001, 25, 30000 / 1001, 30, 60]),
    st.sampled_from([constant, milliseconds]),
    st.floats(0.05, 0.9),
)
@settings(max_examples=100, deadline=None)
def test_below_the_rate_of_a_constant_source_each_sample_is_the_frame_on_screen(num_frames, rate, times, share):
    pts, duration = times(num_frames, rate)
    fps = rate * share
    chosen = select_frames(pts, duration, SamplingRequest(fps=fps), NO_LIMITS).frame_indices
    assert (np.diff(chosen) >= 1).all()
    for k, index in enumerate(chosen):
        assert pts[index] <= k / fps + 1e-6
        assert index + 1 == num_frames or pts[index + 1] > k / fps + 1e-6
    assert len(chosen) / fps >= duration - 2e-6 - 1 / rate


@given(st.data(), varying_rates(), st.one_of(st.none(), RATES), st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_what_holds_for_every_selection(data, video, fps, max_frames, min_frames):
    ticks, duration = video
    start, end = data.draw(windows(duration))
    request = SamplingRequest(fps=fps, max_frames=max_frames, start_seconds=start / 1000, end_seconds=end / 1000)
    defaults = SamplingDefaults(num_frames=6, min_frames=min_frames)
    pts = np.array(ticks) / 1000
    selection = select_frames(pts, duration / 1000, request, defaults)
    chosen = selection.frame_indices
    assert 1 <= len(chosen) <= max_frames
    assert (np.diff(chosen) >= 0).all()
    assert (selection.pts_seconds == pts[chosen]).all()
    assert selection.pts_seconds[-1] < end / 1000
    assert selection.max_frames_bound == any("max_frames" in note for note in selection.notes)
