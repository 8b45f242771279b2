"""LLaVA-NeXT-Video: patches pooled two by two, the middle of the frame alone."""

import pytest
import torch
from frame_checks import FrameFamilyTests
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.errors import ModelError


class TestLlavaNextVideo(FrameFamilyTests):
    model_type = "llava_next_video"
    pixels, patches, merge = 84, 6, 2

    def test_the_edges_that_are_noted_as_unseen_are(self, family):
        clip = make_clip(2, 84, 168)
        plan, frames = family.encoder.plan(clip, EncodeOptions()), DrawnClip(clip, 0).frames()
        changed = frames.clone()
        changed[..., :40] ^= 0x80
        changed[..., -40:] ^= 0x80
        one, other = (family.encoder.encode(f, plan).levels[0] for f in (frames, changed))
        assert torch.equal(one, other)
        assert plan.notes

    def test_an_odd_side_is_refused(self, family):
        """The processor divides 25 patches by 4 and the model pools 5 x 5 to 2 x 2: 6 placeholders for 4 rows."""
        encoder = open_encoder(str(family.folder))
        video = encoder.processor.video_processor
        video.size, video.crop_size = {"shortest_edge": 70}, {"height": 70, "width": 70}
        with pytest.raises(ModelError, match="12 placeholders <video>, 8 planned"):
            encoder.plan(Clip(64, 64, make_clip(2, 1, 1).pts_seconds, 1.0), EncodeOptions())
