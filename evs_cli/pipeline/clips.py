"""One video and how its clips are planned: by evs, or as a server takes it.

In: a probed file or numbers, an encoder, a dialect. Out: ``Clips``, which sample the video by any request and plan any
sampling at any size; ``plan``, ``fit``, ``sweep`` and ``prune`` go through it, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from evs_cli.dialects import EVS_DIALECT, Dialect
from evs_cli.dialects.base import ServerOptions, ServerSource
from evs_cli.dialects.limits import PlannedAt, ServerLimit, first_hit, server_limits
from evs_cli.dialects.served import ServedClip, ServedPlanner, TrueSource
from evs_cli.encoders.base import Clip, EncodeOptions, EncodePlan, VideoEncoder, seconds
from evs_cli.errors import UsageError
from evs_cli.video.info import VideoInfo
from evs_cli.video.sampling import FrameSelection, SamplingRequest, select_frames

DEFAULT_SOURCE_FPS = 30.0
_MAX_NUMBERS_FRAMES = 1_000_000
_LENGTH = "the length"


@dataclass(frozen=True)
class SourceFacts:
    """What of a video its token count depends on; of a file, or given as numbers."""

    name: str
    path: str | None
    """The file as it was named; None of numbers alone."""
    width: int
    height: int
    duration_seconds: float
    num_frames: int
    """Frames of the source; of numbers alone, at the rate assumed for it."""
    average_fps: float


@dataclass(frozen=True)
class NumbersRequest:
    """A video given as numbers, where there is no file.

    Raises:
        UsageError: a number below 1, or neither frames nor a duration.
    """

    height: int
    width: int
    frames: int | None = None
    """Sampled frames; None samples by the model's rule from ``duration_seconds``."""
    duration_seconds: float | None = None
    source_fps: float = DEFAULT_SOURCE_FPS
    """Rate of the imagined file."""

    def __post_init__(self) -> None:
        for name in ("height", "width", "frames"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"Invalid {name} ({value}). Expected at least 1.")
        if self.frames is None and self.duration_seconds is None:
            raise UsageError("Neither frames nor a duration is given. Expected --frames, --duration or both.")
        for name in ("duration_seconds", "source_fps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"Invalid {name} ({value:g}). Expected more than 0.")
        frames = self.frames or (self.duration_seconds or 0) * self.source_fps
        if frames > _MAX_NUMBERS_FRAMES:
            raise UsageError(f"Invalid video of {frames:g} frames. Expected at most {_MAX_NUMBERS_FRAMES:,}.")

    def at_rate(self, fps: float | None) -> NumbersRequest:
        """The same with its duration settled: so many frames without one are ``fps`` a second, 2 unless said."""
        if self.duration_seconds is not None or self.frames is None:
            return self
        return replace(self, duration_seconds=self.frames / (fps or 2.0))


@dataclass(frozen=True, eq=False)
class Sampled:
    """A source and the frames sampled of it, before a model sees them."""

    source: SourceFacts
    sampling: SamplingRequest
    """What was asked for."""
    selection: FrameSelection
    warnings: tuple[str, ...] = ()

    @property
    def clip(self) -> Clip:
        """What a model family must know of it."""
        selection = self.selection
        return Clip(self.source.height, self.source.width, selection.pts_seconds, selection.window_seconds)


class Clips(Protocol):
    """One video, ready to be sampled and planned."""

    dialect: Dialect

    def sample(self, sampling: SamplingRequest) -> Sampled:
        """The frames of a request."""

    def plan(self, sampled: Sampled, options: EncodeOptions) -> EncodePlan:
        """The plan of sampled frames."""

    def fewer(self, sampled: Sampled, share: float) -> SamplingRequest | None:
        """The request for a share of the present frames, in the terms they were asked in; None where there is none."""

    def obstacle(self, sampled: Sampled, plan: EncodePlan, options: EncodeOptions, q: float, budget: int) -> str | None:
        """What the clip at rate q runs into, first of all that it is longer than ``budget`` ids; None where it fits."""


class EvsClips:
    """A video by the model's own processor, told the true times.

    Args:
        encoder: the model.
        facts: the source.
        pts_seconds: (F,) float64, when each of its frames is shown.
        warnings: sentences on the file.
        adjust: turns a request into the one that is sampled.
    """

    dialect = EVS_DIALECT

    def __init__(
        self,
        encoder: VideoEncoder,
        facts: SourceFacts,
        pts_seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
        warnings: tuple[str, ...] = (),
        adjust: Callable[[SamplingRequest], SamplingRequest] = lambda sampling: sampling,
    ) -> None:
        self._encoder, self._facts, self._pts, self._warnings = encoder, facts, pts_seconds, warnings
        self._adjust = adjust

    def sample(self, sampling: SamplingRequest) -> Sampled:
        """See ``Clips.sample``."""
        selection = select_frames(
            self._pts, self._facts.duration_seconds, self._adjust(sampling), self._encoder.sampling_defaults
        )
        return Sampled(self._facts, sampling, selection, self._warnings)

    def plan(self, sampled: Sampled, options: EncodeOptions) -> EncodePlan:
        """See ``Clips.plan``."""
        return self._encoder.plan(sampled.clip, options)

    def fewer(self, sampled: Sampled, share: float) -> SamplingRequest:
        """See ``Clips.fewer``: a rate, or a number."""
        selection, sampling = sampled.selection, sampled.sampling
        if share == 1:
            return sampling
        if selection.rule == "fps" and selection.requested_fps and not selection.max_frames_bound:
            return replace(sampling, fps=round(selection.requested_fps * share, 6), num_frames=None)
        frames = max(1, round(len(selection.frame_indices) * share))
        return replace(sampling, fps=None, num_frames=frames)

    def obstacle(self, sampled: Sampled, plan: EncodePlan, options: EncodeOptions, q: float, budget: int) -> str | None:
        """See ``Clips.obstacle``."""
        return None if plan.sequence_length(q) <= budget else _LENGTH


class ServerClips:
    """A video as a server takes it.

    Args:
        planner: the model under a dialect.
        facts: the source as it is.
        source: the source as the server sees it.
        true: its frames as they are.
        warnings: sentences on the file.
    """

    def __init__(
        self,
        planner: ServedPlanner,
        facts: SourceFacts,
        source: ServerSource,
        true: TrueSource,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.dialect, self.planner, self.source = planner.dialect, planner, source
        self._facts, self._true, self._warnings = facts, true, warnings

    def served(self, sampling: SamplingRequest, options: EncodeOptions) -> ServedClip:
        """The clip with what is the server's alone: its plan, its rate, its notes."""
        return self.planner.plan(self.source, self._true, sampling, options)

    def sample(self, sampling: SamplingRequest) -> Sampled:
        """See ``Clips.sample``; sizes do not change a server's sampling."""
        server = self.planner.server_plan(self.source, sampling, EncodeOptions(), len(self._true.pts_seconds))
        selection = self.planner.selection(server, self._true)
        return Sampled(self._facts, sampling, selection, self._warnings)

    def plan(self, sampled: Sampled, options: EncodeOptions) -> EncodePlan:
        """See ``Clips.plan``."""
        return self.served(sampled.sampling, options).encode

    def fewer(self, sampled: Sampled, share: float) -> SamplingRequest | None:
        """See ``Clips.fewer``: a rate where the server goes by one, else a number."""
        if share == 1:
            return sampled.sampling
        num_frames = max(1, round(len(sampled.selection.frame_indices) * share))
        return self.planner.rules.fewer_frames(self.planner.model, num_frames, self.source.duration_seconds)

    def obstacle(self, sampled: Sampled, plan: EncodePlan, options: EncodeOptions, q: float, budget: int) -> str | None:
        """See ``Clips.obstacle``; a rate above 0 is one where the server does not prune."""
        if q > 0 and not self.planner.pruning.can_prune:
            return f"{self.dialect.name} does not prune"
        if plan.sequence_length(q) > budget:
            return _LENGTH
        return first_hit(self._planned_at(sampled.sampling, options, q), context_limit=None)

    def limits(
        self, sampling: SamplingRequest, options: EncodeOptions, q: float, context_limit: int | None, reserve: int = 0
    ) -> tuple[ServerLimit, ...]:
        """Every limit the clip may run into at rate q, ``0 <= q < 1``."""
        return server_limits(
            self._planned_at(sampling, options, q),
            lambda source: self.planner.server_plan(source, sampling, options),
            context_limit=context_limit,
            reserve=reserve,
        )

    def _planned_at(self, sampling: SamplingRequest, options: EncodeOptions, q: float) -> PlannedAt:
        plan = self.planner.server_plan(self.source, sampling, options, len(self._true.pts_seconds))
        return PlannedAt(self.planner, self.source, plan, q, options.prompt)


def clips_of_file(
    path: str,
    video: VideoInfo,
    encoder: VideoEncoder,
    dialect: Dialect,
    server_options: ServerOptions,
    sampling: SamplingRequest,
    *,
    may_configure: bool = False,
) -> EvsClips | ServerClips:
    """The clips of a probed file, which was named ``path``; the other arguments are those of ``ServedPlanner``."""
    facts = SourceFacts(
        name=video.name,
        path=path,
        width=video.width,
        height=video.height,
        duration_seconds=video.duration_seconds,
        num_frames=video.num_frames,
        average_fps=video.average_fps,
    )
    if dialect.is_evs:
        return EvsClips(encoder, facts, video.pts_seconds, video.warnings)
    planner = ServedPlanner(dialect, encoder, server_options, sampling, may_configure=may_configure)
    true = TrueSource(video.pts_seconds, video.duration_seconds)
    return ServerClips(planner, facts, planner.rules.source_of(video), true, video.warnings)


def clips_of_numbers(
    numbers: NumbersRequest,
    encoder: VideoEncoder,
    dialect: Dialect,
    server_options: ServerOptions,
    sampling: SamplingRequest,
    *,
    may_configure: bool = False,
) -> EvsClips | ServerClips:
    """The clips of a video that is only numbers: even times at ``source_fps``, or just as many frames as were said.

    Raises:
        UsageError: so many sampled frames for a server, which samples by itself.
    """
    if not dialect.is_evs and numbers.frames is not None:
        raise UsageError(
            f"--frames is the number of sampled frames, and {dialect.name} samples by itself. Expected --duration, "
            "and --source-fps where it is not 30."
        )
    numbers = numbers.at_rate(sampling.fps)
    duration = numbers.duration_seconds
    assert duration is not None
    fps = numbers.source_fps if numbers.frames is None else numbers.frames / duration
    num_frames = max(1, round(duration * fps)) if numbers.frames is None else numbers.frames
    pts = seconds(np.arange(num_frames) / fps)
    name = f"{numbers.width}x{numbers.height}, {duration:g} s"
    facts = SourceFacts(name, None, numbers.width, numbers.height, duration, num_frames, fps)
    if not dialect.is_evs:
        planner = ServedPlanner(dialect, encoder, server_options, sampling, may_configure=may_configure)
        source = ServerSource(num_frames, fps, numbers.height, numbers.width)
        return ServerClips(planner, facts, source, TrueSource(pts, duration))

    def all_of_them(asked: SamplingRequest) -> SamplingRequest:
        if numbers.frames is None or asked.fps is not None or asked.num_frames is not None:
            return asked
        return replace(asked, num_frames=numbers.frames)

    return EvsClips(encoder, facts, pts, adjust=all_of_them)
