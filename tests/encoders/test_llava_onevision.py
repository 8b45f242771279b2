"""LLaVA-OneVision: patches pooled to half of each side rounded up, and a newline behind the last frame."""

import torch
from frame_checks import FrameFamilyTests
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import EncodeOptions


class TestLlavaOnevision(FrameFamilyTests):
    model_type = "llava_onevision"
    pixels, patches, merge = 70, 5, 1  # 5 x 5 patches are 3 x 3 tokens
    behind = 1

    def test_the_newline_is_the_models_own_and_once_a_video(self, family):
        drawn = DrawnClip(make_clip(4, 40, 30), 0)
        plan = family.encoder.plan(drawn.clip, EncodeOptions())
        rows = torch.cat([family.encoder.encode(drawn.frames()[i : i + 1], plan).levels[0] for i in range(4)])
        newline = family.whole.model.image_newline
        assert rows.shape == (4, 3, 3, 32)
        assert not (rows == newline).all(-1).any()
        assert torch.equal(family.encoder.closing_rows(), newline[None])
        assert not family.encoder.closing_rows().requires_grad
        assert plan.layout.extra_positions.tolist() == [4 * 9]
