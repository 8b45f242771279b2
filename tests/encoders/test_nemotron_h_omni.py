"""Nemotron H Omni prunes by EVS itself: its mask and its own pruned forward are an oracle for ours."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import DrawnClip, clips, make_clip, profile
from transformers.models.nemotron_h_omni.modeling_nemotron_h_omni import compute_retention_mask

from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.nemotron_h_omni import target_patches
from evs_cli.encoders.registry import open_encoder

PROFILE = profile(12)
RATES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)


@pytest.fixture(scope="session")
def nemotron(tiny_family):
    return tiny_family("nemotron_h_omni")


def still_frames(drawn, *, seed):
    """Frames of which about half of the places of each repeat the frame before: dissimilarities tie at zero."""
    frames = drawn.frames()
    generator = torch.Generator().manual_seed(seed)
    for t in range(1, len(frames)):
        columns = torch.rand(frames.shape[-1], generator=generator) < 0.5
        frames[t, :, :, columns] = frames[t - 1, :, :, columns]
    return frames


def ranking_of(family, drawn, frames):
    plan = family.encoder.plan(drawn.clip, EncodeOptions(prompt="What moves?"))
    levels = family.encoder.encode(frames, plan).levels
    return plan, levels, Ranking(compute_dissimilarity(levels[0]))


@pytest.mark.parametrize("kind", ["noise", "still", "one picture"])
def test_the_mask_is_the_models_own(nemotron, kind):
    @PROFILE
    @given(drawn=clips())
    def check(drawn):
        frames = {
            "noise": drawn.frames(),
            "still": still_frames(drawn, seed=drawn.seed),
            "one picture": drawn.frames()[:1].expand(drawn.clip.num_frames, -1, -1, -1),
        }[kind]
        plan, _, ranking = ranking_of(nemotron, drawn, frames)
        own = nemotron.own_levels(nemotron.own(drawn, frames=frames))[0]
        for q in RATES:
            mask = ranking.at(q).retention_mask
            assert torch.equal(mask.flatten(), compute_retention_mask(own, plan.token_grid_thw[0], q))
            assert int(mask.sum()) == plan.retained_tokens(q)

    check()


def test_logits_of_our_pruned_sequence_are_its_own_pruned_forwards(nemotron):
    """Bit for bit: the same rows behind the same ids go through the same recurrent layers."""

    @PROFILE
    @given(drawn=clips(), q=st.sampled_from(RATES), is_still=st.booleans())
    def check(drawn, q, is_still):
        frames = still_frames(drawn, seed=1) if is_still else drawn.frames()
        plan, levels, ranking = ranking_of(nemotron, drawn, frames)
        mask = ranking.at(q).retention_mask
        sequence = plan.layout.prune(mask.numpy())
        inputs = nemotron.own(drawn, "What moves?", frames=frames)
        ours = {"video": nemotron.with_our_rows(inputs, levels, mask)}
        own = forward(nemotron, q, **inputs)
        logits = forward(nemotron, 0.0, input_ids=torch.from_numpy(sequence.input_ids)[None], mm_encoder_outputs=ours)
        assert logits.isfinite().all()
        assert torch.equal(logits, own)
        assert len(logits) == plan.sequence_length(q)

    check()


def forward(family, q, **inputs):
    """Logits of the whole model while it prunes at rate q by itself."""
    before = family.whole.video_pruning_rate
    family.whole.video_pruning_rate = q
    try:
        with torch.inference_mode():
            return family.whole(**inputs).logits[0]
    finally:
        family.whole.video_pruning_rate = before


def test_another_mask_gives_other_logits(nemotron):
    """Else the test above would hold whatever was kept."""
    drawn = DrawnClip(make_clip(9, 96, 128), 1)
    plan, levels, ranking = ranking_of(nemotron, drawn, drawn.frames())
    mask = ranking.at(0.7).retention_mask
    inputs = nemotron.own(drawn, "What moves?")
    other = mask.clone()
    other[1:] = mask[1:].flip(2)
    assert not torch.equal(other, mask)
    sequence = plan.layout.prune(other.numpy())
    ours = {"video": nemotron.with_our_rows(inputs, levels, other)}
    logits = forward(nemotron, 0.0, input_ids=torch.from_numpy(sequence.input_ids)[None], mm_encoder_outputs=ours)
    own = forward(nemotron, 0.7, **inputs)
    assert logits.shape == own.shape
    assert not torch.allclose(logits[-1], own[-1], atol=1e-2)


def test_it_has_no_positions(nemotron):
    assert nemotron.encoder.position_ids(nemotron.encoder.plan(make_clip(4, 64, 64), EncodeOptions())) is None


def test_the_default_rate_is_the_checkpoints_own(nemotron):
    """0.7 in the published configuration; 0 is no rule of its own."""

    def rate(value):
        encoder = open_encoder(str(nemotron.folder))
        encoder.source.config["video_pruning_rate"] = value
        return encoder.default_pruning_rate

    assert nemotron.encoder.default_pruning_rate == (nemotron.whole.config.video_pruning_rate or None)
    assert rate(0.7) == 0.7
    assert [rate(value) for value in (0, 0.0, 1, None, "0.7", True)] == [None] * 6


def test_a_checkpoint_that_prunes_gives_all_its_features(nemotron, tmp_path):
    """The rate of its configuration is for its own forward; ``get_video_features`` is not pruned, nor is the plan."""
    config = (nemotron.folder / "config.json").read_text()
    for file in nemotron.folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(config.replace("{", '{"video_pruning_rate": 0.7,', 1))
    encoder = open_encoder(str(tmp_path))
    encoder.load("cpu", torch.float32)
    drawn = DrawnClip(make_clip(6, 96, 128), 1)
    plan = encoder.plan(drawn.clip, EncodeOptions())
    assert plan.total_tokens == nemotron.encoder.plan(drawn.clip, EncodeOptions()).total_tokens
    rows = encoder.encode(drawn.frames(), plan).levels[0].flatten(0, 2)
    assert torch.equal(rows, nemotron.own_levels(nemotron.own(drawn))[0])


# ------------------------------------------------------------------------------------------- the frame's size


@profile(400)
@given(
    height=st.integers(1, 4320),
    width=st.integers(1, 7680),
    target=st.integers(1, 2048),
    ratio=st.sampled_from([1.0, 0.5, 0.25]),
    keeps_aspect=st.booleans(),
)
def test_target_patches_are_the_processors(nemotron, height, width, target, ratio, keeps_aspect):
    """Drawn sizes, budgets and merges; the method is private, so that tests alone ask it."""
    processor = type(nemotron.processor.video_processor)(
        video_target_num_patches=target, downsample_ratio=ratio, video_maintain_aspect_ratio=keeps_aspect
    )
    columns, rows = processor._compute_target_patches(height, width)
    assert (rows, columns) == target_patches(
        height, width, target_num_patches=target, merge_size=round(1 / ratio), keeps_aspect=keeps_aspect
    )


@profile(300)
@given(height=st.integers(1, 130), width=st.integers(1, 130))
def test_the_planned_size_is_the_processed_one(nemotron, height, width):
    """Through the public call, on pixels of drawn sizes."""
    plan = nemotron.encoder.plan(make_clip(1, height, width), EncodeOptions())
    pixels = nemotron.processor.video_processor(
        videos=[torch.zeros(1, 3, height, width, dtype=torch.uint8)], do_sample_frames=False, return_tensors="pt"
    )["pixel_values_videos"]
    assert tuple(pixels.shape[-2:]) == plan.frame_size


@pytest.mark.parametrize("keeps_aspect", [True, False])
def test_a_budget_that_is_no_square_of_the_merge(nemotron, keeps_aspect):
    """49 patches merged two by two: 6 x 6, never 7 x 7."""
    found = target_patches(90, 90, target_num_patches=49, merge_size=2, keeps_aspect=keeps_aspect)
    assert found == (6, 6)
