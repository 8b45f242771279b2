"""Makes ``pictures/sweep.png``, which the guide on choosing a rate shows, from the sample clips by ``evs sweep``.

Needs evs-cli with the extras ``embedded`` and ``plot``; nothing is downloaded. Run it when the picture's look has
changed; a test tells that it has.

    python samples/make_sweep_picture.py [--output-dir DIR]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evs_cli.cli.app import main as evs

SAMPLES = Path(__file__).parent
CLIPS = ("slides.mp4", "crossing.mp4", "pan.mp4")
"""A still picture that changes at times, objects that move, and a camera that moves."""
RATES = "0:0.95:0.05"


def draw_sweep(path: Path) -> int:
    """``sweep.png``, without the CSV that ``evs`` writes beside it. Returns the exit code of ``evs``."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / path.name
        clips = [str(SAMPLES / clip) for clip in CLIPS]
        code = evs(["sweep", *clips, "--q", RATES, "--plot", str(drawn), "--quiet"])
        if code == 0:
            shutil.copyfile(drawn, path)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the picture of a sweep that the guide shows.")
    parser.add_argument("--output-dir", type=Path, default=SAMPLES / "pictures")
    return draw_sweep(parser.parse_args(argv).output_dir / "sweep.png")


if __name__ == "__main__":
    sys.exit(main())
