"""Ranking and retention: the laws of the design against the plain rule, then cases worked out by hand."""

import math

import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.core.dissimilarity import DissimilarityScorer, compute_dissimilarity
from evs_cli.core.retention import Ranking, compute_retention_mask
from evs_cli.errors import ModelError, UsageError

PROFILE = settings(max_examples=120, deadline=None, derandomize=True)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
GRIDS = st.tuples(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4))
KINDS = st.sampled_from(["drawn", "constant", "still", "coarse"])
RATES = st.one_of(
    st.floats(0, 1, exclude_max=True), st.sampled_from([0, 0.3, 0.5, 0.7, 0.75, 0.8, 0.9, 0.99, math.nextafter(1, 0)])
)
SEEDS = st.integers(0, 2**31)


def tied_scores(grid, distinct, dtype, *, seed):
    """``(T, h, w)`` scores with at most ``distinct`` values outside frame 0, some of them below zero."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randint(0, distinct, grid, generator=generator) - 1).to(dtype) / 64
    scores[0] = 255
    return scores


def by_hand(*later, dtype=torch.float32):
    """A ranking of ``T = 1 + len(later)`` frames of one row of tokens, whose later scores are given."""
    scores = torch.tensor(later, dtype=dtype).unsqueeze(1)
    return Ranking(torch.cat([torch.full((1, 1, scores.shape[2]), 255, dtype=dtype), scores]))


# The laws, section 7 of the design.


@pytest.mark.parametrize("dtype", DTYPES)
@PROFILE
@given(grid=GRIDS, dim=st.sampled_from([1, 2, 8, 33, 300]), kind=KINDS, q=RATES, seed=SEEDS)
def test_law_1_and_7_mask_equals_the_published_rule_in_any_chunks(dtype, grid, dim, kind, q, seed):
    embeds = oracle.draw_embeddings(*grid, dim, dtype, seed=seed, kind=kind)
    expected = oracle.mask_of(oracle.dissimilarity(embeds), q)
    assert torch.equal(Ranking(compute_dissimilarity(embeds)).at(q).retention_mask, expected)
    scorer = DissimilarityScorer()
    chunks = [scorer.update([part]) for part in embeds.split(oracle.cut(grid[0], seed=seed))]
    assert torch.equal(Ranking(torch.cat(chunks)).at(q).retention_mask, expected)
    flat = compute_retention_mask(embeds.flatten(0, 2), grid, 1, q)
    assert torch.equal(flat, expected.flatten())


@PROFILE
@given(grid=GRIDS, kind=KINDS, q=RATES, seed=SEEDS)
def test_law_2_and_3_counts_frame_0_and_order(grid, kind, q, seed):
    embeds = oracle.draw_embeddings(*grid, 5, torch.bfloat16, seed=seed, kind=kind)
    retention = Ranking(compute_dissimilarity(embeds)).at(q)
    count = oracle.retained_tokens(grid[1] * grid[2], grid[0], q)
    mask, thw = retention.retention_mask, retention.token_thw
    assert mask.shape == grid
    assert mask.dtype == torch.bool
    assert mask[0].all()
    assert retention.q == q
    assert retention.retained_tokens == count == int(mask.sum())
    assert retention.num_tokens_per_frame.tolist() == [int(frame.sum()) for frame in mask]
    assert retention.num_tokens_per_frame.dtype == torch.int64
    assert retention.empty_frames == sum(not bool(frame.any()) for frame in mask)
    places = [(t, y, x) for t in range(grid[0]) for y in range(grid[1]) for x in range(grid[2]) if mask[t, y, x]]
    assert [tuple(place) for place in thw.tolist()] == places
    assert thw.dtype == torch.int32
    assert thw.shape == (count, 3)
    assert torch.equal(retention.select(embeds), torch.stack([embeds[place] for place in places]))


@PROFILE
@given(grid=GRIDS, distinct=st.integers(1, 20), rates=st.tuples(RATES, RATES), seed=SEEDS)
def test_law_4_masks_nest(grid, distinct, rates, seed):
    scores = tied_scores(grid, distinct, torch.float32, seed=seed)
    low, high = (Ranking(scores).at(q).retention_mask for q in sorted(rates))
    assert not (high & ~low).any()


@PROFILE
@given(grid=GRIDS, kind=KINDS, seed=SEEDS)
def test_law_5_q_0_keeps_everything(grid, kind, seed):
    embeds = oracle.draw_embeddings(*grid, 5, torch.float16, seed=seed, kind=kind)
    retention = Ranking(compute_dissimilarity(embeds)).at(0)
    assert retention.retention_mask.all()
    assert torch.equal(retention.select(embeds), embeds.flatten(0, 2))
    assert retention.dissimilarity_kept == 1
    assert retention.empty_frames == 0


# One ranking, two paths to a mask.


def both_paths(scores, q):
    """The mask by the K-th value and, from a ranking that has sorted, by rank."""
    sorted_ranking = Ranking(scores)
    assert sorted_ranking.rank.shape == scores.shape
    return Ranking(scores).at(q).retention_mask, sorted_ranking.at(q).retention_mask


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@PROFILE
@given(grid=GRIDS, distinct=st.sampled_from([1, 2, 3, 10, 64]), q=RATES, seed=SEEDS)
def test_kth_value_equals_the_stable_sort_on_ties(dtype, grid, distinct, q, seed):
    scores = tied_scores(grid, distinct, dtype, seed=seed)
    expected = oracle.mask_of(scores, q)
    for mask in both_paths(scores, q):
        assert torch.equal(mask, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["constant", "still", "coarse"])
@pytest.mark.parametrize("q", [0, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_kth_value_equals_the_stable_sort_on_large_still_videos(q, kind, dtype):
    # 6,400 tokens: large enough for a sort that is not stable to show it on ties.
    scores = compute_dissimilarity(oracle.draw_embeddings(25, 16, 16, 4, dtype, seed=1, kind=kind))
    assert len(scores.unique()) < scores.numel() / 2
    for mask in both_paths(scores, q):
        assert torch.equal(mask, oracle.mask_of(scores, q))


def test_earlier_tokens_win_among_equals():
    scores = torch.zeros(40, 8, 8)
    scores[0] = 255
    for mask in both_paths(scores, 0.5):
        assert mask.flatten().tolist() == [True] * 1280 + [False] * 1280


def test_negative_zero_ties_with_zero():
    # -0.0 < 0.0 is false: a comparison by bits would put them apart.
    scores = torch.tensor([255, -0.0, 0.0, -0.0, 0.0, 0.5]).view(6, 1, 1)
    for mask in both_paths(scores, 0.5):
        assert mask.flatten().tolist() == [True, True, False, False, False, True]


@PROFILE
@given(grid=GRIDS, distinct=st.integers(1, 30), seed=SEEDS)
def test_rank_is_the_place_in_the_stable_sort(grid, distinct, seed):
    scores = tied_scores(grid, distinct, torch.bfloat16, seed=seed)
    rank = Ranking(scores).rank
    flat = scores.flatten().tolist()
    places = sorted(range(len(flat)), key=lambda place: (-flat[place], place))
    assert [int(rank.flatten()[place]) for place in places] == list(range(len(flat)))
    assert rank.dtype == torch.int64


def test_ranking_leaves_the_scores_alone():
    scores = tied_scores((5, 3, 3), 4, torch.bfloat16, seed=1)
    copy, ranking = scores.clone(), Ranking(scores)
    ranking.at(0.5)
    ranking.sweep([0.1, 0.6])
    assert torch.equal(scores, copy)
    assert ranking.dissimilarity is scores
    assert ranking.token_grid_thw == (5, 3, 3)


def test_masks_of_one_ranking_are_apart():
    ranking = Ranking(tied_scores((5, 3, 3), 4, torch.float32, seed=1))
    first = ranking.at(0.5).retention_mask
    first.zero_()
    assert torch.equal(ranking.at(0.5).retention_mask, oracle.mask_of(ranking.dissimilarity, 0.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sweep_is_at_for_each_rate_from_one_sort(dtype, monkeypatch):
    scores = tied_scores((9, 4, 4), 5, dtype, seed=3)
    rates = [0, 0.9, 0.3, 0.3, 0.77]
    expected = [Ranking(scores).at(q) for q in rates]
    sorts, argsort = [], torch.argsort
    monkeypatch.setattr(torch, "argsort", lambda *args, **kwargs: sorts.append(1) or argsort(*args, **kwargs))
    for got, want in zip(Ranking(scores).sweep(rates), expected, strict=True):
        assert got.q == want.q
        assert torch.equal(got.retention_mask, want.retention_mask)
        assert torch.equal(got.num_tokens_per_frame, want.num_tokens_per_frame)
        assert (got.noise_tokens, got.dissimilarity_kept) == (want.noise_tokens, want.dissimilarity_kept)
    assert len(sorts) == 1


def test_at_does_not_sort(monkeypatch):
    # A third of the sort's time is the reason that the second path exists.
    ranking = Ranking(tied_scores((9, 4, 4), 5, torch.float32, seed=3))
    monkeypatch.setattr(torch, "argsort", lambda *_, **__: pytest.fail("sorted"))
    assert ranking.at(0.5).retained_tokens == 72


def test_sweep_of_no_rates_is_empty():
    assert Ranking(torch.zeros(2, 2, 2)).sweep([]) == []


# By hand.


@pytest.mark.parametrize(("num_frames", "later"), [(1, 0), (2, 0), (3, 0), (4, 307 - 256), (10, 768 - 256)])
def test_short_videos_keep_only_frame_0_at_07(num_frames, later):
    embeds = oracle.draw_embeddings(num_frames, 16, 16, 8, torch.float32, seed=1)
    retention = Ranking(compute_dissimilarity(embeds)).at(0.7)
    assert retention.num_tokens_per_frame[0] == 256
    assert int(retention.num_tokens_per_frame[1:].sum()) == later
    assert retention.retained_tokens == 256 + later
    if not later:
        assert retention.empty_frames == num_frames - 1
        assert retention.retention_mask[0].all()


def test_mask_by_hand():
    ranking = by_hand([0.5, 0.25], [0.25, 0.75], [0.125, 0.25])
    assert ranking.at(0.25).retention_mask.flatten(1).int().tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]
    assert ranking.at(0.5).retention_mask.flatten(1).int().tolist() == [[1, 1], [1, 0], [0, 1], [0, 0]]
    assert ranking.at(0.9).retention_mask.flatten(1).int().tolist() == [[1, 1], [0, 0], [0, 0], [0, 0]]
    assert [ranking.at(q).empty_frames for q in (0, 0.25, 0.5, 0.9)] == [0, 1, 1, 3]
    assert [ranking.retained_tokens(q) for q in (0, 0.25, 0.5, 0.9)] == [8, 6, 4, 2]
    assert ranking.at(0.5).num_tokens_per_frame.tolist() == [2, 1, 1, 0]
    assert ranking.at(0.5).token_thw.tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [2, 0, 1]]
    assert ranking.rank.flatten().tolist() == [0, 1, 3, 4, 5, 2, 7, 6]


@pytest.mark.parametrize(
    ("q", "kept"),
    [(0, 1.0), (0.1, 1.0), (0.3, 0.75), (0.5, 0.5), (0.9, 0.0)],  # K = 6, 5, 4, 3, 2 of 6 tokens
)
def test_share_of_dissimilarity_kept(q, kept):
    # The later scores are 1/2, 1/4, 1/4, 0 (sums are exact): frame 0's 255 must not count.
    ranking = by_hand([0.5, 0.25], [0.25, 0.0])
    assert ranking.at(q).dissimilarity_kept == kept
    assert isinstance(ranking.at(q).dissimilarity_kept, float)


def test_share_counts_no_score_below_zero():
    ranking = by_hand([0.5, -0.25], [-0.25, 0.5])
    assert ranking.at(0).dissimilarity_kept == 1
    assert ranking.at(0.5).dissimilarity_kept == 0.5  # K = 3: one of the two halves


@pytest.mark.parametrize("scores", [torch.full((1, 2, 2), 255.0), by_hand([0, 0], [-1e-7, 0]).dissimilarity])
def test_share_is_whole_where_nothing_changes(scores):
    assert Ranking(scores).at(0.9).dissimilarity_kept == 1


@pytest.mark.parametrize(
    ("dtype", "below", "above"),
    [
        (torch.float32, 1.9e-6, 2.1e-6),
        (torch.float64, 9e-7, 1.1e-6),
        (torch.float16, 4 * 2**-11, 5 * 2**-11),  # the two steps of 1 - cos on either side of 2e-3
        (torch.bfloat16, 4 * 2**-8, 5 * 2**-8),  # and of 1.6e-2
    ],
)
def test_noise_tokens_are_kept_later_tokens_within_rounding_of_zero(dtype, below, above):
    ranking = by_hand([above, below, 0.0], [below, -below, 0.5], dtype=dtype)
    assert [ranking.retained_tokens(q) for q in (0, 0.25, 0.4, 0.9)] == [9, 6, 5, 3]
    # Kept beyond frame 0: all six; 0.5, above and the first below; 0.5 and above; none.
    assert [ranking.at(q).noise_tokens for q in (0, 0.25, 0.4, 0.9)] == [4, 1, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_video_spends_its_quota_on_noise(dtype):
    embeds = oracle.draw_embeddings(10, 4, 4, 64, dtype, seed=2, kind="constant")
    retention = Ranking(compute_dissimilarity(embeds)).at(0.5)
    assert retention.noise_tokens == 80 - 16


def test_select_takes_rows_of_any_dtype_and_refuses_another_grid():
    retention = by_hand([0.5, 0.25], [0.25, 0.75]).at(0.5)
    numbers = torch.arange(6).view(3, 1, 2)
    assert retention.select(numbers).tolist() == [0, 1, 5]
    assert retention.select(numbers.unsqueeze(-1).expand(3, 1, 2, 4)).shape == (3, 4)
    for shape in [(3, 2, 1, 4), (2, 1, 2, 4), (6, 4)]:
        with pytest.raises(UsageError, match=r"Invalid embeddings of shape .*\(3, 1, 2\) in front"):
            retention.select(torch.zeros(shape))


# Refusals.


@pytest.mark.parametrize("q", [1, -0.1, math.nan, math.inf, True, "0.5"])
def test_rates_outside_the_range_are_refused(q):
    ranking = by_hand([0.5, 0.25])
    for call in (
        ranking.at,
        ranking.retained_tokens,
        lambda q: ranking.sweep([0.5, q]),
        lambda q: compute_retention_mask(torch.ones(8, 4), (2, 2, 2), 1, q),
    ):
        with pytest.raises(UsageError, match=r"Invalid pruning rate .*Expected 0 <= q < 1") as error:
            call(q)
        assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("shape", "message"),
    [((4, 4), r"Invalid dissimilarity of shape \(4, 4\)"), ((2, 0, 3), r"grid"), ((2, 2, 2, 2), r"\(T, h, w\)")],
)
def test_rankings_without_a_grid_are_refused(shape, message):
    with pytest.raises(UsageError, match=message):
        Ranking(torch.zeros(shape))


# The servers' signature.


@pytest.mark.parametrize("merge", [1, 2, 3])
@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_retention_mask_of_the_servers(dtype, as_tensor, merge):
    # h and w differ, so a grid read the wrong way round would show at the tokens' places one frame earlier.
    embeds = oracle.draw_embeddings(5, 2, 3, 16, dtype, seed=4, kind="still")
    size = (5, 2 * merge, 3 * merge)
    mask = compute_retention_mask(embeds.flatten(0, 2), torch.tensor(size) if as_tensor else size, merge, 0.6)
    assert mask.shape == (30,)
    assert mask.dtype == torch.bool
    assert torch.equal(mask, oracle.mask_of(oracle.dissimilarity(embeds), 0.6).flatten())


@pytest.mark.parametrize(
    ("shape", "size", "merge", "message"),
    [
        ((8, 4), (2, 3, 4), 2, r"Invalid grid \(2, 3, 4\) for spatial_merge_size 2"),
        ((8, 4), (2, 4, 5), 2, r"Invalid grid \(2, 4, 5\) for spatial_merge_size 2"),
        ((8, 4), (2, 4, 4), 0, r"for spatial_merge_size 0"),
        ((8, 4), (2, 4, 4), -2, r"for spatial_merge_size -2"),
        ((7, 4), (2, 4, 4), 2, r"shape \(7, 4\)\. Expected \(8, D\) for the token grid \(2, 2, 2\)"),
        ((32, 4), (2, 4, 4), 2, r"Expected \(8, D\)"),  # the grid before the merge is not the tokens' grid
        ((2, 2, 1, 2, 4), (2, 4, 4), 2, r"shape \(2, 2, 1, 2, 4\)"),
        ((2, 1, 4, 4), (2, 4, 4), 2, r"shape \(2, 1, 4, 4\)"),
        ((8, 1, 4), (2, 4, 4), 2, r"shape \(8, 1, 4\)"),
        ((8,), (2, 4, 4), 2, r"shape \(8,\)"),
        ((0, 4), (0, 4, 4), 2, r"Invalid token grid \(0, 2, 2\)"),
        ((0, 4), (2, 0, 4), 2, r"Invalid token grid \(2, 0, 2\)"),
        ((8, 0), (2, 4, 4), 2, r"D at least 1"),
    ],
)
def test_retention_mask_refuses_what_does_not_fit(shape, size, merge, message):
    with pytest.raises(UsageError, match=message) as error:
        compute_retention_mask(torch.ones(shape), size, merge, 0.5)
    assert error.value.exit_code == 2


def test_retention_mask_names_the_frame_of_a_nan():
    embeds = torch.ones(12, 4)
    embeds[9] = float("nan")
    with pytest.raises(ModelError, match=r"frame 2"):
        compute_retention_mask(embeds, (3, 2, 2), 1, 0.5)


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 2, 2, 4)])
def test_retention_mask_of_rows_by_frame_and_place(shape):
    embeds = oracle.draw_embeddings(3, 2, 2, 4, torch.float32, seed=5)
    expected = compute_retention_mask(embeds.reshape(12, 4), (3, 2, 2), 1, 0.5)
    assert torch.equal(compute_retention_mask(embeds.reshape(shape), (3, 2, 2), 1, 0.5), expected)


@pytest.mark.parametrize(("num_frames", "q"), [(1, 0.9), (3, 0.0), (3, 1e-17)])
def test_retention_mask_of_nan_rows_that_cannot_matter(num_frames, q):
    """As at SGLang and vLLM: where every token is kept, no value is looked at."""
    rows = torch.full((num_frames * 4, 4), float("nan"))
    assert compute_retention_mask(rows, (num_frames, 2, 2), 1, q).tolist() == [True] * num_frames * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_retention_mask_of_a_rate_in_a_tensor(dtype):
    """K at 0.7 is 819: float32 holds 0.699999988, float16 0.7001953, bfloat16 0.69921875."""
    embeds = oracle.draw_embeddings(2, 35, 39, 4, torch.float32, seed=5).flatten(0, 2)
    expected = compute_retention_mask(embeds, (2, 35, 39), 1, 0.3)
    assert torch.equal(compute_retention_mask(embeds, (2, 35, 39), 1, torch.tensor(0.3, dtype=dtype)), expected)
    assert torch.equal(compute_retention_mask(embeds, (2, 35, 39), 1, torch.tensor([0.3], dtype=dtype)), expected)


def test_retention_mask_compiles_to_one_graph():
    """``fullgraph`` fails where a branch asks a tensor; the masks are those of eager, NaN rows are not looked for."""
    compiled = torch.compile(compute_retention_mask, fullgraph=True, backend="eager")
    for num_frames, q in [(4, 0.5), (4, 0.0), (1, 0.5), (6, 0.8), (5, 0.3)]:
        embeds = oracle.draw_embeddings(num_frames, 2, 3, 16, torch.float32, seed=4, kind="still").flatten(0, 2)
        grid = (num_frames, 4, 6)
        assert torch.equal(compiled(embeds, grid, 2, q), compute_retention_mask(embeds, grid, 2, q))


@pytest.mark.parametrize("dim", [2, 16, 100, 20_480, 32_768])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_equal_rows_of_any_dimension_are_noise(dtype, dim):
    rows = torch.randn(1, max(1, min(2000, 300_000 // dim)), 1, dim, generator=torch.Generator().manual_seed(0))
    retention = Ranking(compute_dissimilarity(rows.to(dtype).repeat(2, 1, 1, 1))).at(0.0)
    assert retention.noise_tokens == rows.shape[1]


def test_retention_mask_of_rows_that_are_strided_or_require_grad():
    embeds = oracle.draw_embeddings(4, 2, 3, 32, torch.float32, seed=4)
    expected = oracle.mask_of(oracle.dissimilarity(embeds), 0.4).flatten()
    rows = embeds.flatten(0, 2)
    assert torch.equal(compute_retention_mask(rows.t().contiguous().t(), (4, 2, 3), 1, 0.4), expected)
    assert torch.equal(compute_retention_mask(rows.clone().requires_grad_(), (4, 2, 3), 1, 0.4), expected)


@pytest.mark.parametrize("dissimilarity", [torch.ones(2, 2, 2, dtype=torch.int64), torch.full((2, 2, 2), float("nan"))])
def test_a_ranking_takes_floats_without_nan(dissimilarity):
    with pytest.raises(UsageError, match="Invalid dissimilarity"):
        Ranking(dissimilarity)
