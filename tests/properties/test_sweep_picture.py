"""The picture that the guide on choosing a rate shows is what its script draws today.

Curves move by rounding with the CPU and the edges of letters with the libraries, so pixels are given a little room.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
sys.path.insert(0, str(SAMPLES))

import make_pictures  # noqa: E402

MAX_BYTES = 100_000
CHANGED_PIXELS = 0.01  # a line that is another is 1 % of the picture and more, and so is a title
VISIBLE = 64  # levels of 255


def test_the_picture_is_current(tmp_path):
    assert make_pictures.main(["sweep.png", "--output-dir", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.png"]
    kept, new = (
        np.asarray(Image.open(folder / "sweep.png").convert("L"), np.int16)
        for folder in (SAMPLES / "pictures", tmp_path)
    )
    remedy = "run samples/make_pictures.py sweep.png"
    assert kept.shape == new.shape, remedy
    assert (np.abs(kept - new) > VISIBLE).mean() < CHANGED_PIXELS, remedy


def test_the_picture_is_small():
    assert (SAMPLES / "pictures" / "sweep.png").stat().st_size <= MAX_BYTES
