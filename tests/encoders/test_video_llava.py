"""Video-LLaVA: a class token in front of each frame's patches is an extra row."""

import torch
from frame_checks import FrameFamilyTests
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import EncodeOptions


class TestVideoLlava(FrameFamilyTests):
    model_type = "video_llava"
    pixels, patches, merge = 42, 3, 1
    before = 1

    def test_the_extra_rows_are_the_class_tokens(self, family):
        drawn = DrawnClip(make_clip(3, 40, 30), 0)
        plan = family.encoder.plan(drawn.clip, EncodeOptions())
        own = family.own_rows(family.own(drawn)).reshape(3, 1 + 9, -1)
        tokens = family.encoder.encode(drawn.frames(), plan)
        assert torch.equal(tokens.extra, own[:, 0])
        assert torch.equal(tokens.levels[0].flatten(1, 2), own[:, 1:])
        assert plan.layout.extra_positions.tolist() == [0, 10, 20]
