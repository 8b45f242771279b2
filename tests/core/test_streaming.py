"""Streaming retention is the whole-tensor path bit for bit: drawn grids, rates, cuts, ties, dtypes, lost frames."""

import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.core.counts import TokenGrid
from evs_cli.core.dissimilarity import DissimilarityScorer
from evs_cli.core.methods import METHODS, RetentionRule
from evs_cli.core.retention import Ranking, first_ranked
from evs_cli.core.streaming import AllTokens, NoTokens, StreamingRetention

PROFILE = settings(max_examples=150, deadline=None, derandomize=True)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
GRIDS = st.tuples(st.integers(1, 30), st.integers(1, 4), st.integers(1, 5))
KINDS = st.sampled_from(["drawn", "constant", "still", "coarse"])
RATES = st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.99]))
SEEDS = st.integers(0, 2**31)


def stream(sink, embeds, further, *, score_dtype=None, seed=0):
    """Give a sink the frames of ``embeds (T, h, w, D)`` in a drawn cut; returns their scores ``(T, h, w)``."""
    scorer, scores = DissimilarityScorer(score_dtype=score_dtype), []
    start = 0
    for size in oracle.cut(len(embeds), seed=seed):
        levels = tuple(level[start : start + size].clone() for level in (embeds, *further))
        scores.append(scorer.update(levels))
        sink.add(levels, scores[-1])
        for level in levels:
            level.fill_(float("nan"))  # a sink may keep no view of what it was given
        start += size
    return torch.cat(scores)


def retained(embeds, further, rule, rates, *, planned, score_dtype=None, seed=0):
    """What streaming keeps of a video that was planned with ``planned`` frames."""
    grid, came = TokenGrid(planned, *embeds.shape[1:3]), TokenGrid(*embeds.shape[:3])
    sink = StreamingRetention(
        rule.most_rows(grid, rates), min_dissimilarity=rule.min_dissimilarity, scores=rule.own_scores(grid)
    )
    scores = stream(sink, embeds, further, score_dtype=score_dtype, seed=seed)
    return sink.finish(rule.most_rows(came, rates)), Ranking(scores)


def check_equal(rows, mask, levels):
    """Rows, positions and storage of ``rows`` against a mask over whole tensors."""
    assert torch.equal(rows.positions, mask.flatten().nonzero().flatten())
    for kept, level in zip(rows.levels, levels, strict=True):
        assert kept.dtype == level.dtype
        assert torch.equal(kept, level[mask])
        assert kept.untyped_storage().nbytes() == kept.nbytes


@pytest.mark.parametrize("dtype", DTYPES)
@PROFILE
@given(grid=GRIDS, kind=KINDS, q=RATES, levels=st.integers(1, 3), lost=st.integers(0, 9), seed=SEEDS)
def test_the_rows_of_a_rate_are_those_of_the_whole_tensor(dtype, grid, kind, q, levels, lost, seed):
    """Against the oracle; DeepStack levels under the same mask; fewer frames than planned."""
    # Halved, which is exact: the norm over three levels side by side must stay inside float16 too.
    embeds, *further = (
        oracle.draw_embeddings(*grid, dim, dtype, seed=seed, kind=kind) / 2 for dim in (9, 4, 4)[:levels]
    )
    rows, _ = retained(embeds, further, RetentionRule(), [q], planned=grid[0] + lost, seed=seed)
    scores = oracle.dissimilarity(torch.cat([embeds, *further], dim=-1))
    check_equal(rows, oracle.mask_of(scores, q), [embeds, *further])


@PROFILE
@given(
    grid=GRIDS,
    kind=KINDS,
    rates=st.lists(RATES, min_size=1, max_size=4),
    method=st.sampled_from(sorted(METHODS)),
    lost=st.integers(0, 9),
    seed=SEEDS,
)
def test_several_rates_keep_the_most_of_them_by_every_method(grid, kind, rates, method, lost, seed):
    embeds = oracle.draw_embeddings(*grid, 9, torch.float32, seed=seed, kind=kind)
    rule = RetentionRule(method, seed=seed)
    rows, ranking = retained(embeds, [], rule, rates, planned=grid[0] + lost, seed=seed)
    for q in rates:
        mask = rule.retain(ranking, q).retention_mask
        chosen = mask.flatten()[rows.positions]
        assert torch.equal(rows.positions[chosen], mask.flatten().nonzero().flatten())
        assert torch.equal(rows.levels[0][chosen], embeds[mask])
    if method != "uniform-frames":  # it needs every row, as its frames depend on how many come
        check_equal(rows, rule.retain(ranking, min(rates)).retention_mask, [embeds])


