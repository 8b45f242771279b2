"""Plain encoders: which token is which, the whole frame, the generic sequence, and a plan without torch."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
import transformers as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_models import DrawnClip, make_clip

import evs_cli
from evs_cli.encoders import embedded, plain
from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.plain import fit_short_side, generic_layout
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.source import ModelSource
from evs_cli.errors import ModelError, UsageError
from evs_cli.video.sampling import SamplingDefaults

PROFILE = settings(max_examples=300, deadline=None, derandomize=True)
FAMILIES = sorted(tiny_models.PLAIN_BUILDERS)
PATCH = {
    "dinov2": 14,
    "dinov2_with_registers": 14,
    "dinov3_vit": 16,
    "siglip": 16,
    "siglip_vision_model": 16,
    "clip": 32,
    "clip_vision_model": 14,
}
IN_FRONT = {  # class token and registers
    "dinov2": 1,
    "dinov2_with_registers": 1 + 4,
    "dinov3_vit": 1 + 4,
    "siglip": 0,
    "siglip_vision_model": 0,
    "clip": 1,
    "clip_vision_model": 1,
}
GRID = (3, 5)  # not square, and no size that any of these was made for


class Plain:
    """One family's tiny checkpoint: the encoder with its weights, and the whole model beside it."""

    def __init__(self, model_type, folder):
        self.model_type, self.folder, self.patch = model_type, folder, PATCH[model_type]
        self.encoder = open_encoder(str(folder))
        self.encoder.load("cpu", torch.float32)
        self.whole = tf.AutoModel.from_pretrained(folder).eval()
        config = json.loads((folder / "preprocessor_config.json").read_text())
        self.mean, self.std = (torch.tensor(config[f"image_{name}"]).view(3, 1, 1) for name in ("mean", "std"))

    def drawn(self, num_frames=3, seed=0):
        """Frames that need no resizing at ``size``."""
        return DrawnClip(make_clip(num_frames, GRID[0] * self.patch, GRID[1] * self.patch), seed)

    @property
    def options(self):
        return EncodeOptions(size=GRID[0] * self.patch)

    def own(self, frames):
        """(S, in front + h * w, D) of the whole checkpoint on frames that need no resizing."""
        pixels = (frames.float() / 255 - self.mean) / self.std
        vision = getattr(self.whole, "vision_model", self.whole)
        more = {"interpolate_pos_encoding": True} if "clip" in self.model_type or "siglip" in self.model_type else {}
        with torch.inference_mode():
            return vision(pixel_values=pixels, **more).last_hidden_state


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tiny_model):
    return Plain(request.param, tiny_model(request.param))


# ---------------------------------------------------------------------------------------------------- features


def test_tokens_are_the_whole_models_without_those_in_front(family):
    """Bit for bit in float32, where the frame needs no resizing."""
    drawn = family.drawn()
    plan = family.encoder.plan(drawn.clip, family.options)
    assert plan.frame_size == (drawn.clip.height, drawn.clip.width)
    (level,) = family.encoder.encode(drawn.frames(), plan).levels
    own = family.own(drawn.frames())
    assert level.shape == (*plan.token_grid_thw, own.shape[-1]) == (3, *GRID, 32)
    assert own.shape[1] == IN_FRONT[family.model_type] + GRID[0] * GRID[1]
    assert torch.equal(level.flatten(1, 2), own[:, IN_FRONT[family.model_type] :])


def test_the_token_at_a_place_sees_that_place(family):
    """A frame that differs in one patch moves that patch's token most, and no other frame's at all."""
    drawn, patch = family.drawn(2), family.patch
    plan, frames = family.encoder.plan(drawn.clip, family.options), drawn.frames()
    base = family.encoder.encode(frames, plan).levels[0]
    for i in range(GRID[0]):
        for j in range(GRID[1]):
            changed = frames.clone()
            changed[1, :, i * patch : (i + 1) * patch, j * patch : (j + 1) * patch] ^= 0x80
            moved = (family.encoder.encode(changed, plan).levels[0] - base).norm(dim=-1)
            assert torch.equal(moved[0], torch.zeros(GRID))
            assert divmod(int(moved[1].argmax()), GRID[1]) == (i, j)


def test_chunks_of_frames_change_rounding_alone(family):
    """Frames are independent; products of fewer rows may be summed in another order."""
    drawn = family.drawn(5)
    plan, frames = family.encoder.plan(drawn.clip, family.options), drawn.frames()
    whole = family.encoder.encode(frames, plan).levels[0]
    parts = torch.cat([family.encoder.encode(frames[i : i + 2], plan).levels[0] for i in (0, 2, 4)])
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5)
    assert torch.pdist(whole.flatten(0, 2)).min() > 1e-2  # far above the tolerance


