"""Writes the report page: numbers and pictures of a view, with the script and style that draw them, in one file.

The page asks for nothing: a content security policy forbids every request, and lets these scripts and styles run by
their hashes alone. Text from outside is data in a JSON element, which the script shows as text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli._version import __version__
from evs_cli.files.output_file import replacing
from evs_cli.report.page.frame_jpegs import fitted_size, jpeg_text
from evs_cli.report.page.numbers import run_numbers, to_script
from evs_cli.report.pictures.writer import thinned

if TYPE_CHECKING:
    from evs_cli.jobs.view import View
    from evs_cli.video.frames import Picture

MAX_PAGE_BYTES = 5_000_000
"""Size a page is kept below, as far as smaller pictures can keep it there."""
_LEAST_JPEG_BYTES = 4_000
_LEAST_ROWS = 224  # of a model that sees less, a person still wants to see what is in the frame
_BASE64 = 4 / 3
_SCRIPTS = ("masks.js", "painting.js", "timeline.js", "page.js")


class PageWriter:
    """A ``PictureWriter`` of one HTML file.

    Args:
        view: what is shown; every run is on the page.
        path: the file.
        max_frames: most frames of a run that are shown with a picture; all are counted.
        overwrite: whether it may exist when it is written.
    """

    def __init__(self, view: View, path: Path, max_frames: int, *, overwrite: bool = False) -> None:
        self._view, self._path, self._overwrite = view, path, overwrite
        self._runs = [run_numbers(run) for run in view.runs]
        self._shown = [thinned(run.token_grid_thw[0], max_frames) for run in view.runs]
        self._jpegs: dict[int, str] = {}
        wanted = (
            run.frame_indices[index] for run, shown in zip(view.runs, self._shown, strict=True) for index in shown
        )
        self._frame_indices = sorted({int(index) for index in wanted})
        numbers_bytes = len(to_script({"runs": self._runs}))
        # A tenth is left for script, style, provenance and rounding.
        room = 0.9 * MAX_PAGE_BYTES - numbers_bytes
        self._jpeg_bytes = max(_LEAST_JPEG_BYTES, int(room / _BASE64 / max(1, len(self._frame_indices))))

    @property
    def frame_indices(self) -> Sequence[int]:
        """See ``PictureWriter``."""
        return self._frame_indices

    def add(self, frame_index: int, picture: Picture) -> None:
        """See ``PictureWriter``."""
        run = self._view.runs[0]
        rows = max(run.frame_size[0], _LEAST_ROWS) / (run.pixel_region.bottom - run.pixel_region.top)
        size = fitted_size(picture.shape[:2], rows)
        self._jpegs[frame_index] = jpeg_text(picture, size, self._jpeg_bytes)

    def finish(self) -> list[Path]:
        """See ``PictureWriter``."""
        with replacing(self._path, overwrite=self._overwrite) as file:
            file.write(self._html().encode())
        return [self._path]

    def discard(self) -> None:
        """See ``PictureWriter``; nothing is written before the end."""

    def _html(self) -> str:
        from jinja2 import Environment, StrictUndefined

        style = _asset("page.css")
        # One function around all, so that the page has no global names.
        script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in _SCRIPTS) + "\n})();"
        environment = Environment(autoescape=True, undefined=StrictUndefined)
        return environment.from_string(_asset("page.html.jinja")).render(
            style=style,
            style_hash=_csp_hash(style),
            script=script,
            script_hash=_csp_hash(script),
            data=to_script(self._document()),
            version=__version__,
        )

    def _document(self) -> dict[str, Any]:
        view = self._view
        pictures = list(self._jpegs)
        place = {index: number for number, index in enumerate(pictures)}
        for numbers, run, shown in zip(self._runs, view.runs, self._shown, strict=True):
            numbers["shown"] = shown
            numbers["picture"] = [place.get(int(run.frame_indices[index]), -1) for index in shown]
        return {
            "evs": __version__,
            "video": view.runs[0].video_name,
            "source_size": list(view.source_size),
            "notes": [*view.notes, *self._thinning_notes()],
            "runs": self._runs,
            "pictures": [self._jpegs[index] for index in pictures],
        }

    def _thinning_notes(self) -> list[str]:
        return [
            f"{len(shown)} of {run.token_grid_thw[0]} frames are drawn, evenly spread; all are counted "
            "(--max-frames draws more)."
            for run, shown in zip(self._view.runs, self._shown, strict=True)
            if len(shown) < run.token_grid_thw[0]
        ]


def _asset(name: str) -> str:
    return (files("evs_cli.report.page") / "assets" / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """What a content security policy knows an inline script or style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
