"""Server limits: how much of each a video uses, and the longest clip of the same size that would still pass.

In: a server's plan of one clip, and how it would plan the same clip longer or shorter. Out: one ``ServerLimit`` each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from evs_cli.dialects.base import RefusedByServerError, ServerPlan, ServerSource
from evs_cli.dialects.served import ServedPlanner
from evs_cli.dialects.server import Limit
from evs_cli.encoders.base import EncodeOptions

_RATE_FALLS_BEYOND_SECONDS = (30, 300)  # GLM-4.6V's
_LONGEST_SECONDS = 24 * 3600  # a clip that passes at this length passes at any


@dataclass(frozen=True)
class UsedLimit:
    """One limit of a server, and how much of it a request uses."""

    name: str
    """Such as ``context``."""
    used: int
    limit: int
    """The most that passes."""
    unit: str
    """Of both: ``tokens``, ``bytes``, ``pixels`` or ``videos``."""
    option: str
    """What raises the limit."""

    @property
    def margin(self) -> int:
        """What is left; negative where the request does not pass."""
        return self.limit - self.used

    @property
    def passes(self) -> bool:
        """Whether the request passes."""
        return self.used <= self.limit

    def next_step(self, otherwise: str) -> str:
        """What to do where it does not pass: raise the option, or ``otherwise``; that alone without an option."""
        if self.option.startswith("the "):  # the model's own
            return f"{otherwise[0].upper()}{otherwise[1:]}."
        return f"Raise {self.option}, or {otherwise}."


@dataclass(frozen=True)
class ServerLimit(UsedLimit):
    """One limit of a server, how much of it a request of one clip uses, and how long that clip might be."""

    longest_seconds: float | None
    """Length of the longest clip of this size, rate and q that passes; None for any length."""

    @property
    def reach(self) -> str:
        """That length in words, cut to tenths of a second."""
        if self.longest_seconds is None:
            return "any length"
        return f"up to {math.floor(self.longest_seconds * 10) / 10:.1f} s"


@dataclass(frozen=True, eq=False)
class PlannedUse:
    """One source as a server takes it at a rate: what the limits are compared with."""

    planner: ServedPlanner
    source: ServerSource
    plan: ServerPlan
    q: float
    chat: EncodeOptions
    """The text around the video."""
    num_text_ids: int | None = None
    """Ids of the sequence that are no video token, where they are known."""

    @property
    def num_videos(self) -> int:
        """1."""
        return 1

    @property
    def sequence_length(self) -> int:
        """L at that rate."""
        if self.num_text_ids is not None:
            return self.num_text_ids + sum(self.plan.client_counts(self.q))
        return self.planner.sequence_length([self.plan], self.q, self.chat)

    @property
    def cached_tokens(self) -> int:
        """What of the video the encoder cache must hold."""
        retained = self.plan.retained_tokens(self.q)
        if not self.plan.counts_separators_in_cache(self.q):
            return retained
        return retained + self.planner.inner_separator_tokens(self.plan)

    @property
    def decoded_bytes(self) -> int:
        """Of all sampled frames at the source's size, 3 bytes a pixel."""
        return len(self.plan.frame_indices) * self.frame_pixels * 3

    @property
    def frame_pixels(self) -> int:
        """Of a frame at the source's size."""
        return self.source.height * self.source.width


@dataclass(frozen=True, eq=False)
class RequestUse:
    """One request with several videos at a rate. vLLM takes its items into the encoder cache one after the other, so
    the largest alone must fit there; of what it decodes it counts the whole request.
    """

    videos: tuple[PlannedUse, ...]
    """Each video as it is planned alone, with the same text around it."""

    @property
    def planner(self) -> ServedPlanner:
        """The model under the dialect, one for all."""
        return self.videos[0].planner

    @property
    def num_videos(self) -> int:
        """How many there are."""
        return len(self.videos)

    @property
    def sequence_length(self) -> int:
        """L at that rate: the text once, and every video's part."""
        first = self.videos[0]
        return self.planner.sequence_length([video.plan for video in self.videos], first.q, first.chat)

    @property
    def cached_tokens(self) -> int:
        """Of the largest video."""
        return max(video.cached_tokens for video in self.videos)

    @property
    def decoded_bytes(self) -> int:
        """Of all videos together."""
        return sum(video.decoded_bytes for video in self.videos)

    @property
    def frame_pixels(self) -> int:
        """Of the largest frame."""
        return max(video.frame_pixels for video in self.videos)


