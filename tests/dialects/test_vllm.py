"""The rules of vLLM 0.33: restated independently, held against its own functions where its wheel is at hand."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from served_models import CLIPS, NEMOTRON_12B, NEMOTRON_OMNI, QWEN3, QWEN25, SIDES, SOURCES, cases
from server_wheels import wheel_constants, wheel_function

from evs_cli.dialects import text
from evs_cli.dialects import vllm_0_33 as vllm
from evs_cli.dialects import vllm_0_33_limits as limits
from evs_cli.dialects.base import RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.vllm_0_33_notes import option_notes
from evs_cli.encoders.nemotron_h_omni import target_patches

WHEEL = "EVS_VLLM_WHEEL"
LOADER = st.fixed_dictionaries(
    {},
    optional={
        "fps": st.one_of(st.sampled_from([0.5, 1, 2, 4, 30, 60]), st.floats(0.05, 50.0)),
        "min_frames": st.integers(1, 12),
        "max_frames": st.integers(4, 1000),
    },
)
NUMBERS = st.fixed_dictionaries(
    {}, optional={"fps": st.sampled_from([-1, 0.5, 1, 2, 7.5]), "num_frames": st.sampled_from([-1, 1, 8, 32, 128, 999])}
)


# ------------------------------------------------------------------------------------- restated, case by case


def halves_to_even(value):
    """The nearest whole number of a fraction, the even one where two are as near."""
    floor = math.floor(value)
    rest = value - floor
    if rest != Fraction(1, 2):
        return floor + (rest > Fraction(1, 2))
    return floor + floor % 2


@cases(2500)
@given(source=CLIPS, loader=LOADER)
def test_qwen25_frames_restated(source, loader):
    """An even number of frames, within bounds, a step of the file apart; float32 may move an index across a border."""
    fps = min(loader.get("fps", 2), 30)
    most = min(loader.get("max_frames", 768), 768, source.num_frames) // 2 * 2
    wanted = source.num_frames / source.average_fps * fps
    number = int(min(max(wanted, loader.get("min_frames", 4)), most)) // 2 * 2
    if number == 0:
        with pytest.raises(RefusedByServerError, match="no whole tubelet"):
            vllm.qwen2_5_vl(source, QWEN25, ServerOptions(media_io=loader))
        return
    indices = vllm.qwen2_5_vl(source, QWEN25, ServerOptions(media_io=loader)).frame_indices
    assert number <= len(indices) <= number + 1
    assert indices[-1] < source.num_frames
    assert (np.diff(indices) > 0).all()
    exact = [Fraction(k * source.num_frames, number) for k in range(number)]
    for found, place in zip(indices.tolist(), exact, strict=False):
        nearest = round(place)
        # float32 keeps 24 bits: only a place that is whole, or nearly so, may be cut to the frame before it.
        is_border = abs(place - nearest) <= max(1, nearest) * Fraction(1, 2**22)
        assert found == math.floor(place) or (is_border and found in (nearest - 1, nearest))
    if len(indices) > number:  # the step rounded down, so that one more fits before the end; it is clamped
        assert indices[-1] == source.num_frames - 1


@cases(2500)
@given(source=CLIPS, loader=LOADER)
def test_qwen3_frames_restated(source, loader):
    """Any number of frames from the first to the last, each the nearest whole one, halves to even."""
    fps = min(loader.get("fps", 2), 30)
    number = int(source.num_frames / source.average_fps * fps)
    number = max(number, loader.get("min_frames", 4))
    number = min(number, loader.get("max_frames", 768), 768, source.num_frames)
    options = ServerOptions(media_io=loader, mm_processor={"do_sample_frames": False})
    if number < 2:
        with pytest.raises(RefusedByServerError, match="1 sampled frame"):
            vllm.qwen3_vl(source, QWEN3, options)
        return
    indices = vllm.qwen3_vl(source, QWEN3, options).frame_indices
    assert len(indices) == number
    for k, found in enumerate(indices.tolist()):
        exact = Fraction(k * (source.num_frames - 1), number - 1)
        # float64 may fall to either side of a half.
        near_half = abs(exact - math.floor(exact) - Fraction(1, 2)) < Fraction(1, 2**30)
        assert found == halves_to_even(exact) or (near_half and abs(found - exact) < 1)


@cases(1500)
@given(source=CLIPS, server=NUMBERS, request=NUMBERS)
def test_nemotron_frames_restated(source, server, request):
    """The fewest of what num_frames and fps allow; a request that gives one of them forgets the server's other."""
    asked = {"num_frames": server.get("num_frames", 32), "fps": server.get("fps", -1)}
    if "fps" in request and "num_frames" not in request:
        asked["num_frames"] = 32
    if "num_frames" in request and "fps" not in request:
        asked["fps"] = -1
    asked |= request
    number = source.num_frames
    if asked["num_frames"] > 0:
        number = min(number, asked["num_frames"])
    if asked["fps"] > 0:
        number = min(number, math.floor(source.num_frames / source.average_fps * asked["fps"]))
    number = max(1, number)
    plan = vllm.nemotron(source, NEMOTRON_12B, ServerOptions(media_io=server, request=request))
    assert len(plan.frame_indices) == number
    assert plan.token_grid_thw == (number, 16, 16)
    if number > 1:
        for k, found in enumerate(plan.frame_indices.tolist()):
            exact = Fraction(k * (source.num_frames - 1), number - 1)
            assert found == math.floor(exact) or abs(found + 1 - exact) < Fraction(1, 2**30)


