"""Qwen2.5-VL and Qwen3-VL: positions, pixel budgets, and logits, against the whole model and its processor."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import DrawnClip, clips, make_clip, profile

from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.errors import UsageError

PROFILE = profile(40)
SIDE = {"qwen2_5_vl": 28, "qwen3_vl": 32}  # pixels of one token


@pytest.fixture(params=("qwen2_5_vl", "qwen3_vl"))
def family(request, tiny_family):
    return tiny_family(request.param)


@pytest.fixture(scope="session")
def qwen25(tiny_family):
    return tiny_family("qwen2_5_vl")


@pytest.fixture(scope="session")
def qwen3(tiny_family):
    return tiny_family("qwen3_vl")


def own_positions(family, inputs):
    """(3, L) from ``get_rope_index`` of the whole model over the processor's unpruned ids."""
    names = ("mm_token_type_ids", "video_grid_thw", "second_per_grid_ts")
    positions, _ = family.whole.model.get_rope_index(
        inputs["input_ids"], **{name: inputs[name] for name in names if name in inputs}
    )
    return positions[:, 0]


def plan_of(family, clip, *, frame_size=None, **options):
    return family.encoder.plan(clip, EncodeOptions(**options), frame_size=frame_size)


# --------------------------------------------------------------------------------------------------- positions


def drawn_mask(plan, *, share, seed):
    """(T, h, w) bool: frame 0 whole, each later token kept with probability ``share``."""
    mask = np.random.default_rng(seed).random(plan.token_grid_thw) < share
    mask[0] = True
    return mask


def test_positions_of_the_pruned_sequence_are_the_whole_models(family):
    @PROFILE
    @given(
        drawn=clips(),
        prompt=st.sampled_from([None, "What moves?"]),
        share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    )
    def check(drawn, prompt, share):
        plan = plan_of(family, drawn.clip, prompt=prompt)
        positions = family.encoder.position_ids(plan)
        assert positions.dtype == torch.int64
        assert positions.shape == (3, plan.layout.sequence_length)
        own = family.own(drawn, prompt)
        sequence = plan.layout.prune(drawn_mask(plan, share=share, seed=drawn.seed))
        kept = torch.from_numpy(sequence.kept_positions)
        assert torch.equal(positions[:, kept], own_positions(family, own)[:, kept])
        np.testing.assert_array_equal(sequence.input_ids, own["input_ids"][0, kept].numpy())

    check()


