"""Coverage, drift and the knee: by hand, against a brute force, and on the sample's edges."""

import math

import pytest
import torch

from evs_cli.core.quality import SAMPLE_TOKENS, measure_quality
from evs_cli.jobs.sweep import knee_of


def at_angles(degrees):
    """(T, 1, 1, 2) unit vectors at these angles."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=-1).view(-1, 1, 1, 2).float()


def test_coverage_looks_back_to_the_last_kept_token():
    embeddings = at_angles([0, 30, 60, 90])
    mask = torch.tensor([True, False, True, False]).view(4, 1, 1)
    quality = measure_quality(embeddings, mask)
    # Frame 1 is stood for by frame 0, frame 3 by frame 2: 30 degrees each.
    assert quality.coverage_mean == pytest.approx(math.cos(math.radians(30)), abs=1e-6)  # float32 cosines
    assert quality.coverage_error == 0
    assert quality.longest_gap_frames == 1
    assert quality.drift_per_frame is None  # one length of gap has no slope


def test_drift_is_how_fast_the_cosine_falls_with_the_gap():
    cosines = [1.0, 0.9, 0.8, 0.7]
    embeddings = at_angles([math.degrees(math.acos(c)) for c in cosines])
    quality = measure_quality(embeddings, torch.tensor([True, False, False, False]).view(4, 1, 1))
    assert quality.drift_per_frame == pytest.approx(0.1, abs=1e-6)
    assert quality.longest_gap_frames == 3
    assert quality.coverage_mean == pytest.approx(0.8, abs=1e-6)


def test_nothing_dropped_has_no_coverage():
    quality = measure_quality(torch.randn(3, 2, 2, 4), torch.ones(3, 2, 2, dtype=torch.bool))
    assert (quality.coverage_mean, quality.coverage_error, quality.coverage_p5) == (None, None, None)
    assert (quality.drift_per_frame, quality.longest_gap_frames) == (None, 0)


def brute_force(embeddings, mask):
    cosines = []
    for t in range(1, mask.shape[0]):
        for y in range(mask.shape[1]):
            for x in range(mask.shape[2]):
                if not mask[t, y, x]:
                    last = max(s for s in range(t) if mask[s, y, x])
                    pair = embeddings[t, y, x], embeddings[last, y, x]
                    cosines.append(float(torch.nn.functional.cosine_similarity(*pair, dim=0)))
    return cosines


def test_a_small_video_is_looked_at_whole():
    generator = torch.Generator().manual_seed(5)
    embeddings = torch.randn(7, 3, 4, 6, generator=generator)
    mask = torch.rand(7, 3, 4, generator=generator) < 0.4
    mask[0] = True
    cosines = torch.tensor(brute_force(embeddings, mask), dtype=torch.float64)
    quality = measure_quality(embeddings, mask)
    # The oracle takes the same float32 cosines one by one; their sums differ by rounding.
    assert quality.coverage_mean == pytest.approx(float(cosines.mean()), abs=1e-6)
    assert quality.coverage_p5 == pytest.approx(float(cosines.quantile(0.05)), abs=1e-6)
    assert quality.coverage_error == 0


def test_a_large_video_is_sampled_and_the_error_covers_the_difference():
    generator = torch.Generator().manual_seed(6)
    embeddings = torch.randn(40, 16, 16, 4, generator=generator)
    mask = torch.zeros(40, 16, 16, dtype=torch.bool)
    mask[0] = True
    whole = torch.nn.functional.cosine_similarity(embeddings[1:], embeddings[:1], dim=-1)
    assert whole.numel() > SAMPLE_TOKENS
    quality = measure_quality(embeddings, mask)
    assert 0 < quality.coverage_error < 0.02
    # Five standard errors: the seed is fixed, so this cannot flicker.
    assert abs(quality.coverage_mean - float(whole.double().mean())) < 5 * quality.coverage_error
    assert measure_quality(embeddings, mask) == quality


def test_embeddings_of_half_precision_are_taken():
    embeddings = at_angles([0, 60]).bfloat16()
    quality = measure_quality(embeddings, torch.tensor([True, False]).view(2, 1, 1))
    assert quality.coverage_mean == pytest.approx(0.5, abs=4e-3)  # bfloat16 keeps 8 bits


@pytest.mark.parametrize(
    ("points", "knee"),
    [
        ([], None),
        ([(0.0, 1.0), (0.9, 0.1)], None),
        ([(0.0, 1.0), (0.45, 0.55), (0.9, 0.1)], None),  # a straight line
        ([(0.0, 1.0), (0.5, 1.0), (0.7, 0.9), (0.9, 0.0)], 2),
        ([(0.0, 1.0), (0.3, 0.2), (0.9, 0.0)], None),  # below the line everywhere
        ([(0.0, 1.0), (0.3, 1.0), (0.9, 1.0)], None),
    ],
)
def test_the_knee_is_farthest_above_the_chord(points, knee):
    assert knee_of(points) == knee
