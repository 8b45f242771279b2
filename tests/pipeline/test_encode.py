"""The steps in order on real videos with real weights: laws 5 to 7 of the design, damage, memory, awkward files."""

import dataclasses
import functools
import io
import itertools
import threading
from pathlib import Path

import av
import numpy as np
import oracle
import pytest
import tiny_models
import torch
from tiny_frame_models import tiny_folder
from video_files import damaged_clip, video

import evs_cli
from evs_cli.core.counts import TokenGrid
from evs_cli.core.methods import RetentionRule
from evs_cli.core.placeholders import SequenceLayout
from evs_cli.core.video_tokens import VideoTokens
from evs_cli.encoders import embedded
from evs_cli.encoders.base import EncodeOptions, EncodePlan, VideoEncoder
from evs_cli.encoders.plain import PlainFrameEncoder
from evs_cli.encoders.registry import open_encoder
from evs_cli.encoders.runtime import resolve_runtime
from evs_cli.errors import ModelError, UsageError, VideoError
from evs_cli.files import artifact
from evs_cli.pipeline.encode import EncodePipeline
from evs_cli.pipeline.encoded_video import ClipCounts
from evs_cli.pipeline.planner import Planner
from evs_cli.pipeline.progress import SilentProgress
from evs_cli.pipeline.row_selection import AllRows, RowsAtRates
from evs_cli.pipeline.settings import EncodeSettings
from evs_cli.video.reader import read_frames
from evs_cli.video.sampling import SamplingDefaults, SamplingRequest

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CROSSING = SAMPLES / "crossing.mp4"
RATES = (0.0, 0.3, 0.5, 0.7, 0.8, 0.95)


class Listener(SilentProgress):
    """Remembers what it is told."""

    def __init__(self):
        self.notices, self.details, self.stages, self.advanced = [], [], [], 0

    def notice(self, text):
        self.notices.append(text)

    def detail(self, text):
        self.details.append(text)

    def stage(self, name, total=None):
        self.stages.append((name, total))

    def advance(self, units):
        self.advanced += units


@functools.cache
def dinov2():
    """The default encoder with its weights on the CPU."""
    encoder = open_encoder("dinov2-small")
    encoder.load("cpu", torch.float32)
    return encoder


def plan_video(path, encoder, sampling=None, options=None):
    return Planner(encoder).plan_video(path, sampling, options)


def encode_plan(rows, plan, encoder, run, options=None, progress=None):
    """Encode a planned video and keep a selection of its rows."""
    pipeline = EncodePipeline(encoder, run, options or EncodeOptions(), progress or SilentProgress())
    sink = rows.open(plan.encode.token_grid_thw)
    return rows.finish(pipeline.encode(plan, sink), sink)


def settings(**changes):
    return EncodeSettings(runtime=resolve_runtime("cpu", "float32"), **changes)


def encode(path, *, num_frames=4, size=56, encoder=None, progress=None, **changes):
    """Plan and encode a video, small."""
    encoder = encoder or dinov2()
    options = EncodeOptions(size=size) if isinstance(encoder, PlainFrameEncoder) else EncodeOptions()
    plan = plan_video(path, encoder, SamplingRequest(num_frames=num_frames), options)
    return encode_plan(AllRows(), plan, encoder, settings(**changes), options, progress)


@functools.cache
def crossing():
    return encode(CROSSING, num_frames=6)


def decode_all(path):
    """(F, H, W, 3) every frame of a video, with nothing of evs."""
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def check_counts(pruned):
    """Laws 2 and 3 on one result."""
    num_frames, height, width = pruned.token_grid_thw
    retained = oracle.retained_tokens(height * width, num_frames, pruned.q)
    mask, counts = pruned.retention_mask, pruned.num_tokens_per_frame
    assert tuple(mask.shape) == pruned.token_grid_thw
    assert int(mask.sum()) == int(counts.sum()) == pruned.embeddings.shape[0] == retained
    assert torch.equal(mask.sum(dim=(1, 2)), counts)
    assert mask[0].all()
    assert torch.equal(pruned.token_thw.long(), mask.nonzero())
    assert pruned.embeddings.isfinite().all()
    in_spans = torch.zeros(pruned.sequence_length, dtype=torch.bool)
    for (start, end), count in zip(pruned.frame_offsets.tolist(), counts.tolist(), strict=True):
        assert end - start + 1 == count
        in_spans[start : end + 1] = True
    assert torch.equal(in_spans, pruned.input_ids == pruned.placeholder_token_id)
    assert len(pruned.frame_pts_seconds) == len(pruned.prompt_seconds) == num_frames
    assert len(pruned.pts_seconds) == len(pruned.frame_indices)


# Law 5: nothing is changed at q = 0.