@pytest.mark.parametrize(("num_frames", "rows", "columns"), [(24, 1, 2), (24, 3, 1), (4, 5, 2), (3, 2, 5), (2, 1, 1)])
def test_text_goes_on_behind_the_larger_side(family, num_frames, rows, columns):
    """More frames than the larger side, portrait, landscape: the place of text does not count frames."""
    clip = make_clip(num_frames, rows * SIDE[family.model_type], columns * SIDE[family.model_type], start=12.5)
    plan = plan_of(family, clip, prompt="Who?")
    assert plan.token_grid_thw == (-(-num_frames // 2), rows, columns)
    positions = family.encoder.position_ids(plan)
    assert torch.equal(positions, own_positions(family, family.own(DrawnClip(clip, 0), "Who?")))
    video = positions[:, torch.from_numpy(plan.layout.token_positions)].view(3, *plan.token_grid_thw)
    # Rows count downwards and columns to the right, from where the frame begins.
    assert torch.equal(video[1] - video[1, :, :1], torch.arange(rows)[None, :, None].expand(video.shape[1:]))
    assert torch.equal(video[2] - video[2, :, :, :1], torch.arange(columns).expand(video.shape[1:]))
    last = plan.layout.token_positions[-1]
    begins = int(video[1, -1, 0, 0])
    if family.model_type == "qwen2_5_vl":  # one span, which begins where the first token stands
        assert begins == int(video[0, 0, 0, 0])
    assert positions[:, last + 1].tolist() == [begins + max(rows, columns)] * 3


def test_qwen25_time_axis_counts_seconds(qwen25):
    """2 positions a second (``tokens_per_second``), times the seconds between frames of tokens, cut to whole ones."""
    pts = 100 + np.arange(12) * 0.75
    plan = plan_of(qwen25, Clip(56, 56, pts, 9.0))
    assert plan.seconds_per_grid == pytest.approx(1.5)
    np.testing.assert_allclose(plan.prompt_seconds, np.arange(6) * 1.5)
    video = qwen25.encoder.position_ids(plan)[0, torch.from_numpy(plan.layout.token_positions)].view(6, 4)
    assert (video[:, 0] - video[0, 0]).tolist() == [0, 3, 6, 9, 12, 15]


def test_qwen25_prompt_seconds_are_what_positions_are_made_of(qwen25):
    @PROFILE
    @given(drawn=clips(sizes=st.just((28, 28))))
    def check(drawn):
        plan = plan_of(qwen25, drawn.clip)
        own = float(qwen25.own(drawn)["second_per_grid_ts"][0])
        assert plan.seconds_per_grid == pytest.approx(own, rel=1e-6)  # theirs went through float32
        np.testing.assert_allclose(plan.prompt_seconds, np.arange(plan.token_grid_thw[0]) * own, rtol=1e-6)

    check()


def test_qwen3_has_no_seconds_per_grid(qwen3):
    assert plan_of(qwen3, make_clip(4, 64, 64)).seconds_per_grid is None


# ----------------------------------------------------------------------------------------------- pixel budgets


def grid_of(inputs):
    return tuple(inputs["video_grid_thw"][0].tolist())


def assert_own_grid(family, drawn, plan, **arguments):
    """The plan's grid and ids are the processor's, called with the same arguments."""
    inputs = family.own(drawn, **arguments)
    assert plan.model_grid_thw == grid_of(inputs)
    np.testing.assert_array_equal(plan.layout.input_ids, inputs["input_ids"][0].numpy())


def test_qwen3_frames_shrink_as_they_grow_in_number(qwen3):
    sizes = []
    for num_frames in (2, 8, 24, 64):
        drawn = DrawnClip(make_clip(num_frames, 240, 320), 0)
        plan = plan_of(qwen3, drawn.clip)
        assert_own_grid(qwen3, drawn, plan)
        assert plan.token_grid_thw[0] * 2 * np.prod(plan.frame_size) <= 160 * 32 * 32
        sizes.append(np.prod(plan.frame_size))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_qwen25_frames_keep_their_size_whatever_their_number(qwen25):
    sizes = {plan_of(qwen25, make_clip(n, 240, 320)).frame_size for n in (2, 8, 24, 64)}
    assert len(sizes) == 1


@profile(25)
@given(
    drawn=clips(frame_counts=(2, 3, 9, 16), sizes=st.tuples(st.integers(29, 240), st.integers(29, 240))),
    minimum=st.sampled_from([None, 20_000, 90_000, 200_000]),
    maximum=st.sampled_from([None, 200_000, 400_000]),
    cap=st.sampled_from([None, True, False]),
)
@pytest.mark.parametrize("patches", [768, 3])
def test_qwen3_video_pixels(qwen3, patches, drawn, minimum, maximum, cap):
    """The user's limits equal the processor's ``size``; the cap binds where it allows 3 tokens a frame."""
    maximum = 300_000 if minimum == 200_000 and maximum is None else maximum  # above the checkpoint's own most
    with tokens_a_frame(qwen3, patches):
        plan = plan_of(qwen3, drawn.clip, video_min_pixels=minimum, video_max_pixels=maximum, cap_pixels_per_frame=cap)
        size = {"shortest_edge": minimum or 32 * 32, "longest_edge": maximum or 160 * 32 * 32}
        assert_own_grid(qwen3, drawn, plan, size=size, cap_pixels_per_frame=bool(cap))
    assert plan.processing["cap_pixels_per_frame"] is bool(cap)
    assert plan.processing.get("size") == (size if minimum or maximum else None)


@profile(25)
@given(
    drawn=clips(frame_counts=(2, 3, 9, 16), sizes=st.tuples(st.integers(29, 240), st.integers(29, 240))),
    minimum=st.sampled_from([None, 3_000, 12_000]),
    maximum=st.sampled_from([None, 12_000, 30_000]),
    cap=st.sampled_from([None, True, False]),
)
@pytest.mark.parametrize("patches", [128_000, 20])
def test_qwen25_frame_pixels(qwen25, patches, drawn, minimum, maximum, cap):
    with tokens_a_frame(qwen25, patches):
        plan = plan_of(qwen25, drawn.clip, frame_min_pixels=minimum, frame_max_pixels=maximum, cap_pixels_per_frame=cap)
        size = {"shortest_edge": minimum or 28 * 28, "longest_edge": maximum or 24 * 28 * 28}
        assert_own_grid(qwen25, drawn, plan, size=size, cap_pixels_per_frame=bool(cap))
    assert plan.processing["cap_pixels_per_frame"] is bool(cap)


class tokens_a_frame:
    """``max_video_tokens`` of both processors, so low that ``cap_pixels_per_frame`` binds."""

    def __init__(self, family, value):
        self.processors = [family.encoder.processor.video_processor, family.processor.video_processor]
        self.value = value

    def __enter__(self):
        self.before = [processor.max_video_tokens for processor in self.processors]
        for processor in self.processors:
            processor.max_video_tokens = self.value

    def __exit__(self, *_):
        for processor, value in zip(self.processors, self.before, strict=True):
            processor.max_video_tokens = value


@pytest.mark.parametrize("patches", [3, 20])
def test_the_cap_binds_in_these_tests(family, patches):
    """Else the tests above would not see whether it is passed on."""
    clip = make_clip(16, 240, 240)
    with tokens_a_frame(family, patches):
        sizes = [plan_of(family, clip, cap_pixels_per_frame=cap).frame_size for cap in (None, False, True)]
    assert sizes[0] == sizes[1]
    assert sizes[2] < sizes[1] or patches == 20  # 20 tokens a frame are more than the other budget of qwen3_vl


def test_the_checkpoints_own_cap_is_kept(family):
    """Without the option, what the processor's configuration says is passed, and recorded."""
    encoder = open_encoder(str(family.folder))
    encoder.processor.video_processor.cap_pixels_per_frame = True
    plan = encoder.plan(make_clip(4, 64, 64), EncodeOptions())
    assert plan.processing == {"cap_pixels_per_frame": True}
    other = encoder.plan(make_clip(4, 64, 64), EncodeOptions(cap_pixels_per_frame=False))
    assert other.processing == {"cap_pixels_per_frame": False}


@pytest.mark.parametrize("kind", ["least", "most"])
def test_a_limit_that_crosses_the_checkpoints_own_is_refused(family, kind):
    what = "frame" if family.model_type == "qwen2_5_vl" else "video"
    options = {"least": {f"{what}_min_pixels": 10**9}, "most": {f"{what}_max_pixels": 10}}[kind]
    with pytest.raises(UsageError, match=r"^Invalid pixel limits: at least \d+, at most \d+\."):
        plan_of(family, make_clip(2, 64, 64), **options)


def test_an_extreme_aspect_is_refused_in_our_words(family):
    with pytest.raises(UsageError, match=r"^cannot plan 2 frames of 9000x40 for .*aspect ratio"):
        plan_of(family, make_clip(2, 40, 9000))


# ----------------------------------------------------------------------------- a damaged file keeps its size


@profile(25)
@given(
    kept=st.sets(st.integers(0, 39), min_size=1),
    shape=st.sampled_from([(240, 320), (321, 123), (40, 300)]),
    minimum=st.sampled_from([None, 120_000]),
)
def test_qwen3_fewer_frames_keep_the_planned_size(qwen3, kept, shape, minimum):
    """Alone, the frames left would be made larger, up to the least pixels too; the plan of all of them is kept."""
    full = plan_of(qwen3, make_clip(40, *shape, start=3.0), video_min_pixels=minimum)
    clip = Clip(*shape, full.pts_seconds[sorted(kept)], 20.0)
    plan = plan_of(qwen3, clip, frame_size=full.frame_size, prompt="Who?", video_min_pixels=minimum)
    assert plan.frame_size == full.frame_size
    assert plan.token_grid_thw == (-(-len(kept) // 2), *full.token_grid_thw[1:])
    resized = DrawnClip(Clip(*full.frame_size, clip.pts_seconds, 20.0), 0)
    own = qwen3.own(resized, "Who?", do_resize=False)
    np.testing.assert_array_equal(plan.layout.input_ids, own["input_ids"][0].numpy())
    assert torch.equal(qwen3.encoder.position_ids(plan), own_positions(qwen3, own))


def test_the_planned_size_differs_from_the_frames_own(qwen3):
    """Else the test above would hold without ``frame_size``."""
    full, few = (plan_of(qwen3, make_clip(n, 240, 320)) for n in (40, 4))
    assert full.frame_size < few.frame_size


def test_frames_of_a_damaged_file_are_the_planned_ones(family):
    """What is left is encoded under the plan of all frames, and gives the same rows as in the whole clip."""
    drawn = DrawnClip(make_clip(40, 150, 200), 4)
    full, frames = plan_of(family, drawn.clip), drawn.frames()
    left = [*range(4), *range(20, 29)]
    actual = plan_of(family, Clip(150, 200, drawn.clip.pts_seconds[left], 20.0), frame_size=full.frame_size)
    whole = family.encoder.encode(frames, full).levels
    for level, all_rows in zip(family.encoder.encode(frames[left], full).levels, whole, strict=True):
        assert level.shape[:3] == actual.token_grid_thw
        expected = all_rows[[0, 1, *range(10, 14)]]  # tubelets of frames 0-3 and 20-27
        torch.testing.assert_close(level[:-1], expected, rtol=0, atol=1e-5)  # rounding: see test_vlm.py


# -------------------------------------------------------------------------------------------------------- logits


def logits_with_ours(family, drawn, prompt, mask=None):
    """Logits of the whole model fed with our ids, positions and rows alone, and the kept positions."""
    plan = plan_of(family, drawn.clip, prompt=prompt)
    mask = np.ones(plan.token_grid_thw, dtype=bool) if mask is None else mask
    sequence = plan.layout.prune(mask)
    kept = torch.from_numpy(sequence.kept_positions)
    inputs = family.own(drawn, prompt)
    levels = family.encoder.encode(drawn.frames(), plan).levels
    with torch.inference_mode():
        logits = family.whole(
            input_ids=torch.from_numpy(sequence.input_ids)[None],
            position_ids=family.encoder.position_ids(plan)[:, None, kept],
            mm_encoder_outputs={"video": family.with_our_rows(inputs, levels, torch.from_numpy(mask))},
        ).logits[0]
    return logits, kept, inputs


def test_logits_at_rate_0_are_the_plain_forwards(family):
    """Bit for bit: ids, positions and every level of features together change nothing."""

    @profile(10)
    @given(drawn=clips())
    def check(drawn):
        logits, _, inputs = logits_with_ours(family, drawn, "What moves?")
        with torch.inference_mode():
            plain = family.whole(**inputs).logits[0]
        assert logits.isfinite().all()
        assert torch.equal(logits, plain)

    check()


def test_logits_of_a_pruned_sequence_are_the_masked_forwards(family):
    """Dropped tokens hidden from attention, the rest in their places: equal but for the order of sums (2e-6 of 5)."""
    drawn = DrawnClip(make_clip(9, 90, 120), 2)
    mask = drawn_mask(plan_of(family, drawn.clip), share=0.3, seed=5)
    logits, kept, inputs = logits_with_ours(family, drawn, "What moves?", mask)
    length = inputs["input_ids"].shape[1]
    seen = torch.zeros(length, dtype=torch.bool)
    seen[kept] = True
    visible = torch.tril(torch.ones(length, length, dtype=torch.bool)) & seen
    visible |= torch.eye(length, dtype=torch.bool)
    bias = torch.zeros(1, 1, length, length).masked_fill(~visible, torch.finfo(torch.float32).min)
    arguments = {name: value for name, value in inputs.items() if name != "attention_mask"}
    with torch.inference_mode():
        masked = family.whole(
            **arguments, attention_mask=bias, position_ids=own_positions(family, inputs)[:, None]
        ).logits[0]
    torch.testing.assert_close(logits, masked[kept], rtol=0, atol=2e-5)
    assert not torch.allclose(masked[kept], family.whole(**arguments).logits[0, kept], atol=1e-2)


def test_the_logits_depend_on_what_we_hand_over(family):
    """Wrong positions, rows or levels would be seen by the tests above."""
    drawn = DrawnClip(make_clip(6, 90, 120), 2)
    plan, inputs = plan_of(family, drawn.clip, prompt="Who?"), family.own(drawn, "Who?")
    levels, positions = family.encoder.encode(drawn.frames(), plan).levels, family.encoder.position_ids(plan)
    all_of_them = torch.ones(plan.token_grid_thw, dtype=torch.bool)

    def logits(levels, positions):
        with torch.inference_mode():
            return family.whole(
                input_ids=inputs["input_ids"],
                position_ids=positions[:, None],
                mm_encoder_outputs={"video": family.with_our_rows(inputs, levels, all_of_them)},
            ).logits[0]

    right = logits(levels, positions)
    for i in range(len(levels)):
        swapped = [level.flip(2) if i == j else level for j, level in enumerate(levels)]
        assert not torch.allclose(logits(swapped, positions), right, atol=1e-2)
    assert not torch.allclose(logits(levels, positions.flip(0)), right, atol=1e-2)
