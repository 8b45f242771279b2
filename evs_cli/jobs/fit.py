"""How to make a video fit a token budget: the smallest rate, then other frame rates and sizes, with the lines to run.

In: what plans a video, a model, a budget. Out: a ``FitReport``. It plans and never loads a weight; every answer is
right to the token: one step less does not fit.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects.base import ServerOptions
from evs_cli.dialects.requests import ServerRecipe, ServingRequest, evs_flags
from evs_cli.encoders.base import EncodeOptions, EncodePlan, VideoEncoder
from evs_cli.errors import BudgetError, UsageError
from evs_cli.jobs.budget import check_context
from evs_cli.jobs.inputs import STDIN
from evs_cli.pipeline.clip_plan import ClipPlan, SourceFacts
from evs_cli.pipeline.clips import Clips
from evs_cli.pipeline.request import SessionRequest

STEP = 0.01
MAX_RATE = 0.95
_RATES = tuple(round(index * STEP, 9) for index in range(round(MAX_RATE / STEP) + 1))
_FRAME_SHARES = (1.0, 0.5, 0.25)
_SIZE_SHARES = (1.0, 0.75, 0.5)


@dataclass(frozen=True)
class FitRequest:
    """What must fit.

    Raises:
        UsageError: neither limit, a limit below 1, or a reserve that leaves nothing.
    """

    context: int | None = None
    """Longest sequence, the answer included."""
    max_tokens: int | None = None
    """Longest prompt, as a number of its own."""
    reserve: int = 0
    """Tokens of ``context`` kept for the answer and other text."""

    def __post_init__(self) -> None:
        if self.context is None and self.max_tokens is None:
            raise UsageError("No budget is given. Expected --context or --max-tokens, such as --context 32k.")
        check_context(self.context)
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"Invalid max_tokens ({self.max_tokens}). Expected at least 1.")
        if self.reserve and self.context is None:
            raise UsageError(f"reserve ({self.reserve}) has no effect on max_tokens. Expected it beside context.")
        if self.reserve < 0 or (self.context is not None and self.reserve >= self.context):
            raise UsageError(f"Invalid reserve ({self.reserve}). Expected 0 <= reserve < context.")

    @property
    def budget(self) -> int:
        """The longest ``input_ids`` allowed."""
        limits = [] if self.max_tokens is None else [self.max_tokens]
        if self.context is not None:
            limits.append(self.context - self.reserve)
        return min(limits)


@dataclass(frozen=True)
class FitChoice:
    """One way to fit."""

    q: float
    """The smallest rate, a multiple of 0.01, at which it fits."""
    sequence_length: int
    """L at that rate, at most the budget."""
    retained_tokens: int
    total_tokens: int
    num_sampled_frames: int
    frame_size: tuple[int, int]
    """(height, width) in pixels."""
    token_grid_thw: TokenGrid
    command: str
    """The ``evs prune`` line that does it."""
    server: ServerRecipe | None = None
    """The server line and the request that do it, under a dialect."""


@dataclass(frozen=True)
class FitReport:
    """What fits a budget, the present sampling first."""

    source: SourceFacts
    dialect: str
    model: str
    budget: int
    unpruned_sequence_length: int
    """L at the present sampling without pruning."""
    present: FitChoice | None
    """The present sampling at the smallest rate that fits; None where no rate up to 0.95 does."""
    obstacle: str | None
    """What the present sampling runs into at the highest rate: its length, or a limit of the server; None where it
    fits."""
    others: tuple[FitChoice, ...]
    """Other samplings and sizes that fit: least pruning first, then most frames, then largest frames."""
    notes: tuple[str, ...] = ()
    """What was put into the requests, or is missing there."""

    @property
    def choices(self) -> tuple[FitChoice, ...]:
        """The present sampling where it fits, then the others."""
        return self.others if self.present is None else (self.present, *self.others)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.source.name


@dataclass(frozen=True)
class CommonFit:
    """The one rate at which several videos fit, each at its present sampling."""

    q: float | None
    """The smallest such rate, a multiple of 0.01; None where there is none."""
    binding_video: str | None
    """The video that needs it, as it was named, or the first for which no rate is enough; None of no video."""
    num_videos: int
    """How many videos it is of; one that could not be planned is not among them."""


def common_fit(needed: Sequence[tuple[str, float | None]]) -> CommonFit:
    """The one rate for videos of which each needs a rate, or fits at none.

    Args:
        needed: each video as it was named, and the smallest rate at which its present sampling fits, or None.
    """
    unfit = next((video for video, q in needed if q is None), None)
    if unfit is not None or not needed:
        return CommonFit(None, unfit, len(needed))
    # A sequence never grows with the rate, so that the largest of the smallest rates fits all.
    binding, q = max(((video, q or 0.0) for video, q in needed), key=lambda each: each[1])
    return CommonFit(q, binding, len(needed))


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


def prune_command(planned: ClipPlan, clips: Clips, session: SessionRequest, q: float) -> str:
    """The ``evs prune`` line for a choice, as a shell takes it; ``VIDEO`` stands for the file of numbers alone."""
    video, options = planned.source.path or "VIDEO", planned.options
    name = f"./{video}" if video.startswith("-") and video != STDIN else video
    # What is counted and not run is planned.
    verb = "prune" if planned.encode.pruning_method == "evs" else "plan"
    words = ["evs", verb, name, "--model", session.model, "--q", f"{q:g}"]
    words += [] if session.revision is None else ["--revision", session.revision]
    words += ["--trust-remote-code"] if session.trust_remote_code else []
    words += [] if session.decoder == "pyav" else ["--decoder", session.decoder]
    if clips.planner is not None:
        words += evs_flags(clips.dialect.name, clips.planner.server_options(planned.sampling, options))
        words += [] if options.prompt is None else ["--prompt", options.prompt]
        return shlex.join(words + ([] if options.system is None else ["--system", options.system]))
    flags = {"start_seconds": "--start", "end_seconds": "--end"}
    for values in (vars(planned.sampling), vars(options)):
        for name, value in values.items():
            flag = flags.get(name, "--" + name.replace("_", "-"))
            if isinstance(value, bool):
                words.append(flag if value else "--no-cap")
            elif value is not None:
                words += [flag, f"{value:.15g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def server_recipe(planned: ClipPlan, clips: Clips, request: FitRequest, q: float) -> ServerRecipe | None:
    """The server line and the request for a choice; None for ``evs``."""
    if clips.planner is None:
        return None
    options = planned.options
    serving = ServingRequest(
        model=clips.planner.encoder.source.served_location,
        q=q,
        own_rate=clips.planner.rules.pruning(clips.planner.model, ServerOptions()).q,
        context=request.context,
        video=planned.source.path,
        prompt=options.prompt,
        system=options.system,
        # What a server keeps anyway is no answer that was asked for.
        max_tokens=request.reserve if request.reserve > clips.planner.rules.context_margin else None,
    )
    planner = clips.planner
    return planner.rules.recipe(serving, planner.server_options(planned.sampling, options), planner.options)


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
