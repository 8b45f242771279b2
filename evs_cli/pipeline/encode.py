"""Encodes planned videos: frames are decoded, preprocessed, encoded and scored batch by batch.

In: a ``ClipPlan`` and a ``TokenSink``. Out: an ``EncodedClip``, and in the sink the rows. It knows no terminal: whoever
wants to watch passes a ``Progress``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evs_cli.dialects import EVS
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, VideoEncoder, require_same_count
from evs_cli.encoders.runtime import synchronise
from evs_cli.errors import ModelError, VideoError
from evs_cli.pipeline.batching import choose_batch_size
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.encoded_video import ClipCounts, EncodedClip, lost_frames_sentence
from evs_cli.pipeline.prefetch import Prefetcher
from evs_cli.pipeline.progress import Progress, SilentProgress, Timings
from evs_cli.pipeline.provenance import provenance_of
from evs_cli.pipeline.settings import EncodeSettings

if TYPE_CHECKING:
    import torch

    from evs_cli.core.streaming import TokenSink
    from evs_cli.core.video_tokens import VideoTokens
    from evs_cli.pipeline.reuse import FrameGroup
    from evs_cli.video.frames import FrameStream

    Inputs = dict[str, torch.Tensor]


class LostFramesError(VideoError):
    """Sampled frames of a server's plan do not decode; ``is_left_out`` where that server goes on without them."""

    def __init__(self, message: str, *, hint: str | None = None, is_left_out: bool) -> None:
        super().__init__(message, hint=hint)
        self.is_left_out = is_left_out


@dataclass(frozen=True, eq=False)
class EncodePipeline:
    """A model, how it is run, and who watches."""

    encoder: VideoEncoder
    """Its weights must be loaded before ``encode``."""
    settings: EncodeSettings
    options: EncodeOptions = field(default_factory=EncodeOptions)
    """What the user asks of the family."""
    progress: Progress = field(default_factory=SilentProgress)

    def encode(self, plan: ClipPlan, sink: TokenSink, *, timings: Timings | None = None) -> EncodedClip:
        """Decode and encode a planned video, rank its tokens, and hand them to ``sink`` as they come.

        Args:
            plan: the planned video.
            sink: takes the rows.
            timings: of the steps before; those of this one are added.

        Raises:
            VideoError: no sampled frame decodes.
            LostFramesError: one of a server's plan does not.
            ModelError: embeddings that cannot be ranked, or too little memory for a single tubelet.
        """
        timings = timings or Timings()
        run = EncodeRun(self, plan, sink, timings)
        run.consume()
        actual = self._actual_plan(plan, run.positions)
        ranking = run.scores.ranking()
        if ranking.token_grid_thw != actual.token_grid_thw:
            raise ModelError(
                f"cannot place the tokens of {self.encoder.source.name}: the grid came out as "
                f"{ranking.token_grid_thw}, {actual.token_grid_thw} was planned."
            )
        return EncodedClip(
            planned=ClipCounts.of(plan.encode),
            actual=actual,
            frame_indices=plan.selection.frame_indices[run.positions],
            extra_embeddings=run.scores.extra_embeddings(self.encoder.closing_rows()),
            ranking=ranking,
            own_ranking=run.scores.own_ranking(),
            zero_frames=run.scores.zero_frames,
            position_ids=self.encoder.position_ids(actual),
            provenance=provenance_of(
                plan, self.encoder, self.settings, self.options, run.batch_frames, run.reused_frames
            ),
            timings_seconds=timings.seconds,
        )

    def _actual_plan(self, plan: ClipPlan, positions: Sequence[int]) -> EncodePlan:
        """The plan of the sampled frames that decoded, at the size that was planned."""
        num_sampled = len(plan.selection.frame_indices)
        lost = num_sampled - len(positions)
        if not lost:
            return plan.encode
        if plan.dialect != EVS:
            is_left_out = plan.served is not None and plan.served.leaves_out_lost_frames
            raise LostFramesError(
                f"{lost} of {num_sampled} sampled frames of {plan.video.name} do not decode"
                f"{'.' if is_left_out else f', and {plan.dialect} fails on such a file.'}",
                hint="Mend the file, or take --dialect evs, which leaves them out.",
                is_left_out=is_left_out,
            )
        self.progress.notice(f"{plan.video.name}: {lost_frames_sentence(lost, num_sampled)}")
        clip = Clip(plan.clip.height, plan.clip.width, plan.clip.pts_seconds[positions], plan.clip.window_seconds)
        return self.encoder.plan(clip, self.options, frame_size=plan.encode.frame_size)