@cases(1500)
@given(source=SOURCES)
def test_omni_patches_restated(source):
    """Even rows and columns near 1,024 patches at the frame's aspect: both up where that stays within, else down."""
    rows, columns = target_patches(
        source.height, source.width, target_num_patches=1024, merge_size=2, keeps_aspect=True
    )
    assert rows % 2 == columns % 2 == 0
    ideal = math.sqrt(1024 * source.height / source.width), math.sqrt(1024 * source.width / source.height)
    nearest = [max(1, halves_to_even(Fraction(side))) for side in ideal]
    up = [side + side % 2 for side in nearest]
    down = [max(2, side - side % 2) for side in nearest]
    assert [rows, columns] == (up if up[0] * up[1] <= 1024 else down)


@cases(1000)
@given(source=CLIPS, seed=st.integers(0, 2**32 - 1))
def test_times_restated(source, seed):
    """Qwen3-VL: the mean of a tubelet's first and last frame. Nemotron: whole milliseconds a frame, which drift."""
    generator = np.random.default_rng(seed)
    indices = np.sort(generator.choice(source.num_frames, min(source.num_frames, 9), replace=False))
    pairs = [indices[k : k + 2] for k in range(0, len(indices), 2)]
    expected = [(Fraction(int(pair[0])) + int(pair[-1])) / 2 / Fraction(source.average_fps) for pair in pairs]
    told = text.tubelet_mean_seconds(indices, source.average_fps, 2)
    np.testing.assert_allclose(told, [float(value) for value in expected], rtol=1e-12)  # float64 of few steps
    drifting = text.whole_millisecond_seconds(indices, source.average_fps)
    assert drifting.tolist() == [int(index) * int(1000 / source.average_fps) / 1000 for index in indices]


# -------------------------------------------------------------------------------- texts, options, what fails


def test_texts_between_frames():
    seconds = [0.0, 0.5, 1.0]
    assert text.sampled_at_texts(seconds, 1, "\n") == [
        "Frame 1 sampled at 0.00 seconds: ",
        "\nFrame 2 sampled at 0.50 seconds: ",
        "\nFrame 3 sampled at 1.00 seconds: ",
    ]
    assert text.sampled_at_texts(seconds, 2, "\n") == [
        "Frame 1 sampled at 0.00 seconds and frame 2 sampled at 0.50 seconds: ",
        "\nFrame 3 sampled at 1.00 seconds: ",
    ]
    assert text.seconds_texts(np.array([0.25, 0.75, 12.0])) == ["<0.2 seconds>", "<0.8 seconds>", "<12.0 seconds>"]


def test_the_ids_a_client_sees_hold_all_tokens_under_the_first_time():
    plan = vllm.qwen3_vl(ServerSource(300, 30.0, 360, 640), QWEN3, ServerOptions(video_pruning_rate=0.5))
    assert plan.client_counts(0.5) == [1100] + [0] * 9
    assert plan.client_counts(0.0) == [220] * 10
    assert plan.counts_separators_in_cache(0.5)
    assert not plan.counts_separators_in_cache(0.0)


CLIP = ServerSource(300, 30.0, 360, 640)


