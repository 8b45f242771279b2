"""Contact sheets and folders of pictures: what is on them, how large, and what is written when."""

import gc
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cell_clips import draw_frame
from PIL import Image
from views_made import make_run, make_view

from evs_cli.core.methods import RetentionRule
from evs_cli.core.pixel_region import PixelRegion
from evs_cli.errors import ArtifactError
from evs_cli.report.pictures.drawn import DrawnRun, readable, seconds_text
from evs_cli.report.pictures.folder import FolderWriter
from evs_cli.report.pictures.labels import shortened, text_width, wrapped
from evs_cli.report.pictures.sheet import WIDTH, ContactSheet

SIZES = {"landscape": (180, 320), "portrait": (320, 180), "square": (200, 200), "strip": (40, 640), "tower": (640, 40)}


def sheet_of(run, *, size=(180, 320), max_frames=24, missing=()):
    """A sheet of a run whose frames show its cells in colour, as an image; None draws without the video."""
    frames = None if size is None else SimpleNamespace(size=size)
    sheet = ContactSheet(DrawnRun.of(make_view(run, frames=frames), max_frames))
    for index in sheet.run.frame_indices if size else ():
        if index not in missing:
            sheet.add(index, draw_frame(index, size, run.token_grid_thw[1:], run.pixel_region.as_list()))
    return sheet, Image.open(io.BytesIO(sheet.png()))


def places(image, tile):
    """(y, x) of every place in an image where a tile lies, pixel by pixel."""
    pixels, (height, width) = np.asarray(image), tile.shape[:2]
    corners = np.argwhere((pixels[: 1 - height or None, : 1 - width or None] == tile[0, 0]).all(axis=2))
    return [(y, x) for y, x in corners if (pixels[y : y + height, x : x + width] == tile).all()]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("num_frames", [1, 2, 7, 24])
def test_every_frame_is_whole_on_the_sheet_and_none_is_on_another(num_frames, size):
    sheet, image = sheet_of(make_run((num_frames, 4, 5)), size=size)
    assert image.width == WIDTH
    assert image.height < 1.4 * WIDTH
    tiles = sheet._tiles
    found = [places(image, tile) for tile in tiles]
    assert all(found)
    height, width = tiles[0].shape[:2]
    assert found[0][0][0] > 40  # under the title
    corners = sorted({place for each in found for place in each})
    for i, (y, x) in enumerate(corners):
        assert x >= 20
        assert x + width <= WIDTH - 20
        assert y + height <= image.height - 30  # and its caption
        assert all(abs(y - v) >= height + 30 or abs(x - u) >= width + 8 for v, u in corners[:i])


def test_tiles_show_the_mask():
    run = make_run((3, 4, 5))
    sheet, _ = sheet_of(run, size=(360, 640))
    for frame, tile in enumerate(sheet._tiles):
        height, width = tile.shape[:2]
        drawn = draw_frame(frame, (height, width), (4, 5), (0, 0, 1, 1))
        for (row, column), kept in np.ndenumerate(run.retention.retention_mask[frame].numpy()):
            y, x = int((row + 0.5) * height / 4), int((column + 0.5) * width / 5)
            if kept:
                assert np.abs(tile[y, x].astype(int) - drawn[y, x]).max() <= 2
            else:
                assert np.ptp(tile[y, x]) == 0
                assert tile[y, x].max() < 0.5 * drawn[y, x].max()


def test_thinning_is_said_on_it():
    run = make_run((60, 2, 3))
    drawn = DrawnRun.of(make_view(run), 24)
    assert len(drawn.frames) == 24
    assert [frame.index for frame in drawn.frames[:3]] == [0, 2, 5]
    assert "24 of 60 frames are drawn, evenly spread; all are counted." in drawn.legend()
    assert "frames are drawn" not in DrawnRun.of(make_view(run), 60).legend()


def test_words_on_a_sheet():
    run = replace(make_run((4, 2, 3), q=0.5), model="/somewhere/else/my-model")
    drawn = DrawnRun.of(make_view(run, frames=SimpleNamespace(size=(2, 3))), 24)
    assert drawn.title() == "clip.mp4  |  my-model  |  q = 0.5  |  12 of 24 tokens kept (50.0%)"
    assert drawn.legend() == "Clear: kept. Grey and dark: dropped, because it repeats the frame before."
    other = make_run((4, 2, 3), rule=RetentionRule("random"), region=PixelRegion(0, 0.2, 1, 0.8))
    drawn = DrawnRun.of(make_view(other), 24)
    assert drawn.title().endswith("tokens kept (50.0%) by random")
    assert drawn.legend() == (
        "Clear: kept. Grey and dark: dropped. Striped: not seen by the model. "
        "The video is not at hand: plain grey stands for its pixels."
    )


