"""SmolVLM: the count of frames in words, each frame behind its time, placeholders of the image token."""

import re
import sys

import pytest
import torch
from frame_checks import FrameFamilyTests
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.errors import ModelError
from evs_cli.video.sampling import SamplingDefaults


class TestSmolVLM(FrameFamilyTests):
    model_type = "smolvlm"
    pixels, patches, merge = 96, 6, 2
    modality, placeholder = "image", "<image>"
    sampling = SamplingDefaults(fps=1.0, max_frames=64)

    def printed_seconds(self, text):
        times = re.findall(r"\nFrame from (\d+):(\d\d):<fake_token_around_image>", text)
        return [60.0 * int(minutes) + int(seconds) for minutes, seconds in times]

    def test_the_markup_of_two_frames(self, family):
        plan = family.encoder.plan(make_clip(2, 40, 30, fps=1 / 3, start=59.9996), EncodeOptions())
        frame = f"<fake_token_around_image><global-img>{'<image>' * 9}<fake_token_around_image>"
        assert family.processor.tokenizer.decode(plan.layout.input_ids) == (
            "You are provided the following series of two frames from a 0:00:06 [H:MM:SS] video.\n"
            f"\nFrame from 01:00:{frame}\nFrame from 01:03:{frame}\n\n"
        )
        assert plan.prompt_seconds.tolist() == [60.0, 63.0]  # to the millisecond first, then cut off

    def test_without_num2words_it_says_what_to_install(self, family, monkeypatch):
        monkeypatch.setitem(sys.modules, "num2words", None)
        encoder = open_encoder(str(family.folder))
        with pytest.raises(ModelError, match="its processor needs the package num2words") as error:
            encoder.plan(make_clip(2, 40, 30), EncodeOptions())
        assert error.value.hint == "pip install num2words"
        with pytest.raises(ModelError, match="num2words"):
            _ = encoder.sampling_defaults

    def test_a_processor_without_a_rate_samples_at_two_fps(self, family):
        encoder = open_encoder(str(family.folder))
        encoder.processor.video_processor.fps = encoder.processor.video_processor.num_frames = None
        assert encoder.sampling_defaults == SamplingDefaults(fps=2.0, max_frames=128)

    def test_a_frame_that_the_model_takes_for_padding_is_refused(self, family):
        """Where black is zero, the model leaves black frames out: their tokens would belong to other frames."""
        encoder = open_encoder(str(family.folder))
        encoder.load("cpu", torch.float32)
        encoder.processor.video_processor.image_mean = [0.0, 0.0, 0.0]
        drawn = DrawnClip(make_clip(3, 40, 30), 0)
        frames, plan = drawn.frames(), encoder.plan(drawn.clip, EncodeOptions())
        assert encoder.encode(frames, plan).levels[0].shape[0] == 3
        frames[1] = 0
        with pytest.raises(ModelError, match="18 rows of features, 27 planned"):
            encoder.encode(frames, plan)
