"""The rules besides plain EVS: the floor, and the controls at the same K."""

import itertools

import pytest
import torch

from evs_cli.core.methods import METHODS, RetentionRule
from evs_cli.core.retention import Ranking
from evs_cli.errors import UsageError

GRIDS = [(1, 2, 3), (2, 1, 1), (5, 2, 3), (9, 4, 4), (32, 3, 5)]
RATES = [0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.95]


def ranking(grid, seed=0):
    scores = torch.rand(grid, generator=torch.Generator().manual_seed(seed))
    scores[0] = 255
    return Ranking(scores)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("q", RATES)
def test_every_method_keeps_k_tokens_and_frame_0_whole(method, grid, q):
    ranked = ranking(grid)
    retention = RetentionRule(method).retain(ranked, q)
    assert retention.retained_tokens == ranked.retained_tokens(q)
    assert retention.retention_mask[0].all()
    assert retention.q == q


def test_evs_is_the_plain_ranking():
    ranked = ranking((9, 4, 4))
    assert torch.equal(RetentionRule().retain(ranked, 0.7).retention_mask, ranked.at(0.7).retention_mask)


def test_uniform_frames_keeps_whole_frames_and_cuts_the_last():
    mask = RetentionRule("uniform-frames").retain(ranking((10, 2, 2)), 0.65).retention_mask
    # K = int(40 * 0.35) = 14: frames 0, 2, 5 whole, then the first two tokens of frame 7.
    assert mask.sum(dim=(1, 2)).tolist() == [4, 0, 4, 0, 0, 4, 0, 2, 0, 0]
    assert mask[7].flatten().tolist() == [True, True, False, False]


def test_random_repeats_with_its_seed_and_nests():
    ranked = ranking((16, 4, 4))
    masks = [RetentionRule("random", seed=3).retain(ranked, q).retention_mask for q in RATES]
    again = RetentionRule("random", seed=3).retain(ranked, 0.5).retention_mask
    other = RetentionRule("random", seed=4).retain(ranked, 0.5).retention_mask
    assert torch.equal(masks[3], again)
    assert not torch.equal(masks[3], other)
    for lower, higher in itertools.pairwise(masks):
        assert not (higher & ~lower).any()


def test_the_floor_keeps_nothing_below_it_but_frame_0():
    scores = torch.tensor([255.0, 0.4, 0.1, 0.2, 0.0]).view(5, 1, 1)
    kept = RetentionRule(min_dissimilarity=0.2).retain(Ranking(scores), 0.0)
    assert kept.retention_mask.flatten().tolist() == [True, True, False, True, False]
    nothing = RetentionRule(min_dissimilarity=2.0).retain(Ranking(scores), 0.0)
    assert nothing.num_tokens_per_frame.tolist() == [1, 0, 0, 0, 0]
    assert RetentionRule(min_dissimilarity=0.0).retain(Ranking(scores), 0.0).retained_tokens == 5


def test_the_floor_never_adds_a_token():
    ranked = ranking((9, 4, 4))
    for q in RATES:
        floored = RetentionRule(min_dissimilarity=0.5).retain(ranked, q).retention_mask
        assert not (floored & ~ranked.at(q).retention_mask).any()


def test_a_sweep_by_a_rule_equals_its_single_rates():
    for rule in (RetentionRule(), RetentionRule("random"), RetentionRule(min_dissimilarity=0.3)):
        swept = rule.sweep(ranking((9, 4, 4)), RATES)
        for q, retention in zip(RATES, swept, strict=True):
            assert torch.equal(retention.retention_mask, rule.retain(ranking((9, 4, 4)), q).retention_mask)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "best"}, "Invalid method 'best'. Expected one of evs, uniform-frames, random"),
        ({"min_dissimilarity": -0.1}, "Invalid min_dissimilarity -0.1"),
        ({"min_dissimilarity": float("nan")}, "Invalid min_dissimilarity nan"),
        ({"min_dissimilarity": 2.1}, "Invalid min_dissimilarity 2.1"),
        ({"method": "random", "min_dissimilarity": 0.1}, "no effect on the method random"),
    ],
)
def test_rules_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        RetentionRule(**arguments)
