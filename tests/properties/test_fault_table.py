"""Faults seen in programs that prune by EVS, one test each: here they are right.

The parts have test files of their own, which go into every corner; this one is the list.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import evs_cli
from evs_cli.cli.app import main
from evs_cli.core.dissimilarity import DissimilarityScorer, compute_dissimilarity
from evs_cli.core.methods import RetentionRule
from evs_cli.core.placeholders import SequenceLayout, prune_sequence
from evs_cli.core.quality import measure_quality
from evs_cli.core.retention import Ranking, compute_retention_mask
from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.frame_times import true_times
from evs_cli.encoders.registry import open_encoder
from evs_cli.errors import ModelError, UsageError
from evs_cli.integration import chunk_placeholders, enable_evs

PAD = 9
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
STILL, FADE = str(SAMPLES / "still.mp4"), str(SAMPLES / "fade.mp4")


def spans_layout(num_frames, tokens):
    """A span of ``tokens`` placeholders a frame behind a separator of its own."""
    ids = [piece for t in range(num_frames) for piece in (100 + t, *[PAD] * tokens)]
    positions = np.flatnonzero(np.array(ids) == PAD)
    return SequenceLayout(np.array(ids), positions, np.empty(0, dtype=np.int64), num_frames, PAD)


def scores(rows):
    """Dissimilarities of frames of one row of tokens; frame 0 is put in front."""
    return torch.tensor([[255.0] * len(rows[0]), *rows])[:, None]


def test_the_split_is_the_masks_own_per_frame_sums():
    mask = Ranking(scores([[0.9, 0.8], [0.0, 0.0], [0.7, 0.1]])).at(0.3).retention_mask
    pruned = spans_layout(4, 2).prune(mask.numpy())
    assert pruned.input_ids.tolist() == [100, PAD, PAD, 101, PAD, PAD, 102, 103, PAD]
    assert [end - start + 1 for start, end in pruned.frame_offsets.tolist()] == mask.sum(dim=(1, 2)).tolist()


def test_frames_without_a_token_keep_their_separators_though_t_exceeds_k():
    layout = spans_layout(40, 2)
    mask = Ranking(scores([[0.0, 0.0]] * 39)).at(0.97).retention_mask
    assert int(mask.sum()) == 2 < 40
    pruned = layout.prune(mask.numpy())
    assert [i for i in pruned.input_ids.tolist() if i != PAD] == [100 + t for t in range(40)]
    assert pruned.frame_offsets[1:, 1].tolist() == (pruned.frame_offsets[1:, 0] - 1).tolist()


def test_non_finite_embeddings_name_their_frame_and_dtype():
    embeddings = torch.randn(5, 2, 2, 4, dtype=torch.float16)
    embeddings[3, 1, 0, 2] = float("inf")
    with pytest.raises(ModelError, match="frame 3: its float16 embeddings hold NaN or infinite"):
        compute_dissimilarity(embeddings)


def test_zero_embeddings_are_kept_by_the_rule_and_reported():
    embeddings = torch.ones(4, 1, 2, 3)
    embeddings[1, 0, 0] = 0
    scorer = DissimilarityScorer()
    later = scorer.update([embeddings]).flatten(1)[1:]
    # New on entering and on leaving; equal tokens differ by rounding.
    torch.testing.assert_close(later, torch.tensor([[1.0, 0], [1, 0], [0, 0]]), rtol=0, atol=1e-6)
    assert scorer.zero_frames == [1]
    with pytest.raises(ModelError, match="frame 1") as error:
        compute_dissimilarity(embeddings.half())
    assert "--score-dtype float32" in error.value.hint
    assert compute_dissimilarity(embeddings.half(), score_dtype=torch.float32)[1, 0, 0] == 1


def test_identical_frames_are_ranked_by_rounding_and_counted_as_noise():
    frame = torch.randn(1, 6, 6, 384, generator=torch.Generator().manual_seed(1))
    ranking = Ranking(compute_dissimilarity(frame.repeat(8, 1, 1, 1)))
    retention = ranking.at(0.5)
    assert retention.noise_tokens == retention.retained_tokens - 36 > 0
    assert RetentionRule(min_dissimilarity=1e-5).retain(ranking, 0.5).retained_tokens == 36


def test_bfloat16_rounds_small_motion_away_and_the_tokens_that_moves_are_counted(tmp_path, capsys):
    arguments = ["prune", FADE, "--num-frames", "6", "--size", "112", "--q", "0.7"]
    code = main([*arguments, "--dtype", "float32", "--score-dtype", "bfloat16", "-o", str(tmp_path / "a.pt")])
    assert code == 0
    assert "kept tokens are others than in the embeddings' own dtype" in capsys.readouterr().err
    own = evs_cli.prune_video(FADE, num_frames=6, size=112, q=0.7, dtype="float32")
    rounded = evs_cli.load(tmp_path / "a.pt")
    assert not torch.equal(own.retention_mask, rounded.retention_mask)


def test_a_static_scene_spends_nothing_beyond_frame_0_with_a_floor(capsys):
    arguments = ["--num-frames", "4", "--size", "56", "--q", "0.5", "--min-dissimilarity", "0.01", "--json"]
    assert main(["prune", STILL, *arguments]) == 0
    (record,) = json.loads(capsys.readouterr().out)["videos"]
    assert record["num_tokens_per_frame"][1:] == [0, 0, 0]
    assert record["planned"]["retained_tokens"] > record["retained_tokens"] == record["tokens_per_frame"]


def test_slow_drift_that_no_step_shows_is_measured():
    angles = torch.linspace(0, 1.5, 30)
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=-1).view(30, 1, 1, 2)
    ranking = Ranking(compute_dissimilarity(embeddings))
    assert float(ranking.dissimilarity[1:].max()) < 0.002  # nothing new at any step
    quality = measure_quality(embeddings, ranking.at(0.96).retention_mask)
    assert quality.coverage_p5 < 0.3
    assert quality.drift_per_frame > 0.01


def test_positions_are_the_models_own_integers_above_2_fps(tiny_model):
    encoder = open_encoder(str(tiny_model("qwen2_5_vl")))
    encoder.load("cpu", torch.float32)
    clip = Clip(84, 112, np.arange(16) / 8.0, 2.0)  # 8 fps: a quarter of a second a frame of tokens
    plan = encoder.plan(clip, EncodeOptions(prompt="What moves?"))
    positions = encoder.position_ids(plan)
    assert positions.dtype == torch.int64
    video_times = positions[0, torch.from_numpy(plan.layout.token_positions)].unique()
    assert len(video_times) > 1  # not all in one second
    assert (positions >= 0).all()


def test_times_are_the_files_own_and_do_not_drift():
    pts = np.arange(0, 24 * 120, 24) * 1001 / 24000
    told = true_times(Clip(4, 4, pts, 120.12), pts)
    assert [index / told["fps"] for index in told["frames_indices"]] == pytest.approx(pts, abs=0.0005)


def test_an_odd_number_of_frames_is_rounded_up_to_whole_tubelets(tiny_model):
    encoder = open_encoder(str(tiny_model("qwen3_vl")))
    plan = encoder.plan(Clip(84, 112, np.arange(9) / 2, 4.5), EncodeOptions())
    assert plan.token_grid_thw[0] == 5


def test_several_videos_have_each_its_own_k():
    layouts = [spans_layout(3, 2), spans_layout(3, 2)]
    ids = np.concatenate([layout.input_ids for layout in layouts])
    shift = len(layouts[0].input_ids)
    shared = [
        SequenceLayout(ids, layout.token_positions + offset, layout.extra_positions, 3, PAD)
        for layout, offset in zip(layouts, (0, shift), strict=True)
    ]
    masks = [Ranking(scores(rows)).at(0.4).retention_mask for rows in ([[0.9, 0.9]] * 2, [[0.1, 0.1]] * 2)]
    assert [int(mask.sum()) for mask in masks] == [3, 3]  # one K over both would give the first video all of it
    first, second = prune_sequence(shared, masks)
    assert first.frame_offsets.tolist()[0] == [1, 2]
    assert second.frame_offsets.tolist()[0][0] > first.frame_offsets.tolist()[-1][0]


def test_a_grid_that_does_not_divide_by_the_merge_is_refused():
    with pytest.raises(UsageError, match=r"Invalid grid \(2, 5, 4\) for spatial_merge_size 2"):
        compute_retention_mask(torch.randn(20, 4), (2, 5, 4), 2, 0.5)


def test_an_option_that_would_do_nothing_is_refused(capsys):
    assert main(["prune", STILL, "--frame-max-pixels", "1000"]) == 2
    assert "--frame-max-pixels has no effect" in capsys.readouterr().err
    with pytest.raises((ModelError, UsageError)):
        enable_evs(torch.nn.Linear(2, 2), 0.5)


def test_chunked_prefill_places_rows_by_spans_and_never_by_search():
    ids, spans = [PAD, 1, PAD, PAD, 2, 3, PAD, 4], [(2, 3), (5, 4), (6, 6)]  # ids[0] is text that looks like a row
    rows = [chunk_placeholders(ids, spans, start, size).rows for start, size in ((0, 3), (3, 3), (6, 2))]
    assert rows == [(0, 1), (1, 2), (2, 3)]
