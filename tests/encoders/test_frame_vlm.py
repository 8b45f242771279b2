"""Frames that are cropped or stretched before a model sees them; what holds for each family is in ``frame_checks``."""

import pytest
from tiny_frame_models import frame_family
from tiny_models import make_clip

from evs_cli.encoders.base import EncodeOptions

CROP_NOTE = ("The model's processor cuts out the middle of each frame: its edges are not seen.",)


@pytest.mark.parametrize("model_type", ["llava_next_video", "video_llava"])
def test_a_frame_that_is_cropped_is_noted(model_type):
    encoder = frame_family(model_type).encoder
    assert encoder.plan(make_clip(2, 90, 160), EncodeOptions()).notes == CROP_NOTE
    assert encoder.plan(make_clip(2, 160, 90), EncodeOptions()).notes == CROP_NOTE
    assert encoder.plan(make_clip(2, 90, 90), EncodeOptions()).notes == ()


@pytest.mark.parametrize("model_type", ["internvl", "smolvlm", "llava_onevision"])
def test_a_frame_that_is_stretched_is_seen_whole(model_type):
    assert frame_family(model_type).encoder.plan(make_clip(2, 90, 160), EncodeOptions()).notes == ()
