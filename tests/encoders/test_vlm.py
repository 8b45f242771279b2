"""Vision-language families: the plan is the processor's own, the features are the whole model's, bit for bit.

The oracle is the checkpoint's processor called on real pixels with the true times, and the model loaded whole.
"""

import itertools
import re

import numpy as np
import pytest
import tiny_models
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import DrawnClip, clips, make_clip, profile

from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.frame_times import fill_tubelets
from evs_cli.encoders.registry import open_encoder
from evs_cli.errors import ModelError, UsageError
from evs_cli.video.sampling import SamplingDefaults

PROFILE = profile(40)
FEATURES = profile(15)
FAMILIES = sorted(tiny_models.VLM_BUILDERS)
PLACEHOLDER = {"qwen2_5_vl": "<|video_pad|>", "qwen3_vl": "<|video_pad|>", "nemotron_h_omni": "<image>"}
SIDE = {"qwen2_5_vl": 28, "qwen3_vl": 32, "nemotron_h_omni": 32}  # pixels of one token
TIME = {  # the time that is printed first for each frame of tokens
    "qwen3_vl": r"<(\d+\.\d) seconds><\|vision_start\|>",
    "nemotron_h_omni": r"Frame \d+ sampled at (\d+\.\d\d) seconds",
}
PROMPTS = st.sampled_from([None, "", "What moves?", "Zähle:\n 1 <b> {{ x }} <|im_end|> 0.5 seconds"])


@pytest.fixture(params=FAMILIES)
def family(request, tiny_family):
    return tiny_family(request.param)


def grid_of(inputs):
    """(T, h, w) tokens, from the shapes of the processor's outputs."""
    if "video_grid_thw" in inputs:
        num_frames, height, width = inputs["video_grid_thw"][0].tolist()
        return num_frames, height // 2, width // 2
    _, num_frames, _, height, width = inputs["pixel_values_videos"].shape
    return num_frames, height // 32, width // 32


# ------------------------------------------------------------------------------------------------------- plans


