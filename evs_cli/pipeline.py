"""The order of the steps: probe, plan, decode, encode, rank, rebuild.

In: videos, an encoder and what the user asks for. Out: an ``EncodedClip``, and in a ``TokenSink`` the rows. Frames
stream through in batches, and what is kept of their tokens is the sink's choice. It knows no terminal: whoever wants
to watch passes a ``Progress``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evs_cli.encoded_video import ClipCounts, ClipPlan, EncodedClip, EncodedVideo, RetainedVideo
from evs_cli.encoders.base import Clip, EncodeOptions, VideoEncoder
from evs_cli.encoders.runtime import DEFAULT_BATCH_FRAMES, Runtime
from evs_cli.errors import ModelError, UsageError
from evs_cli.memory import free_memory_bytes
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
    from evs_cli.video.decoder import Decoder

DEFAULT_PRUNING_RATE = 0.7


@dataclass(frozen=True)
class EncodeSettings:
    """How frames are decoded and encoded; none of it changes a count."""

    runtime: Runtime
    batch_frames: int = DEFAULT_BATCH_FRAMES
    """Sampled frames a batch, at least 1; rounded up to whole tubelets."""
    decoder: Decoder = "pyav"
    score_dtype: torch.dtype | None = None
    """Dtype of the dissimilarity; None is the embeddings' own."""

    def __post_init__(self) -> None:
        if self.batch_frames < 1:
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
        provenance=provenance_of(plan, encoder, settings, options, run.batch_frames),
        timings_seconds=timings.seconds,
    )


class _EncodeRun:
    """One pass over the frames: decode, encode, score, hand the rows to the sink."""

    def __init__(
        self,
        plan: ClipPlan,
        encoder: VideoEncoder,
        settings: EncodeSettings,
        sink: TokenSink,
        progress: Progress,
        timings: Timings,
    ) -> None:
        import torch

        from evs_cli.core.dissimilarity import DissimilarityScorer

        self.plan, self.encoder, self.settings = plan, encoder, settings
        self.sink, self.progress, self.timings = sink, progress, timings
        self.scorer = DissimilarityScorer(score_dtype=settings.score_dtype)
        # Beside another dtype, the embeddings' own: to say how many tokens the choice moves.
        self._own_scorer = None if settings.score_dtype is None else DissimilarityScorer()
        self._own_scores: list[torch.Tensor] = []
        tubelet = encoder.temporal_patch_size
        self.batch_frames = -(-settings.batch_frames // tubelet) * tubelet
        self.positions: list[int] = []
        self._scores: list[torch.Tensor] = []
        self._extra: list[torch.Tensor] = []
        self._no_rows = torch.empty(0)  # (0, D) of the main level, once one has come

    def consume(self) -> None:
        """Read, encode and score every sampled frame."""
        from evs_cli.video.reader import read_frames

        self.progress.stage("encode", len(self.plan.selection.frame_indices))
        stream = read_frames(
            self.plan.video,
            self.plan.selection.frame_indices,
            chunk_frames=self.batch_frames,
            decoder=self.settings.decoder,
        )
        with stream:
            batches = iter(stream)
            while True:
                with self.timings.measure("decode"):
                    batch = next(batches, None)
                if batch is None:
                    break
                self.positions += batch.positions.tolist()
                self._encode(self.encoder.mark_frames(batch.frames, self.plan.clip.pts_seconds[batch.positions]))
                self.progress.advance(len(batch.positions))
            for warning in stream.warnings:
                self.progress.notice(warning)

    def _encode(self, frames: torch.Tensor) -> None:
        """Encode a batch, in halves where the device's memory does not hold it."""
        import torch

        start = 0
        while start < len(frames):
            part = frames[start : start + self.batch_frames]
            try:
                with self.timings.measure("encode"):
                    tokens = self.encoder.encode(part, self.plan.encode)
            except torch.OutOfMemoryError as error:
                self._halve(error)
                continue
            self._keep(tokens)
            start += len(part)

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

    def _keep(self, tokens: VideoTokens) -> None:
        levels = tokens.levels
        with self.timings.measure("rank"):
            scores = self.scorer.update(levels).cpu()
            self._scores.append(scores)
            self._score_as_own(levels)
            self.sink.add(tuple(level.cpu() for level in levels), scores)
        self._no_rows = levels[0].new_empty((0, levels[0].shape[-1]), device="cpu")
        if tokens.extra is not None:
            self._extra.append(tokens.extra.cpu())

    def _score_as_own(self, levels: tuple[torch.Tensor, ...]) -> None:
        """Score in the embeddings' own dtype too; where that cannot be, another was asked for with reason."""
        if self._own_scorer is None:
            return
        try:
            self._own_scores.append(self._own_scorer.update(levels).cpu())
        except ModelError:
            self._own_scorer = None
            self._own_scores.clear()

    def extra_embeddings(self) -> torch.Tensor:
        """(E, D) rows that are no grid token, in the order of their placeholders."""
        import torch

        closing = self.encoder.closing_rows()
        rows = self._extra if closing is None else [*self._extra, closing.cpu()]
        return torch.cat(rows) if rows else self._no_rows

    def ranking(self) -> Ranking:
        """The ranking of every token that was encoded."""
        import torch

        from evs_cli.core.retention import Ranking

        with self.timings.measure("rank"):
            return Ranking(torch.cat(self._scores))

    def own_ranking(self) -> Ranking | None:
        """The ranking in the embeddings' own dtype, where another was asked for."""
        import torch

        from evs_cli.core.retention import Ranking

        return Ranking(torch.cat(self._own_scores)) if self._own_scores else None
