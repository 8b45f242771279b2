"""``-o strip.svg`` or ``strip.pdf``: a strip for a paper, in the width of a column, with its numbers beside as CSV.

Each frame stands over its mask: a cell is black where the token is kept. The cells, lines and letters are vectors.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli.files.output_file import replacing
from evs_cli.report.figure_file import check_figure_path
from evs_cli.report.pictures.drawn import DrawnFrame, RunWriter, readable, resized, seconds_text
from evs_cli.report.pictures.overlay import Mask, Pixels
from evs_cli.report.records import to_csv

if TYPE_CHECKING:
    from evs_cli.core.pixel_region import PixelRegion
    from evs_cli.jobs.view import View
    from evs_cli.video.frames import Picture

SUFFIXES = (".svg", ".pdf")
COLUMN_INCHES = 3.35
"""Width of a column in the two-column styles of IEEE, ACM and CVF, within a twentieth of an inch."""
_EDGE, _GAP, _TEXT, _HEAD = 0.01, 0.05, 0.095, 0.25  # inches: for half a line, between panels, of text, on top
_POINTS = 6.0
_LEAST_PANEL_INCHES = 0.36
_PICTURE_PIXELS = 240  # of a frame's longer side: 300 dots an inch in a panel of 0.8 inches
_SETTINGS = {
    "svg.hashsalt": "evs",  # ids of clips and paths are drawn at random without it
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # TrueType; publishers refuse the default, Type 3
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": _POINTS,
    "hatch.linewidth": 0.3,
}


def check_strip_path(path: Path, *, overwrite: bool) -> None:
    """Refuse a strip before any work is done for it.

    Raises:
        UsageError: another suffix, or matplotlib is not installed.
        ArtifactError: it or its CSV exists already, or their folder cannot be written.
    """
    check_figure_path(path, (path.suffix,), named=str(path), overwrite=overwrite)


class StripWriter(RunWriter):
    """A ``PictureWriter`` of one SVG or PDF file, and a CSV beside it.

    Args:
        view: whose first run is drawn.
        path: the picture.
        max_frames: most frames in it.
        overwrite: whether it may exist when it is written.
    """

    def __init__(self, view: View, path: Path, max_frames: int, *, overwrite: bool = False) -> None:
        super().__init__(view, path, max_frames, overwrite=overwrite)
        self._pictures: list[Pixels | None] = []

    def finish(self) -> list[Path]:
        """See ``PictureWriter``."""
        import matplotlib as mpl

        self._order.finish()
        table = self._path.with_suffix(".csv")
        kind = self._path.suffix.lower()[1:]
        with mpl.rc_context():
            mpl.rcdefaults()  # a user's own style would change the bytes
            mpl.rcParams.update(_SETTINGS)
            with replacing(self._path, overwrite=self._overwrite) as file:
                undated = {"CreationDate" if kind == "pdf" else "Date": None}
                self._figure().savefig(file, format=kind, metadata=undated)
        rows = to_csv(self._rows()).encode()
        if not (table.is_file() and table.read_bytes() == rows):  # a strip of the same name in the other format made it
            with replacing(table, overwrite=self._overwrite) as file:
                file.write(rows)
        return [self._path, table]

    def _draw(self, frame: DrawnFrame, picture: Picture | None) -> None:
        height, width = self._run.frame_size
        scale = min(1.0, _PICTURE_PIXELS / max(height, width))
        size = max(1, round(height * scale)), max(1, round(width * scale))
        self._pictures.append(None if picture is None else resized(picture, size))

    def _figure(self) -> Any:
        from matplotlib.figure import Figure

        run, box = self._run, _box(self._run.run.pixel_region)
        aspect = (box[2] - box[0]) * run.frame_size[0] / ((box[3] - box[1]) * run.frame_size[1])
        columns = _num_columns(len(run.frames), aspect)
        panel = (COLUMN_INCHES - 2 * _EDGE - (columns - 1) * _GAP) / max(
            columns, 2
        )  # one frame alone is half a column wide
        bands = 2 if run.has_video else 1
        row_height = bands * panel * aspect + (bands - 1) * _GAP / 2 + 2 * _TEXT + 2 * _GAP
        rows = -(-len(run.frames) // columns)
        height = _HEAD + rows * row_height
        figure = Figure(figsize=(COLUMN_INCHES, height))

        def panel_axes(left: float, top: float) -> Any:
            place = (left / COLUMN_INCHES, 1 - (top + panel * aspect) / height)
            axes = figure.add_axes((*place, panel / COLUMN_INCHES, panel * aspect / height))
            axes.set(xlim=(box[1], box[3]), ylim=(box[2], box[0]), aspect="auto")
            axes.set_axis_off()
            return axes

        self._write_head(figure, height)
        for place, (frame, picture) in enumerate(zip(run.frames, self._pictures, strict=True)):
            row, column = divmod(place, columns)
            left, top = _EDGE + column * (panel + _GAP), _HEAD + row * row_height
            if run.has_video:
                _draw_picture(panel_axes(left, top), picture, run.run.pixel_region)
                top += panel * aspect + _GAP / 2
            _draw_cells(panel_axes(left, top), frame.mask, run.run.pixel_region)
            middle, top = (left + panel / 2) / COLUMN_INCHES, top + panel * aspect + 0.03
            kept = f"{frame.retained_tokens:,}" + (" kept" if panel > 0.5 else "")
            for number, text in enumerate((seconds_text(frame.pts_seconds), kept)):
                figure.text(middle, 1 - (top + number * _TEXT) / height, text, ha="center", va="top")
        return figure

    def _write_head(self, figure: Any, height: float) -> None:
        """Two lines: what it is, and how to read it."""
        run = self._run
        words = run.title().replace("  |  ", ", ")
        read = f"Black cells: kept. Below: time, tokens kept of {run.tokens_per_frame:,}."
        if not run.run.pixel_region.is_whole:
            read += " Hatched: not seen by the model."
        total = run.run.token_grid_thw[0]
        if len(run.frames) < total:
            read += f" {len(run.frames)} of {total:,} frames."
        for number, text in enumerate((words, read)):
            # DejaVu Sans is 0.6 of its size wide in the mean; a longer line gets smaller letters.
            points = min(_POINTS, 72 * COLUMN_INCHES / (0.56 * len(text)))
            figure.text(0, 1 - (_EDGE + number * _TEXT) / height, readable(text), ha="left", va="top", fontsize=points)

    def _rows(self) -> list[dict[str, Any]]:
        """A row for every frame of the run, drawn or not."""
        run, drawn = self._run.run, {frame.index for frame in self._run.frames}
        scores = run.ranking.dissimilarity.double()
        counts = run.retention.num_tokens_per_frame.tolist()
        return [
            {
                "frame": index,
                "pts_seconds": round(seconds, 6),
                "retained_tokens": kept,
                "retained_share": kept / self._run.tokens_per_frame,
                # Frame 0 has no frame before it.
                "mean_dissimilarity": float(scores[index].mean()) if index else None,
                "largest_dissimilarity": float(scores[index].max()) if index else None,
                "is_drawn": index in drawn,
            }
            for index, (seconds, kept) in enumerate(zip(run.pts_seconds.tolist(), counts, strict=True))
        ]


def _num_columns(num_frames: int, aspect: float) -> int:
    """Frames a row: the fewest with which a panel is no higher than an inch and the strip has at most two rows; up to
    two more where that fills the last row."""
    most = math.floor((COLUMN_INCHES + _GAP) / (_LEAST_PANEL_INCHES + _GAP))
    for columns in range(1, min(num_frames, most) + 1):
        if -(-num_frames // columns) <= 2 and aspect * COLUMN_INCHES / columns <= 1:
            filling = (more for more in range(columns, min(columns + 2, most) + 1) if num_frames % more == 0)
            return next(filling, columns)
    return min(num_frames, most)


def _box(region: PixelRegion) -> tuple[float, float, float, float]:
    """(top, left, bottom, right) around the frame and the region, in shares of the frame."""
    return min(0.0, region.top), min(0.0, region.left), max(1.0, region.bottom), max(1.0, region.right)


def _draw_picture(axes: Any, picture: Pixels | None, region: PixelRegion) -> None:
    """The frame, with a line around what the model sees of it."""
    from matplotlib.patches import Rectangle

    if picture is not None:
        axes.imshow(picture, extent=(0, 1, 1, 0), aspect="auto", interpolation="none", resample=False)
        top, left, bottom, right = _box(region)
        axes.set(xlim=(left, right), ylim=(bottom, top))
    else:
        axes.add_patch(Rectangle((0, 0), 1, 1, facecolor="0.75"))
    if not region.is_whole:
        size = region.right - region.left, region.bottom - region.top
        for colour, line in (("white", 1.6), ("black", 0.7)):
            axes.add_patch(
                Rectangle((region.left, region.top), *size, fill=False, edgecolor=colour, linewidth=line, clip_on=False)
            )


def _draw_cells(axes: Any, mask: Mask, region: PixelRegion) -> None:
    """Black cells where tokens are kept, in a thin frame; what the model does not see of the picture is hatched."""
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path as Outline

    size = region.right - region.left, region.bottom - region.top
    if not region.is_whole:
        axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, edgecolor="0.6", linewidth=0.4, hatch="////"))
        axes.add_patch(Rectangle((region.left, region.top), *size, facecolor="white", edgecolor="none"))
    corners, codes = [], []
    for row, column in zip(*mask.nonzero(), strict=True):
        top, left, bottom, right = region.cell(int(row), int(column), *mask.shape)
        corners += [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
        codes += [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    if corners:
        # One path for all cells: of many, a viewer would show the seams.
        axes.add_patch(PathPatch(Outline(corners, codes), facecolor="black", linewidth=0))
    axes.add_patch(
        Rectangle((region.left, region.top), *size, fill=False, edgecolor="black", linewidth=0.5, clip_on=False)
    )
