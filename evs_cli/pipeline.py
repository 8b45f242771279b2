"""The order of the steps: probe, plan, decode, encode, rank, rebuild.

In: videos, an encoder and what the user asks for. Out: an ``EncodedClip``, and in a ``TokenSink`` the rows. Frames
stream through in batches, and what is kept of their tokens is the sink's choice. It knows no terminal: whoever wants
to watch passes a ``Progress``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evs_cli.batching import choose_batch_size
from evs_cli.encoded_video import ClipCounts, ClipPlan, EncodedClip, EncodedVideo, RetainedVideo
from evs_cli.encoders.base import Clip, EncodeOptions, VideoEncoder, require_same_count
from evs_cli.encoders.runtime import Runtime, synchronise
from evs_cli.errors import ModelError, UsageError
from evs_cli.memory import free_memory_bytes
from evs_cli.overlap import Ahead
from evs_cli.progress import Progress, SilentProgress, Timings
from evs_cli.provenance import provenance_of
from evs_cli.video.info import probe_video
from evs_cli.video.sampling import SamplingRequest, select_frames
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    import torch

    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.retention import Ranking
    from evs_cli.core.streaming import TokenSink
    from evs_cli.core.video_tokens import VideoTokens
    from evs_cli.reuse import FrameGroup
    from evs_cli.video.decoder import Decoder
    from evs_cli.video.frames import FrameStream

    Inputs = dict[str, torch.Tensor]

DEFAULT_PRUNING_RATE = 0.7


@dataclass(frozen=True)
class EncodeSettings:
    """How frames are decoded and encoded; none of it changes a count."""

    runtime: Runtime
    batch_frames: int | None = None
    """Sampled frames a batch, at least 1; rounded up to whole tubelets. None chooses by the free memory."""
    decoder: Decoder = "pyav"
    score_dtype: torch.dtype | None = None
    """Dtype of the dissimilarity; None is the embeddings' own."""
    reuses_frames: bool = True
    """Whether a frame (tubelet) that is equal to the one before, bit for bit, is left out of the encoding and gets the
    tokens of that one. Families whose frames are not independent never do."""

    def __post_init__(self) -> None:
        if self.batch_frames is not None and self.batch_frames < 1:
            raise UsageError(f"Invalid batch_frames ({self.batch_frames}). Expected at least 1.")


def plan_video(
    source: VideoSource,
    encoder: VideoEncoder,
    sampling: SamplingRequest | None = None,
    options: EncodeOptions | None = None,
    *,
    timings: Timings | None = None,
) -> ClipPlan:
    """Plan one video: which frames, what grid, how long a sequence. Decodes no frame but the first, loads no weights.

    Raises:
        VideoError: the file cannot be opened or holds no video.
        UsageError: options the model has no use for, or a window outside the video.
        ModelError: a processor that cannot be loaded.
    """
    timings = timings or Timings()
    with timings.measure("probe"):
        video = probe_video(source)
    with timings.measure("plan"):
        selection = select_frames(
            video.pts_seconds, video.duration_seconds, sampling or SamplingRequest(), encoder.sampling_defaults
        )
        clip = Clip(video.height, video.width, selection.pts_seconds, selection.window_seconds)
        encode = encoder.plan(clip, options or EncodeOptions())
    return ClipPlan(video=video, selection=selection, clip=clip, encode=encode)


