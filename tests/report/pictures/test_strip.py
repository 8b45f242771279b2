"""The strip for a paper: its vectors counted, its size, the same bytes again, and the numbers beside it."""

import csv
import re
from types import SimpleNamespace

import pytest
from cell_clips import draw_frame
from views_made import make_run, make_view

from evs_cli.core.pixel_region import PixelRegion
from evs_cli.report.pictures.strip import COLUMN_INCHES, StripWriter

POINTS_AN_INCH = 72


def write_strip(path, run, *, size=(180, 320), max_frames=8, missing=()):
    frames = None if size is None else SimpleNamespace(size=size)
    writer = StripWriter(make_view(run, frames=frames), path, max_frames)
    for index in writer.frame_indices if size else ():
        if index not in missing:
            writer.add(index, draw_frame(index, size, run.token_grid_thw[1:], run.pixel_region.as_list()))
    assert writer.finish() == [path, path.with_suffix(".csv")]
    return path


def cells(svg):
    """Number of squares of each black path, in order."""
    filled = re.findall(r'<g id="patch_\d+">\s*<path d="([^"]*)"[^>]*?(?:style="([^"]*)")?/>', svg)
    return [d.count("M") for d, style in filled if not style and d.count("z") == d.count("M")]


@pytest.mark.parametrize("size", [(180, 320), (320, 180), None], ids=["landscape", "portrait", "no video"])
def test_a_cell_is_a_square_where_a_token_is_kept(tmp_path, size):
    run = make_run((5, 4, 5))
    svg = write_strip(tmp_path / "strip.svg", run, size=size).read_text()
    kept = run.retention.num_tokens_per_frame.tolist()
    assert cells(svg) == [count for count in kept if count]
    for seconds, count in zip(run.pts_seconds, kept, strict=True):
        assert f"<!-- {seconds:.2f} s -->" in svg
        assert re.search(rf"<!-- {count}( kept)? -->", svg)
    assert svg.count("<image ") == (0 if size is None else 5)


@pytest.mark.parametrize("num_frames", [1, 2, 3, 5, 8, 30])
@pytest.mark.parametrize("size", [(180, 320), (320, 180)])
def test_it_is_a_column_wide(tmp_path, num_frames, size):
    svg = write_strip(tmp_path / "strip.svg", make_run((num_frames, 4, 5)), size=size, max_frames=30).read_text()
    width, height = (float(n) for n in re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups())
    assert width == pytest.approx(COLUMN_INCHES * POINTS_AN_INCH, abs=0.01)
    assert height < 9 * POINTS_AN_INCH  # a page


def test_eight_frames_of_more_are_said(tmp_path):
    svg = write_strip(tmp_path / "strip.svg", make_run((20, 4, 5))).read_text()
    assert "Black cells: kept. Below: time, tokens kept of 20. 8 of 20 frames. -->" in svg
    assert svg.count("<image ") == 8


def test_what_the_model_does_not_see_is_hatched(tmp_path):
    whole = write_strip(tmp_path / "a.svg", make_run((2, 4, 5))).read_text()
    cropped = write_strip(tmp_path / "b.svg", make_run((2, 4, 5), region=PixelRegion(0, 0.2, 1, 0.8))).read_text()
    assert "<pattern" not in whole
    assert "<pattern" in cropped


@pytest.mark.parametrize("suffix", [".svg", ".pdf"])
def test_the_same_bytes_twice_whatever_the_users_style(tmp_path, suffix):
    import matplotlib as mpl

    run = make_run((3, 4, 5), region=PixelRegion(0, 0.2, 1, 0.8))
    first = write_strip(tmp_path / f"a{suffix}", run)
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        second = write_strip(tmp_path / f"b{suffix}", run)
        assert mpl.rcParams["font.size"] == 30
    assert first.read_bytes() == second.read_bytes()
    assert b"Date" not in first.read_bytes().replace(b"/CreationDate None", b"")
    if suffix == ".pdf":
        assert first.read_bytes().startswith(b"%PDF-")
        assert b"/Type3" not in first.read_bytes()


def test_the_numbers_beside_it(tmp_path):
    run = make_run((10, 4, 5))
    write_strip(tmp_path / "strip.svg", run, max_frames=5)
    with (tmp_path / "strip.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("frame", "pts_seconds", "retained_tokens", "retained_share"),
        *("mean_dissimilarity", "largest_dissimilarity", "is_drawn"),
    ]
    assert [int(row["retained_tokens"]) for row in rows] == run.retention.num_tokens_per_frame.tolist()
    assert [row["is_drawn"] for row in rows] == ["True", "False"] * 5
    assert rows[0]["mean_dissimilarity"] == rows[0]["largest_dissimilarity"] == ""
    scores = run.ranking.dissimilarity.double()
    for row, score in zip(rows[1:], scores[1:], strict=True):
        assert float(row["mean_dissimilarity"]) == pytest.approx(float(score.mean()))
        assert float(row["largest_dissimilarity"]) == float(score.max())
        assert float(row["retained_share"]) == int(row["retained_tokens"]) / 20


def test_a_frame_that_does_not_decode_is_grey(tmp_path):
    svg = write_strip(tmp_path / "strip.svg", make_run((3, 4, 5)), missing={1}).read_text()
    assert svg.count("<image ") == 2
    assert "fill: #bfbfbf" in svg
