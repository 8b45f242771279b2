"""InternVL in transformers' format: against its processor, restated, and against vLLM's own functions."""

import math
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
from server_wheels import wheel_function
from tiny_frame_models import frame_family
from transformers.image_utils import SizeDict
from transformers.video_utils import VideoMetadata

from evs_cli.dialects import parse_dialect
from evs_cli.dialects import transformers_5_24_internvl as hf
from evs_cli.dialects import vllm_0_33_internvl as vllm
from evs_cli.dialects.base import InternVLModel, RefusedByServerError, ServerOptions, ServerSource
from evs_cli.dialects.served import ServedPlanner, SourceTimes
from evs_cli.dialects.vllm_0_33_profile import profiled_item_tokens
from evs_cli.encoders.base import EncodeOptions
from evs_cli.errors import UsageError
from evs_cli.video.sampling import SamplingRequest

INTERNVL3 = InternVLModel(
    patch_size=(14, 14),
    merge_size=2,
    frame_size=(448, 448),
    image_size=(448, 448),
    image_tiles=13,
    tokens_per_tile=256,
    num_frames=None,
    fps=None,
    initial_shift=True,
    do_sample_frames=False,
    start="<img>",
    end="</img>",
    placeholder="<IMG_CONTEXT>",
    video="<video>",
)
"""InternVL3-8B-hf."""
CLIP = ServerSource(300, 30.0, 720, 1280)
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "fps": st.one_of(st.sampled_from([0.5, 1.0, 2.0, 30.0]), st.floats(0.01, 40.0)),
        "num_frames": st.integers(1, 900),
        "initial_shift": st.one_of(st.booleans(), st.floats(0.0, 40.0), st.integers(0, 40)),
    },
)
NUMBERS = st.fixed_dictionaries(
    {}, optional={"fps": st.sampled_from([-1, 0.5, 1, 2, 7.5]), "num_frames": st.sampled_from([-1, 1, 8, 32, 128, 999])}
)


# ------------------------------------------------------------------------------------------ transformers' own


@cases(2500)
@given(source=CLIPS, asked=ASKED, own_number=st.sampled_from([None, None, 8]))
def test_it_samples_as_its_processor(source, asked, own_number):
    processor = tf.InternVLVideoProcessor()
    processor.num_frames = own_number
    metadata = VideoMetadata(
        total_num_frames=source.num_frames, fps=source.average_fps, duration=source.duration_seconds
    )
    try:
        own = processor.sample_frames(metadata, **asked)
        own = own if len(own) and own[-1] < source.num_frames else None
    except (ValueError, TypeError, ZeroDivisionError, RuntimeError):
        own = None
    model = replace(INTERNVL3, num_frames=own_number)
    try:
        plan = hf.internvl(source, model, ServerOptions(mm_processor={**asked, "do_sample_frames": True}))
    except RefusedByServerError:
        assert own is None
        return
    np.testing.assert_array_equal(plan.frame_indices, own)


@cases(300)
@given(source=SOURCES)
def test_every_frame_is_of_one_size(source):
    frames = torch.empty((1, 3, 3, source.height, source.width), dtype=torch.uint8, device="meta")
    own = tf.InternVLVideoProcessor().resize(frames, SizeDict(height=448, width=448), None).shape[-2:]
    plan = hf.internvl(source, INTERNVL3, ServerOptions())
    assert plan.resizes == (tuple(own),)
    assert plan.token_grid_thw == (source.num_frames, 16, 16)
    assert plan.frame_indices.tolist() == list(range(source.num_frames))


def planner_of(server):
    return ServedPlanner(parse_dialect(server), frame_family("internvl").encoder, ServerOptions(), SamplingRequest())


def served_by(server, prompt=None, **sampling):
    """A clip of 9 frames of the tiny checkpoint."""
    true = SourceTimes(np.arange(9) / 3, 3.0)
    source = ServerSource(9, 3.0, 90, 120)
    return planner_of(server).plan(source, true, SamplingRequest(**sampling), EncodeOptions(prompt=prompt))


