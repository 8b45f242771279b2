"""How to make a request fit a token budget: the smallest rate, then other frame rates and sizes.

In: what plans the videos of a request, a model, a budget. Out: the ways that fit. It plans and never loads a weight;
every answer is right to the token: one step less does not fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic

from evs_cli.dialects.base import RefusedByServerError
from evs_cli.encoders.base import EncodeOptions, VideoEncoder
from evs_cli.errors import BudgetError
from evs_cli.jobs.fit import MAX_RATE, STEP, ChoiceT, FitRequest, order_key
from evs_cli.pipeline.together import RequestClips, RequestPlan
from evs_cli.video.sampling import SamplingRequest

_RATES = tuple(round(index * STEP, 9) for index in range(round(MAX_RATE / STEP) + 1))
_FRAME_SHARES = (1.0, 0.5, 0.25)
_SIZE_SHARES = (1.0, 0.75, 0.5)


@dataclass(frozen=True)
class Ways(Generic[ChoiceT]):
    """What a search found."""

    unpruned_sequence_length: int
    """L at the present sampling without pruning."""
    present: ChoiceT | None
    """The present sampling at the smallest rate that fits; None where no rate does."""
    obstacle: str | None
    """What the present sampling runs into at the highest rate; None where it fits."""
    others: tuple[ChoiceT, ...]
    """Other samplings and sizes that fit, the best of them first."""


def search_ways(
    clips: RequestClips,
    encoder: VideoEncoder,
    plan: RequestPlan,
    request: FitRequest,
    choice: Callable[[RequestPlan, float], ChoiceT],
) -> Ways[ChoiceT]:
    """The smallest rate that fits, and the other ways.

    Args:
        clips: what plans the videos of the request.
        encoder: the model; its weights are not touched.
        plan: the present sampling.
        request: the budget.
        choice: what is told of a plan at the rate at which it fits.

    Raises:
        BudgetError: nothing fits, not even one frame at the smallest size tried; it says what would.
    """
    search = _Search(clips, encoder, request, choice)
    present = search.choice(plan)
    others = search.others(plan, _FRAME_SHARES)
    if present is None or present.q > 0:
        others += search.all_frames_smaller(plan)
    # Nothing fits yet: halve the frames until something does, or one frame is left.
    share, most = min(_FRAME_SHARES), plan.longest.num_sampled_frames
    while present is None and not others and share * most > 1:
        share /= 2
        others = search.others(plan, (share,))
    if present is None and not others:
        raise _impossible(plan, search.tried, request)
    return Ways(
        plan.sequence_length(),
        present,
        None if present is not None else clips.obstacle(plan, MAX_RATE, request.budget, request.context),
        tuple(sorted(others, key=order_key)),
    )


def smallest_rate(fits: Callable[[float], bool]) -> float | None:
    """The smallest multiple of 0.01, at most 0.95, that fits; None where there is none.

    Use falls as q grows, so the rates that fit stand behind those that do not. A server that does not prune has rate 0
    alone, so that is asked by itself.
    """
    if fits(_RATES[0]):
        return _RATES[0]
    index = bisect_left(_RATES, True, lo=1, key=fits)
    return _RATES[index] if index < len(_RATES) else None


@dataclass(frozen=True)
class _Tried:
    """A sampling and a size that were planned."""

    shortest: int
    """The sequence at the highest rate."""
    num_frames: int
    frame_size: tuple[int, int]


class _Search(Generic[ChoiceT]):
    """Plans samplings and sizes against one budget, and remembers what it tried."""

    def __init__(
        self,
        clips: RequestClips,
        encoder: VideoEncoder,
        request: FitRequest,
        choice: Callable[[RequestPlan, float], ChoiceT],
    ) -> None:
        self.clips, self.encoder, self.request = clips, encoder, request
        self._choice: Callable[[RequestPlan, float], ChoiceT] = choice
        self.tried: list[_Tried] = []
        self._seen: set[tuple[tuple[int, tuple[int, int]], ...]] = set()

    def choice(self, plan: RequestPlan) -> ChoiceT | None:
        """The smallest rate for one sampling and size; None where no rate fits."""
        num_frames = sum(clip.num_sampled_frames for clip in plan.clips)
        self.tried.append(_Tried(plan.sequence_length(MAX_RATE), num_frames, plan.frame_size))
        self._seen.add(_shape(plan))
        q = smallest_rate(lambda q: self._fits(plan, q))
        return None if q is None else self._choice(plan, q)

    def others(self, present: RequestPlan, shares: Sequence[float]) -> list[ChoiceT]:
        """What fits among shares of the present frames, each with each size; the present itself is left out."""
        found = []
        for share in shares:
            sampling = self.clips.fewer(present, share)
            if sampling is None:
                continue
            num_frames = present.longest.num_sampled_frames if share == 1 else self.clips.num_frames(sampling)
            for size_share in _SIZE_SHARES:
                other = self._smaller(present, sampling, size_share, num_frames)
                if other is None or _shape(other) in self._seen:
                    continue
                choice = self.choice(other)
                found += [] if choice is None else [choice]
        return found

    def all_frames_smaller(self, present: RequestPlan) -> list[ChoiceT]:
        """The largest size at which every present frame fits unpruned, to a pixel of the short side; none where no
        size does.
        """
        side, num_frames = min(present.frame_size), present.longest.num_sampled_frames
        fitting: dict[int, RequestPlan] = {}

        def is_too_large(pixels: int) -> bool:
            plan = self._smaller(present, present.sampling, pixels / side, num_frames)
            if plan is not None and self._fits(plan, 0.0):
                fitting[pixels] = plan
                return False
            return plan is not None  # what cannot be planned is too small

        bisect_left(range(1, side), True, key=is_too_large)
        plan = fitting[max(fitting)] if fitting else None
        if plan is None or _shape(plan) in self._seen:
            return []
        self._seen.add(_shape(plan))
        return [self._choice(plan, 0.0)]

    def _fits(self, plan: RequestPlan, q: float) -> bool:
        # The server line of a choice starts it with the context that was asked for.
        return self.clips.obstacle(plan, q, self.request.budget, self.request.context) is None

    def _smaller(
        self, present: RequestPlan, sampling: SamplingRequest, share: float, num_frames: int
    ) -> RequestPlan | None:
        """The plan with sides that are ``share`` of the present ones; None where there is none."""
        rules = None if self.clips.planner is None else self.clips.planner.rules
        names = ("frame_min_pixels", "frame_max_pixels") if rules is not None and rules.bounds_frames_alone else None
        options = smaller_frames(present, self.encoder, share, num_frames, names)
        try:
            return None if options is None else self.clips.plan(sampling, options)
        except RefusedByServerError:  # too small or too few for the server
            return None


def smaller_frames(
    plan: RequestPlan, encoder: VideoEncoder, share: float, num_frames: int, names: Collection[str] | None = None
) -> EncodeOptions | None:
    """Options for frames whose sides are ``share`` of the largest present ones; None where the family has one size.

    Args:
        plan: the present one.
        encoder: the model.
        share: of each side, in (0, 1].
        num_frames: sampled frames of the video with the most of them.
        names: the options that may say so; None is what the family knows.
    """
    names = encoder.supported_options if names is None else names
    if share == 1:
        return plan.options
    height, width = plan.frame_size
    pixels = max(1, round(height * width * share * share))
    limits = {
        "size": max(1, round(min(height, width) * share)),
        "frame_max_pixels": pixels,
        "video_max_pixels": pixels * num_frames,
    }
    for name, value in limits.items():
        if name in names:
            changed = {**vars(plan.options), name: value}
            least = name.replace("max", "min")
            if least != name and least in names:
                changed[least] = 1  # the model's own least would refuse a smaller most
            return EncodeOptions(**changed)
    return None


def _shape(plan: RequestPlan) -> tuple[tuple[int, tuple[int, int]], ...]:
    """What tells one way from another: frames and their size, of each video."""
    return tuple((clip.num_sampled_frames, clip.encode.frame_size) for clip in plan.clips)


def _impossible(plan: RequestPlan, tried: Sequence[_Tried], request: FitRequest) -> BudgetError:
    """The error for what cannot fit: what its length is made of, and the least that would do."""
    shortest, rest = plan.sequence_length(MAX_RATE), plan.other_tokens
    encodes = [clip.encode for clip in plan.clips]
    if encodes[0].pruning_method != "evs":
        floor = f"a token of every frame is {sum(encode.token_grid_thw.t for encode in encodes):,}"
    else:
        first = sum(encode.tokens_per_frame for encode in encodes)
        floor = f"frame 0 alone is {first:,}" if len(encodes) == 1 else f"the first frames alone are {first:,}"
    least = min(tried, key=lambda each: (each.shortest, each.num_frames, each.frame_size))
    frames = "1 frame" if least.num_frames == 1 else f"{least.num_frames} frames"
    height, width = least.frame_size
    name = plan.clips[0].source.name if len(encodes) == 1 else f"one request with {len(encodes)} videos"
    return BudgetError(
        f"{name} does not fit {request.budget:,} tokens: at q = {MAX_RATE:g} it needs {shortest:,}, of which {floor} "
        f"and {rest:,} are text and separators.",
        hint=f"The least of what was tried is {least.shortest:,} ids, for {frames} of {width}x{height}. Allow that, or "
        "take a model with fewer tokens a frame.",
    )
