"""The rules of SGLang 0.5.23: restated independently, held against its own functions where its wheel is at hand."""

import logging
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_models import CLIPS, NEMOTRON_12B, NEMOTRON_OMNI, QWEN3, QWEN25, SIDES, cases
from server_wheels import wheel_function

from evs_cli.dialects import sglang_0_5_23 as sglang
from evs_cli.dialects.base import RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.resize import sglang_frame_size, sglang_target_patches

WHEEL = "EVS_SGLANG_WHEEL"
QWEN_FILE = "sglang/srt/multimodal/processors/qwen_vl.py"
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "fps": st.one_of(st.sampled_from([0.5, 1, 2, 4]), st.floats(0.05, 40.0)),
        "min_frames": st.integers(1, 12),
        "max_frames": st.integers(4, 900),
        "min_pixels": st.integers(784, 150_000),
        "max_pixels": st.integers(150_000, 3_000_000),
        "total_pixels": st.integers(1_000_000, 200_000_000),
    },
)


def plan_of(source, config, model=QWEN25, rule=sglang.qwen2_5_vl):
    return rule(source, model, ServerOptions(mm_process=config))


@cases(2500)
@given(source=CLIPS, config=CONFIG)
def test_qwen_frames_restated(source, config):
    """An even number within even bounds, from the first frame to the last, each cut to the frame before it."""
    least = -(-config.get("min_frames", 4) // 2) * 2
    most = config.get("max_frames", min(768, source.num_frames)) // 2 * 2
    wanted = source.num_frames / source.average_fps * config.get("fps", 2.0)
    number = int(min(max(wanted, least), most, source.num_frames)) // 2 * 2
    if number < 2:
        with pytest.raises(RefusedByServerError, match="are refused"):
            sglang._qwen_indices(source, config)
        return
    indices, _ = sglang._qwen_indices(source, config)
    assert len(indices) == number  # no more than the file's frames, so no two are one
    for k, found in enumerate(indices.tolist()):
        exact = Fraction(k * (source.num_frames - 1), number - 1)
        assert found == math.floor(exact) or abs(found + 1 - exact) < Fraction(1, 2**30)  # float64 just below


@cases(2500)
@given(height=SIDES, width=SIDES, num_frames=st.integers(1, 384).map(lambda n: 2 * n), config=CONFIG)
def test_qwen_sizes_restated(height, width, num_frames, config):
    """Multiples of 28, at most a frame's own limit and twice its share of the video's, at least 5 % above the least."""
    source = ServerSource(10 * num_frames, 30.0, height, width)
    least = config.get("min_pixels", 100_352)
    share = config.get("total_pixels", 90_316_800) / num_frames * 2
    most = min(
        max(min(config.get("max_pixels", 602_112), share), int(least * 1.05)), config.get("max_pixels", math.inf)
    )
    try:
        rows, columns = sglang.loader_size(source, num_frames, config)
    except RefusedByServerError:
        assert max(height, width) > 200 * min(height, width) or most < 28 * 28 * max(height, width) / min(height, width)
        return
    assert rows % 28 == columns % 28 == 0
    natural = max(28, round(height / 28) * 28), max(28, round(width / 28) * 28)
    if least <= natural[0] * natural[1] <= most:
        assert (rows, columns) == natural
    elif natural[0] * natural[1] > most:
        assert rows * columns <= most
        scale = math.sqrt(most / (height * width))
        assert height * scale - 28 - 1e-6 < rows <= height * scale + 1e-6
        assert width * scale - 28 - 1e-6 < columns <= width * scale + 1e-6
    else:
        assert rows * columns >= least
        scale = math.sqrt(least / (height * width))
        assert height * scale - 1e-6 <= rows < height * scale + 28
        assert width * scale - 1e-6 <= columns < width * scale + 28


@cases(1500)
@given(source=CLIPS)
def test_nemotron_frames_restated(source):
    number = math.floor(source.num_frames / source.average_fps * min(2, source.average_fps))
    number = max(1, min(number, 128, source.num_frames))
    plan = sglang.nemotron(source, NEMOTRON_12B, ServerOptions())
    assert len(plan.frame_indices) == number
    assert plan.frame_indices[0] == 0
    assert plan.token_grid_thw == (number, 16, 16)


@cases(1500)
@given(height=SIDES, width=SIDES)
def test_omni_patches_restated(height, width):
    """Each side to the nearest even number of patches by itself, so that the target may be exceeded."""
    rows, columns = sglang_target_patches(height, width, target_num_patches=1024, merge_size=2, keeps_aspect=True)
    ideal = math.sqrt(1024 * height / width), math.sqrt(1024 * width / height)
    assert rows % 2 == columns % 2 == 0
    assert abs(rows - ideal[0]) <= 1 + 1e-9 or rows == 2
    assert abs(columns - ideal[1]) <= 1 + 1e-9 or columns == 2


def test_a_frame_is_resized_twice_for_qwen3():
    plan = plan_of(ServerSource(300, 30.0, 1080, 1920), {}, QWEN3, sglang.qwen3_vl)
    assert plan.resizes == ((560, 1008), (576, 1024))  # halves to even: 17.5 and 31.5 times 32
    assert plan.total_tokens == 5760
    once = plan_of(ServerSource(300, 30.0, 1080, 1920), {})
    assert once.resizes == ((560, 1008),)


def test_qwen25_is_told_24_frames_a_second():
    plan = plan_of(ServerSource(300, 30.0, 360, 640), {})
    assert plan.seconds_per_grid == 2 / 24
    assert "the model is told 24 fps, 12 times too fast" in plan.notes


def test_what_goes_on_to_the_processor():
    size = {"size": {"shortest_edge": 1024, "longest_edge": 32 * 32 * 40}}
    plan = plan_of(ServerSource(300, 30.0, 1080, 1920), size, QWEN3, sglang.qwen3_vl)
    assert plan.resizes[0] == (560, 1008)
    assert 20 * plan.resizes[1][0] * plan.resizes[1][1] <= 32 * 32 * 40
    given_size = {"resized_height": 300, "resized_width": 200}
    assert plan_of(ServerSource(300, 30.0, 1080, 1920), given_size).resizes == ((308, 196),)


def test_frames_by_number_and_what_is_refused():
    source = ServerSource(300, 30.0, 360, 640)
    assert len(plan_of(source, {"nframes": 9}).frame_indices) == 8  # 4.5 tubelets: halves to even
    with pytest.raises(RefusedByServerError, match="exclude each other"):
        plan_of(source, {"nframes": 8, "fps": 1})
    with pytest.raises(RefusedByServerError, match="400 frames of a file of 300 are refused"):
        plan_of(source, {"nframes": 400})
    with pytest.raises(RefusedByServerError, match="0 frames of a file of 1"):
        plan_of(ServerSource(1, 30.0, 360, 640), {})
    with pytest.raises(RefusedByServerError, match="rate is unknown"):
        plan_of(replace(source, average_fps=0.0), {})


def test_a_request_has_no_say():
    source = ServerSource(300, 30.0, 360, 640)
    asked = ServerOptions(request={"fps": 1.0, "max_frames": 4})
    for rule, model in ((sglang.qwen2_5_vl, QWEN25), (sglang.qwen3_vl, QWEN3)):
        plan = rule(source, model, asked)
        assert len(plan.frame_indices) == 20
        assert any("fps 1.0 of a request does nothing" in note and "--mm-process-config" in note for note in plan.notes)


def test_only_nemotron_is_pruned_and_by_its_config():
    source = ServerSource(1830, 30.0, 720, 1280)
    plan = sglang.nemotron(source, NEMOTRON_12B, ServerOptions())
    assert (plan.pruning.q, plan.pruning.source) == (0.7, "config.json")
    counts = plan.client_counts(0.7)
    assert counts == [76] * 121 + [173]
    assert sum(counts) == 9369
    assert not plan_of(source, {}).pruning.can_prune


def test_no_newline_between_frames_but_between_tubelets():
    source = ServerSource(90, 30.0, 720, 1280)
    frames = sglang.nemotron(source, NEMOTRON_12B, ServerOptions()).frame_texts
    assert frames[1] == "Frame 2 sampled at 0.56 seconds: <img>"  # frame 17 at 33 ms a frame
    tubelets = sglang.nemotron(source, NEMOTRON_OMNI, ServerOptions()).frame_texts
    assert tubelets[1].startswith("\nFrame 3 sampled at")
    still = sglang.nemotron(replace(source, average_fps=0.0), NEMOTRON_12B, ServerOptions())
    assert still.frame_texts == ("Frame 1 sampled at 0.00 seconds: <img>",)


# -------------------------------------------------------------------------------------- the server's own functions


def own(name):
    names = {"math": math, "logger": logging.getLogger("sglang"), "MAX_RATIO": 200, "IMAGE_FACTOR": 28}
    names |= {"MIN_PIXELS": 3136, "MAX_PIXELS": 16384 * 784, "FRAME_FACTOR": 2, "FPS": 2.0}
    names |= {"FPS_MIN_FRAMES": 4, "FPS_MAX_FRAMES": 768}
    for helper in ("round_by_factor", "ceil_by_factor", "floor_by_factor"):
        wheel_function(WHEEL, QWEN_FILE, helper, names)
    return wheel_function(WHEEL, QWEN_FILE, name, names)


@cases(2500)
@given(source=CLIPS, config=CONFIG)
def test_qwen_frames_are_sglangs_own(source, config):
    try:
        expected = own("smart_nframes")(config, source.num_frames, source.average_fps)
    except ValueError:
        with pytest.raises(RefusedByServerError):
            sglang._qwen_indices(source, config)
        return
    indices, _ = sglang._qwen_indices(source, config)
    np.testing.assert_array_equal(indices, np.unique(np.linspace(0, source.num_frames - 1, expected, dtype=np.int64)))


@cases(2500)
@given(height=SIDES, width=SIDES, pixels=st.tuples(st.integers(1, 200_000), st.integers(200_000, 10_000_000)))
def test_qwen_sizes_are_sglangs_own(height, width, pixels):
    def ours():
        return sglang_frame_size(height, width, factor=28, min_pixels=pixels[0], max_pixels=pixels[1])

    try:
        expected = own("smart_resize")(height, width, 28, *pixels)
    except ValueError:
        with pytest.raises(RefusedByServerError):
            ours()
        return
    if 0 in expected:
        with pytest.raises(RefusedByServerError, match="leaves a side of 0"):
            ours()
    else:
        assert ours() == expected


class Video:
    """What SGLang's sampling asks of a decoder."""

    def __init__(self, source):
        self.source, self.avg_fps = source, source.average_fps

    def __len__(self):
        return self.source.num_frames


@cases(1500)
@given(source=CLIPS)
def test_nemotron_frames_are_sglangs_own(source):
    function = wheel_function(WHEEL, "sglang/srt/utils/common.py", "sample_video_frames", {"math": math, "np": np})
    expected = function(Video(source), desired_fps=2, max_frames=128)
    assert sglang.nemotron(source, NEMOTRON_12B, ServerOptions()).frame_indices.tolist() == expected


@cases(1500)
@given(height=SIDES, width=SIDES, target=st.integers(16, 4096), keeps_aspect=st.booleans())
def test_omni_sizes_are_sglangs_own(height, width, target, keeps_aspect):
    function = wheel_function(
        WHEEL, "sglang/srt/multimodal/internvl_utils.py", "get_video_target_size_and_feature_size", {"math": math}
    )
    expected = function(width, height, target, keeps_aspect, 16, 0.5)
    rows, columns = sglang_target_patches(
        height, width, target_num_patches=target, merge_size=2, keeps_aspect=keeps_aspect
    )
    assert (columns * 16, rows * 16, rows * columns // 4) == expected