@pytest.mark.parametrize(("height", "width"), [(90, 161), (161, 90), (37, 300), (300, 37), (224, 224)])
def test_the_whole_frame_is_seen(family, height, width):
    """Nothing is cropped or turned: each edge of the frame is an edge of the pixels, and moves the tokens."""
    plan = family.encoder.plan(make_clip(1, height, width), EncodeOptions(size=3 * family.patch))
    frame = DrawnClip(make_clip(1, height, width), 0).frames()
    pixels, base = family.encoder._pixels(frame, plan), family.encoder.encode(frame, plan).levels[0]
    edges = {"top": (-2, 0), "bottom": (-2, -1), "left": (-1, 0), "right": (-1, -1)}
    for name, (axis, end) in edges.items():
        changed = frame.clone()
        changed.select(axis, end).bitwise_xor_(0x80)
        moved = (family.encoder._pixels(changed, plan) - pixels).abs().amax(dim=(0, 1))
        assert (moved.select(axis, end) > 0).float().mean() > 0.9, name
        assert moved.select(axis, -1 - end).max() == 0, name
        assert (family.encoder.encode(changed, plan).levels[0] - base).abs().max() > 1e-3, name


def test_resizing_is_bicubic_with_antialiasing(family):
    """As the published image processors of these families resize, but for the crop; within the rounding of uint8."""
    size = 2 * family.patch
    frame = torch.zeros(1, 3, 8 * family.patch, 8 * family.patch, dtype=torch.uint8)
    frame[..., ::2] = 255  # stripes of one pixel: without antialiasing they would not come out grey
    plan = family.encoder.plan(make_clip(1, *frame.shape[-2:]), EncodeOptions(size=size))
    pixels = family.encoder._pixels(frame, plan) * family.std + family.mean
    inner = pixels[..., 2:-2, 2:-2]
    assert inner.sub(0.5).abs().max() < 0.05


def test_mean_and_std_are_the_checkpoints(family, tmp_path):
    """Without a file, ImageNet's."""
    for file in family.folder.iterdir():
        if file.name != "preprocessor_config.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    encoder = open_encoder(str(tmp_path))
    encoder.load("cpu", torch.float32)
    drawn = family.drawn(1)
    pixels = encoder._pixels(drawn.frames(), encoder.plan(drawn.clip, family.options))
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    torch.testing.assert_close(pixels * std + mean, drawn.frames() / 255, rtol=0, atol=1e-6)


def test_only_the_vision_tower_is_loaded(family):
    loaded = dict(family.encoder._model.named_parameters())
    assert not [name for name in loaded if "text" in name]
    vision = getattr(family.whole, "vision_model", family.whole)
    whole = {name.removeprefix("vision_model."): p for name, p in vision.named_parameters()}
    assert {name.removeprefix("vision_model.") for name in loaded} == set(whole)
    for name, parameter in loaded.items():
        assert torch.equal(parameter, whole[name.removeprefix("vision_model.")]), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes_are_near_float32(family, dtype):
    encoder = open_encoder(str(family.folder))
    encoder.load("cpu", dtype)
    drawn = family.drawn(2)
    plan = encoder.plan(drawn.clip, family.options)
    level, exact = (e.encode(drawn.frames(), plan).levels[0] for e in (encoder, family.encoder))
    assert level.dtype == dtype
    similarity = torch.cosine_similarity(level.float(), exact, dim=-1)
    assert similarity.min() > (0.99 if dtype is torch.float16 else 0.95)


def test_tokens_that_do_not_fit_the_plan_are_refused(family):
    drawn = family.drawn(1)
    plan = family.encoder.plan(drawn.clip, family.options)
    other = family.encoder.plan(drawn.clip, EncodeOptions(size=family.patch))
    object.__setattr__(other, "frame_size", plan.frame_size)
    with pytest.raises(ModelError, match=r"^cannot place the tokens of .*: \d+ a frame\. Expected \d+ patches after"):
        family.encoder.encode(drawn.frames(), other)


# ------------------------------------------------------------------------------------------------------- plans


