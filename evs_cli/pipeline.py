"""The order of the steps: probe, plan, decode, encode, rank, rebuild.

In: videos, an encoder and what the user asks for. Out: an ``EncodedVideo``, which serves every rate, and from it a
``PrunedVideo``. Frames stream through in batches; only the embeddings are kept. It knows no terminal: whoever
wants to watch passes a ``Progress``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, VideoEncoder
from evs_cli.encoders.runtime import DEFAULT_BATCH_FRAMES, Runtime
from evs_cli.errors import ModelError, UsageError
from evs_cli.provenance import provenance_of
from evs_cli.video.info import VideoInfo, probe_video
from evs_cli.video.sampling import FrameSelection, SamplingRequest, select_frames
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    import torch

    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.core.retention import Ranking
    from evs_cli.video.reader import Decoder

DEFAULT_PRUNING_RATE = 0.7


class Progress(Protocol):
    """What a caller may watch."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A step begins; ``total`` units of it are expected, where that is known."""

    def advance(self, units: int) -> None:
        """Units of the present step are done."""

    def notice(self, text: str) -> None:
        """A sentence the user should read."""

    def detail(self, text: str) -> None:
        """A sentence for those who ask for more."""


class SilentProgress:
    """A ``Progress`` that nobody watches."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Ignore it."""

    def advance(self, units: int) -> None:
        """Ignore it."""

    def notice(self, text: str) -> None:
        """Ignore it."""

    def detail(self, text: str) -> None:
        """Ignore it."""


@dataclass
class Timings:
    """Seconds spent in each step, added up over the batches."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Add the time of the block to ``step``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, eq=False)
class ClipPlan:
    """A video, the frames sampled of it, and the plan of encoding them: exact, with no pixel decoded."""

    video: VideoInfo
    selection: FrameSelection
    clip: Clip
    encode: EncodePlan

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on the file, the sampling and the plan."""
        return (*self.video.warnings, *self.selection.notes, *self.encode.notes)


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


@dataclass(frozen=True, eq=False)
class EncodedVideo:
    """A video encoded once; ``prune`` serves any rate from it."""

    plan: ClipPlan
    actual: EncodePlan
    """The plan of the frames that decoded; ``plan.encode`` itself unless the file is damaged."""
    frame_indices: np.ndarray[Any, np.dtype[np.int64]]
    """(S,) indices of the sampled frames that decoded."""
    levels: tuple[torch.Tensor, ...]
    """One (T, h, w, D) tensor a level on the CPU, the main one first."""
    ranking: Ranking
    zero_frames: tuple[int, ...]
    """Frames that hold an all-zero token."""
    position_ids: torch.Tensor | None
    """Positions of the unpruned sequence."""
    provenance: Mapping[str, Any]
    timings_seconds: Mapping[str, float]

    def prune(self, q: float) -> PrunedVideo:
        """The pruned video at rate q, ``0 <= q < 1``."""
        import torch

        from evs_cli.core.pruned_video import PrunedVideo

        retention = self.ranking.at(q)
        sequence = self.actual.layout.prune(retention.retention_mask.numpy())
        kept = torch.from_numpy(sequence.kept_positions)
        main, *further = (retention.select(level) for level in self.levels)
        positions = self.position_ids
        return PrunedVideo(
            embeddings=main,
            deepstack_embeddings=tuple(further),
            extra_embeddings=main.new_empty((0, main.shape[1])),
            extra_positions=torch.from_numpy(sequence.extra_positions),
            retention_mask=retention.retention_mask,
            dissimilarity=self.ranking.dissimilarity.float(),
            num_tokens_per_frame=retention.num_tokens_per_frame,
            token_thw=retention.token_thw,
            input_ids=torch.from_numpy(sequence.input_ids),
            frame_offsets=torch.from_numpy(sequence.frame_offsets),
            position_ids=None if positions is None else positions[..., kept],
            frame_indices=torch.from_numpy(self.frame_indices),
            pts_seconds=torch.from_numpy(self.actual.pts_seconds),
            frame_pts_seconds=torch.from_numpy(self.actual.frame_pts_seconds.copy()),
            prompt_seconds=torch.from_numpy(self.actual.prompt_seconds),
            token_grid_thw=self.actual.token_grid_thw,
            video_grid_thw=self.actual.video_grid_thw,
            model_grid_thw=self.actual.model_grid_thw,
            spatial_merge_size=self.actual.spatial_merge_size,
            temporal_patch_size=self.actual.temporal_patch_size,
            placeholder_token_id=self.actual.layout.placeholder_token_id,
            q=retention.q,
            method="evs",
            noise_tokens=retention.noise_tokens,
            zero_frames=self.zero_frames,
            planned=counts_of(self.plan.encode, retention.q),
            actual=counts_of(self.actual, retention.q),
            provenance=self.provenance,
        )


def counts_of(plan: EncodePlan, q: float) -> dict[str, Any]:
    """The counts of a plan at rate q, as the artifact records them."""
    return {
        "num_sampled_frames": len(plan.pts_seconds),
        "token_grid_thw": list(plan.token_grid_thw),
        "total_tokens": plan.total_tokens,
        "retained_tokens": plan.retained_tokens(q),
        "sequence_length": plan.sequence_length(q),
    }


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
        ranking=ranking,
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
        tubelet = encoder.temporal_patch_size
        self.batch_frames = -(-settings.batch_frames // tubelet) * tubelet
        self.positions: list[int] = []
        self._scores: list[torch.Tensor] = []
        self._buffers: list[torch.Tensor] = []  # (planned T, h, w, D) a level, filled from the front
        self._filled = 0

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
                self._encode(batch.frames)
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
                    levels = self.encoder.encode(part, self.plan.encode)
            except torch.OutOfMemoryError as error:
                self._halve(error)
                continue
            self._keep(levels)
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

    def _keep(self, levels: tuple[torch.Tensor, ...]) -> None:
        with self.timings.measure("rank"):
            self._scores.append(self.scorer.update(levels).cpu())
        num_frames = levels[0].shape[0]
        if not self._buffers:
            planned = self.plan.encode.token_grid_thw[0]
            self._buffers = [level.new_empty((planned, *level.shape[1:]), device="cpu") for level in levels]
        for buffer, level in zip(self._buffers, levels, strict=True):
            buffer[self._filled : self._filled + num_frames] = level
        self._filled += num_frames

    def levels(self) -> tuple[torch.Tensor, ...]:
        """The embeddings, (T, h, w, D) a level."""
        return tuple(buffer[: self._filled] for buffer in self._buffers)

    def ranking(self) -> Ranking:
        """The ranking of every token that was encoded."""
        import torch

        from evs_cli.core.retention import Ranking

        with self.timings.measure("rank"):
            return Ranking(torch.cat(self._scores))