def encode_video(
    plan: ClipPlan,
    encoder: VideoEncoder,
    settings: EncodeSettings,
    options: EncodeOptions | None = None,
    *,
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> EncodedVideo:
    """Encode a planned video and keep every row; see ``encode_clip``."""
    from evs_cli.core.streaming import AllTokens

    rows = AllTokens(plan.encode.token_grid_thw[0], free_bytes=free_memory_bytes())
    clip = encode_clip(plan, encoder, settings, rows, options, progress=progress, timings=timings)
    return EncodedVideo(**vars(clip), levels=rows.levels)


def retain_video(
    plan: ClipPlan,
    encoder: VideoEncoder,
    settings: EncodeSettings,
    rates: Sequence[float],
    rule: RetentionRule,
    options: EncodeOptions | None = None,
    *,
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> RetainedVideo:
    """Encode a planned video and keep the rows that some rate keeps, at least one; see ``encode_clip``.

    Memory grows with those rows, not with the video: see ``StreamingRetention``.
    """
    from evs_cli.core.streaming import StreamingRetention

    planned = plan.encode.token_grid_thw
    retention = StreamingRetention(
        rule.most_rows(planned, rates),
        min_dissimilarity=rule.min_dissimilarity,
        scores=rule.own_scores(planned),
        free_bytes=free_memory_bytes(),
    )
    clip = encode_clip(plan, encoder, settings, retention, options, progress=progress, timings=timings)
    rows = retention.finish(rule.most_rows(clip.actual.token_grid_thw, rates))
    return RetainedVideo(**vars(clip), rule=rule, rows=rows)


def encode_clip(
    plan: ClipPlan,
    encoder: VideoEncoder,
    settings: EncodeSettings,
    sink: TokenSink,
    options: EncodeOptions | None = None,
    *,
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> EncodedClip:
    """Decode and encode a planned video, rank its tokens, and hand them to ``sink`` as they come.

    The encoder's weights must be loaded.

    Raises:
        VideoError: no sampled frame decodes.
        ModelError: embeddings that cannot be ranked, or too little memory for a single tubelet.
    """
    progress, timings = progress or SilentProgress(), timings or Timings()
    options = options or EncodeOptions()
    run = _EncodeRun(plan, encoder, settings, sink, progress, timings)
    run.consume()
    actual = plan.encode
    if len(run.positions) < len(plan.selection.frame_indices):
        lost = len(plan.selection.frame_indices) - len(run.positions)
        progress.notice(f"{lost} of {len(plan.selection.frame_indices)} sampled frames do not decode and are left out.")
        clip = Clip(plan.clip.height, plan.clip.width, plan.clip.pts_seconds[run.positions], plan.clip.window_seconds)
        actual = encoder.plan(clip, options, frame_size=plan.encode.frame_size)
    ranking = run.ranking()
    if ranking.token_grid_thw != actual.token_grid_thw:
        raise ModelError(
            f"cannot place the tokens of {encoder.source.name}: the grid came out as {ranking.token_grid_thw}, "
            f"{actual.token_grid_thw} was planned."
        )
    return EncodedClip(
        planned=ClipCounts.of(plan.encode),
        actual=actual,
        frame_indices=plan.selection.frame_indices[run.positions],
        extra_embeddings=run.extra_embeddings(),
        ranking=ranking,
        own_ranking=run.own_ranking(),
        zero_frames=tuple(run.scorer.zero_frames),
        position_ids=encoder.position_ids(actual),
        provenance=provenance_of(plan, encoder, settings, options, run.batch_frames, run.reused_frames),
        timings_seconds=timings.seconds,
    )


class _EncodeRun:
    """One pass over the frames: decode, encode, score, hand the rows to the sink.

    Decoding and preprocessing run in threads of their own, a batch ahead; all that is kept is touched by this one.
    """

    def __init__(
        self,
        plan: ClipPlan,
        encoder: VideoEncoder,
        settings: EncodeSettings,
        sink: TokenSink,
        progress: Progress,
        timings: Timings,
    ) -> None:
        from evs_cli.core.dissimilarity import DissimilarityScorer
        from evs_cli.core.gathered import Gathered

        self.plan, self.encoder, self.settings = plan, encoder, settings
        self.sink, self.progress, self.timings = sink, progress, timings
        self.scorer = DissimilarityScorer(score_dtype=settings.score_dtype)
        # Beside another dtype, the embeddings' own: to say how many tokens the choice moves.
        self._own_scorer = None if settings.score_dtype is None else DissimilarityScorer()
        num_frames = plan.encode.token_grid_thw[0]
        self._own_scores = Gathered(num_frames)
        self.batch_frames = self._choose_batch_frames()
        self.reuses = settings.reuses_frames and encoder.frames_are_independent
        self.reused_frames = 0
        self.positions: list[int] = []
        self._beside = Timings()  # of the other threads, a step each
        self._scores = Gathered(num_frames)
        self._last: VideoTokens | None = None  # of the last tubelet encoded, which the next ones may repeat
        self._extra = Gathered(len(plan.encode.layout.extra_positions))
        self._no_rows: torch.Tensor | None = None  # (0, D) of the main level, once one has come

    def _choose_batch_frames(self) -> int:
        frames = self.settings.batch_frames
        if frames is None:
            chosen = choose_batch_size(self.plan, self.settings.runtime)
            self.progress.detail(chosen.reason)
            frames = chosen.frames
        tubelet = self.encoder.temporal_patch_size
        return -(-frames // tubelet) * tubelet

    def consume(self) -> None:
        """Read, encode and score every sampled frame."""
        from evs_cli.reuse import group_frames
        from evs_cli.video.reader import read_frames

        self.progress.stage("encode", len(self.plan.selection.frame_indices))
        stream = read_frames(
            self.plan.video,
            self.plan.selection.frame_indices,
            chunk_frames=self.batch_frames,
            decoder=self.settings.decoder,
        )
        grouped = group_frames(
            self._marked(stream),
            group_frames=self.batch_frames,
            temporal_patch_size=self.encoder.temporal_patch_size,
            reuses=self.reuses,
        )
        with (
            Ahead(grouped, on_close=stream.cancel) as groups,
            Ahead(self._preprocessed(groups), on_close=groups.close) as preprocessed,
        ):
            while True:
                with self.timings.measure("decode"):
                    item = next(preprocessed, None)
                if item is None:
                    break
                self._encode(*item)
                self.progress.advance(item[0].num_frames)
                del item  # or it lives on beside the next
        for warning in stream.warnings:
            self.progress.notice(warning)
        self.progress.detail(self._account())

    def _account(self) -> str:
        """Where the time went, for ``-v``: what ran beside, and what the encoder waited for."""
        beside, own = self._beside.seconds, self.timings.seconds
        return (
            f"encoding took {own.get('encode', 0):.2f} s and waited {own['decode']:.2f} s for frames; beside it ran "
            f"{beside.get('decode', 0):.2f} s of decoding and {beside.get('preprocess', 0):.2f} s of preprocessing"
        )

    def _marked(self, stream: FrameStream) -> Iterator[torch.Tensor]:
        """The frames of each batch, decoded and with what the family draws on them."""
        with stream:
            while True:
                with self._beside.measure("decode"):
                    batch = next(stream, None)
                    if batch is None:
                        return
                    self.positions += batch.positions.tolist()
                    frames = self.encoder.mark_frames(batch.frames, self.plan.clip.pts_seconds[batch.positions])
                del batch  # or it lives on beside the next
                yield frames

    def _preprocessed(self, groups: Iterator[FrameGroup]) -> Iterator[tuple[FrameGroup, Inputs | None]]:
        """Each group with what the model takes of it; None where it has no frame, or more than go in at once."""
        is_cuda = self.settings.runtime.device.startswith("cuda")
        for group in groups:
            inputs: Inputs | None = None
            if 0 < len(group.frames) <= self.batch_frames:
                with self._beside.measure("preprocess"):
                    inputs = self.encoder.preprocess(group.frames, self.plan.encode)
                    if is_cuda:  # from pinned memory the copy to the device runs beside its work
                        inputs = {name: values.pin_memory() for name, values in inputs.items()}
            yield group, inputs

    def _encode(self, group: FrameGroup, inputs: Inputs | None) -> None:
        """Encode a group, in halves where the device's memory does not hold it, and keep the tokens of all its frames.

        Args:
            group: the frames.
            inputs: what the model takes of all of them; where it is None they are preprocessed here, part by part.
        """
        import torch

        if bool((group.tubelet_of < 0).any()):
            assert self._last is not None
            self._keep(self._last, torch.zeros_like(group.tubelet_of[group.tubelet_of < 0]))
        tubelet = self.encoder.temporal_patch_size
        start = 0
        while start < len(group.frames):
            part = group.frames[start : start + self.batch_frames]
            try:
                with self.timings.measure("encode"):
                    if inputs is None or len(part) < len(group.frames):
                        inputs = self.encoder.preprocess(part, self.plan.encode)
                    tokens = self.encoder.embed(inputs, self.plan.encode)
                    synchronise(self.settings.runtime.device)  # the scores wait for it at once; the clock must too
            except torch.OutOfMemoryError as error:
                inputs = None
                self._halve(error)
                continue
            require_same_count(
                tokens.num_frames, -(-len(part) // tubelet), self.encoder.source, "frames of tokens of a batch"
            )
            places = group.tubelet_of - start // tubelet
            self._keep(tokens, places[(places >= 0) & (places < tokens.num_frames)])
            inputs = None
            start += len(part)
        self.reused_frames += group.num_frames - len(group.frames)

    def _halve(self, error: Exception) -> None:
        tubelet = self.encoder.temporal_patch_size
        if self.batch_frames <= tubelet:
            raise ModelError(
                f"cannot encode on {self.settings.runtime.device}: out of memory even with {tubelet} frames a batch.",
                hint="Make the frames smaller, or try --dtype bfloat16 or --device cpu.",
            ) from error
        self.batch_frames = max(tubelet, self.batch_frames // 2 // tubelet * tubelet)
        if self.settings.runtime.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()
        self.progress.notice(
            f"Out of memory on {self.settings.runtime.device}: going on with {self.batch_frames} frames a batch."
        )

    def _keep(self, tokens: VideoTokens, frames: torch.Tensor) -> None:
        """Score and hand over the tokens of ``frames`` (n,) int64, never descending, each of ``tokens`` among them."""
        import torch

        if len(frames) == tokens.num_frames:
            self._hand_over(tokens)
        else:  # a batch at a time: what one frame stands for may be minutes
            for part in torch.split(frames, max(1, self.batch_frames // self.encoder.temporal_patch_size)):
                self._hand_over(tokens.take(part))
        if self.reuses:
            self._last = tokens.take(torch.tensor([tokens.num_frames - 1]))

    def _hand_over(self, tokens: VideoTokens) -> None:
        """Score the next frames of tokens and give their rows to the sink."""
        levels = tokens.levels
        with self.timings.measure("rank"):
            scores = self.scorer.update(levels).cpu()
            self._scores.append(scores)
            self._score_as_own(levels)
            self.sink.add(tuple(level.cpu() for level in levels), scores)
        self._no_rows = levels[0].new_empty((0, levels[0].shape[-1]), device="cpu")
        if tokens.extra is not None:
            self._extra.append(tokens.extra)

    def _score_as_own(self, levels: tuple[torch.Tensor, ...]) -> None:
        """Score in the embeddings' own dtype too; where that cannot be, another was asked for with reason."""
        if self._own_scorer is None:
            return
        try:
            self._own_scores.append(self._own_scorer.update(levels))
        except ModelError:
            self._own_scorer = None
            self._own_scores.clear()

    def extra_embeddings(self) -> torch.Tensor:
        """(E, D) rows that are no grid token, in the order of their placeholders."""
        closing = self.encoder.closing_rows()
        if closing is not None:
            self._extra.append(closing)
        assert self._no_rows is not None
        return self._extra.rows if len(self._extra) else self._no_rows

    def ranking(self) -> Ranking:
        """The ranking of every token that was encoded."""
        from evs_cli.core.retention import Ranking

        with self.timings.measure("rank"):
            return Ranking(self._scores.rows)

    def own_ranking(self) -> Ranking | None:
        """The ranking in the embeddings' own dtype, where another was asked for."""
        from evs_cli.core.retention import Ranking

        return Ranking(self._own_scores.rows) if len(self._own_scores) else None
