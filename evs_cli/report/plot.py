"""The picture of a sweep: what each rate costs, and what it keeps; the numbers lie beside it as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli.errors import UsageError
from evs_cli.files.output_file import check_output_file, replacing

if TYPE_CHECKING:
    from evs_cli.jobs.sweep import Sweep

SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's palette, which colour-blind readers can tell apart; the line style changes with it.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES = ("-", "--", "-.", ":")


def check_plot_path(path: Path, *, overwrite: bool) -> None:
    """Refuse a picture before any work is done for it.

    Raises:
        UsageError: another suffix, or matplotlib is not installed.
        ArtifactError: it or its CSV exists already, or their folder cannot be written.
    """
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed.", hint="pip install 'evs-cli[plot]'")
    check_output_file(path, SUFFIXES, overwrite=overwrite)
    check_output_file(path.with_suffix(".csv"), (".csv",), overwrite=overwrite)


def save_sweep_plot(sweeps: Sequence[tuple[str, Sweep]], path: Path, table: str) -> Path:
    """Draw sequence length, and change kept, over the rate, a line a video and model.

    Args:
        sweeps: each with the name of its video.
        path: the picture.
        table: the same numbers as CSV text, written beside it.

    Returns:
        The CSV's path.

    Raises:
        ArtifactError: a file that cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    cost, kept = figure.subplots(1, 2)
    for index, (video, sweep) in enumerate(sweeps):
        label = f"{Path(video).stem}, {sweep.model}"
        look = {
            "color": _COLOURS[index % len(_COLOURS)],
            "linestyle": _STYLES[index % len(_STYLES)],
            "marker": "o",
            "markersize": 3,
        }
        rates = [row.q for row in sweep.rows]
        cost.plot(rates, [row.sequence_length for row in sweep.rows], label=label, **look)
        kept.plot(rates, [100 * row.dissimilarity_kept for row in sweep.rows], label=label, **look)
        for row in sweep.rows:
            if row.is_knee:
                kept.plot([row.q], [100 * row.dissimilarity_kept], "D", color=look["color"], markersize=8)
    _label(cost, "ids in the sequence")
    _label(kept, "% of the change kept (diamond: knee)")
    cost.set_ylim(bottom=0)
    kept.set_ylim(0, 104)
    cost.legend(fontsize=8)
    target = path.with_suffix(".csv")
    with replacing(path) as file:
        undated = None if path.suffix == ".png" else {"CreationDate" if path.suffix == ".pdf" else "Date": None}
        figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=undated)
    with replacing(target) as file:
        file.write(table.encode())
    return target


def _label(axes: Any, title: str) -> None:
    axes.set_xlabel("pruning rate q")
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