def request_limits(at: RequestUse, *, context_limit: int | None, reserve: int = 0) -> tuple[UsedLimit, ...]:
    """The limits of one request with several videos; arguments as ``server_limits``."""
    return tuple(
        UsedLimit(limit.name, limit.used(at), limit.most, limit.unit, limit.option)
        for limit in _limits(at, context_limit, reserve)
    )


def server_limits(
    at: PlannedUse,
    plan_at: Callable[[ServerSource], ServerPlan],
    *,
    context_limit: int | None,
    reserve: int = 0,
    with_longest: bool = True,
) -> tuple[ServerLimit, ...]:
    """The limits of one clip.

    Args:
        at: the clip as planned.
        plan_at: plans the same clip with more or fewer frames.
        context_limit: longest sequence, the answer included; None where none is known.
        reserve: tokens of it kept for the answer; a server keeps 1 at least.
        with_longest: whether the longest clip that passes is looked for, which takes many times as long as a plan.
    """
    return tuple(
        ServerLimit(
            limit.name,
            limit.used(at),
            limit.most,
            limit.unit,
            limit.option,
            _longest_seconds(at, plan_at, limit) if with_longest else None,
        )
        for limit in _limits(at, context_limit, reserve)
    )


def first_hit(at: PlannedUse | RequestUse, *, context_limit: int | None, reserve: int = 0) -> str | None:
    """The name of the first limit that a request runs into, None where it passes; arguments as ``server_limits``."""
    limits = _limits(at, context_limit, reserve)
    return next((limit.name for limit in limits if limit.used(at) > limit.most), None)


def _limits(at: PlannedUse | RequestUse, context_limit: int | None, reserve: int) -> Iterator[Limit]:
    """The longest sequence, which every server limits, the number of several videos, then the server's own limits."""
    planner = at.planner
    rules, context = planner.rules, planner.options.max_model_len or context_limit
    if context is not None:
        most = context - max(reserve, rules.context_margin)
        yield Limit("context", most, "tokens", rules.context_option, lambda clip: clip.sequence_length)
    videos = rules.video_limit(planner.model, planner.options) if at.num_videos > 1 else None
    if videos is not None:
        yield videos
    yield from rules.limits(planner.model, planner.options, context)


def _longest_seconds(at: PlannedUse, plan_at: Callable[[ServerSource], ServerPlan], limit: Limit) -> float | None:
    """Seconds of the longest clip that passes; 0 where none does, None where any does or the rate is unknown.

    Every shorter clip passes too. Use grows with length but for rounding, and but where a family's rate falls with it
    (GLM-4.6V): the border is found by halving within the lengths of one rate, then by doubling and halving.
    """
    if not limit.grows:
        return None if limit.used(at) <= limit.most else 0.0
    source = at.source
    if source.average_fps <= 0:
        return None

    def passes(num_frames: int) -> bool:
        longer = replace(source, num_frames=num_frames, lost=frozenset())
        try:
            return limit.used(replace(at, source=longer, plan=plan_at(longer), num_text_ids=None)) <= limit.most
        except RefusedByServerError:  # too short for a tubelet
            return True

    low, high = 0, source.num_frames
    for seconds in _RATE_FALLS_BEYOND_SECONDS:
        border = int(seconds * source.average_fps)
        if border > low and not passes(border):
            high = border
            break
        low = max(low, border)
    else:
        high = max(high, 2 * low)
    while passes(high):
        if high > _LONGEST_SECONDS * source.average_fps:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low / source.average_fps
