"""One video, and the two ways to plan it: by evs itself, or as a server takes it.

In: a probed file or numbers, and a model, from the planner. Out: ``Clips``, which plan the video by any request and at
any size, so that what plans, fits, sweeps, prunes and checks a video agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from evs_cli.dialects import EVS_DIALECT, Dialect
from evs_cli.dialects.base import ServerSource
from evs_cli.dialects.limits import PlannedUse, ServerLimit, server_limits
from evs_cli.dialects.served import ServedPlanner, SourceTimes
from evs_cli.encoders.base import Clip, EncodeOptions, FloatArray, VideoEncoder
from evs_cli.errors import UsageError
from evs_cli.pipeline.clip_plan import ClipPlan, SourceFacts
from evs_cli.pipeline.settings import DEFAULT_PRUNING_RATE
from evs_cli.video.info import VideoInfo
from evs_cli.video.sampling import FrameSelection, SamplingRequest, select_frames

DEFAULT_SOURCE_FPS = 30.0
_MAX_NUMBERS_FRAMES = 1_000_000


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

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"

    def at_rate(self, fps: float | None) -> NumbersRequest:
        """The same with its duration settled: so many frames without one are ``fps`` a second, 2 unless said."""
        if self.duration_seconds is not None or self.frames is None:
            return self
        return replace(self, duration_seconds=self.frames / (fps or 2.0))

    def adjusted(self, asked: SamplingRequest) -> SamplingRequest:
        """The request that is sampled: all ``frames``, where they are given and ``asked`` says no other number."""
        if self.frames is None or asked.fps is not None or asked.num_frames is not None:
            return asked
        return replace(asked, num_frames=self.frames)


class Clips(Protocol):
    """One video, ready to be sampled and planned by any request and at any size."""

    dialect: Dialect

    @property
    def planner(self) -> ServedPlanner | None:
        """The model under a server's rules; None for ``evs``."""

    def plan(self, sampling: SamplingRequest, options: EncodeOptions) -> ClipPlan:
        """The plan of a request."""

    def part_length(self, plan: ClipPlan) -> int:
        """Ids of the video's part of a plan of it: of the sequence without the chat prompt around it."""

    def sample(self, sampling: SamplingRequest) -> FrameSelection:
        """The frames of a request, before their size is settled."""

    def rates(self, asked: Sequence[float] | None) -> tuple[Sequence[float], tuple[str, ...]]:
        """The rates to count at, by default 0 and what it would be pruned at; a sentence where ``asked`` is idle."""

    def fewer(self, plan: ClipPlan, share: float) -> SamplingRequest | None:
        """The request for a share of the planned frames, in the terms they were asked in; None where there is none."""

    def use(self, plan: ClipPlan, q: float) -> PlannedUse | None:
        """What the clip at rate q uses of the server's limits; None for ``evs``."""

    def limits(
        self, plan: ClipPlan, q: float, context_limit: int | None, reserve: int = 0, *, with_longest: bool = True
    ) -> tuple[ServerLimit, ...]:
        """Every limit of the server that the clip may run into at rate q, ``0 <= q < 1``; none for ``evs``."""


