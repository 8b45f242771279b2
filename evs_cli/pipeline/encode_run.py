"""One pass over the frames of a video: decode, encode, score, and give the rows to a sink.

In: a planned video, a loaded encoder and a ``TokenSink``. Out: what an ``EncodedClip`` is made of. Decoding and
preprocessing run in threads of their own, a batch ahead of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evs_cli.encoders.base import VideoEncoder, require_same_count
from evs_cli.encoders.runtime import synchronise
from evs_cli.errors import ModelError
from evs_cli.pipeline.batching import choose_batch_size
from evs_cli.pipeline.prefetch import Ahead
from evs_cli.pipeline.progress import Progress, Timings

if TYPE_CHECKING:
    import torch

    from evs_cli.core.retention import Ranking
    from evs_cli.core.streaming import TokenSink
    from evs_cli.core.video_tokens import VideoTokens
    from evs_cli.pipeline.encoded_video import ClipPlan
    from evs_cli.pipeline.reuse import FrameGroup
    from evs_cli.pipeline.settings import EncodeSettings
    from evs_cli.video.frames import FrameStream

    Inputs = dict[str, torch.Tensor]


class EncodeRun:
    """One pass over the frames: ``consume`` once, then read what came of it.

    What is kept is touched by the caller's thread alone, but for ``positions``, which is complete when it returns.
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
        """Frames that repeat the one before and were not encoded again."""
        self.positions: list[int] = []
        """Which of the sampled frames decoded."""
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
        from evs_cli.pipeline.reuse import group_frames
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