@given(num_frames=st.integers(1, 20), height=st.integers(1, 500), width=st.integers(1, 500), size=st.integers(1, 400))
@PROFILE
def test_plan_counts(tiny_model, num_frames, height, width, size):
    assume(max(height, width) / min(height, width) * size < 4096 * 14)
    encoder = open_encoder(str(tiny_model("dinov2")))
    clip = make_clip(num_frames, height, width, fps=24000 / 1001, start=7.3)
    plan = encoder.plan(clip, EncodeOptions(size=size))
    rows, columns = (side // 14 for side in plan.frame_size)
    assert plan.frame_size == fit_short_side(height, width, size, 14)
    assert plan.token_grid_thw == plan.model_grid_thw == plan.video_grid_thw == (num_frames, rows, columns)
    assert plan.total_tokens == num_frames * rows * columns
    assert plan.sequence_length() == num_frames * (rows * columns + 2)
    assert plan.temporal_patch_size == plan.spatial_merge_size == 1
    np.testing.assert_array_equal(plan.prompt_seconds, clip.pts_seconds)
    np.testing.assert_array_equal(plan.frame_pts_seconds, clip.pts_seconds)


def test_the_default_size_is_224(family):
    plan = family.encoder.plan(make_clip(2, 448, 448), EncodeOptions())
    assert plan.frame_size == (224, 224)
    assert plan.token_grid_thw == (2, 224 // family.patch, 224 // family.patch)


def test_a_settled_size_is_kept(family):
    size = (4 * family.patch, 2 * family.patch)
    plan = family.encoder.plan(make_clip(2, 448, 448), EncodeOptions(), frame_size=size)
    assert plan.frame_size == size
    assert plan.token_grid_thw == (2, 4, 2)


def test_sampling_defaults_are_two_frames_a_second(family):
    assert family.encoder.sampling_defaults == SamplingDefaults(2.0, None, max_frames=128, min_frames=None)
    assert family.encoder.temporal_patch_size == 1
    assert family.encoder.default_pruning_rate is None


def test_positions_count_the_sequence(family):
    plan = family.encoder.plan(make_clip(3, 448, 448), EncodeOptions())
    positions = family.encoder.position_ids(plan)
    assert positions.dtype == torch.int64
    assert positions.tolist() == list(range(plan.sequence_length()))


@pytest.mark.parametrize(
    "name",
    ["prompt", "frame_min_pixels", "frame_max_pixels", "video_min_pixels", "video_max_pixels", "cap_pixels_per_frame"],
)
def test_options_without_an_effect_are_refused(family, name):
    value = {"prompt": "Who?", "cap_pixels_per_frame": False}.get(name, 100)
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} has no effect on .*--size"):
        family.encoder.plan(make_clip(2, 64, 64), EncodeOptions(**{name: value}))


CLASSES = {
    "dinov2": tf.Dinov2Config,
    "dinov2_with_registers": tf.Dinov2WithRegistersConfig,
    "dinov3_vit": tf.DINOv3ViTConfig,
    "siglip": tf.SiglipVisionConfig,
    "siglip_vision_model": tf.SiglipVisionConfig,
    "clip": tf.CLIPVisionConfig,
    "clip_vision_model": tf.CLIPVisionConfig,
}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_what_a_configuration_leaves_out_is_the_classs_default(tmp_path, model_type):
    """A configuration may leave out whatever equals transformers' own default, the patch size among it."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    plan = open_encoder(str(tmp_path)).plan(make_clip(1, 448, 448), EncodeOptions())
    side = CLASSES[model_type]().patch_size
    assert plan.token_grid_thw == (1, 224 // side, 224 // side)


@pytest.mark.parametrize("model_type", ["dinov2_with_registers", "dinov3_vit"])
def test_registers_that_a_configuration_leaves_out_are_the_classs_default(tmp_path, model_type):
    """Four for DINOv2, none for DINOv3."""
    config = CLASSES[model_type](hidden_size=32, num_hidden_layers=1, num_attention_heads=2, patch_size=16)
    tf.AutoModel.from_config(config).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    written.pop("num_register_tokens")
    (tmp_path / "config.json").write_text(json.dumps(written))
    encoder = open_encoder(str(tmp_path))
    encoder.load("cpu", torch.float32)
    plan = encoder.plan(make_clip(1, 32, 48), EncodeOptions(size=32))
    frame = DrawnClip(make_clip(1, 32, 48), 0).frames()
    assert encoder.encode(frame, plan).levels[0].shape == (1, 2, 3, 32)


# --------------------------------------------------------------------------------------------- fit_short_side

SIDES = st.integers(1, 8192)
PATCHES = st.sampled_from([8, 14, 16, 32])


@PROFILE
@given(height=SIDES, width=SIDES, size=st.integers(1, 2048), patch=PATCHES)
def test_fit_short_side(height, width, size, patch):
    """Whole patches, at least one; each side within half a patch of the scaled one, which keeps the aspect."""
    scale = size / min(height, width)
    assume(max(height, width) * scale < 4096 * patch)
    fitted = fit_short_side(height, width, size, patch)
    for side, original in zip(fitted, (height, width), strict=True):
        assert isinstance(side, int)
        assert side % patch == 0
        assert side >= patch
        assert abs(side - original * scale) <= patch / 2 + 1e-6 or side == patch
    assert (fitted[0] >= fitted[1]) == (height >= width) or fitted[0] == fitted[1]
    assert fit_short_side(width, height, size, patch) == fitted[::-1]


@PROFILE
@given(rows=st.integers(1, 40), columns=st.integers(1, 40), patch=PATCHES)
def test_frames_of_whole_patches_stay(rows, columns, patch):
    assert fit_short_side(rows * patch, columns * patch, min(rows, columns) * patch, patch) == (
        rows * patch,
        columns * patch,
    )


@pytest.mark.parametrize(
    ("shape", "size", "patch", "fitted"),
    [
        ((1080, 1920), 224, 14, (224, 392)),  # 398.2, 28.4 patches
        ((1920, 1080), 224, 14, (392, 224)),
        ((480, 640), 224, 16, (224, 304)),  # 298.7, 18.7 patches
        ((480, 640), 224, 32, (224, 288)),  # 9.3 patches
        ((100, 100), 1, 14, (14, 14)),
        ((1, 4000), 14, 14, (14, 56_000)),
    ],
)
def test_fit_short_side_by_hand(shape, size, patch, fitted):
    assert fit_short_side(*shape, size, patch) == fitted


def test_a_strip_that_would_be_endless_is_refused():
    with pytest.raises(
        UsageError, match=r"^cannot fit frames of 8192x1 to a short side of 224: the long side would be"
    ):
        fit_short_side(1, 8192, 224, 14)


# ---------------------------------------------------------------------------------------------- generic layout


@PROFILE
@given(num_frames=st.integers(1, 12), tokens=st.integers(1, 30))
def test_generic_layout(num_frames, tokens):
    layout = generic_layout(num_frames, tokens)
    assert layout.input_ids.tolist() == [1, *[0] * tokens, 2] * num_frames
    assert layout.input_ids.dtype == layout.token_positions.dtype == np.int64
    assert layout.token_positions.tolist() == [i for i, token in enumerate(layout.input_ids) if token == 0]
    assert layout.placeholder_token_id == 0
    assert layout.num_frames == num_frames
    assert layout.extra_positions.tolist() == []


def test_a_pruned_generic_sequence_keeps_the_marks_of_empty_frames():
    mask = np.array([[1, 1], [0, 0], [0, 1]], dtype=bool)
    sequence = generic_layout(3, 2).prune(mask)
    assert sequence.input_ids.tolist() == [1, 0, 0, 2, 1, 2, 1, 0, 2]
    assert sequence.frame_offsets.tolist() == [[1, 2], [5, 4], [7, 7]]


# ----------------------------------------------------------------------------------------- no torch for a plan

PLAN = """
import sys
import numpy as np
from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
encoder = open_encoder(sys.argv[1])
plan = encoder.plan(Clip(240, 320, np.arange(7) / 2, 3.5), EncodeOptions(size=112))
plan.layout.prune(np.ones(plan.token_grid_thw, dtype=bool))
print(encoder.sampling_defaults, plan.token_grid_thw, plan.sequence_length(0.7))
print(sorted({"torch", "transformers", "torchvision", "onnx", "decord", "safetensors"} & set(sys.modules)))
"""


def run_plan(model, *, before="", **environment):
    """The two lines that ``PLAN`` prints for a model, in a process of its own; ``before`` runs first."""
    root = str(Path(evs_cli.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", before + PLAN, model],
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("model_type", ["dinov2", "clip", "siglip", "dinov3_vit"])
def test_a_plan_imports_no_torch(tiny_model, model_type):
    counts, imported = run_plan(str(tiny_model(model_type)))
    assert re.search(r"\(7, \d+, \d+\) \d+$", counts)
    assert imported == "[]"


def test_a_plan_of_the_embedded_model_imports_no_torch_and_converts_nothing(tmp_path):
    if embedded.find_weights() is None:
        pytest.skip("the extra `embedded` is not installed")
    counts, imported = run_plan("dinov2-small", EVS_CACHE=str(tmp_path / "cache"))
    assert "(7, 8, 11)" in counts
    assert imported == "[]"
    assert not (tmp_path / "cache").exists()


def test_that_check_can_fail(tiny_model):
    assert "'torch'" in run_plan(str(tiny_model("dinov2")), before="import torch")[1]


def test_a_clip_counts_its_frames():
    assert Clip(4, 6, np.array([0.0, 0.5]), 1.0).num_frames == 2


def test_normalisation_that_is_out_of_reach_is_not_taken_for_absent(monkeypatch):
    """With the weights cached and the processor's file not, ImageNet's numbers would be silently wrong."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    source = ModelSource(name="a/b", location="a/b", revision=None, config={"model_type": "siglip"})

    def answer_with(error):
        def download(*arguments, **more):
            raise error("no such file")

        monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)

    answer_with(LocalEntryNotFoundError)
    with pytest.raises(LocalEntryNotFoundError):
        plain._read_mean_std(source)
    answer_with(EntryNotFoundError)
    assert plain._read_mean_std(source) == plain._IMAGENET