def test_num_frames_does_nothing_for_qwen():
    for rule, model in ((vllm.qwen2_5_vl, QWEN25), (vllm.qwen3_vl, QWEN3)):
        plan = rule(CLIP, model, ServerOptions(media_io={"num_frames": 8}))
        assert len(plan.frame_indices) == 20
        assert any("num_frames 8 of media_io_kwargs does nothing" in note for note in plan.notes)


def test_a_recipe_in_circulation_fails():
    """num_frames -1 beside do_sample_frames: the loader samples first, the processor asks for frames it left out."""
    options = ServerOptions(media_io={"num_frames": -1}, mm_processor={"fps": 1, "do_sample_frames": True})
    for rule, model in ((vllm.qwen2_5_vl, QWEN25), (vllm.qwen3_vl, QWEN3)):
        with pytest.raises(RefusedByServerError, match=r"ask for frame \d+ of the 20 that the loader kept") as error:
            rule(CLIP, model, options)
        assert "--media-io-kwargs" in error.value.hint


def test_a_rate_at_the_sources_own_goes_back_to_two_a_second():
    source = ServerSource(300, 10.0, 360, 640)
    plan = vllm.qwen3_vl(source, QWEN3, ServerOptions(media_io={"fps": 10}))
    assert len(plan.frame_indices) == 60
    assert 'mm_processor_kwargs {"fps": 10} samples as asked' in plan.notes[-1]
    kept = vllm.qwen3_vl(source, QWEN3, ServerOptions(media_io={"fps": 10}, mm_processor={"do_sample_frames": False}))
    assert len(kept.frame_indices) == 300
    asked = vllm.qwen3_vl(source, QWEN3, ServerOptions(media_io={"fps": 10}, mm_processor={"fps": 10}))
    assert len(asked.frame_indices) == 300
    # Qwen2.5-VL's processor is not told to sample: it keeps what the loader kept.
    assert len(vllm.qwen2_5_vl(source, QWEN25, ServerOptions(media_io={"fps": 10})).frame_indices) == 300


def test_options_that_are_not_counted_with_are_said():
    notes = option_notes(ServerOptions(media_io={"fsp": 2, "video_backend": "opencv"}, mm_processor={"fsp": 3}))
    assert [note.split(" is ")[0].split(" may ")[0] for note in notes] == [
        "fsp of media_io_kwargs",
        "fsp of mm_processor_kwargs",
        "video_backend opencv",
    ]
    (note,) = option_notes(ServerOptions(mm_processor={"total_pixels": 10_000_000}))
    assert note.endswith("size.longest_edge bounds pixels: of all frames in Qwen3-VL, of each in Qwen2.5-VL")


IDLE = ("fps", "num_frames", "min_frames", "max_frames")


@pytest.mark.parametrize("name", IDLE)
@pytest.mark.parametrize(("rule", "model"), [(vllm.qwen2_5_vl, QWEN25), (vllm.qwen3_vl, QWEN3)])
def test_sampling_of_the_processor_does_nothing_behind_the_loader(name, rule, model):
    """What the note names instead does what was meant."""
    source = ServerSource(3000, 30.0, 360, 640)
    plain = rule(source, model, ServerOptions())
    plan = rule(source, model, ServerOptions(mm_processor={name: 8}))
    assert plan.frame_indices.tolist() == plain.frame_indices.tolist()
    (note,) = plan.notes
    assert note.startswith(f"{name} 8 of mm_processor_kwargs does nothing: the loader samples")
    instead = json.loads(note[note.index("'") + 1 : note.rindex("'")])["video"]
    other = rule(source, model, ServerOptions(media_io=instead))
    assert other.notes == ()
    assert len(other.frame_indices) == {"fps": 800, "num_frames": 8, "min_frames": 200, "max_frames": 8}[name] or (
        name == "fps" and len(other.frame_indices) == 768
    )


def test_sampling_of_the_processor_where_it_samples_again_is_no_idle_option():
    short = ServerSource(60, 10.0, 360, 640)
    plan = vllm.qwen3_vl(short, QWEN3, ServerOptions(media_io={"fps": 10}, mm_processor={"fps": 5, "max_frames": 4}))
    assert len(plan.frame_indices) == 30
    idle = [note for note in plan.notes if "does nothing" in note]
    assert [note.split()[0] for note in idle] == ["max_frames"]
    again = ServerOptions(media_io={"fps": 10}, mm_processor={"do_sample_frames": True, "fps": 5, "max_frames": 8})
    plan = vllm.qwen2_5_vl(short, QWEN25, again)
    assert (len(plan.frame_indices), plan.notes) == (8, ())


