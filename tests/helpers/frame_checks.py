"""Families that see a video frame by frame: what holds for each of them. Each has a file that names it and its own.

The oracle is the checkpoint's processor called on real pixels with the true times, and the model loaded whole.
"""

import re
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_frame_models import frame_family
from tiny_models import DrawnClip, clips, make_clip
from transformers.modeling_outputs import BaseModelOutputWithPooling

import evs_cli
from evs_cli.core.dissimilarity import compute_dissimilarity
from evs_cli.core.retention import Ranking
from evs_cli.encoders.base import Clip, EncodeOptions
from evs_cli.encoders.registry import open_encoder
from evs_cli.errors import ModelError, UsageError
from evs_cli.video.sampling import SamplingDefaults

PROFILE = settings(max_examples=20, deadline=None, derandomize=True)
FEATURES = settings(max_examples=8, deadline=None, derandomize=True)
PROMPTS = st.sampled_from([None, "", "What moves?", "Zähle:\n 1 <b> {{ x }} <|im_end|> Frame1: 00:05"])
# Products of few rows take other kernels: in checkpoints of 4 tokens a frame, a chunk of one frame moved features of
# size 2 to 4 by up to 7.2e-7; in these, of 9 and more, every chunk measured was bit-equal.
CHUNK_TOLERANCE = 1e-5
# Softmax and sums over fewer keys: logits of up to 4.6 moved by at most 4.0e-6 in two layers of float32.
LOGITS_TOLERANCE = 2e-5


