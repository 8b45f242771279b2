"""One request: a video, or several in one prompt, planned by the same sampling and the same sizes.

In: the ``Clips`` of each video. Out: ``RequestPlan``s, whose sequence holds the text once and every video's part, and
what such a request runs into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evs_cli.dialects.base import RefusedByServerError
from evs_cli.dialects.limits import RequestUse, UsedLimit, first_hit, request_limits
from evs_cli.encoders.base import EncodeOptions, VideoEncoder
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.clips import Clips
from evs_cli.video.sampling import SamplingRequest

_LENGTH = "the length"


@dataclass(frozen=True, eq=False)
class RequestPlan:
    """The videos of one request as they are planned."""

    clips: tuple[ClipPlan, ...]
    """At least one, each with the text around it as if it were alone."""
    other_tokens: int
    """Ids of the sequence that are no video token: text, markers, times."""

    @property
    def sampling(self) -> SamplingRequest:
        """What was asked of the frames of every video."""
        return self.clips[0].sampling

    @property
    def options(self) -> EncodeOptions:
        """What was asked of the family."""
        return self.clips[0].options

    @property
    def total_tokens(self) -> int:
        """Video tokens before pruning, of all videos."""
        return sum(clip.encode.total_tokens for clip in self.clips)

    def retained_tokens(self, q: float) -> int:
        """Video tokens kept at rate q: the sum of each video's K."""
        return sum(clip.encode.retained_tokens(q) for clip in self.clips)

    def sequence_length(self, q: float = 0.0) -> int:
        """L, ids of the whole prompt at rate q."""
        return self.other_tokens + self.retained_tokens(q)

    @property
    def longest(self) -> ClipPlan:
        """The video with the most sampled frames."""
        return max(self.clips, key=lambda clip: clip.num_sampled_frames)

    @property
    def frame_size(self) -> tuple[int, int]:
        """(height, width) in pixels of the largest frames."""
        return max((clip.encode.frame_size for clip in self.clips), key=lambda size: size[0] * size[1])


class RequestClips:
    """The videos of one request, ready to be planned by any request and at any size.

    Args:
        clips: of each video, all of one model under one dialect.
        encoder: the model.
    """

    def __init__(self, clips: Sequence[Clips], encoder: VideoEncoder) -> None:
        self.clips, self._encoder = tuple(clips), encoder
        self.dialect, self.planner = clips[0].dialect, clips[0].planner

    def plan(self, sampling: SamplingRequest, options: EncodeOptions) -> RequestPlan:
        """The plan of a request; ``sampling`` and ``options`` are of every video.

        Raises:
            RefusedByServerError: a video that the server would refuse, or videos that it would not take together.
        """
        plans = tuple(clips.plan(sampling, options) for clips in self.clips)
        grids = [plan.encode.token_grid_thw for plan in plans]
        fault = None if self.planner is None else self.planner.rules.together_fault(self.planner.model, grids)
        if fault is not None:
            raise RefusedByServerError(
                f"{self.dialect.name} {fault}: these videos, of the grids {', '.join(map(str, grids))}, would fail "
                "together.",
                hint="Send videos of one shape together, or each alone.",
            )
        return RequestPlan(plans, self._length(plans, options) - sum(plan.encode.total_tokens for plan in plans))

    def _length(self, plans: Sequence[ClipPlan], options: EncodeOptions) -> int:
        """L without pruning."""
        if len(plans) == 1:
            return plans[0].encode.layout.sequence_length
        if self.planner is None:
            unasked = replace(options, prompt=None, system=None)
            parts = [clips.plan(plan.sampling, unasked) for clips, plan in zip(self.clips, plans, strict=True)]
            return self._encoder.request_length([part.encode.layout.input_ids.tolist() for part in parts], options)
        return self.planner.sequence_length([plan.served.server for plan in plans if plan.served], 0.0, options)

    def text_tokens(self, options: EncodeOptions) -> int:
        """Ids around the videos' parts."""
        return self._encoder.text_tokens(options, len(self.clips))

    def num_frames(self, sampling: SamplingRequest) -> int:
        """Sampled frames of the video with the most of them, before the size is settled."""
        return max(len(clips.sample(sampling).frame_indices) for clips in self.clips)

    def fewer(self, plan: RequestPlan, share: float) -> SamplingRequest | None:
        """The request for a share of the frames of the longest video, which every other follows; None where there is
        none.
        """
        longest = plan.clips.index(plan.longest)
        return self.clips[longest].fewer(plan.clips[longest], share)

    def obstacle(self, plan: RequestPlan, q: float, budget: int, context_limit: int | None) -> str | None:
        """What the request at rate q runs into: ``budget`` ids first, then the server's limits; None where it fits.

        Args:
            plan: of these videos.
            q: pruning rate; one above 0 is an obstacle where the server does not prune.
            budget: longest ``input_ids``.
            context_limit: longest sequence the server would be started with, which its other limits depend on; None
                where none is known.
        """
        if q > 0 and self.planner is not None and not self.planner.pruning.can_prune:
            return f"{self.dialect.name} does not prune"
        if plan.sequence_length(q) > budget:
            return _LENGTH
        use = self._use(plan, q)
        return None if use is None else first_hit(use, context_limit=context_limit)

    def limits(self, plan: RequestPlan, q: float, context_limit: int | None, reserve: int = 0) -> tuple[UsedLimit, ...]:
        """Every limit of the server that the request may run into at rate q, ``0 <= q < 1``; none for ``evs``."""
        use = self._use(plan, q)
        return () if use is None else request_limits(use, context_limit=context_limit, reserve=reserve)

    def _use(self, plan: RequestPlan, q: float) -> RequestUse | None:
        uses = [clips.use(clip, q) for clips, clip in zip(self.clips, plan.clips, strict=True)]
        videos = tuple(use for use in uses if use is not None)
        return RequestUse(videos) if videos else None