@pytest.mark.parametrize("name", IDLE)
def test_sampling_of_the_processor_does_nothing_for_nemotron(name):
    source = ServerSource(3000, 30.0, 360, 640)
    plan = vllm.nemotron(source, NEMOTRON_12B, ServerOptions(mm_processor={name: 2}))
    assert len(plan.frame_indices) == 32
    (note,) = [note for note in plan.notes if "mm_processor_kwargs does nothing" in note]
    instead = json.loads(note[note.index("'") + 1 : note.rindex("'")])["video"]
    assert instead == {"fps" if name == "fps" else "num_frames": 2}


def test_what_the_loader_cuts_down_is_said():
    source = ServerSource(60_000, 60.0, 360, 640)
    for rule, model in ((vllm.qwen2_5_vl, QWEN25), (vllm.qwen3_vl, QWEN3)):
        plan = rule(source, model, ServerOptions(media_io={"max_frames": 1000, "fps": 40}))
        assert len(plan.frame_indices) == 768
        assert [note.split(",")[0] for note in plan.notes] == [
            "max_frames 1000 of media_io_kwargs is cut to 768",
            "fps 40 of media_io_kwargs is cut to 30",
        ]
        assert rule(source, model, ServerOptions(media_io={"max_frames": 768, "fps": 30})).notes == ()


def test_a_request_wipes_the_servers_other_option():
    server = ServerOptions(media_io={"num_frames": 64, "fps": 2}, request={"fps": 1.0})
    assert vllm.loader_arguments(server) == {"fps": 1.0}
    assert vllm.loader_arguments(replace(server, request={"num_frames": 4})) == {"num_frames": 4}
    assert vllm.loader_arguments(replace(server, request={"fps": 1.0, "num_frames": 4})) == {
        "fps": 1.0,
        "num_frames": 4,
    }


def test_bounds_do_nothing_for_nemotron_and_configs_rate_is_not_read():
    plan = vllm.nemotron(CLIP, NEMOTRON_12B, ServerOptions(media_io={"max_frames": 4}))
    assert len(plan.frame_indices) == 32
    assert any("max_frames of media_io_kwargs does nothing" in note for note in plan.notes)
    assert any("--video-pruning-rate 0.7 prunes" in note for note in plan.notes)
    assert plan.pruning.q == 0
    assert vllm.nemotron(CLIP, NEMOTRON_12B, ServerOptions(video_pruning_rate=0.7)).pruning.q == 0.7


def test_an_unknown_rate():
    source = ServerSource(300, 0.0, 360, 640)
    with pytest.raises(RefusedByServerError, match="rate is unknown"):
        vllm.qwen2_5_vl(source, QWEN25, ServerOptions())
    with pytest.raises(RefusedByServerError, match="rate is unknown"):
        vllm.nemotron(source, NEMOTRON_12B, ServerOptions())
    plan = vllm.qwen3_vl(source, QWEN3, ServerOptions())
    assert len(plan.frame_indices) == 25  # 300 frames at 24 a second, two a second
    assert any("counts as 24" in note for note in plan.notes)


def test_pruning_above_two_frames_a_second_puts_all_frames_at_one_time():
    plan = vllm.qwen2_5_vl(CLIP, QWEN25, ServerOptions(video_pruning_rate=0.5, media_io={"fps": 4}))
    assert plan.seconds_per_grid == 0.5
    assert any("becomes 0 s when pruning" in note for note in plan.notes)
    assert not vllm.qwen2_5_vl(CLIP, QWEN25, ServerOptions(media_io={"fps": 4})).notes


def test_pixel_limits_of_the_processor():
    size = {"size": {"longest_edge": 640 * 360}}
    assert vllm.qwen2_5_vl(CLIP, QWEN25, ServerOptions(mm_processor=size)).resizes == ((336, 616),)
    alias = ServerOptions(mm_processor={**size, "max_pixels": 100_000})
    assert vllm.qwen2_5_vl(CLIP, QWEN25, alias).resizes == ((224, 420),)


# -------------------------------------------------------------------------------------- the server's own functions


class Target(NamedTuple):
    num_frames: int
    fps: float
    max_duration: float = 300


class Source(NamedTuple):
    total_frames_num: int
    original_fps: float
    duration: float


def as_vllm(source):
    return Source(source.num_frames, source.average_fps, source.duration_seconds)


