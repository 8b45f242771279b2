"""Makes the pictures in ``samples/pictures`` that README and guides show, from the sample clips, by ``evs``.

Needs evs-cli with the extra ``embedded``, for ``sweep.png`` also ``plot``, and for ``report.png`` ``dev`` and Chromium;
nothing is downloaded. Run it when what a picture shows has changed; a test tells that it has.

    python samples/make_pictures.py [--output-dir DIR] [NAME ...]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import evs_cli
from evs_cli.cli.app import main as evs
from evs_cli.report.pictures.drawn import png_bytes

SAMPLES = Path(__file__).parent
RATE = 0.7
"""Pruning rate of every picture, which the README's text tells too."""
SHEET_FRAMES = 8
"""Two rows, so that a page is not filled by it."""
REPORT_FRAME = 10
"""The frame that the report's picture shows large: the bus is in the middle."""

SWEPT_CLIPS = ("slides.mp4", "crossing.mp4", "pan.mp4")
"""A still picture that changes at times, objects that move, and a camera that moves."""
SWEPT_RATES = "0:0.95:0.05"


def draw_sheet(path: Path) -> int:
    """``sheet.png``: what moves is kept. Returns the exit code of ``evs``."""
    clip = str(SAMPLES / "crossing.mp4")
    return evs(["view", clip, "--q", str(RATE), "--max-frames", str(SHEET_FRAMES), "-o", str(path), "--force"])


def report_record(page: Path) -> tuple[int, dict[str, Any]]:
    """Draw the report page; its exit code, and what it shows: counts, and a digest of the page's own files."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = evs(["view", str(SAMPLES / "crossing.mp4"), "--q", str(RATE), "-o", str(page), "--force", "--json"])
    if code:
        return code, {}
    (view,) = json.loads(out.getvalue())["videos"]
    return 0, {"run": view["runs"][0], "assets_sha256": assets_digest()}


def assets_digest() -> str:
    """SHA-256 over the page's template, style and scripts."""
    folder = Path(evs_cli.__file__).parent / "report" / "page" / "assets"
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.iterdir()))).hexdigest()


def draw_report(path: Path) -> int:
    """``report.png``: the top of the report page, as Chromium shows it. Returns the exit code of ``evs``."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_path = Path(folder) / "report.html"
        code, record = report_record(page_path)
        if code:
            return code
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 920}, color_scheme="light")
        page.goto(page_path.as_uri())
        page.wait_for_selector("html[data-drawn=true]", state="attached")
        page.locator("#strip button").nth(REPORT_FRAME).click()
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
        shot = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    small = shot.convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    path.write_bytes(png_bytes(small, record, is_small=True))
    return 0


def draw_sweep(path: Path) -> int:
    """``sweep.png``, without the CSV that ``evs`` writes beside it. Returns the exit code of ``evs``."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / path.name
        clips = [str(SAMPLES / clip) for clip in SWEPT_CLIPS]
        code = evs(["sweep", *clips, "--q", SWEPT_RATES, "--plot", str(drawn), "--quiet"])
        if code == 0:
            shutil.copyfile(drawn, path)
    return code


PICTURES: Mapping[str, Callable[[Path], int]] = {
    "sheet.png": draw_sheet,
    "report.png": draw_report,
    "sweep.png": draw_sweep,
}
"""What draws each picture: given where to, it returns an exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the pictures that are named, or all. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the pictures that README and guides show.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(PICTURES)}; default: all")
    parser.add_argument("--output-dir", type=Path, default=SAMPLES / "pictures")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in PICTURES]
    if unknown:
        parser.error(f"unknown picture {unknown[0]!r}; expected one of {', '.join(PICTURES)}")
    names = arguments.names or list(PICTURES)
    return max(PICTURES[name](arguments.output_dir / name) for name in names)


if __name__ == "__main__":
    sys.exit(main())
