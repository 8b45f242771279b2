"""Plans a video: which frames are sampled, what grid they give, how long the sequence is. No weights, no pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from evs_cli.dialects.served import TrueSource, server_source
from evs_cli.encoders.base import Clip, EncodeOptions, VideoEncoder
from evs_cli.pipeline.encoded_video import ClipPlan
from evs_cli.pipeline.progress import Timings
from evs_cli.video.info import probe_video
from evs_cli.video.sampling import SamplingRequest, select_frames
from evs_cli.video.source import VideoSource

if TYPE_CHECKING:
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
            as_served = served.plan(server_source(video, served.dialect.server), true, sampling, options)
            encode = replace(as_served.encode, notes=as_served.notes)
            return ClipPlan(video, as_served.selection, as_served.clip, encode, dialect=served.dialect.name)
        selection = select_frames(video.pts_seconds, video.duration_seconds, sampling, encoder.sampling_defaults)
        clip = Clip(video.height, video.width, selection.pts_seconds, selection.window_seconds)
        encode = encoder.plan(clip, options)
    return ClipPlan(video=video, selection=selection, clip=clip, encode=encode)
