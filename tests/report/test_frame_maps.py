"""Masks in characters, line by line, and read back from what is drawn."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evs_cli.report.frame_maps import FrameMap, count_bar, draw_bands, map_legend, map_lines, pool_factor
from evs_cli.report.signs import ASCII, UNICODE

BOTH_TABLES = pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])


def mask_of(*rows):
    return np.array([[letter == "x" for letter in row] for row in rows])


def read_back(lines, signs, height):
    """The mask that was drawn with two rows a character."""
    places = np.array([[signs.halves.index(letter) for letter in line] for line in lines])
    rows = np.stack([places & 1, places >> 1], axis=1).reshape(2 * len(lines), -1).astype(bool)
    assert not rows[height:].any()
    return rows[:height]


def split(band, count, width):
    """The maps of a band, each a list of lines."""
    return [[line[at * (width + 2) :][:width].rstrip() for line in band.masks] for at in range(count)]


# One mask.


def test_two_rows_are_one_line():
    mask = mask_of("x..x", "xx..", "....", "x.x.", ".xx.")
    assert map_lines(mask, UNICODE) == ["█▄·▀", "▄·▄·", "·▀▀·"]
    assert map_lines(mask, ASCII) == ['#_."', "_._.", '."".']


def test_a_pooled_character_stands_for_twice_as_many_rows_as_columns():
    mask = mask_of("xx..x", "xx.xx", "xx...", "xx...", "...xx", "x..x.")
    assert map_lines(mask, UNICODE, 2) == ["█▒▒", "▒▒▒"]
    assert map_lines(mask_of("xx..x", "xx..x", "xx..x", "xx..x", "xx..x"), ASCII, 2) == ["#.#", "#.#"]
    assert map_lines(mask_of("x.", "xx"), UNICODE, 100) == ["▒"]


def test_a_grid_of_one_token():
    assert map_lines(mask_of("x"), UNICODE) == ["▀"]
    assert map_lines(mask_of("."), ASCII) == ["."]
    assert map_lines(mask_of("x"), UNICODE, 3) == ["█"]


masks = st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0, 1)).map(
    lambda drawn: np.random.default_rng(drawn[2]).random(drawn[:2]) < drawn[3]
)
tables = st.sampled_from([UNICODE, ASCII])


@given(masks, tables)
def test_a_drawn_mask_reads_back_as_it_was(mask, signs):
    lines = map_lines(mask, signs)
    assert len(lines) == -(-len(mask) // 2)
    assert np.array_equal(read_back(lines, signs, len(mask)), mask)


@given(masks, tables, st.integers(2, 5))
def test_a_pooled_mask_says_of_each_block_whether_all_some_or_none_is_kept(mask, signs, pool):
    lines = map_lines(mask, signs, pool)
    height, width = mask.shape
    blocks = itertools.product(range(0, height, 2 * pool), range(0, width, pool))
    assert (len(lines), len(lines[0])) == (-(-height // (2 * pool)), -(-width // pool))
    for row, column in blocks:
        block = mask[row : row + 2 * pool, column : column + pool]
        expected = signs.pooled[2 if block.all() else 1 if block.any() else 0]
        assert lines[row // (2 * pool)][column // pool] == expected


# Many frames.


@BOTH_TABLES
@pytest.mark.parametrize("columns", [40, 60, 80, 120, 500])
@pytest.mark.parametrize(
    ("num_frames", "height", "width"), [(1, 16, 28), (7, 5, 9), (300, 3, 4), (4, 1, 1), (3, 17, 40)]
)
def test_frames_side_by_side_are_all_there_and_no_line_is_too_long(signs, columns, num_frames, height, width):
    drawn = np.random.default_rng(0).random((num_frames, height, width)) < 0.4
    drawn[num_frames // 2] = False  # a frame that keeps nothing
    frames = [FrameMap(0.5 * index, mask) for index, mask in enumerate(drawn)]
    bands = draw_bands(frames, signs, columns)
    panel = max(width, *(len(frame.caption) for frame in frames))
    abreast = (columns + 2) // (panel + 2)
    assert len(bands) == -(-num_frames // abreast)
    for start, band in zip(range(0, num_frames, abreast), bands, strict=True):
        shown = frames[start : start + abreast]
        assert all(len(line) <= columns for line in (*band.masks, band.captions, band.bars))
        assert band.captions.split() == [word for frame in shown for word in frame.caption.split()]
        for frame, lines in zip(shown, split(band, len(shown), panel), strict=True):
            assert np.array_equal(read_back(lines, signs, height), frame.mask)


@BOTH_TABLES
@pytest.mark.parametrize(("columns", "pool"), [(40, 4), (64, 2), (127, 2), (128, 1), (200, 1)])
def test_a_grid_wider_than_the_terminal_is_pooled(signs, columns, pool):
    mask = np.random.default_rng(0).random((72, 128)) < 0.3
    (band,) = draw_bands([FrameMap(1.0, mask)], signs, columns)
    assert pool_factor(128, columns) == pool
    assert list(band.masks) == map_lines(mask, signs, pool)
    assert max(map(len, band.masks)) <= columns
    legend = map_legend(128, signs, columns)
    letters = signs.halves if pool == 1 else signs.pooled
    assert all(f" {letter} " in legend for letter in letters)
    assert (f"{2 * pool} x {pool} tokens" in legend) == (pool > 1)


def test_one_column_where_two_do_not_fit():
    frames = [FrameMap(0.0, np.ones((2, 28), bool))] * 3
    assert [len(draw_bands(frames, UNICODE, columns)) for columns in (40, 57, 58, 88)] == [3, 3, 2, 1]


def test_a_band_line_by_line():
    frames = [
        FrameMap(0.0, mask_of("xxxx", "xxxx")),
        FrameMap(0.533, mask_of("x...", ".x..")),
        FrameMap(1, mask_of("....", "....")),
    ]
    (band,) = draw_bands(frames, ASCII, 40)
    assert band.masks == ('####       "_..       ....',)
    assert band.captions == "0.00 s  8  0.53 s  2  1.00 s  0"
    assert band.bars == "#########  ##:"


# Bars.


@BOTH_TABLES
def test_a_bar_is_the_share_of_a_full_frame(signs):
    assert count_bar(448, 448, signs, 28) == signs.block * 28
    assert count_bar(224, 448, signs, 28) == signs.block * 14
    assert count_bar(1, 100_000, signs, 28) == signs.parts[1]
    assert count_bar(0, 448, signs, 28) == ""
    lengths = [len(count_bar(count, 448, signs, 28)) for count in range(449)]
    assert lengths == sorted(lengths)
