"""ERNIE 4.5 VL against its processor and its whole model; the common checks are in ``grid_checks``."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from grid_checks import GridChecks
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ImageFont
from tiny_grid_models import ERNIE_MARKUP, grid_family
from tiny_models import DrawnClip, clips, make_clip, own_inputs

from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.runtime import Runtime
from evs_cli.errors import ModelError, UsageError
from evs_cli.pipeline.encode import EncodePipeline
from evs_cli.pipeline.planner import Planner
from evs_cli.pipeline.row_selection import AllRows
from evs_cli.pipeline.settings import EncodeSettings
from evs_cli.video.reader import read_frames
from evs_cli.video.sampling import SamplingDefaults, SamplingRequest

SAMPLE = Path(__file__).parents[2] / "samples" / "pan.mp4"


class TestErnie45VLMoe(GridChecks):
    model_type = "ernie4_5_vl_moe"
    placeholder = "<|VIDEO_PLACEHOLDER|>"
    grid_frames = 2
    pixel_limits = ("frame_min_pixels", "frame_max_pixels")
    sampling = SamplingDefaults(fps=2.0, max_frames=180, min_frames=16)

    def further_inputs(self, family, ids):
        """Its experts are parted by modality: without these types every token would go to those of text."""
        return {"moe_mm_token_type_ids": family.processor.create_moe_mm_token_type_ids(ids)}


# ------------------------------------------------------------------------------------- times drawn on the frames


@pytest.fixture(scope="module")
def drawing(tmp_path_factory):
    """(encoder, processor) of a checkpoint that draws times, as the published ones do, with a font beside it."""
    folder = tmp_path_factory.mktemp("ernie_drawing")
    family = grid_family("ernie4_5_vl_moe")
    shutil.copytree(family.folder, folder, dirs_exist_ok=True)
    font = folder / "font.ttf"
    font.write_bytes(ImageFont.load_default(12).font_bytes)  # the one that Pillow carries
    processor = transformers.AutoProcessor.from_pretrained(folder)
    processor.video_processor.draw_on_frames, processor.video_processor.font = True, str(font)
    processor.save_pretrained(folder)
    encoder = open_encoder(str(folder))
    encoder.load("cpu", torch.float32)
    return encoder, transformers.AutoProcessor.from_pretrained(folder)


def own_drawn_levels(processor, drawn, frames):
    """(N, D) features of the whole model, and ids, of frames the processor itself has drawn on."""
    inputs = own_inputs(processor, drawn, ERNIE_MARKUP, frames=frames.clone(), repeat_single=False)
    return grid_family("ernie4_5_vl_moe").own_levels(inputs)[0], inputs["input_ids"][0].numpy()


def test_times_are_drawn_as_the_processor_draws_them(drawing):
    encoder, processor = drawing

    @settings(max_examples=5, deadline=None, derandomize=True)
    @given(drawn=clips(sizes=st.tuples(st.integers(10, 240), st.integers(10, 240))))
    def check(drawn):
        frames = drawn.frames()
        plan = encoder.plan(drawn.clip, EncodeOptions())
        own, ids = own_drawn_levels(processor, drawn, frames)
        before = frames.clone()
        marked = encoder.mark_frames(frames, drawn.clip.pts_seconds)
        assert torch.equal(frames, before)
        assert torch.equal(encoder.encode(marked, plan).levels[0].flatten(0, 2), own)
        np.testing.assert_array_equal(plan.layout.input_ids, ids)
        assert plan.processing == {"draw_on_frames": True}

    check()


def test_the_time_that_is_drawn_is_the_one_told(drawing):
    """To the hundredth; hours and minutes carry."""
    encoder, processor = drawing
    pts = np.array([0.0, 0.5, 59.994, 60.2, 3599.999, 3600.5, 7325.125])
    clip = Clip(230, 260, pts, 7400.0)  # so large that the strokes have a width
    plan = encoder.plan(clip, EncodeOptions())
    assert plan.prompt_seconds.tolist() == [0.0, 59.99, 3600.0, 7325.12]
    frames = DrawnClip(clip, 1).frames()
    own, _ = own_drawn_levels(processor, DrawnClip(clip, 1), frames)
    assert torch.equal(encoder.encode(encoder.mark_frames(frames, pts), plan).levels[0].flatten(0, 2), own)


def test_drawing_changes_the_features(drawing):
    """Else the tests above would hold without it."""
    encoder, _ = drawing
    drawn = DrawnClip(make_clip(4, 90, 120), 0)
    plan = encoder.plan(drawn.clip, EncodeOptions())
    frames = drawn.frames()
    marked, later = (encoder.mark_frames(frames, drawn.clip.pts_seconds + shift) for shift in (0, 1000))
    levels = [encoder.encode(f, plan).levels[0] for f in (frames, marked, later)]
    assert not torch.allclose(levels[0], levels[1], atol=1e-2)
    assert not torch.allclose(levels[1], levels[2], atol=1e-2)


def test_frames_of_a_checkpoint_that_draws_nothing_stay_as_they_are():
    encoder = grid_family("ernie4_5_vl_moe").encoder
    frames = DrawnClip(make_clip(2, 60, 60), 0).frames()
    assert encoder.mark_frames(frames, np.zeros(2)) is frames


def test_frames_with_their_times_drawn_in_are_never_reused(drawing):
    assert not drawing[0].frames_are_independent
    assert grid_family("ernie4_5_vl_moe").encoder.frames_are_independent


def test_the_pipeline_draws_each_batchs_own_times(drawing):
    """A video from file to features: frames 5 and on carry their times, not those of the first batch."""
    encoder, processor = drawing
    plan = Planner(encoder).plan_video(SAMPLE, SamplingRequest(fps=3.0, start_seconds=1.0), EncodeOptions())
    pipeline = EncodePipeline(encoder, EncodeSettings(Runtime("cpu", torch.float32, "test"), batch_frames=4))
    sink = AllRows().open(plan.encode.token_grid_thw)
    encoded = AllRows().finish(pipeline.encode(plan, sink), sink)
    indices = plan.selection.frame_indices
    with read_frames(plan.video, indices, chunk_frames=len(indices)) as stream:
        frames = torch.cat([batch.frames for batch in stream])
    assert len(frames) > 8
    own, _ = own_drawn_levels(processor, DrawnClip(plan.clip, 0), frames)
    torch.testing.assert_close(encoded.levels[0].flatten(0, 2), own, rtol=0, atol=1e-5)


def test_frames_too_small_to_draw_on_are_refused_before_any_work(drawing):
    encoder, _ = drawing
    with pytest.raises(UsageError, match=r"^cannot draw times on frames of 90x9, "):
        encoder.plan(make_clip(2, 9, 90), EncodeOptions())


def test_a_font_that_is_missing_is_told(drawing):
    encoder = open_encoder(drawing[0].source.location)
    encoder.processor.video_processor.font = "nowhere.ttf"
    with pytest.raises(ModelError, match=r"cannot draw times .* its font nowhere.ttf is no file"):
        encoder.plan(make_clip(2, 90, 90), EncodeOptions())
