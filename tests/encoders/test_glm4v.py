"""GLM-4.1V, 4.5V and 4.6V against their processors and whole models; the common checks are in ``grid_checks``."""

import shutil

import numpy as np
import pytest
import tiny_grid_models
import transformers
from grid_checks import GridChecks
from tiny_grid_models import grid_family
from tiny_models import DrawnClip, make_clip, own_inputs

from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.video.sampling import SamplingDefaults, SamplingRequest, select_frames

GLM46V_SAMPLING = SamplingDefaults(fps=1.0, max_frames=640, fps_up_to=((30.0, 6.0), (300.0, 2.0)))


class GlmPrompt:
    """What the families share: a video is written as images between the marks of a video."""

    placeholder = "<|image|>"
    modality = "image"  # beam search counts placeholders by the key; the forward takes either
    pixel_limits = ("video_min_pixels", "video_max_pixels")


class WholeSeconds:
    """The prompt of GLM-4.1V and 4.5V."""

    printed_time = r"<\|end_of_image\|>(\d+)(?=<)"
    sampling = SamplingDefaults(fps=2.0, max_frames=600)


class TestGlm4v(WholeSeconds, GlmPrompt, GridChecks):
    model_type = "glm4v"


class TestGlm4vMoe(WholeSeconds, GlmPrompt, GridChecks):
    model_type = "glm4v_moe"


class TestGlm46V(GlmPrompt, GridChecks):
    model_type = "glm46v"
    printed_time = r"<\|end_of_image\|>(\d+\.\d) seconds"
    sampling = GLM46V_SAMPLING


def test_times_are_cut_to_whole_seconds_or_printed_in_tenths():
    clip = Clip(56, 56, np.array([0.999, 1.4, 59.949, 59.96, 61.05, 62.0]), 63.0)
    plans = [grid_family(name).encoder.plan(clip, EncodeOptions()) for name in ("glm4v", "glm46v")]
    assert plans[0].prompt_seconds.tolist() == [0.0, 59.0, 61.0]
    assert plans[1].prompt_seconds.tolist() == [1.0, 59.9, 61.0]  # the double nearest to 61.05 lies below it


def test_the_processor_settles_times_and_sampling_whatever_the_model_type(tmp_path):
    """GLM-4.6V comes as ``glm4v_moe`` too, with the processor of ``glm46v``."""
    family = grid_family("glm4v_moe")
    shutil.copytree(family.folder, tmp_path, dirs_exist_ok=True)
    tiny_grid_models.glm46v_processor(family.processor.tokenizer).save_pretrained(tmp_path)
    processor = transformers.AutoProcessor.from_pretrained(tmp_path)
    assert type(processor).__name__ == "Glm46VProcessor"
    encoder = open_encoder(str(tmp_path))
    drawn = DrawnClip(make_clip(5, 90, 70, fps=3.0, start=7.0), 0)
    plan = encoder.plan(drawn.clip, EncodeOptions())
    own = own_inputs(processor, drawn, tiny_grid_models.GLM_MARKUP, repeat_single=True)
    np.testing.assert_array_equal(plan.layout.input_ids, own["input_ids"][0].numpy())
    assert plan.prompt_seconds.tolist() == [7.0, 7.7, 8.3]
    assert encoder.sampling_defaults == GLM46V_SAMPLING


@pytest.mark.parametrize("model_type", ["glm4v", "glm4v_moe"])
def test_the_count_of_the_processor_is_not_read_but_its_duration_is(model_type):
    encoder = open_encoder(str(grid_family(model_type).folder))
    video = encoder.processor.video_processor
    assert video.num_frames == 16
    video.fps, video.max_duration = 1, 120
    assert encoder.sampling_defaults == SamplingDefaults(fps=1.0, max_frames=120)


@pytest.mark.parametrize("model_type", ["glm4v", "glm46v"])
@pytest.mark.parametrize("duration", [5, 29, 31, 250, 301, 600, 3000])
def test_as_many_frames_as_the_processor_samples(model_type, duration):
    """At 10 frames a second of video, within the tubelet and the frame that rounding may add."""
    family = grid_family(model_type)
    metadata = transformers.video_utils.VideoMetadata(total_num_frames=duration * 10, fps=10.0, duration=duration)
    own = family.processor.video_processor.sample_frames(metadata)
    times = np.arange(duration * 10) / 10
    ours = select_frames(times, float(duration), SamplingRequest(), family.encoder.sampling_defaults)
    assert abs(len(ours.frame_indices) - len(own)) <= 2
    assert abs(ours.frame_indices[-1] - own[-1]) <= 10 * 1.01  # theirs may end up to a second early


@pytest.mark.parametrize("model_type", ["glm4v", "glm4v_moe", "glm46v"])
def test_the_marks_of_the_video_tell_its_images_from_an_image(model_type):
    family = grid_family(model_type)
    plan = family.encoder.plan(make_clip(3, 56, 56, start=2.0), EncodeOptions())
    text = family.processor.tokenizer.decode(plan.layout.input_ids)
    seconds = ("2.0 seconds", "3.0 seconds") if model_type == "glm46v" else ("2", "3")
    frame = "<|begin_of_image|>" + 4 * "<|image|>" + "<|end_of_image|>"
    assert text == "<|begin_of_video|>" + "".join(frame + time for time in seconds) + "<|end_of_video|>"
