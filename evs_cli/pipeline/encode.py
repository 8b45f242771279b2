"""The order of the steps: probe, plan, decode, encode, rank, rebuild.

In: videos, an encoder and what the user asks for. Out: an ``EncodedClip``, and in a ``TokenSink`` the rows. Frames
stream through in batches, and what is kept of their tokens is the sink's choice. It knows no terminal: whoever wants
to watch passes a ``Progress``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evs_cli.dialects import EVS
from evs_cli.dialects.served import TrueSource
from evs_cli.encoders.base import Clip, EncodeOptions, VideoEncoder
from evs_cli.errors import ModelError, VideoError
from evs_cli.pipeline.encode_run import EncodeRun
from evs_cli.pipeline.encoded_video import (
    ClipCounts,
    ClipPlan,
    EncodedClip,
    EncodedVideo,
    RetainedVideo,
    lost_frames_sentence,
)
from evs_cli.pipeline.memory import free_memory_bytes
from evs_cli.pipeline.progress import Progress, SilentProgress, Timings
from evs_cli.pipeline.provenance import provenance_of
from evs_cli.pipeline.settings import EncodeSettings
from evs_cli.video.info import probe_video
from evs_cli.video.sampling import SamplingRequest, select_frames
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.core.streaming import TokenSink
    from evs_cli.dialects.served import ServedPlanner


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
            as_served = served.plan(served.rules.source_of(video), true, sampling, options)
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
    beside: TokenSink | None = None,
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> EncodedVideo:
    """Encode a planned video and keep every row; see ``encode_clip``."""
    from evs_cli.core.streaming import AllTokens

    rows = AllTokens(plan.encode.token_grid_thw[0], free_bytes=free_memory_bytes())
    clip = encode_clip(plan, encoder, settings, rows, options, beside=beside, progress=progress, timings=timings)
    return EncodedVideo(**vars(clip), levels=rows.levels)


def retain_video(
    plan: ClipPlan,
    encoder: VideoEncoder,
    settings: EncodeSettings,
    rates: Sequence[float],
    rule: RetentionRule,
    options: EncodeOptions | None = None,
    *,
    beside: TokenSink | None = None,
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
    clip = encode_clip(plan, encoder, settings, retention, options, beside=beside, progress=progress, timings=timings)
    rows = retention.finish(rule.most_rows(clip.actual.token_grid_thw, rates))
    return RetainedVideo(**vars(clip), rule=rule, rows=rows)


def encode_clip(
    plan: ClipPlan,
    encoder: VideoEncoder,
    settings: EncodeSettings,
    sink: TokenSink,
    options: EncodeOptions | None = None,
    *,
    beside: TokenSink | None = None,
    progress: Progress | None = None,
    timings: Timings | None = None,
) -> EncodedClip:
    """Decode and encode a planned video, rank its tokens, and hand them to ``sink`` as they come, and to ``beside``.

    The encoder's weights must be loaded.

    Raises:
        VideoError: no sampled frame decodes.
        ModelError: embeddings that cannot be ranked, or too little memory for a single tubelet.
    """
    progress, timings = progress or SilentProgress(), timings or Timings()
    options = options or EncodeOptions()
    if beside is not None:
        from evs_cli.core.streaming import BothSinks

        sink = BothSinks(sink, beside)
    run = EncodeRun(plan, encoder, settings, sink, progress, timings)
    run.consume()
    actual = plan.encode
    if len(run.positions) < len(plan.selection.frame_indices):
        num_sampled = len(plan.selection.frame_indices)
        lost = num_sampled - len(run.positions)
        if plan.dialect != EVS:
            raise VideoError(
                f"{lost} of {num_sampled} sampled frames of {plan.video.name} do not decode: what {plan.dialect} would "
                "make of the rest is not known.",
                hint="Mend the file, or take --dialect evs, which leaves them out.",
            )
        progress.notice(f"{plan.video.name}: {lost_frames_sentence(lost, num_sampled)}")
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
