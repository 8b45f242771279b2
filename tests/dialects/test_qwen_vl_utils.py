"""The rules of qwen-vl-utils 0.0.14 and of trainers on it: by hand, and beside the package where it is installed."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peer_packages import DrawnFile, NotReadError, no_reader, put_torchcodec, qwen_vl_utils
from served_models import QWEN3, QWEN25, RATES, SIDES, SOURCES, cases
from server_wheels import wheel_function
from tiny_grid_models import grid_family
from video_files import video

from evs_cli.dialects import ms_swift_4_6_server as ms_swift
from evs_cli.dialects import parse_dialect
from evs_cli.dialects import qwen_vl_utils_0_0_14 as rules
from evs_cli.dialects import verl_0_9_server as verl
from evs_cli.dialects.base import RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.sampling import float32_linspace_indices
from evs_cli.dialects.served import ServedPlanner
from evs_cli.encoders.base import EncodeOptions
from evs_cli.pipeline.request import make_request
from evs_cli.pipeline.session import Session
from evs_cli.video.info import probe_video
from evs_cli.video.reader import read_frames
from evs_cli.video.sampling import SamplingRequest

MS_SWIFT_WHEEL = "EVS_MS_SWIFT_WHEEL"
MINUTE = ServerSource(1830, 30.0, 720, 1280)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "fps": st.one_of(st.sampled_from([0.5, 1, 2, 4, 30]), st.floats(0.02, 60.0)),
        "min_frames": st.integers(1, 12),
        "max_frames": st.integers(1, 900),
        "min_pixels": st.one_of(st.integers(1, 200_000), st.sampled_from([28 * 28 * 4, 128 * 32 * 32])),
        "max_pixels": st.integers(20_000, 3_000_000),
        "total_pixels": st.one_of(st.integers(1_000_000, 200_000_000), st.floats(1e6, 2e8)),
        "video_start": st.floats(0, 30),
        "video_end": st.floats(0, 300),
    },
)
FIXED = st.fixed_dictionaries({"resized_height": SIDES, "resized_width": SIDES})
NUMBER = st.fixed_dictionaries({"nframes": st.integers(0, 800)})
MESSAGES = st.one_of(
    MESSAGE,
    MESSAGE,
    st.builds(lambda one, other: one | other, MESSAGE, FIXED),
    st.builds(lambda one, other: {k: v for k, v in one.items() if k != "fps"} | other, MESSAGE, NUMBER),
    st.builds(lambda one, other: one | other, MESSAGE, NUMBER),
)


def plan_of(source, model=QWEN3, caller=rules.OWN, **message):
    return rules.plan_video(source, model, ServerOptions(video_kwargs=message), caller)


def test_the_count_that_is_asked_for_most():
    """61 s of 720p: 122 frames of 20 x 36 tokens in pairs, where the bare processor makes 10 x 18 of them."""
    plan = plan_of(MINUTE)
    assert (plan.resizes, plan.token_grid_thw, plan.total_tokens) == (((640, 1152),), (61, 20, 36), 43_920)
    assert plan_of(MINUTE, QWEN25).total_tokens == 43_920
    assert plan.frame_indices[:5].tolist() == [0, 15, 30, 45, 60]
    assert plan.frame_indices[-1] == 1829


def test_budgets_by_hand():
    """Of 600 frames each pair has 128,000 * 0.9 * 2 / 600 = 384 tokens of 32 x 32 pixels."""
    source = replace(MINUTE, num_frames=9000)
    assert plan_of(source).token_grid_thw == (300, 14, 26)  # 364 of 384
    assert plan_of(source, total_pixels=300 * 200 * 1024).token_grid_thw == (300, 10, 18)  # 200 a pair
    assert plan_of(source, MODEL_SEQ_LEN="32e3").token_grid_thw == (300, 8, 15)  # 96, under 134 = 128 * 1.05
    assert plan_of(source, max_frames=9).token_grid_thw.t == 4
    assert plan_of(source, fps=1, min_frames=5).token_grid_thw.t == 150
    assert plan_of(MINUTE, nframes=5).token_grid_thw.t == 2  # 2.5 pairs: halves to even
    assert plan_of(MINUTE, resized_height=300, resized_width=200).resizes == ((288, 192),)
    small = plan_of(MINUTE, max_pixels=200_000)
    assert small.resizes == ((320, 576),)


def test_a_window_of_the_file():
    plan = plan_of(MINUTE, video_start=10.01, video_end=20)
    assert (plan.frame_indices[0], plan.frame_indices[-1], len(plan.frame_indices)) == (301, 600, 20)
    assert plan_of(MINUTE, QWEN25, video_start=10.01, video_end=20).seconds_per_grid == pytest.approx(2 / (20 / 10))
    with pytest.raises(RefusedByServerError, match="video_start 70 and video_end None leave frames 1830 to 1829"):
        plan_of(MINUTE, video_start=70)


def test_what_fetch_video_refuses_and_what_helps():
    with pytest.raises(RefusedByServerError, match="fps and nframes of a video exclude each other"):
        plan_of(MINUTE, fps=1, nframes=8)
    with pytest.raises(RefusedByServerError, match="0 frames of 1 are refused"):
        plan_of(replace(MINUTE, num_frames=1))
    with pytest.raises(RefusedByServerError, match="2000 frames of 1830 are refused"):
        plan_of(MINUTE, nframes=2000)
    with pytest.raises(RefusedByServerError, match="rate or its number of frames is unknown"):
        plan_of(replace(MINUTE, average_fps=0.0))
    with pytest.raises(RefusedByServerError, match="max_pixels 50000 is below min_pixels 131072") as refused:
        plan_of(MINUTE, max_pixels=50_000)
    assert refused.value.hint == 'Give both, such as {"min_pixels": 4096, "max_pixels": 50000}.'
    assert plan_of(MINUTE, min_pixels=4096, max_pixels=50_000).total_tokens == 61 * 5 * 9


def test_the_default_patch_size_is_not_qwen3s():
    """``process_vision_info`` takes 14 unless told; the frames then are no whole tokens of 32 pixels."""
    with pytest.raises(RefusedByServerError, match="1008x560 are not whole tokens of 32") as refused:
        plan_of(MINUTE, image_patch_size=14)
    assert "image_patch_size=16" in refused.value.hint
    again = plan_of(MINUTE, image_patch_size=14, do_resize=True)
    assert again.resizes == ((560, 1008), (320, 608))
    assert any("image_patch_size 14 is not this model's 16" in note for note in again.notes)


def test_callers_differ_in_the_second_resize():
    """verl leaves the processor's own resize on, which shrinks Qwen3-VL's frames to a budget of all of them."""
    assert plan_of(MINUTE, caller=verl.CALLER).resizes == ((640, 1152), (320, 608))
    assert plan_of(MINUTE, caller=verl.CALLER).total_tokens == 11_590
    assert plan_of(MINUTE, caller=ms_swift.CALLER).total_tokens == 43_920
    assert {plan_of(MINUTE, QWEN25, caller).total_tokens for caller in (rules.OWN, verl.CALLER, ms_swift.CALLER)} == {
        43_920
    }


def test_ms_swifts_variables():
    def tokens(model=QWEN3, **variables):
        return plan_of(MINUTE, model, ms_swift.CALLER, **variables).token_grid_thw

    assert tokens(FPS_MAX_FRAMES=16).t == 8
    assert tokens(FPS="1").t == 30
    assert tokens(VIDEO_MAX_TOKEN_NUM=200) == (61, 10, 18)
    assert tokens(VIDEO_MAX_PIXELS=200 * 1024 + 1) == (61, 10, 18)
    assert tokens(VIDEO_MAX_PIXELS=999_999, VIDEO_MAX_TOKEN_NUM=200) == (61, 10, 18)
    assert tokens(QWEN25, VIDEO_MAX_PIXELS=200 * 784) == (61, 10, 18)
    assert tokens(FRAME_FACTOR=4, FPS_MAX_FRAMES=18).t == 8


def test_what_does_nothing_is_said():
    def notes(caller=rules.OWN, model=QWEN3, **message):
        return plan_of(MINUTE, model, caller, **message).notes

    assert notes() == ()
    assert notes(num_frames=8) == ("num_frames does nothing in qwen-vl-utils; nframes does",)
    assert notes(FPS_MAX_FRAMES=8)[0].startswith("FPS_MAX_FRAMES does nothing in qwen-vl-utils")
    assert notes(VIDEO_MAX_PIXELS=8)[0].endswith("MODEL_SEQ_LEN and total_pixels do")
    assert notes(ms_swift.CALLER, FPS_MAX_FRAMES=8) == ()
    assert notes(ms_swift.CALLER, VIDEO_TOTAL_PIXELS=8)[0].startswith("VIDEO_TOTAL_PIXELS does nothing in ms-swift")
    assert "do nothing one without the other" in notes(resized_height=100)[0]
    assert "refuses the fps list" in notes(model=QWEN25)[0]
    assert notes(verl.CALLER, QWEN25) == ()


@cases(3000)
@given(
    first=st.integers(0, 5000),
    frames=st.integers(2, 40_000),
    share=st.floats(0, 1),
)
def test_places_in_float32_are_torchs_own(first, frames, share):
    num_frames = 2 + int(share * (min(frames, 900) - 2))
    expected = torch.linspace(first, first + frames - 1, num_frames).round().long().numpy()
    np.testing.assert_array_equal(float32_linspace_indices(first, first + frames - 1, num_frames), expected)


# ------------------------------------------------------------------------------------------ options and families


def test_options_of_the_command_line(evs, served_checkpoint):
    model, numbers = served_checkpoint("qwen3_vl"), ["--height", 720, "--width", 1280, "--duration", 61]

    def planned(*options, dialect="qwen-vl-utils"):
        code, out, err = evs("plan", *numbers, "--model", model, "--dialect", dialect, *options)
        assert code == 0, err
        return out

    assert "61 x 20 x 36 = 43,920 video tokens" in planned()
    assert "resize 1280x720 to 1152x640\n" in planned()
    assert "resize 1280x720 to 1152x640, then 608x320\n" in planned(dialect="verl")
    assert "30 x 20 x 36 = 21,600" in planned("--fps", 1)
    assert "4 x 20 x 36 = 2,880" in planned("--num-frames", 8)
    assert "4 x 20 x 36 = 2,880" in planned("--max-frames", 8)
    assert "61 x 10 x 18 = 10,980" in planned("--frame-max-pixels", 200 * 1024)
    assert "61 x 10 x 18 = 10,980" in planned("--video-max-pixels", 122 * 200 * 1024)
    assert "8 x 20 x 36" in planned("--video-kwargs", '{"FPS_MAX_FRAMES": "16"}', dialect="ms-swift")


@pytest.mark.parametrize("dialect", ["hf", "vllm", "sglang"])
def test_a_limit_of_all_frames_has_no_place_in_a_processor_of_single_ones(evs, served_checkpoint, dialect):
    """``size`` of Qwen2.5-VL bounds each frame: it must not become the budget of all of them."""
    numbers = ["--height", 720, "--width", 1280, "--duration", 61, "--video-max-pixels", 10_000_000]
    code, _, err = evs("plan", *numbers, "--model", served_checkpoint("qwen2_5_vl"), "--dialect", dialect)
    assert code == 2
    assert "--video-max-pixels has no effect on " in err
    assert "Expected --frame-max-pixels, or --dialect evs or qwen-vl-utils." in err


def test_nor_in_a_request_of_frames(evs, tiny_model, tmp_path):
    line = ["export", "samples/crossing.mp4", "--to", "vllm-frames", "-o", tmp_path / "body.json"]
    code, _, err = evs(*line, "--model", tiny_model("qwen2_5_vl"), "--video-max-pixels", 1_000_000)
    assert code == 2
    assert "--video-max-pixels has no effect on " in err
    assert "under vllm@0.33" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--video-kwargs", '{"fps": 0}'), "Invalid fps (0) of --video-kwargs. Expected a number above 0."),
        (("--video-kwargs", '{"FPS": "fast"}'), "Invalid FPS ('fast') of --video-kwargs. Expected a number above 0."),
        (("--video-kwargs", '{"video_end": -1}'), "Expected a number of at least 0."),
        (("--video-kwargs", "[]"), "Invalid --video-kwargs '[]'. Expected a JSON object."),
        (("--cap-pixels-per-frame",), "--cap-pixels-per-frame has no effect on qwen-vl-utils@0.0.14"),
        (("--video-min-pixels", 5000), "--video-min-pixels has no effect on qwen-vl-utils"),
        (("--mm-process-config", "{}"), "--mm-process-config has no effect on qwen-vl-utils@0.0.14"),
    ],
)
def test_options_that_are_refused(evs, served_checkpoint, options, said):
    numbers = ["--height", 720, "--width", 1280, "--duration", 61]
    line = ["plan", *numbers, "--model", served_checkpoint("qwen3_vl"), "--dialect", "qwen-vl-utils", *options]
    code, _, err = evs(*line)
    assert code == 2
    assert said in err


def test_a_reader_that_there_is_not(evs, served_checkpoint):
    reader = '{"FORCE_QWENVL_VIDEO_READER": "opencv"}'
    line = ["plan", "samples/crossing.mp4", "--model", served_checkpoint("qwen3_vl"), "--dialect", "qwen-vl-utils"]
    code, _, err = evs(*line, "--video-kwargs", reader)
    assert code == 2
    assert "Invalid FORCE_QWENVL_VIDEO_READER ('opencv'). Expected torchcodec, decord, torchvision." in err


@pytest.mark.parametrize("dialect", ["qwen-vl-utils", "ms-swift", "verl", "llamafactory"])
def test_other_families_are_refused_in_a_line(evs, served_checkpoint, dialect):
    numbers = ["--height", 720, "--width", 1280, "--duration", 61]
    code, _, err = evs("plan", *numbers, "--model", served_checkpoint("nemotron_12b"), "--dialect", dialect)
    assert code == 2
    assert f"There are no rules for nemotron under {parse_dialect(dialect).name}: " in err
    assert "Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5 alone" in err
    assert "Expected --dialect evs or hf@5.24 or vllm@0.33 or sglang@0.5.23." in err


def test_qwen2_vl_is_known_to_these_alone(evs):
    model = grid_family("qwen2_vl").folder
    numbers = ["--height", 90, "--width", 120, "--duration", 4]
    code, out, _ = evs("plan", *numbers, "--model", model, "--dialect", "qwen-vl-utils")
    assert code == 0
    assert "8 sampled (2 fps)" in out
    code, _, err = evs("plan", *numbers, "--model", model, "--dialect", "vllm")
    assert code == 2
    assert "no rules for qwen2_vl under vllm@0.33" in err


def test_readers_state_their_own_rates():
    """torchcodec divides frames by the time they take; decord and torchvision go by the header's rate."""
    info = replace(probe_video(video("normal.mp4")), average_fps=30.0)  # a header that is wrong
    server = parse_dialect("qwen-vl-utils").rules
    rates = {
        reader: server.source_of(info, ServerOptions(video_kwargs={"FORCE_QWENVL_VIDEO_READER": reader})).average_fps
        for reader in rules.READERS
    }
    assert rates == {"torchcodec": pytest.approx(25), "decord": 30, "torchvision": 30}
    assert server.source_of(info, ServerOptions()).average_fps == rates["torchcodec"]


