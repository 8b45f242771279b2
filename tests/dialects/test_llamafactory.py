"""The rules of LLaMA-Factory 0.9.5: by hand, and held against its own methods where its wheel is at hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from served_models import QWEN3, QWEN25, RATES, SIDES, cases
from server_wheels import wheel_function
from video_files import video

from evs_cli.dialects import llamafactory_0_9_5 as rules
from evs_cli.dialects import parse_dialect
from evs_cli.dialects.base import RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.served import ServedPlanner
from evs_cli.encoders.base import EncodeOptions
from evs_cli.video.info import probe_video
from evs_cli.video.sampling import SamplingRequest

WHEEL = "EVS_LLAMAFACTORY_WHEEL"
FILE = "llamafactory/data/mm_plugin.py"
MINUTE = ServerSource(1830, 30.0, 720, 1280)


def stream(frames=1830, stated=1830, seconds=61.0, fps=30.0, is_turned=False):
    header = {"stated_frames": stated, "stated_seconds": seconds, "is_turned": is_turned}
    return rules.StreamSource(frames, fps, 720, 1280, **header)


def plan_of(source, model=QWEN3, **given):
    return rules.plan_video(source, model, ServerOptions(video_kwargs=given))


def test_the_defaults_by_hand():
    """122 frames, cut to 341 x 192 of at most 65,536 pixels, then whole tokens of 32 pixels."""
    plan = plan_of(MINUTE)
    assert plan.resizes == ((192, 341), (192, 352))
    assert (plan.token_grid_thw, plan.total_tokens) == ((61, 6, 11), 4026)
    assert plan_of(MINUTE, QWEN25).resizes == ((192, 341), (196, 336))
    assert len(plan_of(ServerSource(9000, 30.0, 720, 1280)).frame_indices) == 128
    assert plan.frame_indices[:3].tolist() == [0, 15, 30]


def test_an_odd_last_frame_is_given_twice():
    plan = plan_of(MINUTE, video_maxlen=5)
    assert plan.frame_indices.tolist() == [0, 457, 914, 1371, 1829, 1829]
    assert plan.token_grid_thw.t == 3
    assert plan_of(ServerSource(5, 30.0, 720, 1280)).frame_indices.tolist() == [0, 0]  # less than half a second


def test_a_frame_stands_behind_its_time_and_nothing_around_the_video():
    plan = plan_of(MINUTE, video_maxlen=5)
    assert plan.outer == ("", "")
    assert plan.frame_texts[0] == "<7.6 seconds><|vision_start|>"  # the mean of 0 and 457 / 30
    assert plan.segments([1, 1, 1])[:3] == ["", "<7.6 seconds><|vision_start|>", 1]
    assert plan_of(MINUTE, QWEN25).outer == ("<|vision_start|>", "<|vision_end|>")
    assert plan_of(MINUTE, QWEN25).seconds_per_grid == 2 / (122 / 61)


def test_what_the_header_states_settles_it():
    assert len(plan_of(stream(seconds=10.0)).frame_indices) == 20
    unstated = plan_of(stream(stated=None, seconds=None))
    assert unstated.frame_indices.tolist() == list(range(128))
    assert any("takes the first ones" in note for note in unstated.notes)
    assert plan_of(stream(stated=None, seconds=None), QWEN25).seconds_per_grid == 1.0
    assert plan_of(stream(frames=11, stated=None, seconds=None)).frame_indices.tolist() == [*range(11), 10]
    with pytest.raises(RefusedByServerError, match="counts 128 and finds 11"):
        plan_of(stream(frames=11, stated=None, seconds=0.4))
    with pytest.raises(RefusedByServerError, match="states no length"):
        plan_of(stream(seconds=None))
    with pytest.raises(RefusedByServerError, match="states 1830 frames and the file holds 900"):
        plan_of(stream(frames=900))
    with pytest.raises(RefusedByServerError, match="rate is unknown"):
        plan_of(stream(fps=0.0))


def test_arguments_that_fail_or_do_nothing():
    with pytest.raises(RefusedByServerError, match="video_max_pixels is below video_min_pixels"):
        plan_of(MINUTE, video_max_pixels=100)
    assert plan_of(MINUTE, nframes=3).notes == ("nframes does nothing in LLaMA-Factory",)
    assert "does not turn the frames" in plan_of(stream(is_turned=True)).notes[0]


def test_facts_come_from_the_stream():
    server = parse_dialect("llamafactory").rules
    mp4 = server.source_of(probe_video(video("normal.mp4")), ServerOptions())
    assert (mp4.stated_frames, mp4.stated_seconds, mp4.is_turned) == (60, pytest.approx(2.4), False)
    mkv = server.source_of(probe_video(video("normal.mkv")), ServerOptions())
    assert (mkv.stated_frames, mkv.stated_seconds) == (None, None)
    assert server.source_of(probe_video(video("turned 180")), ServerOptions()).is_turned


def test_options_of_the_command_line(evs, served_checkpoint):
    numbers = ["--height", 720, "--width", 1280, "--duration", 61]

    def run(*options, checkpoint="qwen2_5_vl"):
        model = served_checkpoint(checkpoint)
        return evs("plan", *numbers, "--model", model, "--dialect", "llamafactory", *options)

    assert "4 x 7 x 12 = 336 video tokens" in run("--max-frames", 8)[1]
    assert "31 x 7 x 12" in run("--fps", 1)[1]
    assert "61 x 10 x 18" in run("--frame-max-pixels", 504 * 280)[1]
    assert "61 x 10 x 18" in run("--video-kwargs", f'{{"video_max_pixels": {504 * 280}}}')[1]
    assert "--num-frames has no effect on llamafactory" in run("--num-frames", 8)[2]
    assert (
        "its own video_max_pixels bounds each frame. Expected --frame-max-pixels."
        in run("--video-max-pixels", 10**6, checkpoint="qwen3_vl")[2]
    )


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl"])
def test_counts_are_the_processors_own(tiny_family, model_type):
    """Its frames through transformers' processor: the same grid, and the times that the processor works out."""
    family, source = tiny_family(model_type), ServerSource(57, 24000 / 1001, 90, 120)
    planner = ServedPlanner(parse_dialect("llamafactory"), family.encoder, ServerOptions(), SamplingRequest())
    plan = planner.server_plan(source, SamplingRequest(), EncodeOptions())
    sampled = plan.frame_indices[: 4 if len(set(plan.frame_indices.tolist())) == 4 else 3]
    told = [index / source.average_fps * 2.0 for index in sampled]
    frames = torch.zeros((len(plan.frame_indices), 3, *plan.resizes[0]), dtype=torch.uint8)
    inputs = family.processor.video_processor(
        videos=[frames], do_sample_frames=False, input_data_format="channels_first", return_tensors="pt"
    )
    _, rows, columns = inputs["video_grid_thw"][0].tolist()
    assert plan.token_grid_thw == (len(frames) // 2, rows // 2, columns // 2)
    ids = planner.sequence(plan, [plan.tokens_per_frame] * plan.token_grid_thw.t, EncodeOptions())
    tokens = "<|video_pad|>" * plan.tokens_per_frame
    if model_type == "qwen3_vl":
        times = family.processor._calculate_timestamps(told, 2.0, 2)
        written = "".join(f"<{time:.1f} seconds><|vision_start|>{tokens}<|vision_end|>" for time in times)
    else:
        written = f"<|vision_start|>{tokens * plan.token_grid_thw.t}<|vision_end|>"
    assert list(ids) == family.processor.tokenizer(written, add_special_tokens=False)["input_ids"]


# -------------------------------------------------------------------------------------------- its own methods


@cases(3000)
@given(
    frames=st.integers(1, 20_000),
    rate=RATES,
    drift=st.floats(0.5, 2),
    fps=st.one_of(st.sampled_from([0.5, 1.0, 2.0, 4.0]), st.floats(0.05, 40)),
    most=st.integers(1, 900),
)
def test_frames_are_its_own(frames, rate, drift, fps, most):
    seconds = frames / rate * drift
    method = wheel_function(WHEEL, FILE, "MMPluginMixin._get_video_sample_indices", {"math": math, "np": np})
    own = method(None, SimpleNamespace(frames=frames, duration=seconds, time_base=1), fps, most)
    ours, duration = rules.sampled_indices(stream(frames, frames, seconds, rate), fps, most)
    assert ours.tolist() == own.tolist()
    assert duration == seconds


@cases(3000)
@given(height=SIDES, width=SIDES, most=st.integers(900, 3_000_000), least=st.integers(1, 900))
def test_sizes_are_its_own(height, width, most, least):
    method = wheel_function(WHEEL, FILE, "Qwen2VLPlugin._get_qwen_video_size_after_regularization", {"math": math})
    expected = method(None, width, height, most, least)
    assert rules.frame_size(height, width, most, least) == expected[::-1]
