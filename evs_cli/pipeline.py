"""The order of the steps: probe, plan, decode, encode, rank, rebuild.

In: videos, an encoder and what the user asks for. Out: an ``EncodedVideo``, which serves every rate, and from it a
``PrunedVideo``. Frames stream through in batches; only the embeddings are kept. It knows no terminal: whoever
wants to watch passes a ``Progress``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evs_cli.dialects.served import TrueSource, server_source
from evs_cli.encoded_video import ClipPlan, EncodedVideo
from evs_cli.encoders.base import Clip, EncodeOptions, VideoEncoder
from evs_cli.encoders.runtime import DEFAULT_BATCH_FRAMES, Runtime
from evs_cli.errors import ModelError, UsageError
from evs_cli.progress import Progress, SilentProgress, Timings
from evs_cli.provenance import provenance_of
from evs_cli.video.info import probe_video
from evs_cli.video.sampling import SamplingRequest, select_frames
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    import torch

    from evs_cli.core.retention import Ranking
    from evs_cli.core.video_tokens import VideoTokens
    from evs_cli.dialects.served import ServedPlanner
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
    served: ServedPlanner | None = None,
    timings: Timings | None = None,
) -> ClipPlan:
    """Plan one video: which frames, what grid, how long a sequence. Decodes no frame but the first, loads no weights.

    Args:
        source: a path or a seekable binary file object.
        encoder: the model.
        sampling: what the user asks of the frames.
        options: what the user asks of the family.
        served: plans as a server does; None is the model's own processor, told the true times.
        timings: where the seconds of each stage go.

    Raises:
        VideoError: the file cannot be opened or holds no video.
        UsageError: options the model has no use for, or a window outside the video.
        ModelError: a processor that cannot be loaded.
    """
    timings = timings or Timings()
    with timings.measure("probe"):
        video = probe_video(source)
    sampling, options = sampling or SamplingRequest(), options or EncodeOptions()
    with timings.measure("plan"):
        if served is not None:
            true = TrueSource(video.pts_seconds, video.duration_seconds)
            as_served = served.plan(server_source(video, served.dialect.server), true, sampling, options)
            encode = replace(as_served.encode, notes=as_served.notes)
            return ClipPlan(video, as_served.selection, as_served.clip, encode, dialect=served.dialect.name)
        selection = select_frames(video.pts_seconds, video.duration_seconds, sampling, encoder.sampling_defaults)
        clip = Clip(video.height, video.width, selection.pts_seconds, selection.window_seconds)
        encode = encoder.plan(clip, options)
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
    """Decode and encode a planned video, and rank its tokens. The encoder's weights must be loaded.

    Raises:
        VideoError: no sampled frame decodes.
        ModelError: embeddings that cannot be ranked, or too little memory for a single tubelet.
    """
    progress, timings = progress or SilentProgress(), timings or Timings()
    options = options or EncodeOptions()
    run = _EncodeRun(plan, encoder, settings, progress, timings)
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
    return EncodedVideo(
        plan=plan,
        actual=actual,
        frame_indices=plan.selection.frame_indices[run.positions],
        levels=run.levels(),
        extra_embeddings=run.extra_embeddings(),
        ranking=ranking,
        own_ranking=run.own_ranking(),
        zero_frames=tuple(run.scorer.zero_frames),
        position_ids=encoder.position_ids(actual),
        provenance=provenance_of(plan, encoder, settings, options, run.batch_frames),
        timings_seconds=timings.seconds,
    )


class _EncodeRun:
    """One pass over the frames: decode, encode, score, keep the embeddings on the CPU."""

    def __init__(
        self,
        plan: ClipPlan,
        encoder: VideoEncoder,
        settings: EncodeSettings,
        progress: Progress,
        timings: Timings,
    ) -> None:
        from evs_cli.core.dissimilarity import DissimilarityScorer

        self.plan, self.encoder, self.settings = plan, encoder, settings
        self.progress, self.timings = progress, timings
        self.scorer = DissimilarityScorer(score_dtype=settings.score_dtype)
        # Beside another dtype, the embeddings' own: to say how many tokens the choice moves.
        self._own_scorer = None if settings.score_dtype is None else DissimilarityScorer()
        self._own_scores: list[torch.Tensor] = []
        tubelet = encoder.temporal_patch_size
        self.batch_frames = -(-settings.batch_frames // tubelet) * tubelet
        self.positions: list[int] = []
        self._scores: list[torch.Tensor] = []
        self._buffers: list[torch.Tensor] = []  # (planned T, h, w, D) a level, filled from the front
        self._filled = 0
        self._extra: list[torch.Tensor] = []

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
            self._scores.append(self.scorer.update(levels).cpu())
            self._score_as_own(levels)
        num_frames = levels[0].shape[0]
        if not self._buffers:
            planned = self.plan.encode.token_grid_thw[0]
            self._buffers = [level.new_empty((planned, *level.shape[1:]), device="cpu") for level in levels]
        for buffer, level in zip(self._buffers, levels, strict=True):
            buffer[self._filled : self._filled + num_frames] = level
        self._filled += num_frames
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

    def levels(self) -> tuple[torch.Tensor, ...]:
        """The embeddings, (T, h, w, D) a level."""
        return tuple(buffer[: self._filled] for buffer in self._buffers)

    def extra_embeddings(self) -> torch.Tensor:
        """(E, D) rows that are no grid token, in the order of their placeholders."""
        import torch

        closing = self.encoder.closing_rows()
        rows = self._extra if closing is None else [*self._extra, closing.cpu()]
        main = self._buffers[0]
        return torch.cat(rows) if rows else main.new_empty((0, main.shape[-1]))

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