@pytest.mark.parametrize("prompt", [None, "What is this?"])
def test_ids_are_the_processors(prompt):
    family, served = frame_family("internvl"), served_by("hf", prompt)
    frames = torch.zeros((9, 3, 90, 120), dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = family.processor(text=[family.text(prompt)], videos=[frames])
    assert served.encode.layout.input_ids.tolist() == list(own["input_ids"][0])
    assert served.encode.token_grid_thw == (9, 3, 3)
    assert served.encode.model_grid_thw == (9, 6, 6)
    assert served.encode.frame_size == tuple(own["pixel_values"].shape[-2:])
    assert served.encode.features_are_batched


def test_a_plan_of_a_server_is_encoded_as_the_encoders_own():
    encoder = frame_family("internvl").encoder
    served = served_by("vllm")
    frames = torch.randint(0, 256, (9, 3, 90, 120), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    own_plan = encoder.plan(served.clip, EncodeOptions())
    ours, own = encoder.encode(frames, served.encode), encoder.encode(frames, own_plan)
    assert torch.equal(ours.levels[0], own.levels[0])
    assert ours.levels[0].shape[:3] == served.encode.token_grid_thw


# ------------------------------------------------------------------------------------- restated, case by case


@cases(2000)
@given(source=CLIPS, server=NUMBERS, request=NUMBERS)
def test_vllms_frames_restated(source, server, request):
    """The fewest of what num_frames (32) and fps allow; a request that gives one of them forgets the server's other."""
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
    plan = vllm.internvl(source, INTERNVL3, ServerOptions(media_io=server, request=request))
    assert plan.token_grid_thw == (number, 16, 16)
    for k, found in enumerate(plan.frame_indices.tolist()):
        exact = Fraction(k * (source.num_frames - 1), max(1, number - 1))
        assert found == math.floor(exact) or abs(found + 1 - exact) < Fraction(1, 2**30)  # float64 just below


def test_texts_number_the_frames():
    plan = hf.internvl(ServerSource(3, 30.0, 64, 64), INTERNVL3, ServerOptions())
    assert plan.segments([256] * 3) == [
        "",
        *("Frame1: <img>", 256, "</img>"),
        *("\nFrame2: <img>", 256, "</img>"),
        *("\nFrame3: <img>", 256, "</img>"),
        "",
    ]


def test_a_client_of_vllm_sees_another_token():
    planner, served = planner_of("vllm"), served_by("vllm", "What is this?")
    tokenizer = frame_family("internvl").processor.tokenizer
    seen = planner.client_ids(served, 0.0, EncodeOptions(prompt="What is this?"))
    image, video = tokenizer.convert_tokens_to_ids(["<IMG_CONTEXT>", "<video>"])
    assert seen.count(video) == 81
    assert [image if token == video else token for token in seen] == served.encode.layout.input_ids.tolist()


def test_vllm_samples_what_its_loader_kept_where_it_is_told_to():
    options = {"do_sample_frames": True, "num_frames": 4}
    plan = vllm.internvl(CLIP, INTERNVL3, ServerOptions(mm_processor=options))
    loaded = np.linspace(0, 299, 32, dtype=int)
    assert plan.frame_indices.tolist() == loaded[[4, 12, 20, 28]].tolist()
    with pytest.raises(RefusedByServerError, match="rate is unknown"):  # the processor is told none
        vllm.internvl(CLIP, INTERNVL3, ServerOptions(mm_processor={"do_sample_frames": True, "fps": 1}))


def test_vllm_takes_the_size_of_an_image():
    model = replace(INTERNVL3, frame_size=(384, 384))
    assert vllm.internvl(CLIP, model, ServerOptions()).resizes == ((448, 448),)
    with pytest.raises(RefusedByServerError, match="give 169 tokens each, the prompt holds 256"):
        hf.internvl(CLIP, model, ServerOptions())


def test_options_that_do_nothing_or_fail():
    notes = vllm.internvl(CLIP, INTERNVL3, ServerOptions(media_io={"max_frames": 4})).notes
    assert notes == (
        "max_frames of media_io_kwargs does nothing for this model; num_frames bounds the number, fps sets the rate",
    )
    for rule in (hf.internvl, vllm.internvl):
        with pytest.raises(RefusedByServerError, match="Expected height and width"):
            rule(CLIP, INTERNVL3, ServerOptions(mm_processor={"size": {"longest_edge": 448}}))
    for options, fault in [
        ({"do_sample_frames": True}, "needs fps or num_frames"),
        ({"num_frames": 301}, "301 frames of a file of 300"),
        ({"fps": 0.01}, "0 frames of a file"),
        ({"num_frames": 4, "initial_shift": 301}, "initial_shift 301"),
    ]:
        with pytest.raises(RefusedByServerError, match=fault):
            hf.internvl(CLIP, INTERNVL3, ServerOptions(mm_processor=options))
    with pytest.raises(RefusedByServerError, match="rate is unknown"):
        hf.internvl(replace(CLIP, average_fps=0.0), INTERNVL3, ServerOptions(request={"fps": 2.0}))


def test_an_unknown_rate_matters_to_nobody_who_goes_by_a_number():
    unknown = replace(CLIP, average_fps=0.0)
    assert len(vllm.internvl(unknown, INTERNVL3, ServerOptions()).frame_indices) == 32
    assert len(vllm.internvl(unknown, INTERNVL3, ServerOptions(request={"fps": 2.0})).frame_indices) == 1
    assert len(hf.internvl(unknown, INTERNVL3, ServerOptions(request={"num_frames": 5})).frame_indices) == 5


def test_nobody_prunes_it_and_sglang_has_no_rules():
    for server in ("hf", "vllm"):
        pruning = parse_dialect(server).rules.pruning(INTERNVL3, ServerOptions(video_pruning_rate=0.5))
        assert (pruning.q, pruning.can_prune) == (0.0, False)
    with pytest.raises(UsageError, match=r"no rules for internvl under sglang@0\.5\.23.*evs or hf@5\.24 or vllm@0\.33"):
        parse_dialect("sglang").family("internvl")


def test_the_profiled_item():
    """13 tiles of an image, or as many frames as the context holds beside one image."""
    assert profiled_item_tokens(INTERNVL3, 32_768) == (32_768 - 13 * 256) // 256 * 256
    assert profiled_item_tokens(INTERNVL3, 1024) == 13 * 256
    assert profiled_item_tokens(INTERNVL3, 1024, takes_images=False) == 1024


# ----------------------------------------------------------------------------------------- vLLM's own functions

WHEEL, MODEL_FILE = "EVS_VLLM_WHEEL", "vllm/model_executor/models/interns1.py"


class Target(NamedTuple):
    num_frames: int
    fps: float


class Source(NamedTuple):
    total_frames_num: int
    original_fps: float
    duration: float


@cases(1500)
@given(source=CLIPS, server=NUMBERS)
def test_frames_are_vllms_own(source, server):
    own = wheel_function(
        WHEEL, "vllm/multimodal/video.py", "VideoBackend.compute_frames_index_to_sample", {"math": math, "np": np}
    )
    expected = own(
        None,
        Source(source.num_frames, source.average_fps, source.duration_seconds),
        Target(server.get("num_frames", 32), server.get("fps", -1)),
    )
    assert vllm.internvl(source, INTERNVL3, ServerOptions(media_io=server)).frame_indices.tolist() == expected


def test_the_text_is_vllms_own():
    tokenizer = frame_family("internvl").processor.tokenizer
    names = {
        "video_num_patches": [9],
        "video_token": "<video>",
        "video_token_id": tokenizer.convert_tokens_to_ids("<video>"),
        "hf_processor": SimpleNamespace(image_seq_length=9),
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "tokenizer": tokenizer,
        "cached_encode": lambda tokenizer, text, add_special_tokens: tokenizer.encode(
            text, add_special_tokens=add_special_tokens
        ),
        "PromptUpdateDetails": SimpleNamespace(select_token_id=lambda ids, token: (ids, token)),
    }
    own = wheel_function(
        WHEEL,
        MODEL_FILE,
        "InternS1MultiModalProcessor._get_prompt_updates.get_replacement_interns1_video",
        names,
    )
    ids, token = own(0)
    assert planner_of("vllm").client_ids(served_by("vllm"), 0.0, EncodeOptions()) == ids
    assert ids.count(token) == 81


@cases(500)
@given(max_model_len=st.integers(512, 200_000), tiles=st.integers(1, 13), side=SIDES)
def test_the_profiled_video_is_vllms_own(max_model_len, tiles, side):
    own = wheel_function(WHEEL, MODEL_FILE, "InternS1ProcessingInfo.get_num_frames_with_most_features", {})
    per_tile = max(1, side // 8)
    info = SimpleNamespace(
        get_hf_processor=lambda: SimpleNamespace(image_seq_length=per_tile),
        get_max_image_tokens=lambda: tiles * per_tile,
    )
    num_frames = own(info, max_model_len, {"image": 1, "video": 1})
    model = replace(INTERNVL3, image_tiles=tiles, tokens_per_tile=per_tile)
    assert profiled_item_tokens(model, max_model_len) == max(tiles, num_frames) * per_tile
    alone = own(info, max_model_len, {"video": 1})
    assert profiled_item_tokens(model, max_model_len, takes_images=False) == alone * per_tile
