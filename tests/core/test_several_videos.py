"""Several videos, and videos beside an image, in one prompt: each video its own K, the image untouched."""

import numpy as np
import pytest
import torch

from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.placeholders import layouts_of_videos, prune_sequence
from evs_cli.core.releases import require_transformers
from evs_cli.core.retention import Ranking
from evs_cli.errors import UsageError

# Sums in another order: with 2 layers and 32 channels the logits (up to 8) move by about 1e-6 in float32.
LOGITS_TOLERANCE = 2e-5


def moving(num_frames, height, width, seed):
    """(t, 3, H, W) uint8: a square that moves over still noise."""
    frames = np.random.default_rng(seed).integers(0, 256, (1, 3, height, width), dtype=np.uint8).repeat(num_frames, 0)
    for t in range(num_frames):
        frames[t, :, : height // 2, 6 * t : 6 * t + 20] = 255 - 12 * t
    return torch.from_numpy(frames)


@pytest.fixture(params=["qwen2_5_vl", "qwen3_vl"])
def prompt(request, tiny_family):
    """A prompt of two videos (the second a portrait, longer than it is high in tokens) around an image."""
    family = tiny_family(request.param)
    processor, model = family.processor, family.whole
    videos = [moving(6, 84, 112, seed=1), moving(18, 112, 70, seed=2)]
    content = [{"type": "video"}, {"type": "image"}, {"type": "text", "text": "and"}, {"type": "video"}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
    inputs = processor(
        text=[text],
        videos=videos,
        images=[moving(1, 56, 84, seed=3)[0]],
        video_metadata=[
            {"fps": 1000.0, "frames_indices": [500 * i for i in range(len(v))], "total_num_frames": 500 * len(v)}
            for v in videos
        ],
        do_sample_frames=False,
        return_tensors="pt",
    )
    return model, inputs


def token_grids(inputs):
    return [(int(t), int(h) // 2, int(w) // 2) for t, h, w in inputs["video_grid_thw"]]


def positions_of(model, inputs):
    names = ("mm_token_type_ids", "image_grid_thw", "video_grid_thw", "second_per_grid_ts")
    return model.model.get_rope_index(inputs["input_ids"], **{name: inputs[name] for name in names if name in inputs})[
        0
    ]


@pytest.mark.parametrize("q", [0.3, 0.7])
def test_each_video_has_its_own_k_and_the_rest_of_the_prompt_stays(prompt, q):
    require_transformers("5.18", "split the levels by video", "the model gives those of all videos as one tensor")
    model, inputs = prompt
    ids, video_id, image_id = inputs["input_ids"][0], model.config.video_token_id, model.config.image_token_id
    grids = token_grids(inputs)
    with torch.no_grad():
        features = model.get_video_features(inputs["pixel_values_videos"], inputs["video_grid_thw"])
        images = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    levels = [features.pooler_output, *(getattr(features, "deepstack_features", None) or [])]
    masks, rows = [], []
    for video, grid in enumerate(grids):
        grid_levels = [level[video].view(*grid, -1) for level in levels]
        retention = Ranking(compute_dissimilarity(grid_levels)).at(q)
        masks.append(retention.retention_mask)
        rows.append([retention.select(level) for level in grid_levels])

    layouts = layouts_of_videos(ids, video_id, grids)
    pruned = prune_sequence(layouts, masks)

    ours = torch.from_numpy(pruned[0].input_ids)
    for sequence, mask, (t, h, w) in zip(pruned, masks, grids, strict=True):
        kept = max(h * w, int(t * h * w * (1 - q)))
        assert mask.sum() == kept
        assert [end - start + 1 for start, end in sequence.frame_offsets.tolist()] == mask.sum(dim=(1, 2)).tolist()
        for start, end in sequence.frame_offsets.tolist():
            assert (ours[start : end + 1] == video_id).all()
    assert (ours == video_id).sum() == sum(int(mask.sum()) for mask in masks)
    assert torch.equal(ours[ours != video_id], ids[ids != video_id])
    assert (ours == image_id).sum() == (ids == image_id).sum() > 0

    # The model agrees: the pruned prompt, at the positions of the whole, is the whole with the dropped tokens masked.
    kept_positions = torch.from_numpy(pruned[0].kept_positions)
    positions = positions_of(model, inputs)
    assert positions.dtype == torch.int64
    attention = torch.zeros_like(inputs["input_ids"])
    attention[0, kept_positions] = 1
    with torch.no_grad():
        whole = model(
            **{name: value for name, value in inputs.items() if name != "attention_mask"},
            attention_mask=attention,
            position_ids=positions,
        ).logits[0, kept_positions]
        features.pooler_output = tuple(video[0] for video in rows)
        if len(levels) > 1:
            features.deepstack_features = [tuple(video[level] for video in rows) for level in range(1, len(levels))]
        text = torch.arange(len(ours))[None, None]
        logits = model(
            input_ids=ours[None],
            attention_mask=torch.ones_like(ours)[None],
            position_ids=torch.cat([text, positions[:, :, kept_positions]]),
            mm_encoder_outputs={"video": features, "image": images},
        ).logits[0]
    assert whole.abs().max() > 0.1
    torch.testing.assert_close(logits, whole, rtol=0, atol=LOGITS_TOLERANCE)


def test_placeholders_that_do_not_fit_the_grids_are_refused(prompt):
    model, inputs = prompt
    with pytest.raises(UsageError, match=r"placeholders of id .*Expected 12 for the token grids"):
        layouts_of_videos(inputs["input_ids"][0], model.config.video_token_id, [(1, 3, 4)])


def test_a_mask_of_another_video_is_refused(prompt):
    model, inputs = prompt
    layouts = layouts_of_videos(inputs["input_ids"][0], model.config.video_token_id, token_grids(inputs))
    masks = [np.ones(len(layout.token_positions), dtype=bool) for layout in layouts]
    with pytest.raises(UsageError, match="Invalid retention mask"):
        prune_sequence(layouts, masks[::-1])


def test_an_image_that_shares_the_placeholder_is_no_video():
    """InternVL and SmolVLM write images and frames with one id; ``mm_token_type_ids`` tells them apart."""
    ids = [7, 9, 9, 8, 9, 9, 9, 9, 8]
    is_video = [False, False, False, False, True, True, True, True, False]
    with pytest.raises(UsageError, match="6 placeholders of id 9"):
        layouts_of_videos(ids, 9, [(2, 1, 2)])
    (layout,) = layouts_of_videos(ids, 9, [(2, 1, 2)], is_video=is_video)
    assert layout.token_positions.tolist() == [4, 5, 6, 7]
    (pruned,) = prune_sequence([layout], [[True, True, False, True]])
    assert pruned.input_ids.tolist() == [7, 9, 9, 8, 9, 9, 9, 8]
