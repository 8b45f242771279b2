"""Makes the pictures in ``samples/pictures`` that the README shows, from the sample clips, by ``evs view``.

Needs evs-cli with the extra ``embedded``; nothing is downloaded. Run it when what a picture shows has changed; a test
tells that it has.

    python samples/make_pictures.py [--output-dir DIR] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evs_cli.cli.app import main as evs

SAMPLES = Path(__file__).parent
RATE = 0.7
"""Pruning rate of every picture, which the README's text tells too."""
SHEET_FRAMES = 8
"""Two rows, so that a page is not filled by it."""


def draw_sheet(path: Path) -> int:
    """``sheet.png``: what moves is kept. Returns the exit code of ``evs``."""
    clip = str(SAMPLES / "crossing.mp4")
    return evs(["view", clip, "--q", str(RATE), "--max-frames", str(SHEET_FRAMES), "-o", str(path), "--force"])


PICTURES: Mapping[str, Callable[[Path], int]] = {"sheet.png": draw_sheet}
"""What draws each picture: given where to, it returns an exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the pictures that are named, or all. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the pictures that the README shows.")
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
