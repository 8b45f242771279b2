"""The one planner: which frames of a video are sampled, what grid they give, how long the sequence is.

In: a model under a dialect, and a file, a probed file or numbers. Out: a ``ClipPlan``, or ``Clips`` to plan the same
video again and again. No frame but the first is decoded, and no weight is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from evs_cli.dialects import EVS_DIALECT, Dialect
from evs_cli.dialects.base import ServerOptions, ServerSource
from evs_cli.dialects.served import ServedPlanner, SourceTimes
from evs_cli.encoders.base import EncodeOptions, VideoEncoder, seconds
from evs_cli.errors import UsageError
from evs_cli.pipeline.clip_plan import ClipPlan, SourceFacts
from evs_cli.pipeline.clips import Clips, EvsClips, NumbersRequest, ServerClips
from evs_cli.pipeline.progress import Timings
from evs_cli.pipeline.request import SessionRequest
from evs_cli.video.info import VideoInfo, probe_video
from evs_cli.video.sampling import SamplingRequest
from evs_cli.video.source import VideoSource

Subject = str | NumbersRequest
"""A video: a path (``-`` for standard input), or numbers."""


class Planner:
    """Plans videos for one model under one dialect.

    Args:
        encoder: the model; its weights are not touched.
        dialect: whose rules sample, resize and write the video.
        server: how the server was started.
        sampling: what is asked first, so that a server's planner can refuse it.
        may_configure: see ``ServedPlanner``.
        decodes_first: whether a file is decoded before it is planned, where the server's reader leaves out what does
            not decode.
    """

    def __init__(
        self,
        encoder: VideoEncoder,
        dialect: Dialect = EVS_DIALECT,
        server: ServerOptions | None = None,
        sampling: SamplingRequest | None = None,
        *,
        may_configure: bool = False,
        decodes_first: bool = False,
    ) -> None:
        self._encoder, self._dialect = encoder, dialect
        self._server, self._sampling = server or ServerOptions(), sampling or SamplingRequest()
        self._may_configure, self._decodes_first = may_configure, decodes_first

    @classmethod
    def of(
        cls,
        request: SessionRequest,
        encoder: VideoEncoder,
        *,
        rates: Sequence[float] | None = None,
        may_configure: bool = False,
    ) -> Planner:
        """The planner of a request. The server counts as started with the highest of ``rates``."""
        server = replace(request.server, video_pruning_rate=max(rates)) if rates else request.server
        return cls(
            encoder,
            request.dialect,
            server,
            request.sampling,
            may_configure=may_configure,
            decodes_first=request.decodes_first,
        )

    @cached_property
    def served(self) -> ServedPlanner | None:
        """What plans as the server does; None for ``evs``.

        Raises:
            UsageError: a family whose serving is not written down, or a window of the video.
        """
        if self._dialect.is_evs:
            return None
        return ServedPlanner(
            self._dialect, self._encoder, self._server, self._sampling, may_configure=self._may_configure
        )

    def plan_video(
        self,
        source: VideoSource,
        sampling: SamplingRequest | None = None,
        options: EncodeOptions | None = None,
        *,
        timings: Timings | None = None,
        decodes_first: bool | None = None,
    ) -> ClipPlan:
        """Probe and plan one video.

        Args:
            source: a path or a seekable binary file object.
            sampling: what the user asks of the frames.
            options: what the user asks of the family.
            timings: where the seconds of each step go.
            decodes_first: see ``Planner``; None is the planner's own.

        Raises:
            VideoError: the file cannot be opened or holds no video.
            UsageError: options the model has no use for, or a window outside the video.
            ModelError: a processor that cannot be loaded.
        """
        timings = timings or Timings()
        with timings.measure("probe"):
            video = probe_video(source)
        path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
        with timings.measure("plan"):
            clips = self.clips_of_file(video, path, decodes_first=decodes_first)
            return clips.plan(sampling or SamplingRequest(), options or EncodeOptions())

    def sampling_of(self, subject: Subject) -> SamplingRequest:
        """The sampling asked for; a video that is said to be so many sampled frames is sampled as that many.

        Raises:
            UsageError: so many frames, and a sampling of its own.
        """
        asked = self._sampling
        if isinstance(subject, str) or subject.frames is None:
            return asked
        if any(
            value is not None for value in (asked.num_frames, asked.max_frames, asked.start_seconds, asked.end_seconds)
        ):
            raise UsageError(
                "--frames is the number of sampled frames: it excludes --num-frames, --max-frames, --start and --end."
            )
        return replace(asked, fps=None, num_frames=subject.frames)

    def clips(self, subject: Subject, probe: Callable[[str], VideoInfo]) -> Clips:
        """The clips of a video; a file is scanned by ``probe``."""
        if isinstance(subject, str):
            return self.clips_of_file(probe(subject), subject)
        return self.clips_of_numbers(subject)

    def clips_of_file(self, video: VideoInfo, path: str | None, *, decodes_first: bool | None = None) -> Clips:
        """The clips of a probed file, which was named ``path``.

        Args:
            video: the file; a server that takes another of its streams has it probed again.
            path: its name.
            decodes_first: see ``Planner``; None is the planner's own.
        """
        rules = None if self.served is None else self.served.rules
        if rules is not None and rules.stream_choice(self._server) == "first" and not video.is_first_stream:
            video = probe_video(video.source, choice="first")
        facts = SourceFacts(
            name=video.name,
            path=path,
            width=video.width,
            height=video.height,
            duration_seconds=video.duration_seconds,
            num_frames=video.num_frames,
            average_fps=video.average_fps,
        )
        if self.served is None or rules is None:
            return EvsClips(self._encoder, facts, video.pts_seconds, video)
        decodes = self._decodes_first if decodes_first is None else decodes_first
        reads = rules.reads_of(video, self._server) if decodes else None
        true = SourceTimes(video.pts_seconds, video.duration_seconds, reads)
        return ServerClips(self.served, facts, rules.source_of(video, self._server, reads), true, video)

    def clips_of_numbers(self, numbers: NumbersRequest) -> Clips:
        """The clips of a video that is only numbers: even times at ``source_fps``, or as many frames as were said.

        Raises:
            UsageError: so many sampled frames for a server, which samples by itself.
        """
        if not self._dialect.is_evs and numbers.frames is not None:
            raise UsageError(
                f"--frames is the number of sampled frames, and {self._dialect.name} samples by itself. Expected "
                "--duration, and --source-fps where it is not 30."
            )
        numbers = numbers.at_rate(self._sampling.fps)
        duration = numbers.duration_seconds
        assert duration is not None
        fps = numbers.source_fps if numbers.frames is None else numbers.frames / duration
        num_frames = max(1, round(duration * fps)) if numbers.frames is None else numbers.frames
        pts = seconds(np.arange(num_frames) / fps)
        name = f"{numbers.width}x{numbers.height}, {duration:g} s"
        facts = SourceFacts(name, None, numbers.width, numbers.height, duration, num_frames, fps)
        if self.served is None:
            return EvsClips(self._encoder, facts, pts, adjust=numbers.adjusted)
        source = ServerSource(num_frames, fps, numbers.height, numbers.width)
        return ServerClips(self.served, facts, source, SourceTimes(pts, duration))
