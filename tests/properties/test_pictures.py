"""The pictures that the README shows are what their script draws today.

What arithmetic settles on every machine is compared exactly: the clip, the rate, the grid, how many tokens are kept.
Which token wins a near tie, the last bit of a decoded pixel and the edge of a letter differ with the CPU and the
libraries, so frames and pixels are given a little room.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
sys.path.insert(0, str(SAMPLES))

import make_pictures  # noqa: E402

MAX_BYTES = 300_000
TOKENS_A_FRAME = 8  # of 448; a change of model, rate or rule moves dozens
CHANGED_PIXELS = 0.03  # a cell is 0.02 % of the sheet and a title 1 %; a layout that moves changes a tenth and more
VISIBLE = 24  # levels of 255, more than decoding and antialiasing differ by


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A folder with the sheet, drawn anew."""
    folder = tmp_path_factory.mktemp("pictures")
    assert make_pictures.main(["sheet.png", "--output-dir", str(folder)]) == 0
    return folder


def record_of(image):
    record = json.loads(image.text["evs"])
    del record["evs"]  # a new version alone makes no new picture
    return record, record.pop("num_tokens_per_frame")


def test_the_sheet_is_current(drawn):
    kept, new = (Image.open(folder / "sheet.png") for folder in (SAMPLES / "pictures", drawn))
    (record, counts), (new_record, new_counts) = record_of(kept), record_of(new)
    remedy = "run samples/make_pictures.py"
    assert record == new_record, remedy
    assert np.abs(np.subtract(counts, new_counts)).max() <= TOKENS_A_FRAME, remedy
    assert kept.size == new.size, remedy
    difference = np.abs(np.subtract(np.asarray(kept), np.asarray(new), dtype=np.int16)).max(axis=2)
    assert (difference > VISIBLE).mean() < CHANGED_PIXELS, remedy


def test_the_reports_picture_is_current(tmp_path):
    """By what it shows and by the page's own files: letters and antialiasing are the machine's."""
    record = json.loads(Image.open(SAMPLES / "pictures" / "report.png").text["evs"])
    code, new = make_pictures.report_record(tmp_path / "report.html")
    assert code == 0
    remedy = "run samples/make_pictures.py report.png"
    assert record["assets_sha256"] == new["assets_sha256"], remedy
    counts, new_counts = (each["run"].pop("num_tokens_per_frame") for each in (record, new))
    assert record == new, remedy
    assert np.abs(np.subtract(counts, new_counts)).max() <= TOKENS_A_FRAME, remedy


def test_pictures_are_small():
    for path in (SAMPLES / "pictures").iterdir():
        assert path.stat().st_size <= MAX_BYTES, path.name