# ------------------------------------------------------------------------------------------ the processor behind it


@pytest.mark.parametrize("dialect", ["qwen-vl-utils", "ms-swift", "verl"])
@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_ids_are_the_processors_own(tiny_family, model_type, dialect):
    """The package's frames and metadata through transformers' processor, as each caller calls it."""
    family = grid_family(model_type) if model_type == "qwen2_vl" else tiny_family(model_type)
    options, source = EncodeOptions(prompt="Why?"), ServerSource(57, 24000 / 1001, 90, 120)
    served = ServedPlanner(parse_dialect(dialect), family.encoder, ServerOptions(), SamplingRequest())
    plan = served.server_plan(source, SamplingRequest(), options)
    frames = torch.zeros((len(plan.frame_indices), 3, *plan.resizes[0]), dtype=torch.uint8)
    metadata = {
        "fps": source.average_fps,
        "frames_indices": plan.frame_indices.tolist(),
        "total_num_frames": source.num_frames,
    }
    resizes = {"qwen-vl-utils": model_type != "qwen3_vl", "ms-swift": False, "verl": True}[dialect]
    inputs = family.processor(
        text=[family.text("Why?")],
        videos=[frames],
        video_metadata=[metadata],
        do_sample_frames=False,
        do_resize=resizes,
        input_data_format="channels_first",
    )
    counts = [plan.tokens_per_frame] * plan.token_grid_thw.t
    assert list(served.sequence(plan, counts, options)) == inputs["input_ids"][0]
    if "second_per_grid_ts" in inputs:
        assert plan.seconds_per_grid == pytest.approx(float(inputs["second_per_grid_ts"][0]))