def test_plan_is_the_processors_own(family):
    @PROFILE
    @given(drawn=clips(), prompt=PROMPTS)
    def check(drawn, prompt):
        inputs = family.own(drawn, prompt)
        plan = family.encoder.plan(drawn.clip, EncodeOptions(prompt=prompt))
        ids, grid = inputs["input_ids"][0].numpy(), grid_of(inputs)
        assert plan.layout.input_ids.dtype == np.int64
        np.testing.assert_array_equal(plan.layout.input_ids, ids)
        assert plan.token_grid_thw == grid
        assert plan.spatial_merge_size == 2
        assert plan.temporal_patch_size == 2
        assert plan.model_grid_thw == plan.video_grid_thw == (grid[0], 2 * grid[1], 2 * grid[2])
        assert plan.frame_size == tuple(side * SIDE[family.model_type] for side in grid[1:])
        placeholder = family.processor.tokenizer.convert_tokens_to_ids(PLACEHOLDER[family.model_type])
        assert plan.layout.placeholder_token_id == placeholder
        np.testing.assert_array_equal(plan.layout.token_positions, np.flatnonzero(ids == placeholder))
        assert plan.layout.num_frames == grid[0] == -(-drawn.clip.num_frames // 2)
        assert len(plan.layout.extra_positions) == 0
        assert plan.total_tokens == np.prod(grid)
        assert plan.sequence_length() == len(ids)
        if "mm_token_type_ids" in inputs:
            np.testing.assert_array_equal(plan.token_type_ids, inputs["mm_token_type_ids"][0].numpy())

    check()


def test_prompt_seconds_are_what_is_printed(family):
    if family.model_type not in TIME:
        pytest.skip("qwen2_5_vl prints no times; its positions are checked in test_qwen_vl.py")

    @PROFILE
    @given(drawn=clips(), prompt=st.sampled_from([None, "What moves?"]))
    def check(drawn, prompt):
        plan = family.encoder.plan(drawn.clip, EncodeOptions(prompt=prompt))
        text = family.processor.tokenizer.decode(family.own(drawn, prompt)["input_ids"][0])
        printed = [float(time) for time in re.findall(TIME[family.model_type], text)]
        assert plan.prompt_seconds.dtype == np.float64
        assert plan.prompt_seconds.tolist() == printed
        assert len(printed) == plan.token_grid_thw[0]
        np.testing.assert_array_equal(plan.frame_pts_seconds, drawn.clip.pts_seconds[::2])

    check()


def test_times_do_not_drift_in_a_long_ntsc_clip(family):
    """An hour at 24000/1001: with a frame interval in whole milliseconds it would be a minute off at the end."""
    pts = np.arange(0, 3600, 120) * (1 + 1 / 1000)
    plan = family.encoder.plan(Clip(56, 56, pts, 3603.6), EncodeOptions())
    first, last = pts[::2], pts[1::2]
    middle = {"qwen3_vl": (first + last) / 2, "nemotron_h_omni": first}.get(family.model_type)
    if middle is None:  # qwen2_5_vl knows the mean interval alone
        assert plan.seconds_per_grid == pytest.approx(2 * 3603.6 / len(pts))
    else:
        np.testing.assert_allclose(plan.prompt_seconds, middle, atol=0.051)  # a tenth is printed at the coarsest


def test_one_frame_is_noted_where_it_is_repeated(family):
    one, two = (family.encoder.plan(make_clip(n, 64, 64), EncodeOptions()) for n in (1, 2))
    assert one.token_grid_thw == two.token_grid_thw
    assert len(one.pts_seconds) == 1
    assert bool(one.notes) == (family.model_type != "nemotron_h_omni")
    assert two.notes == ()


def test_plan_leaves_the_clip_and_the_processor_as_they_were(family):
    clip = make_clip(3, 90, 70, start=5.0)
    before, settings_before = clip.pts_seconds.copy(), family.encoder.processor.video_processor.to_dict()
    plans = [family.encoder.plan(clip, EncodeOptions(prompt="Who?")) for _ in range(2)]
    np.testing.assert_array_equal(plans[0].layout.input_ids, plans[1].layout.input_ids)
    np.testing.assert_array_equal(clip.pts_seconds, before)
    assert family.encoder.processor.video_processor.to_dict() == settings_before


def test_a_plan_reads_no_weights(family, tmp_path):
    """The same plan from a folder that has lost its weights."""
    for file in family.folder.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    encoder = open_encoder(str(tmp_path))
    clip = make_clip(5, 90, 70)
    expected = family.encoder.plan(clip, EncodeOptions())
    np.testing.assert_array_equal(encoder.plan(clip, EncodeOptions()).layout.input_ids, expected.layout.input_ids)
    with pytest.raises(ModelError, match="cannot load") as error:
        encoder.load("cpu", torch.float32)
    assert error.value.exit_code == 4


# ---------------------------------------------------------------------------------------------------- features


def encode_in_chunks(encoder, frames, plan, sizes):
    """Levels of ``frames`` encoded in chunks of the given sizes, the last as long as frames remain."""
    chunks, start = [], 0
    for size in sizes:
        if start < len(frames):
            chunks.append(encoder.encode(frames[start : start + size], plan).levels)
            start += size
    if start < len(frames):
        chunks.append(encoder.encode(frames[start:], plan).levels)
    return [torch.cat(level) for level in zip(*chunks, strict=True)]


def test_features_are_the_whole_models(family):
    """Bit for bit in float32, every level, with the language model left on disk."""

    @FEATURES
    @given(drawn=clips())
    def check(drawn):
        plan = family.encoder.plan(drawn.clip, EncodeOptions())
        levels = family.encoder.encode(drawn.frames(), plan).levels
        expected = family.own_levels(family.own(drawn))
        assert len(levels) == len(expected) == (3 if family.model_type == "qwen3_vl" else 1)
        for level, own in zip(levels, expected, strict=True):
            assert level.shape == (*plan.token_grid_thw, own.shape[-1])
            assert level.dtype == torch.float32
            assert torch.equal(level.flatten(0, 2), own)

    check()


def test_features_in_any_chunks_are_the_whole_models(family):
    """Frames are independent in the tower, so a cut changes rounding alone.

    Matrix products of few rows take other kernels: chunks of very few tokens differed from the whole clip by up to
    1.3e-6 (values of size 2 to 4), larger ones not at all. A frame, place or time taken for another differs by more
    than 1e-2 (the next test).
    """

    @FEATURES
    @given(drawn=clips(), halves=st.lists(st.integers(1, 3), max_size=4))
    def check(drawn, halves):
        frames = drawn.frames()
        plan = family.encoder.plan(drawn.clip, EncodeOptions())
        levels = encode_in_chunks(family.encoder, frames, plan, [2 * half for half in halves])
        for level, own in zip(levels, family.own_levels(family.own(drawn)), strict=True):
            assert level.shape == (*plan.token_grid_thw, own.shape[-1])
            torch.testing.assert_close(level.flatten(0, 2), own, rtol=0, atol=1e-5)

    check()


def test_the_features_mean_something(family):
    """Frames, places and levels differ, else the equalities above would hold for constants too."""
    drawn = DrawnClip(make_clip(6, 96, 128), 1)
    levels = family.encoder.encode(drawn.frames(), family.encoder.plan(drawn.clip, EncodeOptions())).levels
    for level in levels:
        rows = level.flatten(0, 2)
        assert rows.isfinite().all()
        assert torch.pdist(rows).min() > 1e-2
    for one, other in itertools.pairwise(levels):
        assert not torch.allclose(one, other, atol=1e-2)


def test_the_token_at_a_place_sees_that_place(family):
    """A frame that differs inside one token's square moves that token most, in that frame of tokens alone."""
    side = SIDE[family.model_type]
    # 2 x 3 tokens; nemotron resizes to its own number of patches, 48 here, so its grid has the same aspect.
    plan = family.encoder.plan(make_clip(4, 2 * side, 3 * side), EncodeOptions())
    _, height, width = plan.token_grid_thw
    assert height != width
    rows, columns = (plan.frame_size[0] // height, plan.frame_size[1] // width)
    frames = DrawnClip(Clip(*plan.frame_size, plan.pts_seconds, 2.0), 3).frames()
    base = family.encoder.encode(frames, plan).levels[0]
    for i in range(height):
        for j in range(width):
            changed = frames.clone()
            changed[2:, :, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns] ^= 0x80
            moved = (family.encoder.encode(changed, plan).levels[0] - base).norm(dim=-1)
            assert torch.equal(moved[0], torch.zeros_like(moved[0]))
            assert divmod(int(moved[1].argmax()), width) == (i, j)


def test_only_the_vision_part_is_loaded(family):
    """No language layer, and of the token embedding a stub; the rest is the whole model's, name by name."""
    loaded, whole = (dict(model.named_parameters()) for model in (family.encoder._model, family.whole))
    text = [name for name in loaded if "language_model" in name]
    assert not [name for name in text if ".layers." in name]
    assert sum(loaded[name].numel() for name in text) < 200
    rest = [name for name in loaded if name not in text]
    assert len(rest) > 20
    for name in rest:
        assert torch.equal(loaded[name], whole.get(name, whole.get(f"model.{name}"))), name
    assert {name.removeprefix("model.") for name in whole if "language" not in name and "lm_head" not in name} == {
        name.removeprefix("model.") for name in rest
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_features_in_other_dtypes_are_the_whole_models(family, dtype):
    """Bit for bit too, and near those in float32: nothing but the weights and activations is rounded."""
    from transformers import AutoModelForImageTextToText

    encoder = open_encoder(str(family.folder))
    encoder.load("cpu", dtype)
    whole = AutoModelForImageTextToText.from_pretrained(family.folder, dtype=dtype).eval()
    drawn = DrawnClip(make_clip(4, 96, 128), 5)
    inputs, plan = family.own(drawn), encoder.plan(drawn.clip, EncodeOptions())
    levels, exact = (e.encode(drawn.frames(), plan).levels for e in (encoder, family.encoder))
    for level, own, in_float32 in zip(levels, family.own_levels(inputs, model=whole), exact, strict=True):
        assert level.dtype == own.dtype == dtype
        assert torch.equal(level.flatten(0, 2), own)
        similarity = torch.cosine_similarity(level.float(), in_float32, dim=-1)
        assert similarity.min() > (0.99 if dtype is torch.float16 else 0.95)


def test_chunks_that_do_not_fit_the_plan_are_refused(family):
    plan = family.encoder.plan(make_clip(4, 90, 130), EncodeOptions())
    rows = torch.zeros(plan.tokens_per_frame + 1, 8)
    with pytest.raises(ModelError, match=r"cannot place the tokens of .* rows?|came of a chunk"):
        family.encoder.to_grid(rows, plan)


# ----------------------------------------------------------------------------------------- options and settings


def test_sampling_defaults(family):
    expected = {
        "qwen2_5_vl": SamplingDefaults(fps=2.0, num_frames=None, max_frames=768, min_frames=4),
        "qwen3_vl": SamplingDefaults(fps=2.0, num_frames=None, max_frames=768, min_frames=4),
        "nemotron_h_omni": SamplingDefaults(fps=2.0, num_frames=None, max_frames=128, min_frames=None),
    }
    assert family.encoder.sampling_defaults == expected[family.model_type]


def test_a_processor_that_asks_for_a_count_gets_it(family):
    encoder = open_encoder(str(family.folder))
    encoder.processor.video_processor.num_frames = 32
    assert encoder.sampling_defaults.num_frames == 32
    assert encoder.sampling_defaults.fps is None


REFUSED = {
    "qwen2_5_vl": ("size", "video_min_pixels"),
    "qwen3_vl": ("size", "frame_min_pixels", "frame_max_pixels"),
    "nemotron_h_omni": (
        *("size", "frame_min_pixels", "frame_max_pixels"),
        *("video_min_pixels", "video_max_pixels", "cap_pixels_per_frame"),
    ),
}


def test_options_without_an_effect_are_refused(family):
    for name in REFUSED[family.model_type]:
        option = EncodeOptions(**{name: False if name == "cap_pixels_per_frame" else 100})
        with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} has no effect on .*{family.model_type}"):
            family.encoder.plan(make_clip(2, 64, 64), option)


def test_a_prompt_that_holds_the_placeholder_is_refused(family):
    processor = family.processor
    for token in {PLACEHOLDER[family.model_type], processor.video_token, processor.image_token}:
        with pytest.raises(UsageError, match=rf"^Invalid prompt: it holds {re.escape(token)}"):
            family.encoder.plan(make_clip(2, 64, 64), EncodeOptions(prompt=f"Is {token} a token?"))


def test_a_prompt_without_a_chat_template_is_refused(family):
    encoder = open_encoder(str(family.folder))
    encoder.processor.chat_template = None
    with pytest.raises(ModelError, match="has no chat template") as error:
        encoder.plan(make_clip(2, 64, 64), EncodeOptions(prompt="Who?"))
    assert "--prompt" in error.value.hint
    assert encoder.plan(make_clip(2, 64, 64), EncodeOptions()).total_tokens


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{{ messages[0]['content'][1]['text'] }}", "leaves the video out"),
        ("VIDEO VIDEO {{ messages[0]['content'][1]['text'] }}", "writes the video more than once"),
        ("VIDEO", "leaves the prompt out"),
        ("{{ raise_exception('no video here') }}", r"fails \(no video here\)"),
        ("{{ messages[0]['content'] + 1 }}", "fails"),
    ],
)
def test_a_chat_template_that_cannot_hold_a_video_and_a_prompt_is_refused(family, template, fault):
    encoder = open_encoder(str(family.folder))
    encoder.processor.chat_template = template.replace("VIDEO", encoder.processor.video_token)
    with pytest.raises(ModelError, match=rf"^cannot build a prompt for .*: its chat template {fault}") as error:
        encoder.plan(make_clip(2, 64, 64), EncodeOptions(prompt="Who?"))
    assert "--prompt" in error.value.hint


