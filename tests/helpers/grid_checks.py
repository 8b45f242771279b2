"""What every family of ``evs_cli.encoders.grid_vlm`` must hold, against its own processor and its whole model.

A family's test file has one subclass of ``GridChecks`` a ``model_type``, which states the family's facts, and tests
of what is particular about it.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_grid_models import GridFamily, grid_family
from tiny_models import DrawnClip, clips, make_clip

from evs_cli.core.dissimilarity import DissimilarityScorer
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan
from evs_cli.encoders.registry import FAMILIES, open_encoder
from evs_cli.errors import UsageError
from evs_cli.video.sampling import SamplingDefaults

PROFILE = settings(max_examples=10, deadline=None, derandomize=True)
FEATURES = settings(max_examples=4, deadline=None, derandomize=True)
PROMPTS = st.sampled_from([None, "", "What moves?", "Zähle:\n 1 <b> {{ x }} 0.5 seconds"])
OPTIONS = {
    "size": 100,
    "frame_min_pixels": 100,
    "frame_max_pixels": 100_000,
    "video_min_pixels": 100,
    "video_max_pixels": 100_000,
    "cap_pixels_per_frame": False,
}


class GridChecks:
    """The checks; ``model_type`` and what follows are the family's facts."""

    model_type: ClassVar[str]
    side: ClassVar[int] = 28
    """Pixels of one token's side."""
    tubelet: ClassVar[int] = 2
    """Sampled frames of one frame of tokens."""
    grid_frames: ClassVar[int] = 1
    """Rows of the model's own grid, in time, of one frame of tokens."""
    levels: ClassVar[int] = 1
    placeholder: ClassVar[str] = "<|video_pad|>"
    printed_time: ClassVar[str | None] = None
    """Pattern of the time that is printed for a frame of tokens."""
    positions: ClassVar[str] = "mrope"
    modality: ClassVar[str] = "video"
    """Key under which the model takes the features."""
    is_recurrent: ClassVar[bool] = False
    pixel_limits: ClassVar[tuple[str, str]]
    """Options that bound the least and the most pixels."""
    further_options: ClassVar[tuple[str, ...]] = ()
    sampling: ClassVar[SamplingDefaults]

    @pytest.fixture
    def family(self) -> GridFamily:
        return grid_family(self.model_type)

    # ------------------------------------------------------------------------------------------------- plans

    def plan(self, family: GridFamily, clip: Clip, **options: Any) -> EncodePlan:
        return family.encoder.plan(clip, EncodeOptions(**options))

    def assert_own_plan(self, family: GridFamily, plan: EncodePlan, drawn: DrawnClip, inputs: dict[str, Any]) -> None:
        """Every count of ``plan`` is that of the processor's outputs ``inputs``."""
        ids = inputs["input_ids"][0].numpy()
        np.testing.assert_array_equal(plan.layout.input_ids, ids)
        grid = tuple(inputs["video_grid_thw"][0].tolist())
        assert plan.model_grid_thw == grid
        num_frames = -(-drawn.clip.num_frames // self.tubelet)
        assert plan.token_grid_thw == (num_frames, grid[1] // 2, grid[2] // 2)
        assert grid[0] == num_frames * self.grid_frames
        assert plan.spatial_merge_size == 2
        assert plan.temporal_patch_size == self.tubelet
        assert plan.video_grid_thw == (num_frames, *grid[1:])
        assert plan.frame_size == (grid[1] * self.side // 2, grid[2] * self.side // 2)
        placeholder = family.processor.tokenizer.convert_tokens_to_ids(self.placeholder)
        assert plan.layout.placeholder_token_id == placeholder
        np.testing.assert_array_equal(plan.layout.token_positions, np.flatnonzero(ids == placeholder))
        assert plan.layout.num_frames == num_frames
        assert plan.total_tokens == len(plan.layout.token_positions) == np.prod(plan.token_grid_thw)
        assert plan.sequence_length() == len(ids)
        assert len(plan.layout.extra_positions) == 0
        assert plan.modality == self.modality
        if self.positions == "mrope":
            np.testing.assert_array_equal(plan.token_type_ids, inputs["mm_token_type_ids"][0].numpy())
            assert set(plan.token_type_ids[plan.layout.token_positions].tolist()) == {2}
        else:
            assert plan.token_type_ids is None
        assert plan.prompt_seconds.dtype == np.float64
        assert plan.prompt_seconds.tolist() == self.told_seconds(family, drawn.clip, ids)

    def told_seconds(self, family: GridFamily, clip: Clip, ids: Any) -> list[float]:
        """The times the processor printed; of each tubelet's first frame where it printed none."""
        if self.printed_time is None:
            return clip.pts_seconds[:: self.tubelet].tolist()
        return [float(time) for time in re.findall(self.printed_time, family.processor.tokenizer.decode(ids))]

    def test_plan_is_the_processors_own(self, family):
        @PROFILE
        @given(drawn=clips(), prompt=PROMPTS)
        def check(drawn, prompt):
            plan = self.plan(family, drawn.clip, prompt=prompt)
            self.assert_own_plan(family, plan, drawn, family.own(drawn, prompt))
            np.testing.assert_array_equal(plan.frame_pts_seconds, drawn.clip.pts_seconds[:: self.tubelet])

        check()

    @pytest.mark.parametrize(("num_frames", "height", "width"), [(64, 120, 90), (97, 45, 160)])
    def test_plan_of_a_long_clip(self, family, num_frames, height, width):
        """An hour of uneven times, far from zero: nothing drifts."""
        pts = 1800 + np.cumsum(np.random.default_rng(num_frames).integers(90, 6_000_000, num_frames)) / 90_000
        drawn = DrawnClip(Clip(height, width, pts, float(pts[-1] - pts[0]) + 1), 0)
        plan = self.plan(family, drawn.clip, prompt="Who?")
        self.assert_own_plan(family, plan, drawn, family.own(drawn, "Who?"))
        if self.printed_time is not None:
            np.testing.assert_allclose(plan.prompt_seconds, plan.frame_pts_seconds, atol=70)  # a tubelet at most

    def test_one_frame(self, family):
        one, two = (self.plan(family, make_clip(n, 64, 64)) for n in (1, 2))
        assert len(one.pts_seconds) == 1
        assert one.token_grid_thw[0] == 1
        assert bool(one.notes) == (self.tubelet > 1)
        assert two.notes == ()

    def test_a_plan_reads_no_weights_and_no_pixels(self, family, tmp_path):
        for file in family.folder.iterdir():
            if file.suffix != ".safetensors":
                (tmp_path / file.name).write_bytes(file.read_bytes())
        clip = make_clip(5, 90, 70)
        expected = self.plan(family, clip).layout.input_ids
        plan = open_encoder(str(tmp_path)).plan(clip, EncodeOptions())
        np.testing.assert_array_equal(plan.layout.input_ids, expected)

    def test_fewer_frames_keep_the_planned_size(self, family):
        """What is left of a damaged file: ids and grid of its frames at the size planned for all.

        Where the least pixels are those of all frames together, the few would be made larger by themselves.
        """
        least = "video_min_pixels"
        limit = {least: 100_000} if least in self.pixel_limits else {}
        full = self.plan(family, make_clip(40, 62, 75, start=3.0), **limit)
        left = [0, 1, 2, 3, 7, 20, 21, 22, 39]
        clip = Clip(62, 75, full.pts_seconds[left], 20.0)
        plan = family.encoder.plan(clip, EncodeOptions(prompt="Who?", **limit), frame_size=full.frame_size)
        resized = DrawnClip(Clip(*full.frame_size, clip.pts_seconds, 20.0), 0)
        self.assert_own_plan(family, plan, resized, family.own(resized, "Who?", do_resize=False))
        assert plan.frame_size == full.frame_size
        if limit:
            assert self.plan(family, clip, **limit).frame_size > full.frame_size

    # ---------------------------------------------------------------------------------------------- features

    def test_features_are_the_whole_models(self, family):
        """Bit for bit in float32, every level, with the language model left on disk."""

        @FEATURES
        @given(drawn=clips())
        def check(drawn):
            plan = self.plan(family, drawn.clip)
            levels = family.encoder.encode(drawn.frames(), plan).levels
            expected = family.own_levels(family.own(drawn))
            assert len(levels) == len(expected) == self.levels
            for level, own in zip(levels, expected, strict=True):
                assert level.shape == (*plan.token_grid_thw, own.shape[-1])
                assert torch.equal(level.flatten(0, 2), own)

        check()

    def test_features_in_any_chunks_are_the_whole_models(self, family):
        """A cut changes rounding alone: matrix products of few rows take other kernels (2.1e-6 of 3.2 measured)."""

        @FEATURES
        @given(drawn=clips(frame_counts=(3, 5, 9)), halves=st.lists(st.integers(1, 3), max_size=4))
        def check(drawn, halves):
            frames, plan = drawn.frames(), self.plan(family, drawn.clip)
            cuts = np.cumsum([0, *(self.tubelet * half for half in halves)])
            starts = [int(cut) for cut in cuts if cut < len(frames)]
            chunks = [
                family.encoder.encode(frames[start:end], plan).levels
                for start, end in zip(starts, [*starts[1:], len(frames)], strict=True)
            ]
            for level, own in zip(zip(*chunks, strict=True), family.own_levels(family.own(drawn)), strict=True):
                torch.testing.assert_close(torch.cat(level).flatten(0, 2), own, rtol=0, atol=1e-5)

        check()

    def test_features_of_larger_chunks_are_equal_bit_for_bit(self, family):
        drawn = DrawnClip(make_clip(12, 150, 200), 3)
        frames, plan = drawn.frames(), self.plan(family, drawn.clip)
        own = family.own_levels(family.own(drawn))
        chunks = [family.encoder.encode(frames[i : i + 4], plan).levels for i in (0, 4, 8)]
        for level, expected in zip(zip(*chunks, strict=True), own, strict=True):
            assert torch.equal(torch.cat(level).flatten(0, 2), expected)

    def test_the_features_mean_something(self, family):
        """Frames, places and levels differ, else the equalities above would hold for constants too."""
        drawn = DrawnClip(make_clip(6, 96, 128), 1)
        levels = family.encoder.encode(drawn.frames(), self.plan(family, drawn.clip)).levels
        for level in levels:
            assert level.isfinite().all()
            assert torch.pdist(level.flatten(0, 2)).min() > 1e-2
        for one, other in itertools.pairwise(levels):
            assert not torch.allclose(one, other, atol=1e-2)

    def test_only_the_vision_part_is_loaded(self, family):
        """No language layer, and of the token embedding a stub; the rest is the whole model's, name by name."""
        loaded, whole = (dict(model.named_parameters()) for model in (family.encoder._model, family.whole))
        text = [name for name in loaded if "language_model" in name]
        assert not [name for name in text if ".layers." in name]
        assert sum(loaded[name].numel() for name in text) < 200
        rest = [name for name in loaded if name not in text]
        assert {name.removeprefix("model.") for name in whole if "language" not in name and "lm_head" not in name} == {
            name.removeprefix("model.") for name in rest
        }
        for name in rest:
            assert torch.equal(loaded[name], whole.get(name, whole.get(f"model.{name}"))), name

    # --------------------------------------------------------------------------------------------- positions

    def own_positions(self, family: GridFamily, inputs: dict[str, Any]) -> torch.Tensor:
        """``(3, L)`` or ``(L,)``: what the language model is given when the caller gives no positions."""
        seen: list[Any] = []
        hook = family.whole.model.language_model.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(kwargs["position_ids"]), with_kwargs=True
        )
        with hook, torch.inference_mode():
            family.whole(**inputs)
        (given,) = seen
        return torch.arange(inputs["input_ids"].shape[1]) if given is None else given[:, 0]

    def test_positions_are_what_the_model_makes_itself(self, family):
        @settings(PROFILE, max_examples=5)
        @given(drawn=clips(), prompt=PROMPTS)
        def check(drawn, prompt):
            plan = self.plan(family, drawn.clip, prompt=prompt)
            positions = family.encoder.position_ids(plan)
            assert positions.dtype == torch.int64
            inputs = family.own(drawn, prompt)
            assert torch.equal(positions, self.own_positions(family, inputs))
            if self.positions == "mrope":
                grids = {"video_grid_thw": inputs["video_grid_thw"]}
                own, _ = family.whole.model.get_rope_index(inputs["input_ids"], inputs["mm_token_type_ids"], **grids)
                assert positions.shape == (3, plan.layout.sequence_length)
                assert torch.equal(positions, own[:, 0])

        check()

    @pytest.mark.parametrize(("num_frames", "rows", "columns"), [(24, 1, 2), (24, 3, 1), (4, 5, 2), (3, 2, 5)])
    def test_text_goes_on_behind_the_larger_side(self, family, num_frames, rows, columns):
        """More frames than the larger side, portrait, landscape: the place of text does not count frames."""
        clip = make_clip(num_frames, rows * self.side, columns * self.side, start=12.5)
        plan = self.plan(family, clip, prompt="Who?")
        num_grids = -(-num_frames // self.tubelet)
        assert plan.token_grid_thw == (num_grids, rows, columns)
        positions = family.encoder.position_ids(plan)
        assert torch.equal(positions, self.own_positions(family, family.own(DrawnClip(clip, 0), "Who?")))
        last = plan.layout.token_positions[-1]
        if self.positions != "mrope":
            assert positions.shape == (plan.layout.sequence_length,)
            assert positions[last + 1] == last + 1
            return
        video = positions[:, torch.from_numpy(plan.layout.token_positions)].view(3, num_grids, rows, columns)
        # Rows count downwards and columns to the right, from where the frame begins.
        assert torch.equal(video[1] - video[1, :, :1], torch.arange(rows)[None, :, None].expand(video.shape[1:]))
        assert torch.equal(video[2] - video[2, :, :, :1], torch.arange(columns).expand(video.shape[1:]))
        assert positions[:, last + 1].tolist() == [int(video[1, -1, 0, 0]) + max(rows, columns)] * 3

    # ----------------------------------------------------------------------------------- the pruned sequence

    def encoded(self, family: GridFamily, drawn: DrawnClip, plan: EncodePlan, q: float) -> tuple[Any, torch.Tensor]:
        """Our levels ``(T, h, w, D)`` and EVS's mask ``(T, h, w)`` at rate q."""
        levels = family.encoder.encode(drawn.frames(), plan).levels
        return levels, Ranking(DissimilarityScorer().update(levels).cpu()).at(q).retention_mask

    @pytest.mark.parametrize("q", [0.0, 0.5, 0.9])
    @pytest.mark.parametrize("num_frames", [1, 5, 9])
    def test_placeholders_are_as_many_as_a_frame_keeps(self, family, q, num_frames):
        drawn = DrawnClip(make_clip(num_frames, 130, 90), 6)
        plan = self.plan(family, drawn.clip, prompt="What moves?")
        _, mask = self.encoded(family, drawn, plan, q)
        sequence = plan.layout.prune(mask.numpy())
        counts = mask.sum(dim=(1, 2)).tolist()
        assert sum(counts) == plan.retained_tokens(q) == (sequence.input_ids == plan.layout.placeholder_token_id).sum()
        assert len(sequence.input_ids) == plan.sequence_length(q)
        for (start, end), count in zip(sequence.frame_offsets.tolist(), counts, strict=True):
            assert end - start + 1 == count
            assert set(sequence.input_ids[start : end + 1].tolist()) <= {plan.layout.placeholder_token_id}
        others = plan.layout.input_ids[plan.layout.input_ids != plan.layout.placeholder_token_id]
        kept = sequence.input_ids[sequence.input_ids != plan.layout.placeholder_token_id]
        np.testing.assert_array_equal(kept, others)  # marks, times and text of empty frames too

    def further_inputs(self, family: GridFamily, ids: torch.Tensor) -> dict[str, Any]:
        """What the model's forward takes beside ids, positions and features."""
        return {}

    def logits_with_ours(self, family: GridFamily, drawn: DrawnClip, q: float) -> tuple[torch.Tensor, torch.Tensor]:
        """``(K', V)`` logits of the whole model fed with our ids, positions and rows alone, and the kept positions."""
        plan = self.plan(family, drawn.clip, prompt="What moves?")
        levels, mask = self.encoded(family, drawn, plan, q)
        sequence = plan.layout.prune(mask.numpy())
        kept, ids = torch.from_numpy(sequence.kept_positions), torch.from_numpy(sequence.input_ids)[None]
        positions = family.encoder.position_ids(plan)
        assert positions is not None
        features = family.with_our_rows(family.own(drawn), levels, mask)
        with torch.inference_mode():
            logits = family.whole(
                input_ids=ids,
                position_ids=positions[..., kept].unsqueeze(-2),
                mm_encoder_outputs={plan.modality: features},
                **self.further_inputs(family, ids),
            ).logits[0]
        return logits, kept

    def test_logits_at_rate_0_are_the_plain_forwards(self, family):
        """Bit for bit: ids, positions and every level of features together change nothing."""

        @settings(PROFILE, max_examples=3)
        @given(drawn=clips())
        def check(drawn):
            logits, _ = self.logits_with_ours(family, drawn, 0.0)
            with torch.inference_mode():
                plain = family.whole(**family.own(drawn, "What moves?")).logits[0]
            assert logits.isfinite().all()
            assert torch.equal(logits, plain)

        check()

    def test_logits_of_a_pruned_sequence_are_the_masked_forwards(self, family):
        """Dropped tokens hidden from attention, the rest in their places: equal but for the order of float32 sums.

        A shorter sequence takes other kernels, and attention adds the hidden tokens' zeros. Measured over four
        clips a family and q = 0.5 and 0.8: at most 2.4e-6 of logits up to 4.5; dropped tokens move them by 1e-2.
        """
        if self.is_recurrent:
            pytest.skip("a hidden token still moves a recurrent state: there is no masked forward to compare with")
        drawn = DrawnClip(make_clip(9, 90, 130, start=4.0), 2)
        logits, kept = self.logits_with_ours(family, drawn, 0.5)
        inputs = family.own(drawn, "What moves?")
        length = inputs["input_ids"].shape[1]
        seen = torch.zeros(1, length, dtype=torch.int64)
        seen[0, kept] = 1
        positions = self.own_positions(family, inputs)
        with torch.inference_mode():
            hidden = {**inputs, "attention_mask": seen, "position_ids": positions.unsqueeze(-2)}
            masked, plain = family.whole(**hidden).logits[0, kept], family.whole(**inputs).logits[0, kept]
        assert len(kept) < length
        assert (logits - masked).abs().max() <= 1e-5
        assert (plain - masked).abs().max() > 1e-2  # the dropped tokens mattered

    # --------------------------------------------------------------------------------- options and settings

    def test_pixel_limits_are_the_processors_size(self, family):
        least, most = self.pixel_limits
        own = family.processor.video_processor.size
        default = (int(own["shortest_edge"]), int(own["longest_edge"]))
        binding = set()
        for minimum, maximum in [(None, None), (12_000, None), (None, 12_000), (2_000, 30_000), (60_000, 200_000)]:
            for num_frames, height, width in [(1, 50, 41), (3, 240, 130), (9, 77, 222), (24, 160, 160)]:
                drawn = DrawnClip(make_clip(num_frames, height, width), 0)
                plan = self.plan(family, drawn.clip, **{least: minimum, most: maximum})
                size = {"shortest_edge": minimum or default[0], "longest_edge": maximum or default[1]}
                self.assert_own_plan(family, plan, drawn, family.own(drawn, size=size))
                assert plan.processing.get("size") == (size if minimum or maximum else None)
                binding.add((num_frames, plan.frame_size))
        assert len(binding) > 4 + 4  # each limit changed some clip's size

    def test_options_without_an_effect_are_refused(self, family):
        allowed = {*self.pixel_limits, *self.further_options}
        for name, value in OPTIONS.items():
            if name in allowed:
                self.plan(family, make_clip(2, 64, 64), **{name: value})
                continue
            with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} has no effect on .*{self.model_type}"):
                self.plan(family, make_clip(2, 64, 64), **{name: value})

    def test_limits_that_cross_the_checkpoints_own_are_refused(self, family):
        for name, value in zip(self.pixel_limits, (10**9, 10), strict=True):
            with pytest.raises(UsageError, match=r"^Invalid pixel limits: at least \d+, at most \d+\."):
                self.plan(family, make_clip(2, 64, 64), **{name: value})

    def test_an_extreme_aspect_is_refused_in_our_words(self, family):
        with pytest.raises(UsageError, match=r"^cannot plan 2 frames of 9000x40 for .*aspect ratio"):
            self.plan(family, make_clip(2, 40, 9000))

    def test_sampling_defaults(self, family):
        assert family.encoder.sampling_defaults == self.sampling

    def test_the_table_of_families_tells_the_truth(self, family):
        row = FAMILIES[self.model_type]
        assert row.positions == self.positions
        assert row.verified == "tiny checkpoint"
        assert str(self.sampling.max_frames) in row.sampling


class Qwen3Prompt:
    """What the families share that use the processor of Qwen3-VL."""

    side = 32
    printed_time = r"<(\d+\.\d) seconds><\|vision_start\|>"
    pixel_limits = ("video_min_pixels", "video_max_pixels")
    further_options = ("cap_pixels_per_frame",)
    sampling = SamplingDefaults(fps=2.0, max_frames=768, min_frames=4)