@pytest.mark.parametrize("dialect", ["qwen-vl-utils", "ms-swift", "verl", "llamafactory"])
@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl"])
def test_what_is_planned_is_what_is_pruned(evs, tiny_model, tmp_path, model_type, dialect):
    out = tmp_path / "clip.safetensors"
    small = '{"video_maxlen": 7}' if dialect == "llamafactory" else '{"fps": 1, "min_pixels": 784, "max_pixels": 30000}'
    model = ["--model", tiny_model(model_type), "--dialect", dialect, "--video-kwargs", small]
    code, _, err = evs("prune", "samples/crossing.mp4", *model, "--q", 0.5, "-o", out)
    assert code == 0, err
    import evs_cli

    pruned = evs_cli.load(out)
    session = Session(make_request(model=str(tiny_model(model_type)), dialect=dialect, video_kwargs=small))
    plan = session.plan("samples/crossing.mp4")
    assert pruned.token_grid_thw == plan.encode.token_grid_thw
    assert pruned.token_grid_thw.t == (4 if dialect == "llamafactory" else 5)
    assert len(pruned.input_ids) == plan.encode.sequence_length(0.5)


# ------------------------------------------------------------------------------------------ the package run beside


@pytest.fixture(scope="module")
def package():
    """The package, whose own reader opens ``files[name]``."""
    module, files = qwen_vl_utils(), {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        put_torchcodec(monkeypatch, module, files)
        yield module, files


def fetched(package, source, message, patch):
    """(indices, (height, width), sampled rate) of the package; None where it fails."""
    module, files = package
    files["drawn"] = DrawnFile(source.num_frames, source.average_fps, source.height, source.width)
    try:
        (frames, metadata), fps = module.fetch_video(
            {"video": "drawn", **message}, patch, return_video_sample_fps=True, return_video_metadata=True
        )
    except (NotReadError, AssertionError, ValueError, RuntimeError):
        return None
    return list(metadata["frames_indices"]), tuple(frames.shape[2:]), fps


def assert_as_fetched(package, source, message, patch, caller=rules.OWN):
    own = {name: value for name, value in message.items() if name in rules.MESSAGE_KEYS}
    expected = fetched(package, source, own, patch)
    model = replace(QWEN25, patch_size=patch)
    if expected is None:
        with pytest.raises(RefusedByServerError):
            plan_of(source, model, caller, do_resize=False, **message)
        return
    plan = plan_of(source, model, caller, do_resize=False, **message)
    indices, size, fps = expected
    assert plan.frame_indices.tolist() == indices
    assert plan.resizes == (size,)
    assert 2 / plan.seconds_per_grid == pytest.approx(fps, rel=1e-12)  # the same factors in another order


@cases(10_000, daily=1000)
@given(source=SOURCES, message=MESSAGES, patch=st.sampled_from([14, 16]))
def test_ten_thousand_videos_are_fetched_as_planned(package, source, message, patch):
    assert_as_fetched(package, source, message, patch)


@cases(300)
@given(source=SOURCES, tokens=st.integers(2000, 300_000), patch=st.sampled_from([14, 16]))
def test_the_length_of_the_sequence_is_the_packages_variable(package, source, tokens, patch):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(package[0], "MODEL_SEQ_LEN", tokens)
        assert_as_fetched(package, source, {"MODEL_SEQ_LEN": tokens}, patch)


SWIFT = st.fixed_dictionaries(
    {},
    optional={
        "FPS": RATES.filter(lambda rate: rate < 40),
        "FPS_MIN_FRAMES": st.integers(1, 20),
        "FPS_MAX_FRAMES": st.integers(2, 900),
        "FRAME_FACTOR": st.sampled_from([2, 4]),
        "VIDEO_MAX_PIXELS": st.integers(100_000, 2_000_000),
        "VIDEO_MIN_PIXELS": st.integers(10_000, 300_000),
        "VIDEO_MAX_TOKEN_NUM": st.integers(130, 2000),
        "VIDEO_MIN_TOKEN_NUM": st.integers(4, 300),
    },
)


@cases(2000)
@given(source=SOURCES, variables=SWIFT, patch=st.sampled_from([14, 16]))
def test_the_constants_are_those_that_ms_swift_sets(package, source, variables, patch):
    module, path = package[0], "swift/model/models/qwen.py"

    def of_environment(name, kind, default):
        value = os.environ.get(name.upper())
        return default if value is None else kind(value)

    names = {"os": os, "get_env_args": of_environment, "_get_new_read_video_func": lambda read, backend: read}
    patched = wheel_function(MS_SWIFT_WHEEL, path, "patch_qwen_vl_utils", names)
    compatible = wheel_function(MS_SWIFT_WHEEL, path, "compat_qwen_vl_utils", names)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        for name in ("FPS", "FPS_MIN_FRAMES", "FPS_MAX_FRAMES", "FRAME_FACTOR", "VIDEO_MAX_TOKEN_NUM"):
            monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
        for name in ("VIDEO_MIN_TOKEN_NUM", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM", "SPATIAL_MERGE_SIZE"):
            monkeypatch.setattr(module, name, getattr(module, name))
        monkeypatch.setattr(module, "MAX_RATIO", module.MAX_RATIO)
        monkeypatch.setattr(module, "VIDEO_READER_BACKENDS", dict(module.VIDEO_READER_BACKENDS))
        before = dict(os.environ)
        try:
            compatible(patch)
            patched(module)
            monkeypatch.setitem(module.VIDEO_READER_BACKENDS, "torchvision", no_reader)
            assert_as_fetched(package, source, variables, patch, ms_swift.CALLER)
        finally:
            os.environ.clear()
            os.environ.update(before)
            vars(module).pop("_patch", None)


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("name", ["normal.mp4", "normal.mkv", "samples/crossing.mp4"])
def test_pixels_are_the_packages_own(tiny_family, model_type, name):
    """A file through decord, ``process_vision_info`` and the processor, and through evs: ids and pixels."""
    module, family = qwen_vl_utils(), tiny_family(model_type)
    path = name if name.startswith("samples") else str(video(name))
    message = {"type": "video", "video": path, "min_pixels": 784, "max_pixels": 40_000, "max_frames": 6}
    patch = family.processor.video_processor.patch_size
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "get_video_reader_backend", lambda: "decord")
        _, videos, arguments = module.process_vision_info(
            [{"role": "user", "content": [message]}],
            return_video_kwargs=True,
            return_video_metadata=True,
            image_patch_size=patch,
        )
    (frames, metadata), *_ = videos
    inputs = family.processor(
        text=[family.text(None)],
        videos=[frames],
        video_metadata=[metadata],
        do_resize=False,
        return_tensors="pt",
        **arguments,
    )
    given_ = '{"min_pixels": 784, "max_pixels": 40000, "max_frames": 6, "do_resize": false, '
    given_ += '"FORCE_QWENVL_VIDEO_READER": "decord"}'
    session = Session(make_request(model=str(family.folder), dialect="qwen-vl-utils", video_kwargs=given_))
    plan = session.plan(path)
    assert plan.encode.layout.input_ids.tolist() == inputs["input_ids"][0].tolist()
    (batch,) = read_frames(plan.video, plan.selection.frame_indices, chunk_frames=100)
    ours = session.encoder.preprocess(torch.as_tensor(batch.frames), plan.encode)["pixel_values_videos"]
    # PyAV and decord convert colours by different code: within a few grey levels of 255 at their edges.
    assert (ours - inputs["pixel_values_videos"]).abs().mean() < 0.01
    resized = torch.as_tensor(batch.frames)
    own = module.transforms.functional.resize(
        resized, list(plan.encode.loader_size), interpolation=module.InterpolationMode.BICUBIC, antialias=True
    )
    mine = session.encoder._loaded(resized, plan.encode.loader_size, plan.encode.loader_interpolation)
    assert torch.equal(own, mine)