class EvsClips:
    """A video by the model's own processor, told the true times.

    Args:
        encoder: the model.
        facts: the source.
        pts_seconds: (F,) float64, when each of its frames is shown.
        file: the probed file; None of numbers alone.
        adjust: turns a request into the one that is sampled.
    """

    dialect = EVS_DIALECT
    planner = None

    def __init__(
        self,
        encoder: VideoEncoder,
        facts: SourceFacts,
        pts_seconds: FloatArray,
        file: VideoInfo | None = None,
        adjust: Callable[[SamplingRequest], SamplingRequest] = lambda sampling: sampling,
    ) -> None:
        self._encoder, self._facts, self._pts, self._file = encoder, facts, pts_seconds, file
        self._adjust = adjust

    def plan(self, sampling: SamplingRequest, options: EncodeOptions) -> ClipPlan:
        """See ``Clips.plan``."""
        facts, selection = self._facts, self.sample(sampling)
        clip = Clip(facts.height, facts.width, selection.pts_seconds, selection.window_seconds)
        encode = self._encoder.plan(clip, options)
        encode = replace(encode, notes=(*self._encoder.source.notes, *encode.notes))
        return ClipPlan(facts, sampling, options, selection, clip, encode, self._file)

    def part_length(self, plan: ClipPlan) -> int:
        """See ``Clips.part_length``."""
        if plan.options.prompt is None:
            return plan.encode.layout.sequence_length
        part = self._encoder.plan(plan.clip, replace(plan.options, prompt=None, system=None))
        return part.layout.sequence_length

    def sample(self, sampling: SamplingRequest) -> FrameSelection:
        """See ``Clips.sample``."""
        defaults = self._encoder.sampling_defaults
        return select_frames(self._pts, self._facts.duration_seconds, self._adjust(sampling), defaults)

    def rates(self, asked: Sequence[float] | None) -> tuple[Sequence[float], tuple[str, ...]]:
        """See ``Clips.rates``."""
        return asked or [0.0, self._encoder.default_pruning_rate or DEFAULT_PRUNING_RATE], ()

    def fewer(self, plan: ClipPlan, share: float) -> SamplingRequest:
        """See ``Clips.fewer``: a rate, or a number."""
        selection, sampling = plan.selection, plan.sampling
        if share == 1:
            return sampling
        # Where max_frames bound, half the rate might still be bound by it and give as many frames: so a number then.
        if selection.rule == "fps" and selection.requested_fps and not selection.max_frames_bound:
            return replace(sampling, fps=round(selection.requested_fps * share, 6), num_frames=None)
        return replace(sampling, fps=None, num_frames=max(1, round(plan.num_sampled_frames * share)))

    def use(self, plan: ClipPlan, q: float) -> None:
        """See ``Clips.use``."""

    def limits(
        self, plan: ClipPlan, q: float, context_limit: int | None, reserve: int = 0, *, with_longest: bool = True
    ) -> tuple[ServerLimit, ...]:
        """See ``Clips.limits``."""
        return ()


class ServerClips:
    """A video as a server takes it.

    Args:
        planner: the model under a dialect.
        facts: the source as it is.
        source: the source as the server sees it.
        true: its frames as they are.
        file: the probed file; None of numbers alone.
    """

    def __init__(
        self,
        planner: ServedPlanner,
        facts: SourceFacts,
        source: ServerSource,
        true: SourceTimes,
        file: VideoInfo | None = None,
    ) -> None:
        self.dialect, self.planner, self.source = planner.dialect, planner, source
        self._facts, self._true, self._file = facts, true, file

    def plan(self, sampling: SamplingRequest, options: EncodeOptions) -> ClipPlan:
        """See ``Clips.plan``."""
        served = self.planner.plan(self.source, self._true, sampling, options)
        notes, name = (*self.planner.encoder.source.notes, *served.notes), self.dialect.name
        encode = replace(served.encode, notes=notes)
        return ClipPlan(self._facts, sampling, options, served.selection, served.clip, encode, self._file, name, served)

    def part_length(self, plan: ClipPlan) -> int:
        """See ``Clips.part_length``."""
        if plan.options.prompt is None:
            return plan.encode.layout.sequence_length
        assert plan.served is not None
        return self.planner.sequence_length([plan.served.server], 0.0, replace(plan.options, prompt=None, system=None))

    def sample(self, sampling: SamplingRequest) -> FrameSelection:
        """See ``Clips.sample``; sizes do not change a server's sampling."""
        server = self.planner.server_plan(self.source, sampling, EncodeOptions())
        return self.planner.selection(server, self._true)

    def rates(self, asked: Sequence[float] | None) -> tuple[Sequence[float], tuple[str, ...]]:
        """See ``Clips.rates``."""
        pruning = self.planner.pruning
        if not pruning.can_prune:
            return [0.0], (f"--q has no effect: {pruning.source}",) if asked and max(asked) > 0 else ()
        return asked or sorted({0.0, pruning.q}), ()

    def fewer(self, plan: ClipPlan, share: float) -> SamplingRequest | None:
        """See ``Clips.fewer``: a rate where the server goes by one, else a number."""
        if share == 1:
            return plan.sampling
        num_frames = max(1, round(plan.num_sampled_frames * share))
        return self.planner.rules.fewer_frames(self.planner.model, num_frames, self.source.duration_seconds)

    def limits(
        self, plan: ClipPlan, q: float, context_limit: int | None, reserve: int = 0, *, with_longest: bool = True
    ) -> tuple[ServerLimit, ...]:
        """See ``Clips.limits``."""
        return server_limits(
            self.use(plan, q),
            lambda source: self.planner.server_plan(source, plan.sampling, plan.options),
            context_limit=context_limit,
            reserve=reserve,
            with_longest=with_longest,
        )

    def use(self, plan: ClipPlan, q: float) -> PlannedUse:
        """See ``Clips.use``."""
        assert plan.served is not None
        num_text_ids = plan.encode.layout.sequence_length - plan.encode.total_tokens
        return PlannedUse(self.planner, self.source, plan.served.server, q, plan.options, num_text_ids)