@pytest.mark.parametrize("writes_start", [False, True])
def test_the_start_token_stands_once_before_a_prompt_and_never_before_a_piece(family, writes_start):
    """As ``apply_chat_template(tokenize=True)`` has it; a tokenizer that adds one is llava's and gemma's habit."""
    from tokenizers.processors import TemplateProcessing

    encoder = open_encoder(str(family.folder))
    tokenizer = encoder.processor.tokenizer
    start = encoder.processor.tokenizer.convert_ids_to_tokens(5)
    tokenizer.bos_token = start
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, tokenizer.bos_token_id)]
    )
    if writes_start:
        encoder.processor.chat_template = "{{ bos_token }}" + encoder.processor.chat_template
    asked = encoder.plan(make_clip(2, 64, 64), EncodeOptions(prompt="Who?")).layout.input_ids.tolist()
    assert asked[0] == tokenizer.bos_token_id
    assert asked[1] != tokenizer.bos_token_id
    piece = encoder.plan(make_clip(2, 64, 64), EncodeOptions()).layout.input_ids.tolist()
    assert piece[0] != tokenizer.bos_token_id


@pytest.mark.parametrize(
    ("count", "filled"), [(1, [0.0, 0.0]), (2, [0.0, 0.1]), (3, [0.0, 0.1, 0.2, 0.2]), (4, [0.0, 0.1, 0.2, 0.3])]
)
def test_tubelets_are_filled_with_the_last_time(count, filled):
    assert fill_tubelets(np.array([0.0, 0.1, 0.2, 0.3])[:count], 2).tolist() == filled
