"""InternVL: numbered frames, placeholders of the image token, patches merged two by two."""

from frame_checks import FrameFamilyTests
from tiny_models import make_clip

from evs_cli.encoders.base import EncodeOptions


class TestInternVL(FrameFamilyTests):
    model_type = "internvl"
    pixels, patches, merge = 84, 6, 2
    modality, placeholder = "image", "<IMG_CONTEXT>"

    def test_the_markup_of_two_frames(self, family):
        plan = family.encoder.plan(make_clip(2, 40, 30), EncodeOptions())
        frame = f"<img>{'<IMG_CONTEXT>' * 9}</img>"
        assert family.processor.tokenizer.decode(plan.layout.input_ids) == f"Frame1: {frame}\nFrame2: {frame}"