def own_sampler(class_name, **extra):
    """``compute_frames_index_to_sample`` of a loader, its class a namespace of its constants."""
    names = {"math": math, "np": np, "torch": torch, "VideoSourceMetadata": Source, **extra}
    function = wheel_function(WHEEL, "vllm/multimodal/video.py", f"{class_name}.compute_frames_index_to_sample", names)
    loader = SimpleNamespace(_MAX_FRAMES=768, _MAX_FPS=30, _prepare_source=lambda source: source)
    return lambda source, target, **arguments: function(loader, source, target, **arguments)


def test_vllms_own_constants():
    found = wheel_constants(WHEEL, "vllm/multimodal/video.py", {"_MAX_FRAMES", "_MAX_FPS"})
    assert found["_MAX_FPS"] == vllm.MAX_FPS
    text_of = wheel_constants(WHEEL, "vllm/envs.py", {"VLLM_MAX_IMAGE_PIXELS", "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES"})
    assert text_of["VLLM_MAX_IMAGE_PIXELS"] == limits.MAX_IMAGE_PIXELS
    assert text_of["VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES"] == limits.MAX_DECODED_BYTES


@cases(2500)
@given(source=CLIPS, loader=LOADER)
def test_qwen25_frames_are_vllms_own(source, loader):
    own = own_sampler("Qwen2VLVideoBackend")
    try:
        expected = own(as_vllm(source), Target(-1, loader.get("fps", 2)), **loader_bounds(loader))
    except (ValueError, ZeroDivisionError, RuntimeError):
        with pytest.raises(RefusedByServerError):
            vllm.qwen2_5_vl(source, QWEN25, ServerOptions(media_io=loader))
        return
    found = vllm.qwen2_5_vl(source, QWEN25, ServerOptions(media_io=loader)).frame_indices.tolist()
    assert found == sorted(set(expected))


@cases(2500)
@given(source=CLIPS, loader=LOADER)
def test_qwen3_frames_are_vllms_own(source, loader):
    own = own_sampler("Qwen3VLVideoBackend")(as_vllm(source), Target(-1, loader.get("fps", 2)), **loader_bounds(loader))
    options = ServerOptions(media_io=loader, mm_processor={"do_sample_frames": False})
    if len(own) < 2:
        with pytest.raises(RefusedByServerError):
            vllm.qwen3_vl(source, QWEN3, options)
        return
    assert vllm.qwen3_vl(source, QWEN3, options).frame_indices.tolist() == own


@cases(1500)
@given(source=CLIPS, server=NUMBERS)
def test_nemotron_frames_are_vllms_own(source, server):
    target = Target(server.get("num_frames", 32), server.get("fps", -1))
    own = own_sampler("VideoBackend")(as_vllm(source), target)
    plan = vllm.nemotron(source, NEMOTRON_12B, ServerOptions(media_io=server))
    assert plan.frame_indices.tolist() == own


@cases(1500)
@given(height=SIDES, width=SIDES, target=st.integers(16, 4096))
def test_omni_sizes_are_vllms_own(height, width, target):
    own = wheel_function(
        WHEEL,
        "vllm/transformers_utils/processors/nano_nemotron_vl.py",
        "_compute_aspect_preserving_size",
        {"math": math},
    )
    expected = own(width, height, target, 16, 0.5)
    model = replace(NEMOTRON_OMNI, target_num_patches=target)
    plan = vllm.nemotron(ServerSource(60, 30.0, height, width), model, ServerOptions())
    assert plan.resizes == ((expected[1], expected[0]),)


def test_nemotron_texts_are_vllms_own():
    times = wheel_function(
        WHEEL, "vllm/transformers_utils/processors/nano_nemotron_vl.py", "calculate_timestamps", {"torch": torch}
    )
    for rate in (30.0, 24000 / 1001, 12.5):
        indices = [0, 7, 300, 1799]
        assert text.whole_millisecond_seconds(np.array(indices), rate).tolist() == times(indices, int(1000 / rate))


def test_counts_are_vllms_own():
    own = wheel_function(WHEEL, "vllm/multimodal/video_prune/evs.py", "compute_retained_tokens_count", {})
    plan = vllm.qwen3_vl(CLIP, QWEN3, ServerOptions())
    for q in np.arange(0.01, 1, 0.01).tolist():
        assert sum(plan.client_counts(q)) == own(220, 10, q)


def loader_bounds(loader):
    return {name: value for name, value in loader.items() if name != "fps"}