class EncodeRun:
    """One pass over the frames of a planned video: ``consume`` once, then read what came of it.

    Decoding and preprocessing run in threads of their own, a batch ahead of the encoder. What is kept is touched by the
    caller's thread alone, but for ``positions``, which is complete when ``consume`` returns.
    """

    def __init__(self, pipeline: EncodePipeline, plan: ClipPlan, sink: TokenSink, timings: Timings) -> None:
        from evs_cli.pipeline.token_scores import TokenScores

        self.plan, self.timings = plan, timings
        self.encoder, self.settings, self.progress = pipeline.encoder, pipeline.settings, pipeline.progress
        self.scores = TokenScores(plan.encode, self.settings.score_dtype, sink, timings)
        self.batch_frames = self._choose_batch_frames()
        self.reuses = self.settings.reuses_frames and self.encoder.frames_are_independent
        self.reused_frames = 0
        """Frames that repeat the one before and were not encoded again."""
        self.positions: list[int] = []
        """Which of the sampled frames decoded."""
        self._background = Timings()  # of the other threads, a step each
        self._last: VideoTokens | None = None  # of the last tubelet encoded, which the next ones may repeat

    def _choose_batch_frames(self) -> int:
        frames = self.settings.batch_frames
        if frames is None:
            chosen = choose_batch_size(self.plan, self.settings.runtime)
            self.progress.detail(chosen.reason)
            frames = chosen.frames
        # Whole tubelets: one cut by the end of a batch would be filled with a repeated frame, and give other tokens.
        tubelet = self.encoder.temporal_patch_size
        return -(-frames // tubelet) * tubelet

    def consume(self) -> None:
        """Read, encode and score every sampled frame."""
        from evs_cli.pipeline.reuse import group_frames
        from evs_cli.video.reader import read_frames

        self.progress.stage("encode", len(self.plan.selection.frame_indices))
        stream = read_frames(
            self.plan.video,
            self.plan.selection.frame_indices,
            chunk_frames=self.batch_frames,
            decoder=self.settings.decoder,
            keeps_damaged=self.plan.dialect != EVS,  # no server's reader asks whether a frame is whole
        )
        grouped = group_frames(
            self._marked(stream),
            group_frames=self.batch_frames,
            temporal_patch_size=self.encoder.temporal_patch_size,
            reuses=self.reuses,
        )
        with (
            Prefetcher(grouped, on_close=stream.cancel) as groups,
            Prefetcher(self._preprocessed(groups), on_close=groups.close) as preprocessed,
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
        self.progress.detail(self._time_summary())

    def _time_summary(self) -> str:
        """Where the time went, for ``-v``: what ran in the background, and what the encoder waited for."""
        background, own = self._background.seconds, self.timings.seconds
        return (
            f"encoding took {own.get('encode', 0):.2f} s and waited {own['decode']:.2f} s for frames; beside it ran "
            f"{background.get('decode', 0):.2f} s of decoding and "
            f"{background.get('preprocess', 0):.2f} s of preprocessing"
        )

    def _marked(self, stream: FrameStream) -> Iterator[torch.Tensor]:
        """The frames of each batch, decoded and with what the family draws on them."""
        with stream:
            while True:
                with self._background.measure("decode"):
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
                with self._background.measure("preprocess"):
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

        # A group may begin with repeats of the last tubelet of the group before; its tokens are still at hand.
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
            self.scores.add(tokens)
        else:  # a batch at a time: what one frame stands for may be minutes
            for part in torch.split(frames, max(1, self.batch_frames // self.encoder.temporal_patch_size)):
                self.scores.add(tokens.take(part))
        if self.reuses:
            self._last = tokens.take(torch.tensor([tokens.num_frames - 1]))
