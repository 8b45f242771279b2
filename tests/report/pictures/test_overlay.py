"""A painted mask lands on the pixels its tokens were made of: read off clips whose every cell has its own colour."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from cell_clips import BESIDE, colours_of_frame, draw_frame, write_cell_clip
from PIL import Image
from tiny_frame_models import tiny_folder
from video_files import ORIENTATIONS

from evs_cli.core.pixel_region import WHOLE_FRAME, PixelRegion
from evs_cli.jobs.view import ViewRequest, run_view
from evs_cli.pipeline.progress import SilentProgress
from evs_cli.pipeline.request import make_request
from evs_cli.report.pictures.overlay import OverlayGrid, fitted_size, outline_pixels, paint_mask
from evs_cli.report.view import draw_outputs, settle_view_outputs

GREY_GAIN = 0.32


def luma(colour):
    return float(np.dot(colour, (0.299, 0.587, 0.114)))


def masks(num_frames, height, width):
    """(T, h, w) bool: one cell alone in a corner, one in the middle, the others drawn."""
    mask = np.random.default_rng(0).random((num_frames, height, width)) < 0.5
    mask[:2] = False
    mask[0, 0, -1] = mask[1, height // 2, width // 2] = True
    return mask


def assert_cells(picture, frame, mask, region, slack):
    """Every cell of a picture, but for ``slack`` pixels at its borders, is as its mask says.

    Args:
        picture: (H', W', 3), as large as the frame.
        frame: which one.
        mask: (h, w) bool.
        region: (top, left, bottom, right) where the cells truly lie, in shares of the frame.
        slack: pixels.
    """
    height, width = mask.shape
    colours = colours_of_frame(frame, mask.shape)
    rows = (region[0] + (region[2] - region[0]) * np.arange(height + 1) / height) * picture.shape[0]
    columns = (region[1] + (region[3] - region[1]) * np.arange(width + 1) / width) * picture.shape[1]
    for row, column in np.ndindex(height, width):
        inner = picture[
            int(np.ceil(rows[row] + slack)) : int(rows[row + 1] - slack),
            int(np.ceil(columns[column] + slack)) : int(columns[column + 1] - slack),
        ]
        assert inner.size, "a cell too small to be looked at"
        if mask[row, column]:
            assert (inner == colours[row, column]).all(), (frame, row, column)
        else:
            drawn = inner[~(inner == 255).all(axis=2)]  # less the outline
            assert len(drawn) > 0.3 * inner.shape[0] * inner.shape[1]
            assert (drawn == drawn[:, :1]).all(), (frame, row, column)
            assert np.abs(drawn[:, 0] - GREY_GAIN * luma(colours[row, column])).max() <= 1, (frame, row, column)


def view_of(path, model):
    """The view of a clip by a tiny model that sees every frame."""
    request = make_request(model=model, fps=2.0)
    return next(run_view(ViewRequest((str(path),), (request,), q=0.5), SilentProgress())).result


def with_masks(view, mask):
    """A view of the same frames whose masks are ``mask``."""
    run = view.runs[0]
    return replace(view, runs=(replace(run, retention=run.ranking.retention(0.5, torch.from_numpy(mask))),))


def drawn_frames(view, folder):
    """(T, H', W', 3): the pictures of ``-o folder``."""
    draw_outputs(view, settle_view_outputs([f"{folder}/"], num_runs=1, overwrite=False), SilentProgress())
    return [np.asarray(Image.open(path)) for path in sorted(folder.glob("*_[0-9]*.png"))]


def middle_square(height, width):
    """(top, left, bottom, right) of the square that a processor cuts out of the middle, in shares of a frame."""
    side = min(height, width)
    top, left = (height - side) / 2 / height, (width - side) / 2 / width
    return top, left, 1 - top, 1 - left


WHOLE = (0, 0, 1, 1)
SIZES = {"landscape": (180, 320), "portrait": (320, 180), "odd": (181, 303), "square": (200, 200)}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("model_type", ["dinov2", "qwen3_vl"])
def test_a_family_that_sees_the_whole_frame(tmp_path, tiny_model, model_type, size):
    model = str(tiny_model(model_type))
    grid = view_of(write_cell_clip(tmp_path / "first.mp4", size=size, grid=(1, 1)), model).runs[0].token_grid_thw
    view = view_of(write_cell_clip(tmp_path / "clip.mp4", size=size, grid=grid[1:]), model)
    mask = masks(*grid)
    for frame, picture in enumerate(drawn_frames(with_masks(view, mask), tmp_path / "frames")):
        assert picture.shape == (*size, 3)
        # A tubelet is shown by its first frame.
        shown = frame * view.runs[0].frame_indices[1] if grid[0] > 1 else 0
        assert_cells(picture, shown, mask[frame], WHOLE, slack=1)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("model_type", "pixels"), [("video_llava", 42), ("llava_next_video", 84)])
def test_a_family_that_cuts_out_the_middle(tmp_path, model_type, pixels, size):
    region = middle_square(*size)
    path = write_cell_clip(tmp_path / "clip.mp4", size=size, grid=(3, 3), region=region, num_frames=8)
    view = view_of(path, str(tiny_folder(model_type)))
    num_frames, *grid = view.runs[0].token_grid_thw
    assert grid == [3, 3]
    mask = masks(num_frames, 3, 3)
    # The processor resizes to whole pixels and cuts off whole pixels: it is off the middle by up to one of its own.
    slack = 1 + min(size) / pixels
    for frame, picture in enumerate(drawn_frames(with_masks(view, mask), tmp_path / "frames")):
        assert picture.shape == (*size, 3)
        assert_cells(picture, int(view.runs[0].frame_indices[frame]), mask[frame], region, slack)
        top, left = int(region[0] * size[0] - slack), int(region[1] * size[1] - slack)
        for beside in (picture[: max(0, top)], picture[:, : max(0, left)]):
            assert not (beside == BESIDE).all(axis=2).any()  # hatched


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_a_clip_that_is_shown_turned(tmp_path, tiny_model, name):
    size = (180, 320)
    model = str(tiny_model("dinov2"))
    path = write_cell_clip(tmp_path / "first.mp4", size=size, grid=(1, 1), turned=ORIENTATIONS[name])
    grid = view_of(path, model).runs[0].token_grid_thw
    assert grid[1] < grid[2]
    path = write_cell_clip(tmp_path / "clip.mp4", size=size, grid=grid[1:], turned=ORIENTATIONS[name])
    mask = masks(*grid)
    for frame, picture in enumerate(drawn_frames(with_masks(view_of(path, model), mask), tmp_path / "frames")):
        assert_cells(picture, frame, mask[frame], WHOLE, slack=1)


def test_pixels_that_are_not_square(tmp_path, tiny_model):
    model = str(tiny_model("dinov2"))
    made = {"size": (180, 160), "pixel_aspect": Fraction(2)}
    grid = view_of(write_cell_clip(tmp_path / "first.mp4", grid=(1, 1), **made), model).runs[0].token_grid_thw
    view = view_of(write_cell_clip(tmp_path / "clip.mp4", grid=grid[1:], **made), model)
    mask = masks(*grid)
    for frame, picture in enumerate(drawn_frames(with_masks(view, mask), tmp_path / "frames")):
        assert picture.shape == (180, 320, 3)
        # Made twice as wide, a border of two colours is four pixels of a mixture.
        centre = [[int((i + 0.5) * side / n) for i in range(n)] for side, n in zip((180, 320), grid[1:], strict=True)]
        colours = colours_of_frame(frame, grid[1:])
        for (row, y), (column, x) in ((r, c) for r in enumerate(centre[0]) for c in enumerate(centre[1])):
            expected = colours[row, column] if mask[frame, row, column] else GREY_GAIN * luma(colours[row, column])
            assert np.abs(picture[y, x] - np.float64(expected)).max() <= 2


# ------------------------------------------------------------------------------------------------ painting alone


def test_a_padded_region_reaches_outside_of_the_frame():
    region = PixelRegion(top=-0.5, left=0.25, bottom=1.5, right=0.75)
    frame = draw_frame(0, (100, 200), (4, 4), (-0.5, 0.25, 1.5, 0.75))
    mask = np.zeros((4, 4), bool)
    mask[1, 0] = mask[0, 3] = True
    picture = paint_mask(frame, mask, region)
    assert picture.shape == (200, 200, 3)
    assert (picture[50:100, 50:75] == frame[:50, 50:75]).all()  # the cell at (1, 0)
    assert (picture[0:50, 125:150] == 0).all()  # the cell at (0, 3), kept: the padding as it is
    assert (picture[101:150, 76:100] == picture[101:150, 76:100, :1]).all()
    grey = GREY_GAIN * luma(colours_of_frame(0, (4, 4))[2, 1])
    assert np.abs(picture[120:140, 80:95, 0] - grey).max() <= 1
    assert len(np.unique(picture[60:140, 0:40].reshape(-1, 3), axis=0)) == 2  # beside the region: two tones of a hatch


def test_kept_pixels_are_untouched_and_the_outline_is_on_the_dropped_side():
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 256, (97, 131, 3), dtype=np.uint8)
    for _ in range(5):
        mask = rng.random((5, 7)) < 0.5
        picture = paint_mask(frame, mask, WHOLE_FRAME)
        kept, dropped = OverlayGrid.of((97, 131), (5, 7), WHOLE_FRAME).spread(mask)
        assert (picture[kept] == frame[kept]).all()
        assert (kept ^ dropped).all()
        is_white = (picture == 255).all(axis=2) & dropped
        beside = np.zeros_like(kept)
        padded = np.pad(kept, 1)
        for down, across in np.ndindex(3, 3):
            beside |= padded[down : down + 97, across : across + 131]
        assert (is_white == (beside & dropped)).all()


def test_all_kept_is_the_frame_and_all_dropped_has_no_outline():
    frame = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    assert (paint_mask(frame, np.ones((4, 6), bool), WHOLE_FRAME) == frame).all()
    picture = paint_mask(frame, np.zeros((4, 6), bool), WHOLE_FRAME)
    assert picture.max() <= GREY_GAIN * 255
    assert (picture == picture[..., :1]).all()


def test_brightness_alone_tells_kept_from_dropped_where_colours_are_alike():
    """In grey, as printed or seen without colour: whatever the frame shows, an outline of white stands between them."""
    for value in (0, 60, 128, 255):
        frame = np.full((60, 60, 3), value, np.uint8)
        mask = np.zeros((3, 3), bool)
        mask[1, 1] = True
        picture = np.asarray(Image.fromarray(paint_mask(frame, mask, WHOLE_FRAME)).convert("L"))
        assert (picture[20:40, 20:40] == value).all()
        assert (picture[19, 19:41] == 255).all()
        assert picture[:18].max() <= GREY_GAIN * value


def test_borders_do_not_drift():
    """Each border is the exact share, rounded: half a pixel off at most, also the last of a hundred."""
    grid = OverlayGrid.of((1001, 333), (100, 37), PixelRegion(0.1, 0.2, 0.93, 0.71))
    exact = (0.1 + 0.83 * np.arange(101) / 100) * 1001
    assert np.abs(grid.row_edges - exact).max() <= 0.5
    assert grid.cell(99, 36)[1].stop == round(0.71 * 333)


def test_a_grid_finer_than_the_pixels_is_painted_all_the_same():
    mask = np.ones((50, 50), bool)
    mask[10] = False
    picture = paint_mask(np.full((20, 20, 3), 200, np.uint8), mask, WHOLE_FRAME)
    assert picture.shape == (20, 20, 3)


def test_an_outline_leaves_most_of_a_cell():
    assert outline_pixels(OverlayGrid.of((1080, 1920), (16, 28), WHOLE_FRAME)) == 3
    assert outline_pixels(OverlayGrid.of((1080, 1920), (216, 384), WHOLE_FRAME)) == 1


@pytest.mark.parametrize("size", [(1080, 1920), (1920, 1080), (7, 5000), (90, 91)])
@pytest.mark.parametrize("region", [WHOLE_FRAME, PixelRegion(-0.5, 0.25, 1.5, 0.75), PixelRegion(-900, 0, 900, 1)])
def test_an_overlay_fits_its_room(size, region):
    height, width = fitted_size(size, region, (300, 400), max_scale=8)
    grid = OverlayGrid.of((height, width), (2, 2), region)
    if min(height, width) > 1:  # of a side of less than a pixel a whole one is drawn
        assert grid.height <= 300
        assert grid.width <= 400
