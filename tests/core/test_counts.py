"""Counts: the tables first, then the float rule on drawn grids, then what is refused."""

import math

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.core.counts import (
    check_grid,
    check_pruning_rate,
    compute_retained_tokens_count,
    exact_retained_tokens_count,
    tokens_per_frame,
)
from evs_cli.errors import UsageError

PROFILE = settings(max_examples=200, deadline=None, derandomize=True)
GRIDS = {"per_frame": st.integers(1, 4000), "num_frames": st.integers(1, 2000)}

# (q, tokens per frame, T, the peers' K, the exact count)
TABLE = [
    (0.0, 256, 32, 8192, 8192),
    (0.3, 256, 32, 5734, 5734),
    (0.5, 256, 32, 4096, 4096),
    (0.7, 256, 32, 2457, 2457),
    (0.8, 4, 10, 7, 8),
    (0.3, 9, 10, 62, 63),
    (0.8, 256, 10, 511, 512),
    (0.9, 256, 30, 767, 768),
    (0.7, 256, 1, 256, 256),
    (0.7, 256, 2, 256, 256),
    (0.7, 256, 3, 256, 256),
    (0.7, 256, 128, 9830, 9830),
]
BAD_RATES = [1, 1.0, 1.2, -0.1, -1e-300, math.nan, math.inf, -math.inf, True, False, "0.5", None, 0.5j, [0.5]]
BAD_GRIDS = [(0, 4), (4, 0), (-1, 4), (4, -1), (0, 0)]  # (tokens per frame, T)


@pytest.mark.parametrize(("q", "per_frame", "num_frames", "peers", "exact"), TABLE)
def test_the_published_tables(q, per_frame, num_frames, peers, exact):
    assert compute_retained_tokens_count(per_frame, num_frames, q) == peers
    assert exact_retained_tokens_count(per_frame, num_frames, q) == exact


@PROFILE
@given(**GRIDS, q=st.floats(0, 1, exclude_max=True))
def test_count_is_the_float_rule_and_lies_between_one_frame_and_all(per_frame, num_frames, q):
    count = compute_retained_tokens_count(per_frame, num_frames, q)
    assert count == oracle.retained_tokens(per_frame, num_frames, q)
    assert type(count) is int
    assert per_frame <= count <= per_frame * num_frames


