"""The recorded region is where the model's pixels come from: read off the processor's own output, cell by cell."""

import numpy as np
import pytest
import torch
from tiny_frame_models import frame_family
from tiny_models import make_clip

from evs_cli.core.pixel_region import WHOLE_FRAME, PixelRegion, cropped_region
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError

FRAME_FAMILIES = ["internvl", "smolvlm", "llava_onevision", "llava_next_video", "video_llava"]
# Resizing rounds to whole pixels, and its antialiasing blurs by about one of them: 3 % of the sides drawn here.
PLACE_TOLERANCE = 0.03


def ramps(height, width):
    """(1, 3, H, W) uint8: red tells how far down a pixel is, green how far across."""
    down = torch.linspace(0, 255, height)[:, None].expand(height, width)
    across = torch.linspace(0, 255, width)[None].expand(height, width)
    return torch.stack([down, across, torch.zeros_like(down)]).round().to(torch.uint8)[None]


def seen_places(encoder, clip, plan):
    """(rows, columns, 2) where in the frame each patch of pixels lies, by its colour as the processor gives it."""
    video = encoder.processor.video_processor
    pixels = encoder.preprocess(ramps(clip.height, clip.width), plan)[encoder.pixel_name][0, 0]
    mean, std = (torch.tensor(getattr(video, name)).view(3, 1, 1) for name in ("image_mean", "image_std"))
    colours = (pixels * std + mean)[:2]
    rows, columns = encoder.covered_patches(*encoder.patch_sides(*plan.frame_size))
    size = encoder.config.vision_config.patch_size
    side = size if isinstance(size, int) else size[0]
    cells = colours[:, : rows * side, : columns * side].reshape(2, rows, side, columns, side).mean(dim=(2, 4))
    return cells.permute(1, 2, 0).numpy(), rows, columns


@pytest.mark.parametrize("model_type", FRAME_FAMILIES)
@pytest.mark.parametrize(("height", "width"), [(90, 160), (160, 90), (90, 90), (61, 173)])
def test_a_cell_covers_the_pixels_that_its_token_is_made_of(model_type, height, width):
    encoder = frame_family(model_type).encoder
    clip = make_clip(1, height, width)
    plan = encoder.plan(clip, EncodeOptions())
    places, rows, columns = seen_places(encoder, clip, plan)
    for row in range(rows):
        for column in range(columns):
            top, left, bottom, right = plan.pixel_region.cell(row, column, rows, columns)
            centre = (top + bottom) / 2, (left + right) / 2
            assert np.abs(places[row, column] - centre).max() < PLACE_TOLERANCE


@pytest.mark.parametrize("model_type", ["llava_next_video", "video_llava"])
def test_a_cropped_frame_has_a_region_inside_it(model_type):
    encoder = frame_family(model_type).encoder
    region = encoder.plan(make_clip(1, 90, 180), EncodeOptions()).pixel_region
    assert region.left == pytest.approx(0.25, abs=0.02)
    assert 0.7 < region.right < 0.77
    assert region.top == 0


def test_a_side_shorter_than_the_crop_is_padded():
    region = cropped_region((50, 200), (100, 100))
    assert region == PixelRegion(top=-0.5, left=0.25, bottom=1.5, right=0.75)


def test_patches_leave_out_the_last_pixels():
    assert cropped_region((100, 100), None, (96, 98)) == PixelRegion(bottom=0.96, right=0.98)
    assert cropped_region((100, 100), None).is_whole


def test_a_whole_frame_is_cut_into_even_cells():
    assert WHOLE_FRAME.cell(1, 2, 4, 8) == (0.25, 0.25, 0.5, 0.375)


@pytest.mark.parametrize("numbers", [(0, 0, 0, 1), (0.5, 0, 0.2, 1), (float("nan"), 0, 1, 1), (0, 0, 1, float("inf"))])
def test_a_region_that_is_none_is_refused(numbers):
    with pytest.raises(UsageError, match="Invalid pixel region"):
        PixelRegion(*numbers)
