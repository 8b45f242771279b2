"""Dissimilarity: bit equality with torch's cosine_similarity, however the video is cut, laid out or typed."""

from contextlib import contextmanager

import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evs_cli.core import dissimilarity as module
from evs_cli.core.dissimilarity import DissimilarityScorer, compute_dissimilarity
from evs_cli.errors import ModelError, UsageError

PROFILE = settings(max_examples=150, deadline=None, derandomize=True)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
DIMS = [1, 2, 3, 7, 8, 9, 16, 31, 64, 100, 257, 1024, 3584]
KINDS = ["drawn", "constant", "still", "coarse"]
SEEDS = st.integers(0, 2**31)


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def block_budget(size_bytes):
    """Blocks of about ``size_bytes``, so that small grids fall into many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES_CPU", size_bytes)
        yield


def in_chunks(levels, sizes, **options):
    """Scores of a video that arrives in chunks of ``sizes`` frames, and the scorer."""
    scorer = DissimilarityScorer(**options)
    parts = zip(*(level.split(sizes) for level in levels), strict=True)
    return torch.cat([scorer.update(part) for part in parts]), scorer


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@PROFILE
@given(
    grid=st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 4)),
    dim=st.sampled_from(DIMS),
    kind=st.sampled_from(KINDS),
    budget=st.sampled_from([1, 200, 4000, 80_000, 1 << 20]),
    seed=SEEDS,
)
def test_scores_equal_cosine_similarity_bit_for_bit(dtype, count, grid, dim, kind, budget, seed):
    embeds = oracle.draw_embeddings(*grid, dim, dtype, seed=seed, kind=kind)
    with threads(count), block_budget(budget):
        expected = oracle.dissimilarity(embeds)
        whole = compute_dissimilarity(embeds)
        chunked, scorer = in_chunks([embeds], oracle.cut(grid[0], seed=seed))
    assert whole.dtype == chunked.dtype == dtype
    assert torch.equal(whole, expected)
    assert torch.equal(chunked, expected)
    assert scorer.num_frames == grid[0]
    assert scorer.zero_frames == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_default_blocks_smaller_and_larger_than_the_video(dtype):
    # 5 x 600 x 1200 is 3.6 million elements, many blocks of the default budget; the other fits into one.
    for grid in [(5, 20, 30), (5, 2, 3)]:
        embeds = oracle.draw_embeddings(*grid, 1200, dtype, seed=1, kind="still")
        assert (embeds.nbytes > module._BLOCK_BYTES_CPU) == (grid[1] > 2)
        assert torch.equal(compute_dissimilarity(embeds), oracle.dissimilarity(embeds))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [32_767, 32_768, 150_000])
def test_one_token_a_frame_with_many_dimensions(dim, dtype, count):
    # From 32,768 elements torch spreads the sum of a lone row over its threads, which changes bits; the plain
    # formula has five rows here, a chunk of one frame has one.
    embeds = oracle.draw_embeddings(6, 1, 1, dim, dtype, seed=3)
    with threads(count):
        expected = oracle.dissimilarity(embeds)
        assert torch.equal(compute_dissimilarity(embeds), expected)
        assert torch.equal(in_chunks([embeds], [1] * 6)[0], expected)
        assert torch.equal(in_chunks([embeds], [2, 1, 3])[0], expected)


def test_lone_rows_do_not_depend_on_threads_or_seed():
    # Twenty rows, since a split sum differs only now and then (about one row in forty in float32).
    for seed in range(20):
        embeds = oracle.draw_embeddings(2, 1, 1, 150_000, torch.float32, seed=seed)
        with threads(1):
            expected = oracle.dissimilarity(embeds)
        with threads(2):
            assert torch.equal(compute_dissimilarity(embeds), expected)
            assert torch.equal(in_chunks([embeds], [1, 1])[0], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@PROFILE
@given(
    grid=st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3)),
    dims=st.lists(st.sampled_from([1, 3, 8, 33, 100, 512]), min_size=2, max_size=4),
    budget=st.sampled_from([1, 4000, 1 << 20]),
    seed=SEEDS,
)
def test_levels_are_compared_side_by_side(dtype, grid, dims, budget, seed):
    # A row of several levels must keep its norm below 6e4 too, hence one video cut along D.
    embeds = oracle.draw_embeddings(*grid, sum(dims), dtype, seed=seed, kind="still")
    levels = [level.contiguous() for level in embeds.split(dims, dim=-1)]
    with block_budget(budget):
        assert torch.equal(compute_dissimilarity(levels), oracle.dissimilarity(embeds))
        assert torch.equal(compute_dissimilarity(embeds.split(dims, dim=-1)), oracle.dissimilarity(embeds))
        assert torch.equal(in_chunks(levels, oracle.cut(grid[0], seed=seed))[0], oracle.dissimilarity(embeds))


def _rows(count, dim, dtype):
    """``(count, dim)`` embeddings to look at in odd layouts."""
    return oracle.draw_embeddings(1, 1, count, dim, dtype, seed=5)[0, 0]


LAYOUTS = {
    "strided in D": lambda dtype: _rows(4 * 2 * 3, 514, dtype).view(4, 2, 3, 514)[..., ::2],
    "D outermost": lambda dtype: _rows(4 * 2 * 3, 257, dtype).t().contiguous().t().view(4, 2, 3, 257),
    "frames innermost": lambda dtype: _rows(2 * 3 * 4, 257, dtype).view(2, 3, 4, 257).permute(2, 0, 1, 3),
    "width and height swapped": lambda dtype: _rows(4 * 3 * 2, 257, dtype).view(4, 3, 2, 257).transpose(1, 2),
    "every other frame, cropped": lambda dtype: _rows(8 * 3 * 4, 300, dtype).view(8, 3, 4, 300)[::2, 1:, :3, 5:262],
    "one frame expanded": lambda dtype: _rows(6, 257, dtype).view(1, 2, 3, 257).expand(4, -1, -1, -1),
    "one value expanded over D": lambda dtype: (_rows(24, 1, dtype) / 17).view(4, 2, 3, 1).expand(-1, -1, -1, 257),
    "overlapping rows": lambda dtype: _rows(1, 280, dtype)[0].unfold(0, 257, 1).view(4, 2, 3, 257),
}


@pytest.mark.parametrize("budget", [1, 2800, 1 << 20])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layout_does_not_change_a_bit(layout, dtype, budget):
    embeds = LAYOUTS[layout](dtype)
    assert embeds.shape == (4, 2, 3, 257)
    assert not embeds.is_contiguous()
    with block_budget(budget):
        expected = oracle.dissimilarity(embeds.clone(memory_format=torch.contiguous_format))
        assert torch.equal(compute_dissimilarity(embeds), expected)
        assert torch.equal(in_chunks([embeds], [1, 2, 1])[0], expected)
        assert torch.equal(compute_dissimilarity(embeds.contiguous()), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_stride_in_d_is_seen_at_many_rows(dtype):
    # A stride in D changes bits in about a quarter of cases when it is read where it lies: 400 rows cannot all pass.
    embeds = oracle.draw_embeddings(5, 10, 10, 514, dtype, seed=8)[..., ::2]
    assert torch.equal(compute_dissimilarity(embeds), oracle.dissimilarity(embeds.clone().contiguous()))


def test_frame_0_stands_as_255_and_only_once():
    scores, _ = in_chunks([oracle.draw_embeddings(4, 2, 2, 8, torch.bfloat16, seed=0)], [1, 1, 2])
    assert (scores[0] == 255).all()
    assert (scores[1:] <= 2.02).all()  # 1 - cos is at most 2; bfloat16 rounds a cosine by at most 2**-8 either way


def test_scores_by_hand():
    # Turn by 90 degrees, by 180, keep (at another length), turn back by 60 degrees: cosines 0, -1, 1, 1/2.
    half_root_3 = 3**0.5 / 2
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, -1.0], [0.0, -4.0], [half_root_3, -0.5]])
    scores = compute_dissimilarity(rows.view(5, 1, 1, 2)).flatten().tolist()
    # A few float32 roundings of numbers near 1, each 6e-8.
    assert scores == pytest.approx([255, 1, 2, 0, 0.5], abs=5e-7)


def test_the_caller_may_reuse_its_buffer():
    embeds = oracle.draw_embeddings(6, 2, 3, 16, torch.float32, seed=2)
    scorer, buffer, parts = DissimilarityScorer(), torch.empty(2, 2, 3, 16), []
    for frame in range(0, 6, 2):
        buffer.copy_(embeds[frame : frame + 2])
        parts.append(scorer.update([buffer]))
        buffer.fill_(float("nan"))
    assert torch.equal(torch.cat(parts), oracle.dissimilarity(embeds))


@pytest.mark.parametrize("shape", [(3, 2, 2, 8), (1, 1, 1, 8), (3, 2, 2, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_stay_as_they_are(shape, dtype):
    levels = [oracle.draw_embeddings(*shape, dtype, seed=seed) for seed in (1, 2)]
    levels[0][0, 0, 0] = 1e-3  # a norm that float16's clamp would touch if it wrote into the rows
    for used in ([levels[0]], levels):
        before = [(level.clone(), level._version) for level in used]
        in_chunks(used, [1] * shape[0])
        compute_dissimilarity(used)
        for level, (copy, version) in zip(used, before, strict=True):
            assert torch.equal(level, copy)
            assert level._version == version


@pytest.mark.parametrize("dtype", DTYPES)
def test_embeddings_that_require_grad(dtype):
    plain = oracle.draw_embeddings(3, 2, 2, 16, dtype, seed=4)
    leaf = plain.clone().requires_grad_()
    for embeds in (leaf, leaf * 1, [leaf, leaf * 1]):
        scores = compute_dissimilarity(embeds)
        assert not scores.requires_grad
        both = torch.cat([plain, plain], dim=-1) if isinstance(embeds, list) else plain
        assert torch.equal(scores, oracle.dissimilarity(both))


def test_embeddings_of_inference_mode():
    with torch.inference_mode():
        embeds = oracle.draw_embeddings(4, 2, 2, 16, torch.float32, seed=4)
        inside, _ = in_chunks([embeds], [1, 3])
    outside, _ = in_chunks([embeds], [1, 3])
    expected = oracle.dissimilarity(embeds.clone())
    assert torch.equal(inside, expected)
    assert torch.equal(outside, expected)


@pytest.mark.parametrize("score_dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_score_dtype_is_the_dtype_of_the_arithmetic(dtype, score_dtype):
    embeds = oracle.draw_embeddings(5, 3, 2, 100, dtype, seed=6, kind="still")
    expected = oracle.dissimilarity(embeds.to(score_dtype))
    scores = compute_dissimilarity(embeds, score_dtype=score_dtype)
    assert scores.dtype == score_dtype
    assert torch.equal(scores, expected)
    assert torch.equal(in_chunks([embeds], [2, 1, 2], score_dtype=score_dtype)[0], expected)


def test_score_dtype_float32_tells_apart_what_bfloat16_cannot():
    # Cosines above 0.998 round to 1 in bfloat16; here each frame turns by 2 degrees, cosine 0.9994.
    angles = torch.arange(6) * torch.pi / 90
    embeds = torch.stack([angles.cos(), angles.sin()], dim=-1).view(6, 1, 1, 2).bfloat16()
    assert (compute_dissimilarity(embeds, score_dtype=torch.float32)[1:] > 0).all()
    assert (compute_dissimilarity(embeds)[1:] == 0).any()


@pytest.mark.parametrize("score_dtype", [torch.int32, torch.complex64, torch.bool])
def test_score_dtypes_that_are_no_floats_are_refused(score_dtype):
    with pytest.raises(UsageError, match=r"Invalid score dtype .*Expected one of float32") as error:
        DissimilarityScorer(score_dtype=score_dtype)
    assert error.value.exit_code == 2


# Zero tokens: the rule counts them as new; they are reported with the frame they stand in.

CUTS = [[7], [1] * 7, [2, 5], [3, 1, 3], [4, 3]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("zero", [[], [0], [6], [2, 3], [0, 3, 4, 6], list(range(7))])
def test_zero_tokens_score_1_and_are_reported_by_frame(zero, sizes, dtype):
    embeds = oracle.draw_embeddings(7, 2, 2, 16, dtype, seed=7)
    embeds[zero, 1, 0] = 0
    scores, scorer = in_chunks([embeds], sizes)
    assert scorer.zero_frames == zero
    assert torch.equal(scores, oracle.dissimilarity(embeds))
    touched = [frame for frame in range(1, 7) if frame in zero or frame - 1 in zero]
    assert (scores[touched, 1, 0] == 1).all()


def test_a_token_is_zero_only_when_every_level_is():
    levels = [oracle.draw_embeddings(3, 1, 2, 4, torch.float32, seed=seed) for seed in (1, 2)]
    levels[0][1] = 0
    levels[0][2, 0, 1] = 0
    levels[1][2, 0, 1] = 0
    _, scorer = in_chunks(levels, [1, 2])
    assert scorer.zero_frames == [2]


# Non-finite values: NaN sorts first and would evict tokens of frame 0.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("frame", [0, 1, 3, 6])
def test_non_finite_embeddings_name_the_frame(frame, sizes, value, dtype):
    embeds = oracle.draw_embeddings(7, 2, 2, 8, dtype, seed=9)
    embeds[frame, 1, 1, 5] = value
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ModelError, match=rf"frame {frame}: its {name} embeddings hold NaN or infinite") as error:
        in_chunks([embeds], sizes)
    assert error.value.exit_code == 4
    assert "--dtype float32" in error.value.hint


def test_the_first_bad_frame_is_named_and_every_level_is_looked_at():
    levels = [oracle.draw_embeddings(6, 1, 2, 8, torch.float32, seed=seed) for seed in (1, 2)]
    levels[0][5] = float("nan")
    levels[1][3, 0, 1, 0] = float("inf")
    with pytest.raises(ModelError, match=r"frame 3: its float32 embeddings hold NaN or infinite"):
        in_chunks(levels, [2, 4])


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("frame", [0, 1, 3, 6])
def test_float16_norms_that_overflow_name_the_frame(frame, sizes):
    # Each value is finite, the norm 4e4 * sqrt(8) is not: the plain formula gives a score of 1 for such a row.
    embeds = oracle.draw_embeddings(7, 2, 2, 8, torch.float16, seed=9)
    embeds[frame, 0, 1] = 4e4
    with pytest.raises(ModelError, match=rf"frame {frame}: its embeddings are finite, but .* not in float16") as error:
        in_chunks([embeds], sizes)
    assert "--score-dtype float32" in error.value.hint
    scores, _ = in_chunks([embeds], sizes, score_dtype=torch.float32)
    assert torch.equal(scores, oracle.dissimilarity(embeds.float()))


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("frame", [1, 3, 6])
def test_float16_zero_rows_name_the_frame(frame, sizes):
    # The clamp at 1e-8 underflows to 0 in float16, so 0 / 0 is NaN, in the plain formula too.
    embeds = oracle.draw_embeddings(7, 2, 2, 8, torch.float16, seed=9)
    embeds[frame, 1, 0] = 0
    assert oracle.dissimilarity(embeds).isnan().any()
    with pytest.raises(ModelError, match=rf"frame {frame}: its embeddings are finite, but .* not in float16") as error:
        in_chunks([embeds], sizes)
    assert "--score-dtype float32" in error.value.hint
    _, scorer = in_chunks([embeds], sizes, score_dtype=torch.float32)
    assert scorer.zero_frames == [frame]


@pytest.mark.parametrize("sizes", CUTS)
def test_a_float16_zero_row_in_frame_0_is_refused_with_the_next_frame(sizes):
    # Frame 0 has no score of its own: the row is found where the next frame is compared with it.
    embeds = oracle.draw_embeddings(7, 2, 2, 8, torch.float16, seed=9)
    embeds[0, 1, 0] = 0
    with pytest.raises(ModelError, match=r"frame 0: its embeddings are finite, but"):
        in_chunks([embeds], sizes)


def test_float32_scores_taken_in_float16_are_checked_in_float16():
    embeds = torch.full((2, 1, 1, 4), 1e5)
    with pytest.raises(ModelError, match=r"frame 0: its embeddings are finite, but .* not in float16"):
        compute_dissimilarity(embeds, score_dtype=torch.float16)
    assert torch.equal(compute_dissimilarity(embeds), oracle.dissimilarity(embeds))


def test_a_float32_norm_that_overflows_names_the_frame():
    embeds = torch.ones(3, 1, 1, 4)
    embeds[1] = 3e38
    with pytest.raises(ModelError, match=r"frame 1: its embeddings are finite, but .* not in float32"):
        compute_dissimilarity(embeds)


# Shapes and dtypes.


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([], r"no level given"),
        ([torch.ones(2, 2, 4)], r"shape \(2, 2, 4\) .*Expected \(T, h, w, D\)"),
        ([torch.ones(1, 2, 2, 2, 4)], r"shape \(1, 2, 2, 2, 4\)"),
        ([torch.ones(2, 2, 2, 0)], r"D at least 1"),
        ([torch.ones(2, 2, 2, 4, dtype=torch.int64)], r"dtype int64"),
        ([torch.ones(2, 2, 2, 4, dtype=torch.complex64)], r"dtype complex64"),
        ([torch.ones(0, 2, 2, 4)], r"Invalid token grid \(0, 2, 2\)"),
        ([torch.ones(2, 0, 2, 4)], r"Invalid token grid \(2, 0, 2\)"),
        ([torch.ones(2, 2, 0, 4)], r"Invalid token grid \(2, 2, 0\)"),
        ([torch.ones(2, 2, 3, 4), torch.ones(2, 3, 2, 4)], r"Invalid level of shape \(2, 3, 2, 4\)"),
        ([torch.ones(2, 2, 3, 4), torch.ones(1, 2, 3, 4)], r"Invalid level of shape \(1, 2, 3, 4\)"),
        ([torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 4).half()], r"float16.*dtype float32"),
        ([torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3)], r"shape \(2, 2, 3\)"),
    ],
)
def test_shapes_and_dtypes_that_are_refused(levels, message):
    with pytest.raises(UsageError, match=message) as error:
        compute_dissimilarity(levels)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("shape", [(1, 2, 2, 4), (1, 2, 4, 4), (1, 2, 3, 5)])
def test_a_chunk_that_does_not_fit_the_one_before_is_refused(shape):
    scorer = DissimilarityScorer()
    scorer.update([torch.ones(2, 2, 3, 4)])
    with pytest.raises(
        UsageError,
        match=r"Invalid chunk: .*Expected 2 x 3 tokens of 4 dimensions, float32 on cpu, as in the chunk before",
    ):
        scorer.update([torch.ones(shape)])
    # A refused chunk leaves no trace, and neither does one whose embeddings cannot be ranked.
    with pytest.raises(ModelError, match="frame 2"):
        scorer.update([torch.full((1, 2, 3, 4), float("nan"))])
    assert scorer.num_frames == 2
    assert torch.equal(scorer.update([torch.ones(1, 2, 3, 4)]), torch.zeros(1, 2, 3))


@pytest.mark.parametrize(
    "chunk",
    [
        [torch.ones(1, 2, 3, 4).bfloat16(), torch.ones(1, 2, 3, 6).bfloat16()],
        [torch.ones(1, 3, 2, 4), torch.ones(1, 3, 2, 6)],
        [torch.ones(1, 2, 3, 6), torch.ones(1, 2, 3, 4)],
    ],
    ids=["another dtype", "h and w swapped", "levels swapped"],
)
def test_a_chunk_of_another_dtype_grid_or_order_of_levels_is_refused(chunk):
    scorer = DissimilarityScorer()
    scorer.update([torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 6)])
    with pytest.raises(UsageError, match=r"Invalid chunk"):
        scorer.update(chunk)


def test_chunks_may_come_from_inside_and_outside_of_inference_mode():
    embeddings = torch.randn(4, 2, 2, 8)
    scorer = DissimilarityScorer()
    with torch.inference_mode():
        first = scorer.update([embeddings[:2].clone()])
    assert torch.equal(torch.cat([first, scorer.update([embeddings[2:]])]), compute_dissimilarity(embeddings))


@pytest.mark.parametrize("dims", [(48,), (32, 16)])
@pytest.mark.parametrize("score_dtype", [None, torch.float32])
def test_on_a_device_only_the_check_waits(monkeypatch, dims, score_dtype):
    """Fake tensors on CUDA have no values, so that any wait raises: all of ``update`` but ``_check_finite`` runs."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

    with FakeTensorMode():
        levels = [torch.empty(3, 2, 5, dim, dtype=torch.bfloat16, device="cuda") for dim in dims]
        with pytest.raises(DataDependentOutputException):
            DissimilarityScorer(score_dtype=score_dtype).update(levels)
        monkeypatch.setattr(DissimilarityScorer, "_check_finite", lambda *arguments: None)
        scorer = DissimilarityScorer(score_dtype=score_dtype)
        for _ in range(2):
            scores = scorer.update(levels)
            assert scores.device.type == "cuda"
            assert scores.shape == (3, 2, 5)
            assert scores.dtype == (score_dtype or torch.bfloat16)