@PROFILE
@given(**GRIDS, thousandths=st.integers(0, 999))
def test_exact_count_is_integer_arithmetic_on_the_decimal_rate(per_frame, num_frames, thousandths):
    q = thousandths / 1000
    exact = exact_retained_tokens_count(per_frame, num_frames, q)
    assert exact == max(per_frame, per_frame * num_frames * (1000 - thousandths) // 1000)
    # The product is below 2**23 and each of the two roundings is within 2**-53 of it: the floor moves by one at most.
    assert abs(exact - compute_retained_tokens_count(per_frame, num_frames, q)) <= 1


def test_the_float_rule_is_not_the_exact_one_on_about_a_third_of_grids():
    grids = [(per_frame, num_frames) for per_frame in range(1, 65) for num_frames in range(2, 65)]
    differ = sum(compute_retained_tokens_count(*grid, 0.8) != exact_retained_tokens_count(*grid, 0.8) for grid in grids)
    # "About a third" of the peers' facts; it says that the two counts are truly two rules.
    assert 0.2 < differ / len(grids) < 0.5


def test_exact_count_reads_the_rate_as_it_prints():
    # 0.1 + 0.2 prints as 0.30000000000000004, whose exact share of 10 tokens is a hair below 7.
    assert exact_retained_tokens_count(1, 10, 0.3) == 7
    assert exact_retained_tokens_count(1, 10, 0.1 + 0.2) == 6


def test_integer_zero_is_a_rate():
    rate = check_pruning_rate(0)
    assert rate == 0
    assert type(rate) is float
    assert compute_retained_tokens_count(4, 3, 0) == 12


def test_largest_rate_below_one_keeps_frame_0():
    assert compute_retained_tokens_count(256, 32, math.nextafter(1, 0)) == 256


@pytest.mark.parametrize(
    ("q", "num_frames", "per_frame", "split"),
    [
        (0.5, 4, 4, [2, 2, 2, 2]),
        (0.5, 3, 5, [2, 2, 3]),
        (0.8, 10, 4, [0] * 9 + [7]),  # T > K: K // T is 0, and all of K lies on the last frame
        (0.7, 1, 256, [256]),
        (0.0, 3, 2, [2, 2, 2]),
    ],
)
def test_provisional_split_by_hand(q, num_frames, per_frame, split):
    assert tokens_per_frame(q=q, num_frames=num_frames, frame_num_tokens=per_frame) == split


@PROFILE
@given(**GRIDS, q=st.floats(0, 1, exclude_max=True))
def test_provisional_split_sums_to_k(per_frame, num_frames, q):
    split = tokens_per_frame(q=q, num_frames=num_frames, frame_num_tokens=per_frame)
    count = oracle.retained_tokens(per_frame, num_frames, q)
    assert len(split) == num_frames
    assert sum(split) == count
    assert set(split[:-1]) <= {count // num_frames}


CALLS = [
    check_pruning_rate,
    lambda q: compute_retained_tokens_count(4, 4, q),
    lambda q: exact_retained_tokens_count(4, 4, q),
    lambda q: tokens_per_frame(q=q, num_frames=4, frame_num_tokens=4),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("q", BAD_RATES)
def test_rates_outside_the_range_are_refused(call, q):
    with pytest.raises(UsageError, match=r"Invalid pruning rate .*Expected 0 <= q < 1") as error:
        call(q)
    assert error.value.exit_code == 2
    assert isinstance(error.value, ValueError)
    assert repr(q) in error.value.message


GRID_CALLS = [
    lambda per_frame, num_frames: compute_retained_tokens_count(per_frame, num_frames, 0.5),
    lambda per_frame, num_frames: exact_retained_tokens_count(per_frame, num_frames, 0.5),
    lambda per_frame, num_frames: tokens_per_frame(q=0.5, num_frames=num_frames, frame_num_tokens=per_frame),
]


@pytest.mark.parametrize("call", GRID_CALLS)
@pytest.mark.parametrize("grid", BAD_GRIDS)
def test_empty_grids_are_refused(call, grid):
    with pytest.raises(UsageError, match=r"Invalid token grid .*every entry at least 1") as error:
        call(*grid)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (2, -3, 4)])
def test_check_grid_names_the_grid(grid):
    with pytest.raises(UsageError) as error:
        check_grid(*grid)
    assert str(grid) in error.value.message
    check_grid(1, 1, 1)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.longdouble, np.array])
def test_a_rate_of_numpy_counts_as_the_decimal_it_prints_as(kind):
    """Taken as the float32 it is, 713 of 4,788 counts were one off."""
    for hundredth in range(100):
        q = hundredth / 100
        assert check_pruning_rate(kind(q)) == q
        assert type(check_pruning_rate(kind(q))) is float
        for per_frame, num_frames in [(256, 10), (9, 10), (1365, 2), (4, 10)]:
            expected = compute_retained_tokens_count(per_frame, num_frames, q)
            assert compute_retained_tokens_count(per_frame, num_frames, kind(q)) == expected


def test_a_rate_of_float32_that_is_no_short_decimal_is_its_own():
    q = np.float32(1) / np.float32(3)
    assert check_pruning_rate(q) == 0.33333334
    assert check_pruning_rate(np.int64(0)) == 0.0


@pytest.mark.parametrize("rate", [np.float32(1), np.float32("nan"), np.array([0.1, 0.2]), np.bool_(False), np.int64(1)])
def test_a_rate_of_numpy_is_checked(rate):
    with pytest.raises(UsageError, match="Expected 0 <= q < 1"):
        check_pruning_rate(rate)
