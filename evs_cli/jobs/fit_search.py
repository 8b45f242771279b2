"""How to make a video fit a token budget: the smallest rate, then other frame rates and sizes, with the lines to run.

In: what plans a video, a model, a budget. Out: a ``FitReport``. It plans and never loads a weight; every answer is
right to the token: one step less does not fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from evs_cli.encoders.base import EncodeOptions, EncodePlan, VideoEncoder
from evs_cli.errors import BudgetError
from evs_cli.jobs.fit import MAX_RATE, STEP, FitChoice, FitReport, FitRequest
from evs_cli.jobs.fit_lines import prune_command, server_recipe
from evs_cli.pipeline.clip_plan import ClipPlan
from evs_cli.pipeline.clips import Clips
from evs_cli.pipeline.request import SessionRequest

_RATES = tuple(round(index * STEP, 9) for index in range(round(MAX_RATE / STEP) + 1))
_FRAME_SHARES = (1.0, 0.5, 0.25)
_SIZE_SHARES = (1.0, 0.75, 0.5)


def fit(clips: Clips, encoder: VideoEncoder, session: SessionRequest, request: FitRequest) -> FitReport:
    """The smallest rate that fits, and the other ways.

    Args:
        clips: what plans the video.
        encoder: the model; its weights are not touched.
        session: model, sampling and options asked for.
        request: the budget.

    Raises:
        BudgetError: nothing fits, not even one frame at the smallest size tried; it says what would.
    """
    search = _Search(clips, encoder, session, request)
    plan = clips.plan(session.sampling, session.options)
    present = search.choice(plan)
    others = search.others(plan, _FRAME_SHARES)
    # Nothing fits yet: halve the frames until something does, or one frame is left.
    share = min(_FRAME_SHARES)
    while present is None and not others and share * plan.num_sampled_frames > 1:
        share /= 2
        others = search.others(plan, (share,))
    if present is None and not others:
        raise _impossible(plan, search)
    obstacle = None
    if present is None:
        obstacle = clips.obstacle(plan, MAX_RATE, request.budget, request.context)
    others.sort(key=lambda c: (c.q, -c.num_sampled_frames, -c.frame_size[0] * c.frame_size[1]))
    return FitReport(
        source=plan.source,
        dialect=clips.dialect.name,
        model=encoder.source.name,
        budget=request.budget,
        unpruned_sequence_length=plan.encode.sequence_length(),
        present=present,
        obstacle=obstacle,
        others=tuple(others),
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


class _Search:
    """Plans samplings and sizes against one budget, and remembers what it tried."""

    def __init__(self, clips: Clips, encoder: VideoEncoder, session: SessionRequest, request: FitRequest) -> None:
        self.clips, self.encoder, self.session, self.request = clips, encoder, session, request
        self.tried: list[tuple[int, int, tuple[int, int]]] = []
        """Of each choice the sequence at the highest rate, its sampled frames, its frame size."""

    def choice(self, planned: ClipPlan) -> FitChoice | None:
        """The smallest rate for one sampling and size; None where no rate fits."""
        plan, num_frames = planned.encode, planned.num_sampled_frames
        self.tried.append((plan.sequence_length(MAX_RATE), num_frames, plan.frame_size))
        budget = self.request.budget
        context = self.request.context  # the server line printed below starts it with that
        q = smallest_rate(lambda q: self.clips.obstacle(planned, q, budget, context) is None)
        if q is None:
            return None
        return FitChoice(
            q=q,
            sequence_length=plan.sequence_length(q),
            retained_tokens=plan.retained_tokens(q),
            total_tokens=plan.total_tokens,
            num_sampled_frames=num_frames,
            frame_size=plan.frame_size,
            token_grid_thw=plan.token_grid_thw,
            command=prune_command(planned, self.clips, self.session, q),
            server=server_recipe(planned, self.clips, self.request, q),
        )

    def others(self, present: ClipPlan, shares: Sequence[float]) -> list[FitChoice]:
        """What fits among shares of the present frames, each with each size; the present itself is left out."""
        seen = {(present.num_sampled_frames, present.encode.frame_size)}
        found = []
        for share in shares:
            sampling = self.clips.fewer(present, share)
            if sampling is None:
                continue
            selection = present.selection if share == 1 else self.clips.sample(sampling)
            num_frames = len(selection.frame_indices)
            for size_share in _SIZE_SHARES:
                options = smaller_frames(present.encode, self.encoder, self.session.options, size_share, num_frames)
                if options is None:
                    continue
                other = self.clips.plan(sampling, options)
                if (num_frames, other.encode.frame_size) in seen:
                    continue
                seen.add((num_frames, other.encode.frame_size))
                choice = self.choice(other)
                found += [] if choice is None else [choice]
        return found


def smaller_frames(
    plan: EncodePlan, encoder: VideoEncoder, options: EncodeOptions, share: float, num_frames: int
) -> EncodeOptions | None:
    """Options for frames whose sides are ``share`` of the present ones; None where the family has one size."""
    if share == 1:
        return options
    height, width = plan.frame_size
    pixels = max(1, round(height * width * share * share))
    limits = {
        "size": max(1, round(min(height, width) * share)),
        "frame_max_pixels": pixels,
        "video_max_pixels": pixels * num_frames,
    }
    for name, value in limits.items():
        if name in encoder.supported_options:
            changed = {**vars(options), name: value}
            least = name.replace("max", "min")
            if least != name and least in encoder.supported_options:
                changed[least] = 1  # the model's own least would refuse a smaller most
            return EncodeOptions(**changed)
    return None


def _impossible(planned: ClipPlan, search: _Search) -> BudgetError:
    """The error for a video that cannot fit: what its length is made of, and the least that would do."""
    plan = planned.encode
    shortest, rest = plan.sequence_length(MAX_RATE), plan.sequence_length() - plan.total_tokens
    least, num_frames, (height, width) = min(search.tried)
    frames = "1 frame" if num_frames == 1 else f"{num_frames} frames"
    return BudgetError(
        f"{planned.source.name} does not fit {search.request.budget:,} tokens: at q = {MAX_RATE:g} it needs "
        f"{shortest:,}, of which frame 0 alone is {plan.tokens_per_frame:,} and {rest:,} are text and separators.",
        hint=f"The least of what was tried is {least:,} ids, for {frames} of {width}x{height}. Allow that, or take a "
        "model with fewer tokens a frame.",
    )
