"""SigLIP 2 (NaFlex): flat patches and their grid, against the model's own processor; and the families refused."""

import json

import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_frame_models import tiny_folder
from tiny_models import DrawnClip, make_clip

from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.plain import flat_patches
from evs_cli.encoders.registry import FAMILIES, REFUSED, open_encoder
from evs_cli.errors import ModelError, UsageError
from evs_cli.video.sampling import SamplingDefaults

PATCH = {"siglip2": 16, "siglip2_vision_model": 14}


class Siglip2:
    def __init__(self, model_type):
        self.model_type, self.patch, folder = model_type, PATCH[model_type], tiny_folder(model_type)
        self.encoder = open_encoder(str(folder))
        self.encoder.load("cpu", torch.float32)
        whole = tf.AutoModel.from_pretrained(folder).eval()
        self.vision = getattr(whole, "vision_model", whole)
        self.processor = tf.AutoImageProcessor.from_pretrained(folder)

    def own(self, frames, max_num_patches):
        """The processor's inputs and the whole model's features for frames that need no resizing."""
        inputs = self.processor(
            list(frames), do_resize=False, max_num_patches=max_num_patches, patch_size=self.patch, return_tensors="pt"
        )
        with torch.inference_mode():
            return inputs, self.vision(**inputs).last_hidden_state


@pytest.fixture(scope="module", params=sorted(PATCH))
def family(request):
    return Siglip2(request.param)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(rows=st.integers(1, 7), columns=st.integers(1, 9), count=st.sampled_from([1, 2, 3, 5]), seed=st.integers(0, 9))
def test_features_are_the_whole_models(family, rows, columns, count, seed):
    """For frames of any grid; padding, of which evs needs none, changes rounding alone."""
    drawn = DrawnClip(make_clip(count, rows * family.patch, columns * family.patch), seed)
    options = EncodeOptions(size=min(rows, columns) * family.patch)
    plan = family.encoder.plan(drawn.clip, options)
    assert plan.token_grid_thw == (count, rows, columns)
    (level,) = family.encoder.encode(drawn.frames(), plan).levels
    _, own = family.own(drawn.frames(), rows * columns)
    # (x / 255 - mean) / std against the processor's (x - 255 mean) / (255 std): up to 2.3e-6 in features of size 3.5.
    torch.testing.assert_close(level.flatten(1, 2), own, rtol=0, atol=2e-5)
    _, padded = family.own(drawn.frames(), rows * columns + 5)
    torch.testing.assert_close(padded[:, : rows * columns], own, rtol=0, atol=2e-5)


def test_patches_are_the_processors(family):
    """Order of pixels and colours in a patch, of patches in a frame, and the shapes; bit for bit."""
    drawn = DrawnClip(make_clip(2, 3 * family.patch, 5 * family.patch), 1)
    frames = drawn.frames().float()
    inputs = family.processor(
        list(frames),
        do_resize=False,
        do_rescale=False,
        do_normalize=False,
        max_num_patches=15,
        patch_size=family.patch,
        return_tensors="pt",
    )
    ours = flat_patches(frames, family.patch)
    assert torch.equal(ours["pixel_values"], inputs["pixel_values"])
    assert ours["spatial_shapes"].tolist() == inputs["spatial_shapes"].tolist() == [[3, 5], [3, 5]]
    assert ours["pixel_attention_mask"].tolist() == inputs["pixel_attention_mask"].tolist()


def test_the_token_at_a_place_sees_that_place(family):
    clip = make_clip(2, 3 * family.patch, 5 * family.patch)
    plan, frames = family.encoder.plan(clip, EncodeOptions(size=3 * family.patch)), DrawnClip(clip, 0).frames()
    base, step = family.encoder.encode(frames, plan).levels[0], family.patch
    for i in range(3):
        for j in range(5):
            changed = frames.clone()
            changed[1, :, i * step : (i + 1) * step, j * step : (j + 1) * step] ^= 0x80
            moved = (family.encoder.encode(changed, plan).levels[0] - base).norm(dim=-1)
            assert torch.equal(moved[0], torch.zeros(3, 5))
            assert divmod(int(moved[1].argmax()), 5) == (i, j)


def test_chunks_change_rounding_alone(family):
    drawn = DrawnClip(make_clip(5, 60, 90), 0)
    plan, frames = family.encoder.plan(drawn.clip, EncodeOptions(size=48)), drawn.frames()
    whole = family.encoder.encode(frames, plan).levels[0]
    parts = torch.cat([family.encoder.encode(frames[i : i + 2], plan).levels[0] for i in (0, 2, 4)])
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-5)
    assert torch.pdist(whole.flatten(0, 2)).min() > 1e-2


def test_the_plan_is_that_of_a_plain_encoder(family):
    plan = family.encoder.plan(make_clip(3, 1080, 1920), EncodeOptions())
    short = 224 // family.patch
    assert plan.token_grid_thw == (3, short, round(224 * 1920 / 1080 / family.patch))
    assert plan.modality == "none"
    assert family.encoder.sampling_defaults == SamplingDefaults(fps=2.0, max_frames=128)
    with pytest.raises(UsageError, match=r"^--prompt has no effect"):
        family.encoder.plan(make_clip(3, 90, 90), EncodeOptions(prompt="What?"))


@pytest.mark.parametrize("model_type", sorted(PATCH))
def test_a_configuration_without_a_patch_size_means_the_classs_own(tmp_path, model_type):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    plan = open_encoder(str(tmp_path)).plan(make_clip(1, 448, 448), EncodeOptions())
    side = 224 // tf.Siglip2VisionConfig().patch_size
    assert plan.token_grid_thw == (1, side, side)


# -------------------------------------------------------------------------------------------- families refused


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [("vjepa2", "V-JEPA 2 attends over all frames"), ("videomae", "VideoMAE attends over a clip of one fixed length")],
)
def test_models_whose_frames_are_not_independent_are_refused_with_the_reason(tmp_path, model_type, reason):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(ModelError, match=rf"^cannot use .*: {reason}") as error:
        open_encoder(str(tmp_path))
    assert error.value.exit_code == 4
    assert "evs models" in error.value.hint


def test_no_family_is_both_known_and_refused():
    assert not set(FAMILIES) & set(REFUSED)