@PROFILE
@given(
    grid=GRIDS,
    kind=KINDS,
    q=RATES,
    floor=st.one_of(st.floats(0, 2), st.sampled_from([0, 1e-7, 1e-3, 0.99, 1, 2])),
    score_dtype=st.sampled_from([None, *DTYPES]),
    lost=st.integers(0, 9),
    seed=SEEDS,
)
def test_a_floor_keeps_fewer(grid, kind, q, floor, score_dtype, lost, seed):
    embeds = oracle.draw_embeddings(*grid, 9, torch.bfloat16, seed=seed, kind=kind)
    rule = RetentionRule(min_dissimilarity=floor)
    rows, ranking = retained(
        embeds, [], rule, [q], planned=grid[0] + lost, score_dtype=score_dtype or torch.float32, seed=seed
    )
    check_equal(rows, rule.retain(ranking, q).retention_mask, [embeds])


@pytest.mark.parametrize("scores", [[1.0] * 40, list(range(40)), list(range(40, 0, -1)), [0, 1, 1, 0, 2, 1, 1, 2] * 5])
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_ties_and_slopes(scores, batch):
    """Equal scores, ever higher ones (each newcomer is kept for a while) and ever lower ones (none is)."""
    scores = torch.tensor(scores, dtype=torch.float32).view(-1, 1, 1)
    embeds = torch.arange(len(scores), dtype=torch.float32).view(-1, 1, 1, 1)
    sink = StreamingRetention(8)
    for part in range(0, len(scores), batch):
        sink.add((embeds[part : part + batch],), scores[part : part + batch])
    expected = torch.argsort(scores.flatten(), descending=True, stable=True)[:8].sort().values
    rows = sink.finish(8)
    assert torch.equal(rows.positions, expected)
    assert torch.equal(rows.levels[0].flatten(), expected.float())


def test_the_rows_need_no_copy_to_be_written():
    """The tensor handed out is the buffer that was filled while the video was read."""
    sink = StreamingRetention(4)
    sink.add((torch.ones(4, 1, 2, 3),), torch.arange(8.0).view(4, 1, 2))
    buffer = sink._kept._levels[0]
    rows = sink.finish(3).levels[0]
    assert buffer.shape == (4, 3)
    assert rows.shape == (3, 3)
    assert rows.data_ptr() == buffer.data_ptr()


@pytest.mark.parametrize("free_bytes", [0, 10**12])
def test_rows_beyond_half_of_the_free_memory_lie_in_a_file(free_bytes):
    embeds = oracle.draw_embeddings(20, 2, 3, 9, torch.bfloat16, seed=1)
    sink = StreamingRetention(30, free_bytes=free_bytes)
    scores = stream(sink, embeds, [])
    mask = first_ranked(scores.flatten(), 30).view(scores.shape)
    assert sink._kept.is_mapped == (free_bytes == 0)
    check_equal(sink.finish(30), mask, [embeds])


@pytest.mark.parametrize("free_bytes", [0, None])
def test_all_tokens_are_all(free_bytes):
    embeds = oracle.draw_embeddings(7, 2, 3, 9, torch.float16, seed=1)
    deep = oracle.draw_embeddings(7, 2, 3, 4, torch.float16, seed=2)
    sink = AllTokens(9, free_bytes=free_bytes)
    stream(sink, embeds, [deep], score_dtype=torch.float32)
    assert [torch.equal(*pair) for pair in zip(sink.levels, (embeds, deep), strict=True)] == [True, True]


def test_no_tokens_are_scored_all_the_same():
    embeds = oracle.draw_embeddings(7, 2, 3, 9, torch.float32, seed=1)
    assert torch.equal(stream(NoTokens(), embeds, []), oracle.dissimilarity(embeds))
