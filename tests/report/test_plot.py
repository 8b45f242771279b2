"""The picture of a sweep: the same bytes for the same numbers, a legend that covers no curve, names as they are."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
from made_sweeps import ALL, sweeps_of
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from evs_cli.report.plot import _drawn, save_sweep_plot
from evs_cli.report.sweep_curves import sweep_curves

CASES = [(count, methods) for count in (1, 3, 8, 9, 30) for methods in (("evs",), ALL)]


def save(sweeps, path):
    save_sweep_plot(sweeps, path, "q\n")
    return path.read_bytes()


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_same_sweeps_are_the_same_bytes_whatever_a_users_style_is(tmp_path, suffix):
    first = save(sweeps_of(3, ALL), tmp_path / f"a{suffix}")
    with mpl.rc_context({"lines.linewidth": 9, "axes.facecolor": "red", "svg.hashsalt": "another"}):
        assert save(sweeps_of(3, ALL), tmp_path / f"b{suffix}") == first
        assert mpl.rcParams["lines.linewidth"] == 9
    assert (tmp_path / "a.csv").read_text() == "q\n"


@pytest.mark.parametrize(("count", "methods"), CASES)
def test_nothing_covers_anything(count, methods):
    """No text lies on another or outside of the picture, and no legend on a panel."""
    figure = _drawn(sweep_curves(sweeps_of(count, methods)))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    (legend,) = figure.legends
    below = legend.get_window_extent(renderer)
    panels = [axes.get_tightbbox(renderer) for axes in figure.axes]
    assert not any(below.overlaps(panel) for panel in panels)
    assert not panels[0].overlaps(panels[1])
    for box in (below, *panels):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    assert all(axes.get_title(loc="left") and axes.get_ylabel() for axes in figure.axes)
    assert "pruning rate q" in figure.axes[1].get_xlabel()


@pytest.mark.parametrize(("count", "methods"), CASES)
def test_named_lines_differ_in_more_than_colour(count, methods):
    figure = _drawn(sweep_curves(sweeps_of(count, methods)))
    named = [line for line in figure.axes[1].lines if line.get_linewidth() > 1 and len(line.get_xdata()) > 1]
    looks = {(line.get_linestyle(), line.get_marker()) for line in named}
    assert len(looks) == len(named) == (len(methods) if count > 8 or len(methods) > 1 else count)
    bands = figure.axes[1].collections
    assert len(bands) == (len(methods) if count > 8 else 0)


def test_the_drawn_points_are_the_numbers():
    sweeps = sweeps_of(3)
    figure = _drawn(sweep_curves(sweeps))
    lines = [line for line in figure.axes[1].lines if len(line.get_xdata()) > 1]
    for line, (_, sweep) in zip(lines, sweeps, strict=True):
        assert np.allclose(line.get_xdata(), [row.q for row in sweep.rows])
        assert np.allclose(line.get_ydata(), [100 * row.dissimilarity_kept for row in sweep.rows])
    (cost,) = figure.axes[0].lines
    assert list(cost.get_ydata()) == [row.sequence_length for row in sweeps[0][1].rows]


@pytest.mark.parametrize("name", ["_hidden", "$x^2$", "a_b$", "{q}", "<b>", "50%", "$\\frac{$"])
def test_a_name_is_text(name, tmp_path):
    ((_, first), (_, second)) = sweeps_of(2)
    sweeps = [(f"{name}.mp4", first), ("other.mp4", second)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = _drawn(sweep_curves(sweeps))
        save(sweeps, tmp_path / "a.svg")
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:2] == [name, "other"]


def test_letters_that_the_font_lacks_are_no_failure(tmp_path):
    ((_, sweep),) = sweeps_of(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert save([("映画.mp4", sweep)], tmp_path / "a.png")


def test_many_rates_have_few_markers_and_the_picture_is_small(tmp_path):
    data = save(sweeps_of(30, ALL), tmp_path / "a.png")
    assert len(data) < 200_000
    image = Image.open(tmp_path / "a.png")
    assert image.width == 780
