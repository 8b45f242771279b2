"""GLM-4.1V, 4.5V and 4.6V: against transformers' processors, restated, and against the servers' own functions."""

import json
import math
import shutil
import warnings
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given
from hypothesis import strategies as st
from served_models import CLIPS, SIDES, SOURCES, cases
from server_wheels import wheel_constants, wheel_function
from tiny_grid_models import grid_family
from transformers.image_utils import SizeDict
from transformers.models.glm4v.image_processing_glm4v import smart_resize
from transformers.video_utils import VideoMetadata

from evs_cli.dialects import parse_dialect, sampling, text
from evs_cli.dialects import sglang_0_5_23_glm as sglang
from evs_cli.dialects import transformers_5_24_glm as hf
from evs_cli.dialects import vllm_0_33_glm as vllm
from evs_cli.dialects.base import GlmModel, RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.resize import sglang_glm_frame_size
from evs_cli.dialects.served import ServedPlanner, SourceTimes
from evs_cli.dialects.vllm_0_33_profile import profiled_item_tokens
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.video.sampling import SamplingRequest

GLM41 = GlmModel(
    architecture="Glm4vForConditionalGeneration",
    patch_size=14,
    merge_size=2,
    temporal_patch_size=2,
    min_pixels=12_544,
    max_pixels=47_040_000,
    image_max_pixels=9_633_792,
    fps=2.0,
    max_seconds=300.0,
    samples_by_length=False,
    do_sample_frames=True,
    max_time_tokens=4,
    start="<|begin_of_video|>",
    end="<|end_of_video|>",
    frame_start="<|begin_of_image|>",
    frame_end="<|end_of_image|>",
    placeholder="<|image|>",
)
"""GLM-4.1V-9B, by its preprocessor_config.json."""
GLM46 = replace(GLM41, architecture="Glm4vMoeForConditionalGeneration", samples_by_length=True)
CLIP = ServerSource(300, 30.0, 720, 1280)
RATE = st.one_of(st.sampled_from([0.5, 1, 2, 4, 30]), st.floats(0.05, 40.0))
SHORT = st.builds(
    ServerSource,
    num_frames=st.integers(1, 90),
    average_fps=st.floats(0.3, 60),
    **dict.fromkeys(("height", "width"), st.just(360)),
)
ANY_CLIP = st.one_of(CLIPS, SHORT)


def planned(rule, source, model, **options):
    """The plan, or None where it is refused."""
    try:
        return rule(source, model, ServerOptions(**options))
    except RefusedByServerError:
        return None


# ------------------------------------------------------------------------------------------ transformers' own


def own_indices(processor, source, **arguments):
    """What transformers samples, or None where it fails or is left without a frame."""
    metadata = VideoMetadata(
        total_num_frames=source.num_frames, fps=source.average_fps, duration=source.duration_seconds
    )
    indices = processor.sample_frames(metadata, **arguments)
    return indices if len(indices) else None


@cases(2500)
@given(source=ANY_CLIP, fps=st.one_of(st.none(), RATE))
def test_glm41_samples_as_its_processor(source, fps):
    plan = planned(hf.glm, source, GLM41, request={} if fps is None else {"fps": fps})
    own = own_indices(tf.Glm4vVideoProcessor(), source, fps=fps)
    assert (plan is None) == (own is None)
    if own is not None:
        np.testing.assert_array_equal(plan.frame_indices, own)


@cases(2500)
@given(source=ANY_CLIP, fps=st.one_of(st.none(), RATE))
def test_glm46_samples_as_its_processor_which_reads_no_rate(source, fps):
    plan = planned(hf.glm, source, GLM46, request={} if fps is None else {"fps": fps})
    own = own_indices(tf.Glm46VVideoProcessor(), source, fps=fps)
    assert (plan is None) == (own is None)
    if own is not None:
        np.testing.assert_array_equal(plan.frame_indices, own)


