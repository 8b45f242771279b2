"""``-o sheet.png``: a contact sheet, for a chat or a slide: frames with what was kept, time and count under each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from evs_cli.files.output_file import replacing
from evs_cli.report.pictures.drawn import DrawnFrame, DrawnRun, FrameOrder, png_bytes, seconds_text
from evs_cli.report.pictures.labels import BLACK, GREY, WHITE, fitting_size, text_width, wrapped, write
from evs_cli.report.pictures.overlay import Pixels

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

    from evs_cli.jobs.view import View
    from evs_cli.video.frames import Picture

WIDTH = 1200
"""Pixels across, at which it is read."""
_MARGIN, _GAP = 24, 14
_TITLE_SIZE, _LEGEND_SIZE, _CAPTION_SIZE = 26, 17, 16
_BAR = 6  # pixels of the bar of a frame's share
_LEAST_COLUMN = 84  # pixels a caption needs
_LEAST_HEIGHT = 120
_MOST_ENLARGED = 8.0
_LIGHT = (222, 222, 222)


class SheetWriter:
    """A ``PictureWriter`` of one PNG file.

    Args:
        view: whose first run is drawn.
        path: the file.
        max_frames: most frames on it.
        overwrite: whether it may exist when it is written.
    """

    def __init__(self, view: View, path: Path, max_frames: int, *, overwrite: bool = False) -> None:
        self._path, self._overwrite = path, overwrite
        self._sheet = ContactSheet(DrawnRun.of(view, max_frames))

    @property
    def frame_indices(self) -> Sequence[int]:
        """See ``PictureWriter``."""
        return self._sheet.run.frame_indices

    def add(self, frame_index: int, picture: Picture) -> None:
        """See ``PictureWriter``."""
        self._sheet.add(frame_index, picture)

    def finish(self) -> list[Path]:
        """See ``PictureWriter``."""
        data = self._sheet.png()
        with replacing(self._path, overwrite=self._overwrite) as file:
            file.write(data)
        return [self._path]

    def discard(self) -> None:
        """See ``PictureWriter``; nothing is written before the end."""


class ContactSheet:
    """A contact sheet that is drawn frame by frame.

    Args:
        run: what is on it.
    """

    def __init__(self, run: DrawnRun) -> None:
        self.run = run
        self._tiles: list[Pixels] = []
        self._order = FrameOrder(run.frames, self._keep)

    def add(self, frame_index: int, picture: Picture) -> None:
        """Take a frame of the video; they come in the order of time."""
        self._order.add(frame_index, picture)

    def png(self) -> bytes:
        """The sheet as a PNG, with a record of what it was made of."""
        self._order.finish()
        return png_bytes(self._drawn(), self.run.record(), is_small=True)

    def _keep(self, frame: DrawnFrame, picture: Picture | None) -> None:
        self._tiles.append(self.run.overlay(frame, picture, self._layout.frame_size))

    @cached_property
    def _layout(self) -> _Layout:
        return _Layout.of(self.run)

    def _drawn(self) -> Image.Image:
        from PIL import Image, ImageDraw

        layout, room = self._layout, WIDTH - 2 * _MARGIN
        size = fitting_size(self.run.title(), room, _TITLE_SIZE)
        legend = f"{self.run.legend()} Under each frame: its time, and tokens kept."
        lines = [(line, size, BLACK) for line in wrapped(self.run.title(), room, size)]
        lines += [(line, _LEGEND_SIZE, GREY) for line in wrapped(legend, room, _LEGEND_SIZE)]
        head = _MARGIN + sum(round(1.45 * size) for _, size, _ in lines) + _GAP
        height, width = self._tiles[0].shape[:2]
        cell = height + layout.caption_height
        rows = -(-len(self._tiles) // layout.num_columns)
        image = Image.new("RGB", (WIDTH, head + rows * cell + (rows - 1) * _GAP + _MARGIN), WHITE)
        pen = ImageDraw.Draw(image)
        top = _MARGIN
        for line, size, colour in lines:
            write(pen, (_MARGIN, top), line, size, colour)
            top += round(1.45 * size)
        for place, (frame, tile) in enumerate(zip(self.run.frames, self._tiles, strict=True)):
            row, column = divmod(place, layout.num_columns)
            left, top = _MARGIN + column * (layout.column_width + _GAP), head + row * (cell + _GAP)
            image.paste(Image.fromarray(tile), (left, top))
            self._caption(pen, frame, left, top + height, width)
        return image

    def _caption(self, pen: ImageDraw.ImageDraw, frame: DrawnFrame, left: int, top: int, width: int) -> None:
        """A bar of the share kept, and time and count beneath, in one line or two."""
        kept, total, layout = frame.retained_tokens, self.run.tokens_per_frame, self._layout
        pen.rectangle((left, top + 3, left + width - 1, top + 2 + _BAR), fill=_LIGHT)
        if kept:
            pen.rectangle((left, top + 3, left + max(1, round(width * kept / total)) - 1, top + 2 + _BAR), fill=BLACK)
        words = (seconds_text(frame.pts_seconds), layout.count_text(kept, total))
        first = top + 3 + _BAR + 5
        if layout.is_one_line:
            write(pen, (left, first), words[0], _CAPTION_SIZE)
            write(pen, (left + layout.text_width - 1, first), words[1], _CAPTION_SIZE, anchor="ra")
            return
        for number, text in enumerate(words):
            size = fitting_size(text, layout.text_width, _CAPTION_SIZE)
            write(pen, (left, first + number * round(1.25 * _CAPTION_SIZE)), text, size)


class _Layout:
    """How frames stand on a sheet: columns, sizes, and how much is said under each."""

    def __init__(self, run: DrawnRun, num_columns: int, max_height: int = WIDTH) -> None:
        self.num_columns = num_columns
        self.column_width = (WIDTH - 2 * _MARGIN - (num_columns - 1) * _GAP) // num_columns
        self.frame_size = run.size_in((max_height, self.column_width + 1), max_scale=_MOST_ENLARGED)
        grid = run.overlay(run.frames[0], None, self.frame_size)
        self.tile_height, tile_width = grid.shape[:2]
        self.text_width = tile_width if num_columns == 1 else self.column_width
        total = run.tokens_per_frame
        longest = seconds_text(max(frame.pts_seconds for frame in run.frames)) + "    " + self.count_text(total, total)
        self.is_one_line = text_width(longest, _CAPTION_SIZE) <= self.text_width
        self.caption_height = 3 + _BAR + 5 + round((1.3 if self.is_one_line else 2.6) * _CAPTION_SIZE)

    @classmethod
    def of(cls, run: DrawnRun) -> _Layout:
        """The fewest columns with which a sheet is no higher than wide, or one more where that fills the last row."""
        most = max(1, min(len(run.frames), (WIDTH - 2 * _MARGIN) // (_LEAST_COLUMN + _GAP)))
        for num_columns in range(1, most + 1):
            layout = cls(run, num_columns)
            rows = -(-len(run.frames) // num_columns)
            if rows * (layout.tile_height + layout.caption_height + _GAP) <= WIDTH:
                is_ragged = len(run.frames) % num_columns and num_columns < most
                return cls(run, num_columns + 1) if is_ragged and not len(run.frames) % (num_columns + 1) else layout
        # A video so tall that even the narrowest columns are too high.
        return cls(run, most, max(_LEAST_HEIGHT, WIDTH // rows - layout.caption_height - _GAP))

    def count_text(self, kept: int, total: int) -> str:
        """Tokens kept of a frame."""
        return f"{kept:,} of {total:,}"