def test_rate_0_is_the_models_own():
    """The features of DINOv2 as transformers alone computes them, and a sequence with every placeholder."""
    from torchvision.transforms.v2 import functional as tvf
    from transformers import Dinov2Model

    encoded = crossing()
    pruned = encoded.prune(0)
    model = Dinov2Model.from_pretrained(embedded.convert_once()).eval()
    frames = torch.from_numpy(decode_all(CROSSING)[encoded.frame_indices]).permute(0, 3, 1, 2)
    frames = tvf.resize(frames, [56, 98], interpolation=tvf.InterpolationMode.BICUBIC, antialias=True)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    # Contiguous, as processors give pixels: from channels-last memory one thread convolves otherwise, 5e-5 away.
    pixels = ((frames.float() / 255 - mean) / std).contiguous()
    with torch.no_grad():
        own = model(pixel_values=pixels).last_hidden_state[:, 1:]
    assert torch.equal(pruned.embeddings, own.reshape(-1, 384))
    assert pruned.input_ids.tolist() == ([1] + [0] * 28 + [2]) * 6
    assert pruned.position_ids.tolist() == list(range(6 * 30))
    assert pruned.sequence_length == pruned.unpruned_sequence_length
    assert pruned.retention_mask.all()
    assert pruned.empty_frames == 0


def test_every_rate_is_the_published_rule_on_these_embeddings():
    encoded = crossing()
    scores = oracle.dissimilarity(encoded.levels[0])
    assert torch.equal(encoded.ranking.dissimilarity, scores)
    for q in RATES:
        pruned = encoded.prune(q)
        assert torch.equal(pruned.retention_mask, oracle.mask_of(scores, q)), q
        assert torch.equal(pruned.embeddings, encoded.levels[0][pruned.retention_mask])
        check_counts(pruned)


def test_a_rate_selects_positions_and_ids_of_the_unpruned_sequence():
    encoded = crossing()
    whole = encoded.prune(0)
    for q in RATES:
        pruned = encoded.prune(q)
        layout = encoded.actual.layout
        ids, kept, spans, _ = oracle.rebuild(
            layout.input_ids.tolist(), layout.token_positions.tolist(), [], 6, pruned.retention_mask.flatten().tolist()
        )
        assert pruned.input_ids.tolist() == ids
        assert pruned.frame_offsets.tolist() == spans
        assert torch.equal(pruned.position_ids, whole.position_ids[kept])


def test_masks_nest():
    masks = [crossing().prune(q).retention_mask for q in RATES]
    for more, less in itertools.pairwise(masks):
        assert not (less & ~more).any()


# Law 6: the plan is the run.


@pytest.mark.parametrize(
    "name",
    ["normal.mp4", "vfr.mp4", "hevc10.mp4", "turned 90 clockwise", "sar.mp4", "one.mp4", "two.mp4", "odd444.mp4"],
)
def test_the_plan_is_the_run(name):
    plan = plan_video(video(name), dinov2(), SamplingRequest(num_frames=5), EncodeOptions(size=42))
    encoded = encode(video(name), num_frames=5, size=42)
    assert encoded.planned == ClipCounts.of(encoded.actual)
    for q in (0.0, 0.7):
        pruned = encoded.prune(q)
        check_counts(pruned)
        assert pruned.token_grid_thw == plan.encode.token_grid_thw
        assert pruned.video_grid_thw == plan.encode.video_grid_thw
        assert pruned.retained_tokens == plan.encode.retained_tokens(q)
        assert pruned.sequence_length == plan.encode.sequence_length(q)
        assert pruned.unpruned_sequence_length == plan.encode.sequence_length()
        assert pruned.pts_seconds.tolist() == plan.selection.pts_seconds.tolist()
        assert pruned.frame_indices.tolist() == plan.selection.frame_indices.tolist()
        assert dict(pruned.planned) == dict(pruned.actual)