@cases(2000)
@given(
    source=SOURCES,
    num_frames=st.integers(1, 700),
    least=st.integers(1, 200_000),
    most=st.integers(200_000, 60_000_000),
    is_46=st.booleans(),
)
def test_sizes_are_the_processors(source, num_frames, least, most, is_46):
    source = replace(source, num_frames=num_frames)
    size = {"shortest_edge": least, "longest_edge": most}
    frames = torch.empty((1, num_frames, 3, source.height, source.width), dtype=torch.uint8, device="meta")
    processor = tf.Glm46VVideoProcessor() if is_46 else tf.Glm4vVideoProcessor()
    model = GLM46 if is_46 else GLM41
    plan = planned(hf.glm, source, model, mm_processor={"do_sample_frames": False, "size": size})
    try:
        own = processor.resize(frames, SizeDict(**size), None, factor=28, temporal_factor=2).shape[-2:]
    except ValueError:
        assert plan is None
        return
    assert plan.resizes == (tuple(own),)
    assert plan.token_grid_thw == (-(-num_frames // 2), own[0] // 28, own[1] // 28)


def planner_of(name, folder=None, **options):
    encoder = grid_family(name).encoder if folder is None else open_encoder(str(folder))
    server = options.pop("server", "hf")
    return ServedPlanner(parse_dialect(server), encoder, ServerOptions(**options), SamplingRequest())


@pytest.mark.parametrize("name", ["glm4v", "glm4v_moe", "glm46v"])
@pytest.mark.parametrize("num_frames", [7, 40, 301])
@pytest.mark.parametrize("prompt", [None, "What is this?"])
def test_ids_and_positions_are_the_processors(name, num_frames, prompt):
    """A whole sequence: the frames sampled, the size, the times and where they stand, the types of the ids."""
    family, source = grid_family(name), ServerSource(num_frames, 12.5, 90, 120)
    pts = np.arange(num_frames) / 12.5
    served = planner_of(name).plan(
        source, SourceTimes(pts, num_frames / 12.5), SamplingRequest(), EncodeOptions(prompt=prompt)
    )
    frames = torch.zeros((num_frames, 3, 90, 120), dtype=torch.uint8)
    metadata = VideoMetadata(total_num_frames=num_frames, fps=12.5, duration=num_frames / 12.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = family.processor(text=[family.text(prompt)], videos=[frames], video_metadata=[metadata])
    assert served.encode.layout.input_ids.tolist() == list(own["input_ids"][0])
    assert served.encode.token_type_ids.tolist() == list(own["mm_token_type_ids"][0])
    assert list(served.encode.model_grid_thw) == own["video_grid_thw"][0].tolist()
    # Nothing is pruned: a client sees the same.
    assert (
        planner_of(name).client_ids(served, 0.0, EncodeOptions(prompt=prompt))
        == served.encode.layout.input_ids.tolist()
    )


# ------------------------------------------------------------------------------------- restated, case by case


@cases(2000)
@given(source=ANY_CLIP, fps=RATE)
def test_vllms_glm41_frames_restated(source, fps):
    """The frame at or after every multiple of the step, none beyond the clip; odd numbers stay odd."""
    seconds, rate = source.num_frames / source.average_fps, Fraction(source.average_fps)
    if seconds <= 300:
        places = [k / Fraction(fps) * rate for k in range(int(seconds * fps))]
    else:
        number = int(300 * fps)
        step = Fraction(1) if number >= source.num_frames else Fraction(seconds) / max(1, number - 1) * rate
        places = [k * step for k in range(min(number, source.num_frames))]
    required, allowed = set(), set()
    for place in places:
        nearest = round(place)
        # float64 of a few steps may fall to either side of a whole frame.
        is_border = abs(place - nearest) < Fraction(1, 10**8) * (1 + place)
        found = {nearest, nearest + 1} if is_border else {math.ceil(place)}
        allowed |= {min(index, source.num_frames - 1) for index in found}
        required |= set() if is_border else {min(math.ceil(place), source.num_frames - 1)}
    indices = sampling.glm4v_indices(source, fps, max_seconds=300, at_least=0)
    assert required <= set(indices.tolist()) <= allowed
    assert (np.diff(indices) > 0).all()
    plan = planned(vllm.glm, source, GLM41, media_io={"fps": fps})
    if not places or len(indices) == 1 < source.num_frames:  # no frame, or one that fills no tubelet
        assert plan is None
    elif len(indices) < source.num_frames:  # else the processor samples the whole file again
        assert plan.frame_indices.tolist() == indices.tolist()


@cases(2000)
@given(source=ANY_CLIP)
def test_glm46_frames_restated(source):
    """6, 2 or 1 frames a second up to 30 s, 300 s and beyond, 640 at most: all found in time, or spread evenly."""
    seconds = source.num_frames / source.average_fps
    rate = 6 if seconds <= 30 else 2 if seconds <= 300 else 1
    number = min(int(min(seconds, 2400) * (rate / 2) * 2), 640)
    if number == 0:
        assert planned(vllm.glm, source, GLM46) is None
        return
    indices = sampling.glm46v_indices(source, 2)
    assert 1 <= len(indices) <= number
    assert indices[0] == 0
    assert indices[-1] < source.num_frames
    assert (np.diff(indices) > 0).all()
    if source.num_frames < number:
        assert indices.tolist() == list(range(source.num_frames))
    elif number == 640:
        exact = [Fraction(k * (source.num_frames - 1), 639) for k in range(640)]
        for found, place in zip(indices.tolist(), exact, strict=True):
            assert found == math.floor(place) or abs(found + 1 - place) < Fraction(1, 2**30)  # float64 just below
    else:
        # Steps of a rate: no two frames further apart than two steps, and the last within a second and a step
        # of the last whole second that is looked at.
        assert np.diff(indices).max(initial=0) <= 2 * source.average_fps / rate + 1
        assert indices[-1] / source.average_fps >= int(seconds) - 2 / rate - 1 / source.average_fps


@cases(1500)
@given(height=SIDES, width=SIDES, most=st.integers(1, 6000))
def test_sglangs_glm_sizes_restated(height, width, most):
    """Multiples of 112, at most so many tokens of 28 x 28 unless one square of 112 is left."""
    resized = sglang_glm_frame_size(height, width, max_tokens_per_frame=most)
    assert all(side % 112 == 0 and side >= 112 for side in resized)
    nearest = [max(112, round(Fraction(side, 112)) * 112) for side in (height, width)]
    if nearest[0] * nearest[1] <= most * 784:
        assert list(resized) == nearest
    else:
        within = resized[0] * resized[1] <= max(most * 784, 112 * 112)
        assert within or 112 in resized  # a thin frame keeps one square's height


# -------------------------------------------------------------------------------- texts, options, what fails


def test_where_times_stand_and_how_each_server_writes_them():
    source = ServerSource(60, 20.0, 112, 112)
    expected = {
        (hf.glm, False): ["0", "1", "2"],
        (vllm.glm, False): ["0", "1", "2"],
        (sglang.glm, False): ["0", "1", "2"],
        (hf.glm, True): ["0.0 seconds", "0.3 seconds", "0.7 seconds"],
        (vllm.glm, True): ["0.0 seconds"] * 3,
        (sglang.glm, True): ["0.0 seconds", "0.3 seconds", "0.7 seconds"],
    }
    for (rule, is_46), times in expected.items():
        plan = rule(source, GLM46 if is_46 else GLM41, ServerOptions())
        assert list(plan.told_behind[:3]) == times
        segments = plan.segments([5] * plan.token_grid_thw[0])
        assert segments[:4] == ["<|begin_of_video|>", "<|begin_of_image|>", 5, f"<|end_of_image|>{times[0]}"]
        assert segments[-1] == "<|end_of_video|>"
        assert plan.prompt_seconds[:3].tolist() == [float(time.split()[0]) for time in times]
    assert text.tenths_texts(np.array([0.25, 61.05])) == ["0.2 seconds", "61.0 seconds"]  # halves to even, in binary


def test_an_architecture_without_a_model_of_the_servers_own():
    model = replace(GLM46, architecture="Glm46VForConditionalGeneration")
    plan = vllm.glm(CLIP, model, ServerOptions())
    assert plan.told_behind[1] == "0.3 seconds"  # transformers' text
    assert any("runs transformers' own" in note for note in plan.notes)
    with pytest.raises(RefusedByServerError, match="SGLang has no model of Glm46VForConditionalGeneration"):
        sglang.glm(CLIP, model, ServerOptions())
    with pytest.raises(RefusedByServerError, match="the loader kept 60, and it fails"):
        vllm.glm(CLIP, model, ServerOptions(mm_processor={"do_sample_frames": True}))
    # Its own models go by the loader, whatever a request says.
    assert len(vllm.glm(CLIP, GLM46, ServerOptions(mm_processor={"do_sample_frames": True})).frame_indices) == 60


def test_a_file_that_the_loader_keeps_whole_is_sampled_by_the_processor():
    source = ServerSource(31, 1.0, 112, 112)
    kept = vllm.glm(source, GLM41, ServerOptions())
    assert kept.frame_indices.tolist() == [*range(31), 30]  # the processor's even number
    source = ServerSource(300, 10.0, 112, 112)
    plan = vllm.glm(source, GLM41, ServerOptions(media_io={"fps": 10}))
    assert len(plan.frame_indices) == 60
    assert any("keeps every frame of the file" in note for note in plan.notes)
    asked = vllm.glm(source, GLM41, ServerOptions(media_io={"fps": 10}, mm_processor={"fps": 10}))
    assert len(asked.frame_indices) == 300


def test_the_loaders_odd_number_stays_and_counts_with_halves_to_even():
    """5 frames count as 4 under the pixel limit; the processor, had it sampled, would make them 6."""
    source = ServerSource(76, 30.0, 720, 1280)
    plan = vllm.glm(source, GLM41, ServerOptions())
    assert len(plan.frame_indices) == 5
    assert plan.token_grid_thw[0] == 3
    assert len(hf.glm(source, GLM41, ServerOptions()).frame_indices) == 6
    # Between four and six frames of 728x1288: only the count of four is within this limit.
    size = {"size": {"shortest_edge": 784, "longest_edge": 4 * 728 * 1288}}
    assert vllm.glm(source, GLM41, ServerOptions(mm_processor=size)).resizes == ((728, 1288),)
    assert hf.glm(source, GLM41, ServerOptions(mm_processor=size)).resizes != ((728, 1288),)


def test_longer_clips_than_the_loaders_limit_get_as_many_frames_as_it():
    source = ServerSource(30_000, 30.0, 360, 640)
    assert len(vllm.glm(source, GLM41, ServerOptions()).frame_indices) == 600
    assert vllm.glm(source, GLM41, ServerOptions()).rule == "600 frames, as of 300 s at 2 fps"
    assert len(vllm.glm(source, GLM41, ServerOptions(media_io={"max_duration": 2000})).frame_indices) == 2000
    assert len(vllm.glm(source, GLM46, ServerOptions(media_io={"max_duration": 2000})).frame_indices) == 640


def test_options_that_do_nothing_are_named():
    loader = {"num_frames": 8, "max_frames": 4}
    notes = vllm.glm(CLIP, GLM41, ServerOptions(media_io=loader, mm_processor={"max_pixels": 9})).notes
    assert [note.split(" does nothing")[0] for note in notes] == [
        "max_pixels of mm_processor_kwargs",
        "num_frames of media_io_kwargs",
        "max_frames of media_io_kwargs",
    ]
    notes = vllm.glm(CLIP, GLM46, ServerOptions(media_io={"fps": 4})).notes
    assert any("fps of media_io_kwargs does nothing" in note for note in notes)
    assert any("cut to whole seconds" in note for note in notes)
    notes = hf.glm(CLIP, GLM41, ServerOptions(request={"num_frames": 8})).notes
    assert notes == ("num_frames of the processor does nothing for this model; fps sets the rate",)
    for rule in (hf.glm, vllm.glm, sglang.glm):
        assert not rule(CLIP, GLM41, ServerOptions()).notes


def test_what_a_request_to_sglang_may_lower():
    def plan(model=GLM41, **options):
        return sglang.glm(CLIP, model, ServerOptions(**options))

    assert len(plan(request={"fps": 1.0}).frame_indices) == 10
    raised = plan(request={"fps": 4.0})
    assert len(raised.frame_indices) == 20
    assert raised.notes == ("fps 4 of the request is lowered to 2; --mm-process-config raises it",)
    assert len(plan(request={"fps": 4.0}, mm_process={"fps": 8}).frame_indices) == 40
    assert len(plan(request={"max_frames": 8}).frame_indices) == 8
    assert len(plan(request={"max_frames": 800}, mm_process={"max_frames": 6}).frame_indices) == 6
    assert "num_frames does nothing" in plan(request={"num_frames": 8}).notes[0]
    # GLM-4.6V goes by the clip's length until a number is asked for, and then by 2 fps.
    assert len(plan(GLM46, request={"fps": 1.0}).frame_indices) == 60
    assert len(plan(GLM46, request={"fps": 1.0, "max_frames": 600}).frame_indices) == 10
    # Its own resize to multiples of 112 comes first; the processor, within its limits, leaves them.
    assert plan(mm_process={"max_tokens_per_frame": 100}).resizes == ((112, 336),)
    size = {"shortest_edge": 784, "longest_edge": 20 * 56 * 168}
    twice = plan(mm_process={"max_tokens_per_frame": 100, "size": size})
    assert twice.resizes == ((112, 336), (56, 168))


def test_what_fails_is_refused():
    with pytest.raises(RefusedByServerError, match="Expected both edges") as error:
        hf.glm(CLIP, GLM41, ServerOptions(mm_processor={"size": {"longest_edge": 9}}))
    assert '"shortest_edge": 12544' in error.value.hint
    unknown = replace(CLIP, average_fps=0.0)
    for rule in (hf.glm, sglang.glm):
        with pytest.raises(RefusedByServerError, match="rate is unknown"):
            rule(unknown, GLM41, ServerOptions())
    with pytest.raises(RefusedByServerError, match="rate is unknown"):
        sglang.glm(unknown, GLM41, ServerOptions(request={"max_frames": 4}))
    for model in (GLM41, GLM46):
        with pytest.raises(RefusedByServerError, match="too short"):
            vllm.glm(unknown, model, ServerOptions())
    with pytest.raises(RefusedByServerError, match=r"0\.13 s is too short"):
        vllm.glm(ServerSource(4, 30.0, 360, 640), GLM41, ServerOptions())
    assert len(hf.glm(ServerSource(4, 30.0, 360, 640), GLM41, ServerOptions()).frame_indices) == 2
    with pytest.raises(RefusedByServerError, match="1 sampled frame"):
        vllm.glm(ServerSource(15, 30.0, 360, 640), GLM41, ServerOptions())


def test_no_server_prunes_it():
    for server in ("hf", "vllm", "sglang"):
        pruning = parse_dialect(server).rules.pruning(GLM41, ServerOptions(video_pruning_rate=0.5))
        assert (pruning.q, pruning.can_prune) == (0.0, False)


def test_the_ids_of_a_server_are_found_by_the_encoder(tmp_path):
    """GLM-4.6V with an architecture that the servers have: other times, the same tokens."""
    shutil.copytree(grid_family("glm46v").folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": [GLM41.architecture]}))
    source, true = ServerSource(40, 10.0, 90, 120), SourceTimes(np.arange(40) / 10, 4.0)
    plans = {
        server: planner_of("glm46v", tmp_path, server=server).plan(source, true, SamplingRequest(), EncodeOptions())
        for server in ("hf", "vllm", "sglang")
    }
    assert {plan.encode.token_grid_thw for plan in plans.values()} == {(12, 2, 2)}
    assert plans["vllm"].encode.prompt_seconds.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert plans["sglang"].encode.layout.input_ids.tolist() == plans["hf"].encode.layout.input_ids.tolist()
    assert plans["hf"].encode.prompt_seconds.tolist()[:4] == [0.0, 0.4, 0.7, 1.0]


def test_one_pixel_limit_asked_for_is_sent_with_the_models_other():
    """The processors take both edges of ``size`` or none."""
    asked = EncodeOptions(video_max_pixels=50_000)
    for server, name in (("hf", "mm_processor"), ("vllm", "mm_processor"), ("sglang", "mm_process")):
        given = planner_of("glm4v", server=server).server_options(SamplingRequest(), asked)
        assert getattr(given, name)["size"] == {"shortest_edge": 784, "longest_edge": 50_000}


# ------------------------------------------------------------------------------------- the servers' own functions

VLLM, SGLANG = "EVS_VLLM_WHEEL", "EVS_SGLANG_WHEEL"
VIDEO_FILE, GLM_FILE = "vllm/multimodal/video.py", "vllm/model_executor/models/glm4_1v.py"
SGLANG_FILE = "sglang/srt/multimodal/processors/glm4v.py"


class Target(NamedTuple):
    num_frames: int
    fps: float
    max_duration: float


class Source(NamedTuple):
    total_frames_num: int
    original_fps: float
    duration: float


class ImageSize(NamedTuple):
    width: int
    height: int


def as_vllm(source):
    return Source(source.num_frames, source.average_fps, source.duration_seconds)


@cases(2500)
@given(source=ANY_CLIP, fps=RATE, longest=st.sampled_from([300, 20, 2000]))
def test_glm41_frames_are_vllms_own(source, fps, longest):
    own = wheel_function(
        VLLM, VIDEO_FILE, "DynamicVideoBackend.compute_frames_index_to_sample", {"math": math, "np": np}
    )
    expected = own(None, as_vllm(source), Target(32, fps, longest))
    ours = sampling.glm4v_indices(source, fps, max_seconds=longest, at_least=0)
    assert ours.tolist() == expected
    plan = planned(vllm.glm, source, GLM41, media_io={"fps": fps, "max_duration": longest})
    if len(expected) > 1 and len(expected) < source.num_frames:
        assert plan.frame_indices.tolist() == expected


@cases(2500)
@given(source=ANY_CLIP)
def test_glm46_frames_are_vllms_own(source):
    own = wheel_function(
        VLLM, VIDEO_FILE, "GLM46VVideoBackend.compute_frames_index_to_sample", {"math": math, "np": np}
    )
    rates = wheel_constants(VLLM, VIDEO_FILE, {"_MAX_FRAME_COUNT_DYNAMIC", "_MAX_DURATION"})
    loader = SimpleNamespace(_DYNAMIC_FPS_THRESHOLDS={30: 3.0, 300: 1.0, 2400: 0.5}, **rates)
    expected = own(loader, as_vllm(source), Target(32, -1, 300))
    assert sampling.glm46v_indices(source, 2).tolist() == sorted(set(expected))


@cases(1500)
@given(source=ANY_CLIP, is_46=st.booleans())
def test_times_are_vllms_own(source, is_46):
    plan = planned(vllm.glm, source, GLM46 if is_46 else GLM41)
    name = "46v" if is_46 else "4v"
    own = wheel_function(
        VLLM, GLM_FILE, f"Glm4vProcessingInfo._get_video_second_idx_glm{name}", {"math": math, "np": np}
    )
    if plan is None:
        return
    info = SimpleNamespace(get_video_processor=lambda: SimpleNamespace(fps=2, max_duration=300, temporal_patch_size=2))
    loaded = np.unique(plan.frame_indices).tolist()
    metadata = {
        "fps": source.average_fps,
        "total_num_frames": source.num_frames,
        "duration": source.duration_seconds,
        "frames_indices": loaded,
        "do_sample_frames": len(loaded) == source.num_frames,
    }
    expected = own(info, metadata, len(loaded))
    written = "{:.1f} seconds" if is_46 else "{}"
    assert list(plan.told_behind) == [written.format(time) for time in expected]


@cases(300)
@given(
    image=st.integers(200_000, 20_000_000),
    video=st.integers(200_000, 60_000_000),
    max_model_len=st.integers(1000, 131_072),
)
def test_the_profiled_video_is_vllms_own(image, video, max_model_len):
    names = {"smart_resize": smart_resize, "ImageSize": ImageSize, "_MAX_FRAMES_PER_VIDEO": 600}
    methods = {
        name: wheel_function(VLLM, GLM_FILE, f"Glm4vProcessingInfo.{name}", names)
        for name in (
            "_get_vision_info",
            "get_image_size_with_most_features",
            "get_num_image_tokens",
            "get_max_image_tokens",
            "_get_max_video_frames",
        )
    }
    vision = SimpleNamespace(patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
    info = SimpleNamespace(
        get_hf_config=lambda: SimpleNamespace(vision_config=vision),
        _get_image_max_pixels=lambda: image,
        _get_video_max_pixels=lambda: video,
    )
    for name, method in methods.items():
        setattr(info, name, method.__get__(info))
    most = info.get_max_image_tokens()
    frames = max(2, info._get_max_video_frames(max_model_len - most))
    side = info.get_image_size_with_most_features()
    _, tokens = info._get_vision_info(
        image_width=side.width, image_height=side.height, num_frames=frames, max_image_pixels=video
    )
    model = replace(GLM41, image_max_pixels=image, max_pixels=video)
    assert profiled_item_tokens(model, max_model_len) == max(most, tokens)
    frames = max(2, info._get_max_video_frames(max_model_len))
    _, tokens = info._get_vision_info(
        image_width=side.width, image_height=side.height, num_frames=frames, max_image_pixels=video
    )
    assert profiled_item_tokens(model, max_model_len, takes_images=False) == tokens


def test_the_profiled_video_of_glm46():
    """6,144 tokens of an image; 30,000 of a video, and 320 times of 4 ids with two marks, and two marks more."""
    assert profiled_item_tokens(GLM46, 65_536) == 30_000 + 320 * (2 + 4) + 2
    other = replace(GLM46, architecture="Glm46VForConditionalGeneration")
    assert profiled_item_tokens(other, 65_536) == 30_000
    images = replace(other, image_max_pixels=other.max_pixels * 2)
    assert profiled_item_tokens(images, 65_536) == 60_000
    assert profiled_item_tokens(images, 65_536, takes_images=False) == 30_000


@cases(2500)
@given(source=ANY_CLIP, fps=RATE, most=st.integers(1, 900))
def test_bounded_frames_are_sglangs_own(source, fps, most):
    own = wheel_function(
        SGLANG,
        SGLANG_FILE,
        "glm_sample_frame_indices",
        {"np": np, "GLM_VIDEO_DEFAULT_FPS": 2.0, "GLM_VIDEO_DEFAULT_MAX_FRAMES": 2048},
    )
    expected = own(source.num_frames, source.average_fps, source.duration_seconds, target_fps=fps, max_frame_count=most)
    plan = planned(sglang.glm, source, GLM41, mm_process={"fps": fps, "max_frames": most})
    assert plan.frame_indices.tolist() == expected


@cases(1500)
@given(height=SIDES, width=SIDES, most=st.integers(1, 6000))
def test_glm_sizes_are_sglangs_own(height, width, most):
    names = ("GLM_VIDEO_PATCH_SIZE", "GLM_VIDEO_MERGE_SIZE", "GLM_VIDEO_PATCH_EXPAND_FACTOR")
    constants = wheel_constants(SGLANG, SGLANG_FILE, {*names, "GLM_VIDEO_FRAME_PIXELS_PER_TOKEN"})
    own = wheel_function(
        SGLANG, SGLANG_FILE, "_resize_frames_to_max_tokens", {"math": math, "torch": torch, "np": np, **constants}
    )
    frames = torch.empty((2, height, width, 3), dtype=torch.uint8, device="meta")
    assert tuple(own(frames, most).shape[1:3]) == sglang_glm_frame_size(height, width, max_tokens_per_frame=most)


@cases(500)
@given(
    server=st.fixed_dictionaries({}, optional={"fps": RATE, "max_frames": st.integers(1, 900)}),
    request=st.fixed_dictionaries({}, optional={"fps": RATE, "max_frames": st.integers(1, 900)}),
)
def test_what_a_request_lowers_is_sglangs_own(server, request):
    names = {
        "math": math,
        "GLM_MEDIA_CONFIG_KEYS": ("fps", "max_frames", "max_tokens_per_frame", "max_image_tokens"),
        "GLM_VIDEO_DEFAULT_FPS": 2.0,
        "GLM_VIDEO_DEFAULT_MAX_FRAMES": 2048,
        "print_warning_once": lambda text: None,
    }
    names["_glm_video_budget_ceiling"] = wheel_function(SGLANG, SGLANG_FILE, "_glm_video_budget_ceiling", names)
    own = wheel_function(SGLANG, SGLANG_FILE, "_clamp_glm_video_request_config", names)
    expected = own({"fps": 2, "_max_duration": 300, **server}, request)
    given_, _ = sglang._sampling_options(GLM41, ServerOptions(mm_process=server, request=request))
    assert given_ == {name: value for name, value in expected.items() if not name.startswith("_")}
