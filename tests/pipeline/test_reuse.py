"""Frames that repeat the one before are left out; groups are full, and say which frame stands for which."""

import pytest
import tiny_frame_models
import tiny_grid_models
import tiny_models
import torch
from drawn_cases import tried_on
from hypothesis import given
from hypothesis import strategies as st

from evs_cli.encoders.base import EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.pipeline.reuse import group_frames


def video(kinds):
    """A frame a number, ``(n, 3, 2, 2)`` uint8; equal numbers are equal frames."""
    return torch.tensor(kinds, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2).contiguous()


def grouped(kinds, *, batch, tubelet=1, reuses=True):
    batches = (part.clone() for part in video(kinds).split(batch))
    return list(group_frames(batches, group_frames=batch, temporal_patch_size=tubelet, reuses=reuses))


@tried_on(300, deadline=None, derandomize=True)
@given(
    kinds=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    tubelet=st.integers(1, 3),
    tubelets=st.integers(1, 4),
    reuses=st.booleans(),
)
def test_the_frames_that_stand_for_others_are_equal_to_them(kinds, tubelet, tubelets, reuses):
    batch = tubelet * tubelets
    groups = grouped(kinds, batch=batch, tubelet=tubelet, reuses=reuses)
    rebuilt, last = [], None
    for group in groups:
        fresh = list(group.frames.split(tubelet)) if len(group.frames) else []
        assert len(group.frames) <= batch
        assert sorted(set(group.tubelet_of.tolist()) - {-1}) == list(range(len(fresh)))  # each stands for some frame
        assert (group.tubelet_of.diff() >= 0).all()
        rebuilt += [last if place < 0 else fresh[place] for place in group.tubelet_of.tolist()]
        last = fresh[-1] if fresh else last
    assert torch.equal(torch.cat(rebuilt), video(kinds))
    assert sum(group.num_frames for group in groups) == len(kinds)
    assert all(len(group.frames) == batch for group in groups[:-1])  # full, but at the end
    parts = [tuple(kinds[i : i + tubelet]) for i in range(0, len(kinds), tubelet)]
    changes = sum(before != after for before, after in zip([None, *parts], parts, strict=False))
    encoded = sum(-(-len(group.frames) // tubelet) for group in groups)
    assert encoded == (changes if reuses else len(parts))


def test_a_video_without_repeats_is_its_batches_not_copied():
    batches = list(video([0, 1, 2, 3]).split(2))
    groups = list(group_frames(iter(batches), group_frames=2, temporal_patch_size=1, reuses=True))
    assert [group.frames.data_ptr() for group in groups] == [batch.data_ptr() for batch in batches]
    assert [group.tubelet_of.tolist() for group in groups] == [[0, 1], [0, 1]]


def test_repeats_cross_batches_and_groups():
    groups = grouped([7, 7, 7, 1, 2, 2, 2, 2, 3], batch=2)
    assert [group.frames[:, 0, 0, 0].tolist() for group in groups] == [[7, 1], [2, 3]]
    assert [group.tubelet_of.tolist() for group in groups] == [[0, 0, 0, 1], [0, 0, 0, 0, 1]]
    groups = grouped([7, 1, 1, 1, 1], batch=2)
    assert [group.frames[:, 0, 0, 0].tolist() for group in groups] == [[7, 1], []]
    assert [group.tubelet_of.tolist() for group in groups] == [[0, 1], [-1, -1, -1]]


def test_one_bit_makes_another_frame():
    frames = video([5, 5, 5])
    frames[1, 2, 1, 1] ^= 1
    groups = list(group_frames(iter([frames]), group_frames=3, temporal_patch_size=1, reuses=True))
    assert [len(group.frames) for group in groups] == [3]


@pytest.mark.parametrize(("kinds", "encoded"), [([1, 2, 1, 2], 2), ([1, 1, 2, 2], 4), ([1, 2, 1], 3)])
def test_a_tubelet_is_compared_whole(kinds, encoded):
    """A last tubelet that is short is filled by the encoder, so it is not the one before."""
    assert sum(len(group.frames) for group in grouped(kinds, batch=4, tubelet=2)) == encoded


# The families.

FAMILIES = sorted({*tiny_models.BUILDERS, *tiny_grid_models.BUILDERS, *tiny_frame_models.BUILDERS})


def loaded(model_type, tiny_model):
    """The encoder of a family's tiny checkpoint."""
    if model_type in tiny_grid_models.BUILDERS:
        return tiny_grid_models.grid_family(model_type).encoder
    in_frames = model_type in tiny_frame_models.BUILDERS
    encoder = open_encoder(str(tiny_frame_models.tiny_folder(model_type) if in_frames else tiny_model(model_type)))
    encoder.load("cpu", torch.float32)
    return encoder


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_tubelets_get_equal_tokens_wherever_they_stand(family, tiny_model):
    """Which is what lets one stand for another; 1e-5 as the families' own tests of chunks."""
    encoder = loaded(family, tiny_model)
    tubelet = encoder.temporal_patch_size
    clip = tiny_models.make_clip(4 * tubelet, 120, 160)
    frames = tiny_models.DrawnClip(clip, 0).frames()
    frames[2 * tubelet : 3 * tubelet] = frames[:tubelet]
    plan = encoder.plan(clip, EncodeOptions())
    tokens, alone = encoder.encode(frames, plan), encoder.encode(frames[:tubelet], plan)
    assert encoder.frames_are_independent
    extra = [] if tokens.extra is None else [tokens.extra.unflatten(0, (4, -1))]
    for level, one in zip([*tokens.levels, *extra], [*alone.levels, alone.extra], strict=False):
        torch.testing.assert_close(level[2], level[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(one.view(level[0].shape), level[0], rtol=0, atol=1e-5)
        assert not torch.allclose(level[1], level[0], rtol=0, atol=1e-3)