def test_a_plan_reads_no_weights_and_decodes_nothing(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("work was done")

    monkeypatch.setattr(PlainFrameEncoder, "load", refuse)
    monkeypatch.setattr(PlainFrameEncoder, "embed", refuse)
    monkeypatch.setattr("evs_cli.video.reader.read_frames", refuse)
    plan = plan_video(CROSSING, open_encoder("dinov2-small"))
    assert plan.encode.token_grid_thw == (20, 16, 28)
    assert plan.encode.retained_tokens(0.7) == 2688
    assert plan.encode.sequence_length(0.7) == 2688 + 40


# Law 7: batches.


@pytest.mark.parametrize("batch_frames", [1, 4, 5, 100])
def test_batches_change_embeddings_within_rounding_alone(batch_frames):
    """One matrix product is not summed as another; 5e-4 of norms near 50 is ten times what was seen on CPUs."""
    whole, cut = crossing(), encode(CROSSING, num_frames=6, batch_frames=batch_frames)
    assert cut.provenance["batch_frames"] == batch_frames
    torch.testing.assert_close(cut.levels[0], whole.levels[0], rtol=0, atol=5e-4)
    torch.testing.assert_close(cut.ranking.dissimilarity, whole.ranking.dissimilarity, rtol=0, atol=1e-5)
    # Of its own embeddings the mask is the rule's, bit for bit, whatever the batches were.
    assert torch.equal(cut.prune(0.7).retention_mask, oracle.mask_of(oracle.dissimilarity(cut.levels[0]), 0.7))
    whole_mask, cut_mask = whole.prune(0.7).retention_mask, cut.prune(0.7).retention_mask
    threshold = whole.ranking.dissimilarity[whole_mask].min()
    assert (whole.ranking.dissimilarity[whole_mask ^ cut_mask] - threshold).abs().le(1e-5).all()


def test_the_same_run_twice_is_the_same_bits():
    again = encode(CROSSING, num_frames=6)
    assert torch.equal(again.levels[0], crossing().levels[0])
    assert dict(again.provenance) == dict(crossing().provenance)


def test_a_score_dtype_is_the_one_scored_in():
    encoded = encode(CROSSING, score_dtype=torch.bfloat16)
    assert encoded.ranking.dissimilarity.dtype == torch.bfloat16
    assert torch.equal(encoded.ranking.dissimilarity, oracle.dissimilarity(encoded.levels[0].bfloat16()))
    assert encoded.provenance["score_dtype"] == "bfloat16"
    pruned = encoded.prune(0.7)
    assert pruned.dissimilarity.dtype == torch.float32
    assert (pruned.dissimilarity[0] == 255).all()


def test_progress_counts_every_frame():
    listener = Listener()
    encode(CROSSING, num_frames=6, batch_frames=4, progress=listener)
    assert ("encode", 6) in listener.stages
    assert listener.advanced == 6
    assert listener.notices == []


def test_a_batch_of_no_frames_is_refused():
    with pytest.raises(UsageError, match=r"batch_frames \(0\)"):
        settings(batch_frames=0)


# Damage: T and K shrink, the size stays.


def test_a_damaged_video_shrinks(tmp_path_factory):
    path = damaged_clip(tmp_path_factory.getbasetemp())
    listener = Listener()
    plan = plan_video(path, dinov2(), SamplingRequest(num_frames=20), EncodeOptions(size=42))
    encoded = encode(path, num_frames=20, size=42, progress=listener)
    lost = 20 - encoded.actual.token_grid_thw[0]
    assert lost == 5
    assert encoded.actual.frame_size == plan.encode.frame_size
    assert encoded.planned == ClipCounts.of(plan.encode)
    assert encoded.frame_indices.tolist() == [k for k in range(20) if not 8 <= k < 13]
    pruned = encoded.prune(0.7)
    check_counts(pruned)
    assert pruned.planned["num_sampled_frames"] == 20
    assert pruned.actual["num_sampled_frames"] == 15
    assert pruned.planned["token_grid_thw"] == [20, 3, 5]
    assert pruned.actual["token_grid_thw"] == list(pruned.token_grid_thw) == [15, 3, 5]
    assert pruned.actual["retained_tokens"] == pruned.retained_tokens < pruned.planned["retained_tokens"]
    assert pruned.actual["sequence_length"] == pruned.sequence_length < pruned.planned["sequence_length"]
    assert pruned.pts_seconds.tolist() == pytest.approx([k / 10 for k in range(20) if not 8 <= k < 13])
    assert f"{path.name}: 5 of 20 sampled frames do not decode and are left out." in listener.notices
    # The frame after the gap is compared with the last one before it.
    assert torch.equal(pruned.dissimilarity, oracle.dissimilarity(encoded.levels[0]))


@pytest.mark.parametrize("name", ["truncated.mp4", "corrupt.mp4"])
def test_a_file_that_is_cut_or_holds_noise(name):
    """What decodes is served, and never more than planned."""
    plan = plan_video(video(name), dinov2(), SamplingRequest(num_frames=60), EncodeOptions(size=28))
    encoded = encode(video(name), num_frames=60, size=28)
    pruned = encoded.prune(0.7)
    check_counts(pruned)
    assert 0 < pruned.actual["num_sampled_frames"] <= pruned.planned["num_sampled_frames"] <= 60
    assert pruned.actual["num_sampled_frames"] < 60
    assert pruned.actual["retained_tokens"] <= pruned.planned["retained_tokens"]
    assert encoded.actual.frame_size == plan.encode.frame_size
    again = encode(video(name), num_frames=60, size=28).prune(0.7)
    assert torch.equal(again.frame_indices, pruned.frame_indices)


def test_a_video_of_which_nothing_decodes():
    with pytest.raises(VideoError, match=r"no_frame_decodes\.mp4"):
        encode(video("no_frame_decodes.mp4"))


# Memory.


class Greedy(PlainFrameEncoder):
    """DINOv2 on a device that holds ``limit`` frames."""

    def __init__(self, limit):
        super().__init__(dinov2().source)
        self._model, self._mean_std, self.limit, self.sizes = dinov2()._model, dinov2()._mean_std, limit, []

    def embed(self, inputs, plan):
        self.sizes.append(len(inputs["pixels"]))
        if self.sizes[-1] > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")
        return super().embed(inputs, plan)


def test_out_of_memory_halves_the_batch_and_says_so():
    greedy, listener = Greedy(2), Listener()
    encoded = encode(CROSSING, num_frames=10, batch_frames=8, encoder=greedy, progress=listener)
    assert greedy.sizes == [8, 4, 2, 2, 2, 2, 2]
    assert listener.notices == [
        "Out of memory on cpu: going on with 4 frames a batch.",
        "Out of memory on cpu: going on with 2 frames a batch.",
    ]
    assert encoded.provenance["batch_frames"] == 2
    smaller = encode(CROSSING, num_frames=10, batch_frames=2)
    assert torch.equal(encoded.levels[0], smaller.levels[0])
    assert dict(encoded.prune(0.7).provenance) == dict(smaller.prune(0.7).provenance)


def test_out_of_memory_with_one_frame_gives_up():
    greedy = Greedy(0)
    with pytest.raises(ModelError, match=r"out of memory even with 1 frames? a batch") as caught:
        encode(CROSSING, batch_frames=16, encoder=greedy)
    assert greedy.sizes == [4, 4, 4, 2, 1]  # 16 and 8 still hold all four frames
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert caught.value.hint


class Tubelets(VideoEncoder):
    """Two frames to a tubelet of 2 x 3 tokens, each the mean colour of a cell; ``limit`` frames fit into memory."""

    supported_options = frozenset()
    temporal_patch_size = 2
    frames_are_independent = True

    def __init__(self, limit=100):
        super().__init__(dinov2().source)
        self.limit, self.sizes = limit, []

    @property
    def sampling_defaults(self):
        return SamplingDefaults(fps=2.0, max_frames=128)

    def plan(self, clip, options, *, frame_size=None):
        grid = TokenGrid(-(-clip.num_frames // 2), 2, 3)
        count = grid[0] * 6
        return EncodePlan(
            frame_size=frame_size or (20, 30),
            token_grid_thw=grid,
            model_grid_thw=grid,
            spatial_merge_size=1,
            temporal_patch_size=2,
            layout=SequenceLayout(np.zeros(count, np.int64), np.arange(count), np.empty(0, np.int64), grid[0], 0),
            pts_seconds=clip.pts_seconds,
            prompt_seconds=clip.pts_seconds[::2],
        )

    def load(self, device, dtype):
        pass

    def embed(self, inputs, plan):
        frames = inputs["frames"]
        self.sizes.append(len(frames))
        if len(frames) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if len(frames) % 2:
            frames = torch.cat([frames, frames[-1:]])
        cells = torch.nn.functional.adaptive_avg_pool2d(frames.double(), (2, 3)).float()  # (t, 3, 2, 3)
        pairs = cells.view(-1, 2, 3, 2, 3).permute(0, 3, 4, 1, 2)
        return VideoTokens((pairs.reshape(len(frames) // 2, 2, 3, 6),))

    def position_ids(self, plan):
        return None


@pytest.mark.parametrize(("batch_frames", "expected"), [(1, [2] * 4 + [1]), (3, [4, 4, 1]), (4, [4, 4, 1])])
def test_a_batch_holds_whole_tubelets(batch_frames, expected):
    encoder = Tubelets()
    encoded = encode(CROSSING, num_frames=9, encoder=encoder, batch_frames=batch_frames)
    assert encoder.sizes == expected
    assert encoded.ranking.token_grid_thw == (5, 2, 3)
    assert torch.equal(encoded.levels[0], encode(CROSSING, num_frames=9, encoder=Tubelets()).levels[0])
    assert encoded.prune(0.5).position_ids is None


def test_halving_keeps_tubelets_whole():
    encoder = Tubelets(limit=3)
    encoded = encode(CROSSING, num_frames=9, encoder=encoder, batch_frames=6)
    assert encoder.sizes == [6, 2, 2, 2, 2, 1]
    assert torch.equal(encoded.levels[0], encode(CROSSING, num_frames=9, encoder=Tubelets()).levels[0])


def test_one_tubelet_that_does_not_fit_gives_up():
    with pytest.raises(ModelError, match="out of memory even with 2 frames a batch"):
        encode(CROSSING, num_frames=4, encoder=Tubelets(limit=1))


def test_a_damaged_video_with_tubelets(tmp_path_factory):
    """Frames are paired as they come; an odd number fills its last tubelet."""
    encoded = encode(damaged_clip(tmp_path_factory.getbasetemp()), num_frames=20, encoder=Tubelets(), batch_frames=4)
    assert encoded.actual.token_grid_thw == (8, 2, 3)
    pruned = encoded.prune(0.5)
    assert pruned.frame_pts_seconds.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 1.3, 1.5, 1.7, 1.9])
    assert pruned.retained_tokens == 24


# Embeddings that cannot be ranked, and models that break their word.


class Poisoned(Greedy):
    """DINOv2 whose embeddings of one frame hold ``value``."""

    def __init__(self, frame, value):
        super().__init__(limit=1000)
        self.frame, self.value, self.seen = frame, value, 0

    def embed(self, inputs, plan):
        (level,) = super().embed(inputs, plan).levels
        level = level.clone()
        if self.seen <= self.frame < self.seen + len(level):
            level[self.frame - self.seen, 1, 2, 3] = self.value
        self.seen += len(level)
        return VideoTokens((level,))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("frame", [0, 2, 5])
def test_non_finite_embeddings_name_the_frame(frame, value):
    with pytest.raises(ModelError, match=rf"tokens of frame {frame}\b.*NaN or infinite"):
        encode(CROSSING, num_frames=6, batch_frames=2, encoder=Poisoned(frame, value))


def test_a_grid_that_is_not_the_planned_one_is_refused():
    class Liar(Greedy):
        def embed(self, inputs, plan):
            (level,) = super().embed(inputs, plan).levels
            return VideoTokens((level[:-1],))

    with pytest.raises(ModelError, match="3 frames of tokens of a batch, 4 planned"):
        encode(CROSSING, num_frames=4, encoder=Liar(100))


# What is retained while the video is read.


@pytest.mark.parametrize("method", ["evs", "uniform-frames", "random"])
@pytest.mark.parametrize("batch_frames", [1, 4, 100])
def test_retained_rows_are_those_of_the_whole_encoding(method, batch_frames, tmp_path_factory):
    """Field by field, also of a damaged video, whose K is less than planned; rows of more rates serve each of them."""
    rule = RetentionRule(method, seed=3)
    for path in (CROSSING, damaged_clip(tmp_path_factory.getbasetemp())):
        plan = plan_video(path, dinov2(), SamplingRequest(num_frames=20), EncodeOptions(size=42))
        run = settings(batch_frames=batch_frames)
        whole = encode_plan(AllRows(), plan, dinov2(), run, EncodeOptions(size=42))
        retained = encode_plan(RowsAtRates([0.5, 0.9], rule), plan, dinov2(), run, EncodeOptions(size=42))
        for q in (0.5, 0.9):
            ours, expected = retained.prune(q), whole.prune(q, rule)
            check_counts(ours)
            for field in dataclasses.fields(ours):
                value, other = getattr(ours, field.name), getattr(expected, field.name)
                assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, field.name


def test_retained_rows_are_written_without_a_copy():
    plan = plan_video(CROSSING, dinov2(), SamplingRequest(num_frames=6), EncodeOptions(size=56))
    retained = encode_plan(RowsAtRates([0.7], RetentionRule()), plan, dinov2(), settings(), EncodeOptions(size=56))
    rows = retained.prune(0.7).embeddings
    assert rows.data_ptr() == retained.rows.levels[0].data_ptr()
    assert rows.untyped_storage().nbytes() == rows.nbytes
    assert artifact.to_record(retained.prune(0.7))["embeddings"].data_ptr() == rows.data_ptr()


def test_rows_that_were_not_retained_are_refused():
    plan = plan_video(CROSSING, dinov2(), SamplingRequest(num_frames=6), EncodeOptions(size=56))
    retained = encode_plan(RowsAtRates([0.7], RetentionRule()), plan, dinov2(), settings(), EncodeOptions(size=56))
    with pytest.raises(UsageError, match=r"pruning rate 0\.5: it keeps 84 rows, 50 were retained"):
        retained.prune(0.5)


def test_memory_that_is_short_puts_rows_into_a_file(monkeypatch):
    monkeypatch.setattr("evs_cli.pipeline.row_selection.free_memory_bytes", lambda: 1000)
    plan = plan_video(CROSSING, dinov2(), SamplingRequest(num_frames=6), EncodeOptions(size=56))
    retained = encode_plan(RowsAtRates([0.7], RetentionRule()), plan, dinov2(), settings(), EncodeOptions(size=56))
    assert torch.equal(retained.prune(0.7).embeddings, crossing().prune(0.7).embeddings)
    assert torch.equal(encode(CROSSING, num_frames=6).levels[0], crossing().levels[0])


# Frames that repeat.


@functools.cache
def slides_clip(folder):
    """Five pictures, each stored for four frames and then once more for two: 22 frames, lossless."""
    path = Path(folder) / "slides.mp4"
    rng = np.random.default_rng(0)
    pictures = [
        np.kron(rng.integers(0, 255, (6, 10, 3), dtype=np.uint8), np.ones((16, 16, 1), np.uint8)) for _ in "12345"
    ]
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=10, options={"preset": "ultrafast", "qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv444p"
        for k in range(22):
            frame = av.VideoFrame.from_ndarray(pictures[k // 4 if k < 20 else 0], "rgb24")
            frame.pts = k
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("batch_frames", [1, 3, 16])
def test_a_repeat_is_encoded_once(tmp_path_factory, batch_frames):
    """Equal to no reuse within the tolerance of batches above; bit for bit where the encoder is a plain mean."""
    path = slides_clip(tmp_path_factory.getbasetemp())
    greedy = Greedy(1000)
    reused = encode(path, num_frames=22, size=28, encoder=greedy, batch_frames=batch_frames)
    every = encode(path, num_frames=22, size=28, batch_frames=batch_frames, reuses_frames=False)
    assert sum(greedy.sizes) == 6
    assert max(greedy.sizes) == min(batch_frames, 6)
    assert (reused.provenance["reuse"], reused.provenance["reused_frames"]) == (True, 16)
    assert (every.provenance["reuse"], every.provenance["reused_frames"]) == (False, 0)
    torch.testing.assert_close(reused.levels[0], every.levels[0], rtol=0, atol=5e-4)
    torch.testing.assert_close(reused.ranking.dissimilarity, every.ranking.dissimilarity, rtol=0, atol=1e-5)
    assert torch.equal(reused.ranking.dissimilarity, oracle.dissimilarity(reused.levels[0]))
    assert reused.frame_indices.tolist() == every.frame_indices.tolist()


@pytest.mark.parametrize("limit", [100, 3])
def test_tubelets_that_repeat_are_encoded_once(tmp_path_factory, limit):
    """By twos; also where memory holds one tubelet at a time."""
    path = slides_clip(tmp_path_factory.getbasetemp())
    encoder = Tubelets(limit)
    reused = encode(path, num_frames=22, encoder=encoder, batch_frames=8)
    every = encode(path, num_frames=22, encoder=Tubelets(), batch_frames=8, reuses_frames=False)
    assert sum(size for size in encoder.sizes if size <= limit) == 12
    assert reused.provenance["reused_frames"] == 10
    assert torch.equal(reused.levels[0], every.levels[0])
    assert torch.equal(reused.ranking.dissimilarity, every.ranking.dissimilarity)


def test_a_video_that_moves_is_the_same_to_the_bit_with_reuse_or_without():
    every = encode(CROSSING, num_frames=6, reuses_frames=False)
    assert torch.equal(crossing().levels[0], every.levels[0])
    assert crossing().provenance["reused_frames"] == 0


def test_a_family_whose_frames_depend_on_each_other_encodes_each(tmp_path_factory):
    class Dependent(Greedy):
        frames_are_independent = False

    encoder = Dependent(1000)
    encoded = encode(slides_clip(tmp_path_factory.getbasetemp()), num_frames=22, size=28, encoder=encoder)
    assert sum(encoder.sizes) == 22
    assert encoded.provenance["reuse"] is False


@pytest.mark.parametrize("family", ["video_llava", "llava_onevision", "internvl", "qwen2_5_vl", "qwen3_vl"])
def test_families_reuse_rows_of_every_kind(tiny_model, tmp_path_factory, family):
    """Rows beside the grid, DeepStack levels, tubelets; within the rounding of batches (1e-5, as their own tests)."""
    encoder = open_encoder(str(tiny_model(family) if family in tiny_models.BUILDERS else tiny_folder(family)))
    plan = plan_video(slides_clip(tmp_path_factory.getbasetemp()), encoder, SamplingRequest(num_frames=22))
    encoder.load("cpu", torch.float32)
    reused, every = (
        encode_plan(AllRows(), plan, encoder, settings(batch_frames=4, reuses_frames=r)) for r in (True, False)
    )
    assert reused.provenance["reused_frames"] == 22 - 6 * encoder.temporal_patch_size
    for ours, other in zip(reused.levels, every.levels, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-5)
    torch.testing.assert_close(reused.extra_embeddings, every.extra_embeddings, rtol=0, atol=1e-5)


# Steps side by side.


class Failing(Greedy):
    """DINOv2 that fails in a step, at a batch."""

    def __init__(self, step, batch):
        super().__init__(1000)
        self.step, self.batch, self.calls = step, batch, {"mark": 0, "preprocess": 0, "embed": 0}

    def _count(self, step):
        self.calls[step] += 1
        if step == self.step and self.calls[step] > self.batch:
            raise ModelError(f"{step} fails at {self.batch}")

    def mark_frames(self, frames, pts_seconds):
        self._count("mark")
        return frames

    def preprocess(self, frames, plan):
        self._count("preprocess")
        return super().preprocess(frames, plan)

    def embed(self, inputs, plan):
        self._count("embed")
        return super().embed(inputs, plan)


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("step", ["mark", "preprocess", "embed"])
def test_a_step_that_fails_ends_all(step, batch):
    with pytest.raises(ModelError, match=f"{step} fails at {batch}"):
        encode(CROSSING, num_frames=20, size=28, batch_frames=2, encoder=Failing(step, batch))
    assert [thread for thread in threading.enumerate() if thread.name == "evs-ahead"] == []


def test_an_interrupt_ends_all():
    class Interrupted(Greedy):
        def embed(self, inputs, plan):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(CROSSING, num_frames=20, size=28, batch_frames=2, encoder=Interrupted(1000))
    assert [thread for thread in threading.enumerate() if thread.name == "evs-ahead"] == []


def test_the_batch_goes_by_the_free_memory(monkeypatch):
    listener = Listener()
    assert encode(CROSSING, num_frames=6, progress=listener).provenance["batch_frames"] == 4
    monkeypatch.setattr("evs_cli.pipeline.batching.free_memory_bytes", lambda: 30 * 10**6)
    encoded = encode(CROSSING, num_frames=6, progress=listener)
    assert 1 <= encoded.provenance["batch_frames"] < 4
    assert len([line for line in listener.details if "frames a batch (auto: " in line]) == 2
    assert len([line for line in listener.details if "encoding took" in line]) == 2


# Awkward files through the Python entry point.


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("turned 90 clockwise", (96, 160)),
        ("turned 270 clockwise", (96, 160)),
        ("mirrored", (96, 160)),
        ("vfr.mp4", (96, 160)),
        ("hevc10.mp4", (96, 160)),
        ("truncated.mp4", (96, 160)),
        ("stream.ts", (96, 160)),
        ("anim.gif", (96, 160)),
        ("one.mp4", (96, 160)),
    ],
)
def test_prune_video_takes_awkward_files(name, shown):
    pruned = evs_cli.prune_video(video(name), q=0.6, num_frames=4, size=56)
    check_counts(pruned)
    assert pruned.token_grid_thw[1:] == (4, 7)
    height, width = pruned.provenance["video"]["height"], pruned.provenance["video"]["width"]
    assert (height, width) == shown
    assert pruned.provenance["frame_size"] == [56, 98]
    assert pruned.pts_seconds.diff().ge(0).all()


def test_a_rotated_video_gives_the_tokens_of_the_upright_one(tmp_path):
    """The pictures are stored turned and shown upright, so the embeddings are near those of the unturned file."""
    upright = encode(video("normal.mp4"), num_frames=60)  # its first 6 pictures are those of the turned one
    turned = encode(video("turned 90 clockwise"), num_frames=6)
    similarity = torch.nn.functional.cosine_similarity(turned.levels[0], upright.levels[0][:6], dim=-1)
    assert similarity.mean() > 0.9


def test_prune_video_takes_a_file_object_and_leaves_it_open():
    file = io.BytesIO(CROSSING.read_bytes())
    pruned = evs_cli.prune_video(file, q=0.5, num_frames=4, size=56)
    same = evs_cli.prune_video(CROSSING, q=0.5, num_frames=4, size=56)
    assert torch.equal(pruned.embeddings, same.embeddings)
    assert pruned.provenance["video"]["sha256"] == same.provenance["video"]["sha256"]
    assert not file.closed


def test_prune_video_refuses_before_any_work(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise AssertionError("work was done")

    monkeypatch.setattr("evs_cli.pipeline.planner.Planner.plan_video", refuse)
    monkeypatch.setattr(PlainFrameEncoder, "load", refuse)
    (tmp_path / "there.pt").write_bytes(b"old")
    for error, arguments in (
        (UsageError, {"q": 1}),
        (UsageError, {"q": float("nan")}),
        (UsageError, {"q": True}),
        (UsageError, {"output": tmp_path / "out.npz"}),
        (artifact.ArtifactError, {"output": tmp_path / "there.pt"}),
        (UsageError, {"fps": 2, "num_frames": 3}),
        (UsageError, {"prompt": "what is this?"}),
        (UsageError, {"batch_frames": 0}),
        (UsageError, {"dtype": "float64"}),
        (UsageError, {"score_dtype": "int8"}),
        (UsageError, {"device": "bogus"}),
        (ModelError, {"model": "no-such-model"}),
        (TypeError, {"pruning": 0.5}),
    ):
        with pytest.raises(error):
            evs_cli.prune_video(CROSSING, **arguments)


def test_an_unknown_decoder_is_refused_before_the_weights_are_read(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr(PlainFrameEncoder, "load", refuse)
    with pytest.raises(UsageError, match="decoder"):
        evs_cli.prune_video(CROSSING, decoder="ffmpeg", num_frames=4, size=56)


def test_sweep_video_is_a_row_a_rate():
    rows = evs_cli.sweep_video(CROSSING, [0.9, 0.0, 0.5], num_frames=4, size=56)
    assert [row.q for row in rows] == [0.9, 0.0, 0.5]
    assert [row.retained_tokens for row in rows] == [28, 112, 56]


def test_frames_that_repeat_keep_nothing(tmp_path):
    """One picture shown over several sample times: its tokens are equal bit for bit, and all zero dissimilar."""
    options = EncodeOptions(size=56)
    plan = plan_video(video("vfr.mp4"), dinov2(), SamplingRequest(fps=4), options)
    indices = plan.selection.frame_indices
    assert len(set(indices.tolist())) < len(indices)
    encoded = encode_plan(AllRows(), plan, dinov2(), settings(), options)
    repeats = torch.from_numpy(np.flatnonzero(np.diff(indices) == 0) + 1)
    assert encoded.ranking.dissimilarity[repeats].abs().max() < 1e-6
    frames = next(iter(read_frames(plan.video, indices, chunk_frames=len(indices)))).frames
    assert torch.equal(frames[repeats], frames[repeats - 1])


def test_memory_of_results_is_their_own():
    """No result is a view into the encoding, which would keep all of it alive."""
    encoded = crossing()
    pruned = encoded.prune(0.9)
    assert pruned.embeddings.untyped_storage().nbytes() == pruned.embeddings.numel() * 4
    before = encoded.levels[0].clone()
    pruned.embeddings.zero_()
    assert torch.equal(encoded.levels[0], before)


def test_too_little_memory_for_the_weights_is_a_model_error(monkeypatch):
    from transformers import Dinov2Model

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")

    monkeypatch.setattr(Dinov2Model, "to", full)
    with pytest.raises(ModelError, match="memory"):
        evs_cli.prune_video(CROSSING, num_frames=2, size=28)


# The families with a language model, as tiny checkpoints.

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "nemotron_h_omni")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prompt", [None, "What happens here?"])
def test_families_plan_what_they_run(tiny_model, family, prompt):
    encoder = open_encoder(str(tiny_model(family)))
    options = EncodeOptions(prompt=prompt)
    plan = plan_video(CROSSING, encoder, SamplingRequest(num_frames=5), options)
    encoder.load("cpu", torch.float32)
    encoded = encode_plan(AllRows(), plan, encoder, settings(batch_frames=2), options)
    assert encoded.actual is plan.encode
    scores = oracle.dissimilarity(torch.cat(encoded.levels, dim=-1))
    layout = plan.encode.layout
    for q in RATES:
        pruned = encoded.prune(q)
        num_frames, height, width = plan.encode.token_grid_thw
        assert pruned.token_grid_thw == plan.encode.token_grid_thw == encoded.ranking.token_grid_thw
        assert pruned.retained_tokens == plan.encode.retained_tokens(q)
        assert pruned.retained_tokens == oracle.retained_tokens(height * width, num_frames, q)
        assert pruned.sequence_length == plan.encode.sequence_length(q)
        assert torch.equal(pruned.retention_mask, oracle.mask_of(scores, q))
        mask = pruned.retention_mask.flatten().tolist()
        ids, kept, spans, extras = oracle.rebuild(
            layout.input_ids.tolist(),
            layout.token_positions.tolist(),
            layout.extra_positions.tolist(),
            num_frames,
            mask,
        )
        assert pruned.input_ids.tolist() == ids
        assert pruned.frame_offsets.tolist() == spans
        assert pruned.extra_positions.tolist() == extras
        positions = encoder.position_ids(plan.encode)
        assert (pruned.position_ids is None) == (positions is None)
        if positions is not None:
            assert torch.equal(pruned.position_ids, positions[..., kept])
        for level in pruned.deepstack_embeddings:
            assert len(level) == pruned.retained_tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_families_keep_size_and_times_of_a_damaged_video(tiny_model, tmp_path_factory, family):
    """Five of twenty frames are lost: the times told are those of the frames that are there."""
    encoder = open_encoder(str(tiny_model(family)))
    plan = plan_video(damaged_clip(tmp_path_factory.getbasetemp()), encoder, SamplingRequest(num_frames=20))
    encoder.load("cpu", torch.float32)
    encoded = encode_plan(AllRows(), plan, encoder, settings())
    assert encoded.actual.frame_size == plan.encode.frame_size
    assert encoded.actual.token_grid_thw[1:] == plan.encode.token_grid_thw[1:]
    assert encoded.actual.token_grid_thw[0] == -(-15 // encoder.temporal_patch_size)
    pruned = encoded.prune(0.5)
    assert pruned.actual["sequence_length"] == pruned.sequence_length < pruned.planned["sequence_length"]
    assert len(pruned.prompt_seconds) == pruned.token_grid_thw[0]
    there = [k / 10 for k in range(20) if not 8 <= k < 13]
    assert pruned.frame_pts_seconds.tolist() == pytest.approx(there[:: encoder.temporal_patch_size])
    assert pruned.retained_tokens == int((pruned.input_ids == pruned.placeholder_token_id).sum())