def test_a_sheet_records_what_it_was_made_of():
    run = make_run((4, 2, 3))
    _, image = sheet_of(run)
    record = json.loads(image.text["evs"])
    assert record["video"] == {"name": "clip.mp4", "sha256": "0"}
    assert record["retained_tokens"] == 12
    assert record["num_tokens_per_frame"] == run.retention.num_tokens_per_frame.tolist()


def test_the_same_sheet_twice():
    run = make_run((5, 4, 5))
    assert sheet_of(run)[0].png() == sheet_of(run)[0].png()


def test_names_of_any_script_and_length():
    assert readable("Zähle über 100 % – 中文.mp4") == "Zahle uber 100 % ? ??.mp4"
    assert text_width(shortened("a" * 500, 200, 16), 16) <= 200
    assert all(text_width(line, 16) <= 200 for line in wrapped("many words of " + "x" * 90, 200, 16))
    assert (seconds_text(2.5), seconds_text(3723.456)) == ("2.50 s", "3723.5 s")
    run = make_run((2, 2, 3))
    run.provenance["video"]["name"] = "x" * 300 + ".mp4"
    sheet, image = sheet_of(run)
    assert places(image, sheet._tiles[0])


# ---------------------------------------------------------------------------------------------------------- folder


def write_folder(path, run, *, size=(90, 160), missing=(), max_frames=100, overwrite=False):
    frames = SimpleNamespace(size=size)
    writer = FolderWriter(make_view(run, frames=frames), path, max_frames, overwrite=overwrite)
    for index in writer.frame_indices:
        if index not in missing:
            writer.add(index, draw_frame(index, size, run.token_grid_thw[1:], (0, 0, 1, 1)))
    return writer.finish()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_has_a_picture_a_frame_and_a_sheet(tmp_path):
    written = write_folder(tmp_path / "new" / "frames", make_run((3, 4, 5)))
    expected = ["clip_0000.png", "clip_0001.png", "clip_0002.png", "clip_sheet.png"]
    assert names(tmp_path / "new" / "frames") == expected
    assert [path.name for path in written] == expected
    assert names(tmp_path / "new") == ["frames"]
    assert (tmp_path / "new" / "frames").stat().st_mode & 0o700 == 0o700


def test_pictures_are_numbered_by_the_frame_of_tokens(tmp_path):
    write_folder(tmp_path / "frames", make_run((10, 4, 5)), max_frames=3)
    assert names(tmp_path / "frames") == ["clip_0000.png", "clip_0003.png", "clip_0006.png", "clip_sheet.png"]


def test_a_frame_that_does_not_decode_has_a_grey_picture(tmp_path):
    write_folder(tmp_path / "frames", make_run((3, 4, 5)), missing={1})
    picture = np.asarray(Image.open(tmp_path / "frames" / "clip_0001.png"))
    assert (picture == picture[..., :1]).all()


def test_what_lies_in_a_folder_stays(tmp_path):
    folder = tmp_path / "frames"
    folder.mkdir()
    (folder / "clip_0000.png").write_text("old")
    (folder / "clip_0009.png").write_text("of another run")
    (folder / "notes.txt").write_text("mine")
    write_folder(folder, make_run((2, 4, 5)), overwrite=True)
    assert names(folder) == ["clip_0000.png", "clip_0001.png", "clip_0009.png", "clip_sheet.png", "notes.txt"]
    assert Image.open(folder / "clip_0000.png").size == (160, 90)
    assert (folder / "clip_0009.png").read_text() == "of another run"


def test_nothing_is_written_where_one_picture_cannot_be(tmp_path):
    folder = tmp_path / "frames"
    (folder / "clip_0001.png").mkdir(parents=True)
    with pytest.raises(ArtifactError, match=r"cannot write .*clip_0001.png: it is a folder"):
        write_folder(folder, make_run((2, 4, 5)))
    assert names(folder) == ["clip_0001.png"]


def test_a_folder_that_is_given_up_leaves_nothing(tmp_path):
    run = make_run((2, 4, 5))
    writer = FolderWriter(make_view(run, frames=SimpleNamespace(size=(90, 160))), tmp_path / "frames", 100)
    writer.add(0, draw_frame(0, (90, 160), (4, 5), (0, 0, 1, 1)))
    del writer
    gc.collect()  # it knows itself
    assert names(tmp_path) == []


def test_a_hostile_name_stays_in_its_folder(tmp_path):
    run = make_run((1, 4, 5))
    run.provenance["video"]["name"] = "../../up\\and\n\x00away.mp4"
    write_folder(tmp_path / "frames", run)
    assert names(tmp_path / "frames") == ["up_and__away_0000.png", "up_and__away_sheet.png"]
