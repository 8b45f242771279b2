"""The picture of a sweep: what each rate costs, and what it keeps; the numbers lie beside it as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli.files.output_file import replacing
from evs_cli.report.figure_file import check_figure_path

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from evs_cli.jobs.sweep import Sweep
    from evs_cli.report.sweep_curves import Curve, SweepCurves

SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's palette, which colour-blind readers can tell apart; the line style changes with it.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">")
_KNEE: dict[str, Any] = {
    "marker": "D",
    "markersize": 8,
    "markerfacecolor": "none",
    "markeredgecolor": "#444444",
    "markeredgewidth": 1.5,
}
_BAND_ALPHA = 0.18
_MAX_MARKERS = 10
_WIDTH, _PANELS_HEIGHT, _LEGEND_ROW = 5.2, 5.2, 0.22
"""Inches. In a column of 3.4 inches the letters are still of 6.5 points."""
_NARROW_LABEL = 28  # letters of a label, of which two stand side by side


def check_plot_path(path: Path, *, overwrite: bool) -> None:
    """Refuse a picture before any work is done for it.

    Raises:
        UsageError: another suffix, or matplotlib is not installed.
        ArtifactError: it or its CSV exists already, or their folder cannot be written.
    """
    check_figure_path(path, SUFFIXES, named="--plot", overwrite=overwrite)


def save_sweep_plot(sweeps: Sequence[tuple[str, Sweep]], path: Path, table: str, *, overwrite: bool = False) -> Path:
    """Draw prompt length, and change kept, over the rate; the same sweeps give the same bytes.

    Args:
        sweeps: each with the name of its video.
        path: the picture.
        table: the same numbers as CSV text, written beside it.
        overwrite: whether both may exist.

    Returns:
        The CSV's path.

    Raises:
        ArtifactError: a file that cannot be written.
    """
    import matplotlib as mpl

    from evs_cli.report.sweep_curves import sweep_curves

    target = path.with_suffix(".csv")
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own style would change the bytes, and perhaps hide a line
        mpl.rcParams.update({"svg.hashsalt": "evs", "font.size": 10, "axes.titlesize": 10})
        figure = _drawn(sweep_curves(sweeps))
        with replacing(path, overwrite=overwrite) as file:
            undated = None if path.suffix == ".png" else {"CreationDate" if path.suffix == ".pdf" else "Date": None}
            figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=undated)
    with replacing(target, overwrite=overwrite) as file:
        file.write(table.encode())
    return target


def _drawn(curves: SweepCurves) -> Figure:
    """Both panels, one above the other: a reader goes straight down from a rate's cost to what it keeps."""
    from matplotlib.figure import Figure

    handles = _legend_handles(curves)
    columns = 2 if max(len(label) for label, _ in handles) <= _NARROW_LABEL else 1
    rows = -(-len(handles) // columns)
    figure = Figure(figsize=(_WIDTH, _PANELS_HEIGHT + _LEGEND_ROW * rows), layout="constrained")
    cost, kept = figure.subplots(2, 1, sharex=True)
    for axes, drawn in ((cost, curves.cost), (kept, curves.kept)):
        for curve in drawn:
            _draw(axes, curve)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    cost.set_title(curves.cost_title, loc="left")
    cost.set_ylabel(curves.cost_unit)
    cost.set_ylim(bottom=0)
    cost.yaxis.set_major_formatter("{x:,.0f}")
    kept.set_title("Benefit: how much of the video's change is kept", loc="left")
    kept.set_ylabel("% of the change")
    kept.set_ylim(0, 104)
    kept.set_xlabel("pruning rate q: share of the video tokens that is dropped")
    # Names are put in afterwards: a label with an underscore in front is left out, and one with $ is a formula.
    legend = figure.legend(
        [handle for _, handle in handles],
        ["-"] * len(handles),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )
    for text, (label, _) in zip(legend.get_texts(), handles, strict=True):
        text.set_parse_math(False)
        text.set_text(label)
    return figure


def _draw(axes: Axes, curve: Curve) -> None:
    look = _look(curve.look)
    if curve.is_thin:
        axes.plot(curve.rates, curve.values, color=look["color"], linestyle=look["linestyle"], linewidth=0.7, alpha=0.6)
        return
    if curve.band is not None:
        axes.fill_between(curve.rates, *curve.band, color=look["color"], alpha=_BAND_ALPHA, linewidth=0)
        for edge in curve.band:  # where bands overlap, and in grey, their edges tell them apart
            axes.plot(curve.rates, edge, color=look["color"], linestyle=look["linestyle"], linewidth=0.7)
    every = max(1, len(curve.rates) // _MAX_MARKERS)
    axes.plot(curve.rates, curve.values, linewidth=1.6, markersize=4, markevery=every, **look)
    if curve.knee is not None:
        knee = ([curve.rates[curve.knee]], [curve.values[curve.knee]])
        axes.plot(*knee, **{**_KNEE, "markeredgecolor": look["color"]})


def _look(place: int | None) -> dict[str, Any]:
    """Colour, line and marker; all three, since a picture may be printed in grey."""
    if place is None:
        return {"color": "#444444", "linestyle": "-", "marker": ""}
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "linestyle": _STYLES[place % len(_STYLES)],
        "marker": _MARKERS[place % len(_MARKERS)],
    }


def _legend_handles(curves: SweepCurves) -> list[tuple[str, Artist]]:
    """What the legend says, and the sample beside it; in the order the curves were asked for."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    named = [curve for curve in curves.kept if curve.label]
    handles: list[tuple[str, Artist]] = [
        (curve.label, Line2D([], [], linewidth=1.6, markersize=4, **_look(curve.look))) for curve in named
    ]
    if any(curve.is_thin for curve in curves.kept):
        handles.append(("thin: each clip", Line2D([], [], color="#444444", linewidth=0.7)))
    if any(curve.band for curve in curves.kept):
        handles.append(("band: the middle half of the clips", Patch(color="#444444", alpha=_BAND_ALPHA, linewidth=0)))
    if any(curve.knee is not None for curve in curves.kept):
        handles.append(("knee: a first guess for q", Line2D([], [], linestyle="", **_KNEE)))
    return handles
