"""Qwen2-VL against its processor and its whole model; the common checks are in ``grid_checks``."""

import numpy as np
import pytest
from grid_checks import GridChecks
from tiny_grid_models import grid_family
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError
from evs_cli.video.sampling import SamplingDefaults


class TestQwen2VL(GridChecks):
    model_type = "qwen2_vl"
    pixel_limits = ("frame_min_pixels", "frame_max_pixels")
    further_options = ("video_max_pixels", "cap_pixels_per_frame")
    sampling = SamplingDefaults(fps=2.0, max_frames=768, min_frames=4)


def test_the_time_axis_counts_frames_whatever_their_times():
    family = grid_family("qwen2_vl")
    clip = make_clip(8, 56, 56, fps=0.2, start=100.0)
    plan = family.encoder.plan(clip, EncodeOptions())
    video = family.encoder.position_ids(plan)[0, plan.layout.token_positions].view(4, 4)
    assert (video[:, 0] - video[0, 0]).tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(plan.prompt_seconds, [100.0, 110.0, 120.0, 130.0])


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl"])
def test_a_limit_of_all_frames_is_shared_out(model_type, tiny_family):
    """Of 8 frames each may have an eighth: 61 x 61 of 240 x 240 pixels are 2 x 2 tokens of 28."""
    family = grid_family(model_type) if model_type == "qwen2_vl" else tiny_family(model_type)
    clip = make_clip(8, 240, 240)
    plan = family.encoder.plan(clip, EncodeOptions(video_max_pixels=8 * 61 * 61))
    assert (plan.frame_size, plan.processing["size"]["longest_edge"]) == ((56, 56), 61 * 61)
    both = EncodeOptions(video_max_pixels=8 * 100 * 100, frame_max_pixels=61 * 61)
    assert family.encoder.plan(clip, both).frame_size == (56, 56)
    loose = family.encoder.plan(clip, EncodeOptions(video_max_pixels=10**9))
    assert loose.frame_size == family.encoder.plan(clip, EncodeOptions()).frame_size


def test_a_share_below_the_models_least_is_refused():
    with pytest.raises(UsageError, match=r"^Invalid pixel limits: at least \d+, at most 12\."):
        grid_family("qwen2_vl").encoder.plan(make_clip(8, 240, 240), EncodeOptions(video_max_pixels=100))


@pytest.mark.parametrize("cap", [None, True, False])
def test_the_cap_is_passed_on(cap):
    family = grid_family("qwen2_vl")
    processors = [family.encoder.processor.video_processor, family.processor.video_processor]
    drawn = DrawnClip(make_clip(16, 240, 240), 0)
    try:
        for processor in processors:
            processor.max_video_tokens = 20  # so low that the cap binds
        plan = family.encoder.plan(drawn.clip, EncodeOptions(cap_pixels_per_frame=cap))
        inputs = family.own(drawn, cap_pixels_per_frame=bool(cap))
    finally:
        for processor in processors:
            del processor.max_video_tokens
    assert plan.model_grid_thw == tuple(inputs["video_grid_thw"][0].tolist())
    assert plan.processing == {"cap_pixels_per_frame": bool(cap)}
    assert (plan.frame_size < family.encoder.plan(drawn.clip, EncodeOptions()).frame_size) == bool(cap)