class FrameFamilyTests:
    """What holds for each family; a subclass names it and writes out what it is made of."""

    model_type: ClassVar[str]
    pixels: ClassVar[int]
    """Side of every frame the model sees."""
    patches: ClassVar[int]
    """Side of its grid of patches."""
    tokens: ClassVar[int] = 3
    """Side of its grid of tokens."""
    merge: ClassVar[int]
    before: ClassVar[int] = 0
    """Extra rows in front of each frame."""
    behind: ClassVar[int] = 0
    """Extra rows behind the last frame."""
    modality: ClassVar[str] = "video"
    placeholder: ClassVar[str] = "<video>"
    sampling: ClassVar[SamplingDefaults] = SamplingDefaults(fps=2.0, max_frames=128)

    @pytest.fixture
    def family(self):
        return frame_family(self.model_type)

    def printed_seconds(self, text):
        """Times of the frames that the prompt tells, by reading it; None where it tells none."""
        return

    # -------------------------------------------------------------------------------------------------- plans

    def check_plan(self, family, drawn, prompt):
        inputs = family.own(drawn, prompt)
        plan = family.encoder.plan(drawn.clip, EncodeOptions(prompt=prompt))
        num_frames, ids = drawn.clip.num_frames, inputs["input_ids"][0].numpy()
        np.testing.assert_array_equal(plan.layout.input_ids, ids)
        assert plan.layout.input_ids.dtype == np.int64
        assert plan.token_grid_thw == (num_frames, self.tokens, self.tokens)
        assert plan.model_grid_thw == (num_frames, self.patches, self.patches)
        assert plan.video_grid_thw == (num_frames, self.tokens * self.merge, self.tokens * self.merge)
        assert plan.temporal_patch_size == 1
        assert plan.frame_size == (self.pixels, self.pixels)
        assert plan.modality == self.modality == ("image" if "pixel_values" in inputs else "video")
        # The places, read off the ids one by one.
        placeholder = family.processor.tokenizer.convert_tokens_to_ids(self.placeholder)
        assert plan.layout.placeholder_token_id == placeholder
        per_frame = self.before + self.tokens**2
        tokens, extra = [], []
        for number, place in enumerate(np.flatnonzero(ids == placeholder).tolist()):
            is_extra = number >= num_frames * per_frame or number % per_frame < self.before
            (extra if is_extra else tokens).append(place)
        assert plan.layout.token_positions.tolist() == tokens
        assert plan.layout.extra_positions.tolist() == extra
        assert len(tokens) == plan.total_tokens
        assert len(extra) == num_frames * self.before + self.behind
        assert plan.sequence_length() == len(ids)
        printed = self.printed_seconds(family.processor.tokenizer.decode(ids))
        expected = drawn.clip.pts_seconds.tolist() if printed is None else printed
        assert plan.prompt_seconds.tolist() == expected
        assert plan.prompt_seconds.dtype == np.float64
        np.testing.assert_array_equal(plan.frame_pts_seconds, drawn.clip.pts_seconds)

    def test_plan_is_the_processors_own(self, family):
        @PROFILE
        @given(drawn=clips(), prompt=PROMPTS)
        def check(drawn, prompt):
            self.check_plan(family, drawn, prompt)

        check()

    def test_plan_of_a_long_clip_is_the_processors_own(self, family):
        """An hour at an uneven pace, from a window that starts two hours in."""
        steps = np.random.default_rng(0).uniform(1, 20, 340)
        pts = 7200.0123 + np.cumsum(steps)
        self.check_plan(family, DrawnClip(Clip(5, 7, pts, float(pts[-1] - pts[0]) + 0.5), 0), "What moves?")

    def test_plan_does_not_grow_with_the_clips_pixels(self, family):
        """A day of frames of 8K: 179 GB of pixels, were there any."""
        clip = make_clip(1800, 4320, 7680, fps=1 / 48)
        plan = family.encoder.plan(clip, EncodeOptions())
        assert plan.token_grid_thw == (1800, self.tokens, self.tokens)

    def test_plan_leaves_the_clip_and_the_processor_as_they_were(self, family):
        clip = make_clip(3, 90, 70, start=5.0)
        before, video = clip.pts_seconds.copy(), family.encoder.processor.video_processor
        settings_before = video.to_dict()
        plans = [family.encoder.plan(clip, EncodeOptions(prompt="Who?")) for _ in range(2)]
        np.testing.assert_array_equal(plans[0].layout.input_ids, plans[1].layout.input_ids)
        np.testing.assert_array_equal(clip.pts_seconds, before)
        assert video.to_dict() == settings_before

    def test_a_plan_of_a_settled_size_is_the_same(self, family):
        """A damaged file keeps its size; here every frame has one anyway."""
        clip = make_clip(3, 90, 70)
        one = family.encoder.plan(clip, EncodeOptions())
        two = family.encoder.plan(clip, EncodeOptions(), frame_size=one.frame_size)
        assert two.frame_size == one.frame_size
        np.testing.assert_array_equal(one.layout.input_ids, two.layout.input_ids)

    def test_a_plan_reads_no_weights(self, family, tmp_path):
        for file in family.folder.iterdir():
            if file.suffix != ".safetensors":
                (tmp_path / file.name).write_bytes(file.read_bytes())
        encoder = open_encoder(str(tmp_path))
        expected = family.encoder.plan(make_clip(5, 90, 70), EncodeOptions()).layout.input_ids
        np.testing.assert_array_equal(encoder.plan(make_clip(5, 90, 70), EncodeOptions()).layout.input_ids, expected)
        with pytest.raises(ModelError, match="cannot load"):
            encoder.load("cpu", torch.float32)

    def test_a_tower_of_another_size_is_refused_before_it_runs(self, family):
        """A processor that writes other counts than the model gives features: evs would place tokens wrongly."""
        encoder = open_encoder(str(family.folder))
        encoder.config.vision_config.patch_size = 7
        with pytest.raises(ModelError, match=rf"^cannot place the video tokens of .* placeholders {self.placeholder}"):
            encoder.plan(make_clip(2, 64, 64), EncodeOptions())

    # ----------------------------------------------------------------------------------------------- features

    def our_rows(self, family, drawn, sizes=()):
        """(rows, D) in the order of their placeholders, from chunks of the given numbers of frames."""
        plan, frames = family.encoder.plan(drawn.clip, EncodeOptions()), drawn.frames()
        chunks, start = [], 0
        for size in (*sizes, len(frames)):
            if start < len(frames):
                tokens = family.encoder.encode(frames[start : start + size], plan)
                (level,) = tokens.levels
                assert level.shape[1:3] == plan.token_grid_thw[1:]
                assert level.dtype == torch.float32
                rows = level.flatten(1, 2)
                assert (tokens.extra is None) == (self.before == 0)
                if tokens.extra is not None:
                    rows = torch.cat([tokens.extra.reshape(len(level), self.before, -1), rows], dim=1)
                chunks.append(rows.flatten(0, 1))
                start += size
        closing = family.encoder.closing_rows()
        assert (closing is None) == (self.behind == 0)
        return torch.cat([*chunks, *([] if closing is None else [closing])])

    def test_features_are_the_whole_models(self, family):
        """Bit for bit in float32, extra rows too, with the language model left on disk."""

        @FEATURES
        @given(drawn=clips())
        def check(drawn):
            assert torch.equal(self.our_rows(family, drawn), family.own_rows(family.own(drawn)))

        check()

    def test_features_in_any_chunks_are_the_whole_models(self, family):
        @FEATURES
        @given(drawn=clips(), sizes=st.lists(st.integers(1, 4), max_size=4))
        def check(drawn, sizes):
            own = family.own_rows(family.own(drawn))
            torch.testing.assert_close(self.our_rows(family, drawn, sizes), own, rtol=0, atol=CHUNK_TOLERANCE)

        check()

    def test_the_features_mean_something(self, family):
        """Frames and places differ by far more than the tolerance, else constants would pass too."""
        rows = self.our_rows(family, DrawnClip(make_clip(5, 90, 130), 1))
        assert rows.isfinite().all()
        assert torch.pdist(rows).min() > 1e-1 or self.before  # one CLS is much like another
        assert torch.pdist(rows).min() > 100 * CHUNK_TOLERANCE

    def test_the_token_at_a_place_sees_that_place(self, family):
        """A change inside one token's square moves that token most, in its own frame alone."""
        clip = make_clip(3, self.pixels, self.pixels)
        plan, frames = family.encoder.plan(clip, EncodeOptions()), DrawnClip(clip, 3).frames()
        base, step = family.encoder.encode(frames, plan).levels[0], self.pixels // self.tokens
        for i in range(self.tokens):
            for j in range(self.tokens):
                changed = frames.clone()
                changed[1, :, i * step : (i + 1) * step, j * step : (j + 1) * step] ^= 0x80
                moved = (family.encoder.encode(changed, plan).levels[0] - base).norm(dim=-1)
                assert torch.equal(moved[[0, 2]], torch.zeros_like(moved[[0, 2]]))
                assert divmod(int(moved[1].argmax()), self.tokens) == (i, j)

    def test_the_vision_part_is_the_whole_models(self, family):
        loaded = dict(family.encoder._model.named_parameters())
        assert not [name for name in loaded if re.search(r"(language|text)_model\.layers\.", name)]
        own = dict(family.whole.named_parameters())
        assert [name for name in own if re.search(r"(language|text)_model\.layers\.", name)]
        for name, parameter in loaded.items():
            if "embed_tokens" not in name:  # a stub: no text is embedded
                assert torch.equal(parameter, own[f"model.{name}"]), name

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_other_dtypes_are_near_float32(self, family, dtype):
        encoder = open_encoder(str(family.folder))
        encoder.load("cpu", dtype)
        drawn = DrawnClip(make_clip(3, 96, 128), 5)
        plan = encoder.plan(drawn.clip, EncodeOptions())
        ours, exact = (e.encode(drawn.frames(), plan).levels[0] for e in (encoder, family.encoder))
        assert ours.dtype == dtype
        closing = encoder.closing_rows()
        assert closing is None or closing.dtype == dtype
        assert torch.cosine_similarity(ours.float(), exact, dim=-1).min() > (0.99 if dtype is torch.float16 else 0.95)

    # ------------------------------------------------------------------------------ the sequence, and the model

    def test_layouts_follow_the_mask_frame_by_frame(self, family):
        @PROFILE
        @given(drawn=clips(), prompt=PROMPTS, q=st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.95]), seed=st.integers(0, 99))
        def check(drawn, prompt, q, seed):
            plan = family.encoder.plan(drawn.clip, EncodeOptions(prompt=prompt))
            generator = torch.Generator().manual_seed(seed)
            mask = Ranking(compute_dissimilarity(torch.randn(*plan.token_grid_thw, 4, generator=generator))).at(q)
            kept = mask.retention_mask.numpy()
            sequence = plan.layout.prune(kept)
            assert len(sequence.input_ids) == plan.sequence_length(q)
            spans = sequence.frame_offsets
            np.testing.assert_array_equal(spans[:, 1] - spans[:, 0] + 1, kept.reshape(len(kept), -1).sum(1))
            # Placeholders: the spans and the extra rows and nothing else, none of them lost.
            places = [p for start, end in spans.tolist() for p in range(start, end + 1)]
            extra = sequence.extra_positions.tolist()
            ids, placeholder = sequence.input_ids, plan.layout.placeholder_token_id
            assert sorted(places + extra) == np.flatnonzero(ids == placeholder).tolist()
            assert len(extra) == len(plan.layout.extra_positions)
            if self.before:  # right in front of their frames, whatever these keep
                assert extra == [start - 1 for start in spans[:, 0].tolist()]
            if self.behind:
                assert extra == [spans[-1, 1] + 1]
            # All other ids are there, in order.
            whole = plan.layout.input_ids
            assert ids[ids != placeholder].tolist() == whole[whole != placeholder].tolist()

        check()

    def test_positions_count_the_unpruned_ids(self, family):
        plan = family.encoder.plan(make_clip(5, 90, 70), EncodeOptions(prompt="Who?"))
        positions = family.encoder.position_ids(plan)
        assert positions.dtype == torch.int64
        assert torch.equal(positions, torch.arange(plan.sequence_length()))

    def inputs(self, family, plan, level, extra, mask):
        """What the whole model takes for our pruned sequence, and the places of its ids in the unpruned one."""
        sequence = plan.layout.prune(mask.numpy())
        ids, kept = torch.from_numpy(sequence.input_ids), torch.from_numpy(sequence.kept_positions)
        places = [p for start, end in sequence.frame_offsets.tolist() for p in range(start, end + 1)]
        order = torch.tensor([*places, *sequence.extra_positions.tolist()]).argsort()
        rows = torch.cat([level[mask], extra])[order]
        return {
            "input_ids": ids[None],
            # Without it, gaps in the positions would be read as the seams of packed sequences.
            "attention_mask": torch.ones_like(ids)[None],
            "position_ids": family.encoder.position_ids(plan)[kept][None],
            # (1, K + E, D), which all these families take; some take no tuple, some no (K + E, D).
            "mm_encoder_outputs": {plan.modality: BaseModelOutputWithPooling(pooler_output=rows[None])},
        }, kept

    def logits(self, family, plan, level, extra, mask, **changes):
        """Logits of the whole model for our pruned sequence, and the places of its ids in the unpruned one."""
        inputs, kept = self.inputs(family, plan, level, extra, mask)
        with torch.inference_mode():
            return family.whole(**{**inputs, **changes}).logits[0], kept

    def encoded(self, family, drawn, prompt="What moves?"):
        plan = family.encoder.plan(drawn.clip, EncodeOptions(prompt=prompt))
        tokens = family.encoder.encode(drawn.frames(), plan)
        (level,) = tokens.levels
        rows = [part for part in (tokens.extra, family.encoder.closing_rows()) if part is not None]
        return plan, level, torch.cat(rows) if rows else level.new_empty(0, level.shape[-1])

    def test_logits_at_rate_zero_are_the_plain_forwards(self, family):
        """Bit for bit."""

        @FEATURES
        @given(drawn=clips())
        def check(drawn):
            plan, level, extra = self.encoded(family, drawn)
            with torch.inference_mode():
                own = family.whole(**family.own(drawn, "What moves?")).logits[0]
            logits, _ = self.logits(family, plan, level, extra, torch.ones(level.shape[:3], dtype=torch.bool))
            assert torch.equal(logits, own)

        check()

    def test_logits_of_a_pruned_video_are_those_with_the_dropped_tokens_masked(self, family):
        @FEATURES
        @given(drawn=clips(), q=st.sampled_from([0.3, 0.5, 0.8]))
        def check(drawn, q):
            plan, level, extra = self.encoded(family, drawn)
            mask = Ranking(compute_dissimilarity(level)).at(q).retention_mask
            logits, kept = self.logits(family, plan, level, extra, mask)
            attention = torch.zeros(1, plan.sequence_length(), dtype=torch.int64)
            attention[0, kept] = 1
            inputs = {**family.own(drawn, "What moves?"), "attention_mask": attention}
            with torch.inference_mode():
                own = family.whole(**inputs, position_ids=family.encoder.position_ids(plan)[None]).logits[0]
            torch.testing.assert_close(logits, own[kept], rtol=0, atol=LOGITS_TOLERANCE)

        check()

    @pytest.mark.parametrize("q", [0.0, 0.5])
    def test_generate_goes_on_from_the_pruned_video(self, family, q):
        """Token by token what the whole model says with the dropped tokens masked; at rate 0, what it says plainly."""
        drawn = DrawnClip(make_clip(5, 90, 130), 2)
        plan, level, extra = self.encoded(family, drawn)
        mask = Ranking(compute_dissimilarity(level)).at(q).retention_mask
        inputs, kept = self.inputs(family, plan, level, extra, mask)
        attention = torch.zeros(1, plan.sequence_length(), dtype=torch.int64)
        attention[0, kept] = 1
        own = {**family.own(drawn, "What moves?"), "attention_mask": attention}
        if q:
            own["position_ids"] = family.encoder.position_ids(plan)[None]
        how = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        said = [family.whole.generate(**given, **how)[0, -5:].tolist() for given in (inputs, own)]
        assert said[0] == said[1]

    def test_other_places_and_positions_give_other_logits(self, family):
        """Far above the tolerance, else the tests above would prove little."""
        plan, level, extra = self.encoded(family, DrawnClip(make_clip(5, 90, 130), 2))
        mask = Ranking(compute_dissimilarity(level)).at(0.5).retention_mask
        logits, _ = self.logits(family, plan, level, extra, mask)
        counted = self.logits(family, plan, level, extra, mask, position_ids=torch.arange(len(logits))[None])[0]
        turned = self.logits(family, plan, level.transpose(1, 2), extra, mask)[0]
        for other in (counted, turned):
            assert (other[-1] - logits[-1]).abs().max() > 1000 * LOGITS_TOLERANCE
        if len(extra):
            shifted = self.logits(family, plan, level, extra + 1, mask)[0]
            assert (shifted[-1] - logits[-1]).abs().max() > 100 * LOGITS_TOLERANCE

    def test_from_a_file_to_a_pruned_video(self, family, sample):
        """The pipeline puts the extra rows beside the kept ones, in the order of their placeholders."""
        pruned = evs_cli.prune_video(sample, q=0.6, model=str(family.folder), num_frames=5, batch_frames=2)
        whole = evs_cli.prune_video(sample, q=0.0, model=str(family.folder), num_frames=5, batch_frames=5)
        assert pruned.planned == pruned.actual
        assert pruned.modality == self.modality
        num_extra = 5 * self.before + self.behind
        assert pruned.extra_embeddings.shape == (num_extra, 32)
        torch.testing.assert_close(pruned.extra_embeddings, whole.extra_embeddings, rtol=0, atol=CHUNK_TOLERANCE)
        assert torch.equal(
            pruned.input_ids[pruned.extra_positions], torch.full((num_extra,), pruned.placeholder_token_id)
        )
        assert int((pruned.input_ids == pruned.placeholder_token_id).sum()) == pruned.retained_tokens + num_extra
        assert pruned.position_ids.shape == pruned.input_ids.shape

    @pytest.fixture
    def sample(self):
        from pathlib import Path

        return Path(__file__).parents[2] / "samples" / "crossing.mp4"

    # --------------------------------------------------------------------------------------- options, settings

    def test_sampling_defaults(self, family):
        assert family.encoder.sampling_defaults == self.sampling

    def test_options_without_an_effect_are_refused(self, family):
        names = ("size", "frame_min_pixels", "frame_max_pixels", "video_min_pixels", "video_max_pixels")
        for name in (*names, "cap_pixels_per_frame"):
            option = EncodeOptions(**{name: False if name == "cap_pixels_per_frame" else 100})
            with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} has no effect on .*{self.model_type}"):
                family.encoder.plan(make_clip(2, 64, 64), option)

    def test_a_prompt_that_holds_a_placeholder_is_refused(self, family):
        for token in {self.placeholder, family.processor.video_token, family.processor.image_token}:
            with pytest.raises(UsageError, match=rf"^Invalid prompt: it holds {re.escape(token)}"):
                family.encoder.plan(make_clip(2, 64, 64), EncodeOptions(prompt=f"Is {token} a token?"))
