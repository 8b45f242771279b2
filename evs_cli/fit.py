"""How to make a video fit a token budget: the smallest rate, then other frame rates and sizes, with the lines to run.

In: a sampled video, a model, a budget. Out: a ``FitReport``. It plans and never loads a weight; every answer is right
to the token: one step less does not fit.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from evs_cli.budget import Sampled
from evs_cli.encoders.base import EncodeOptions, EncodePlan, VideoEncoder
from evs_cli.errors import BudgetError, UsageError
from evs_cli.video.sampling import SamplingRequest

STEP = 0.01
MAX_RATE = 0.95
_RATES = tuple(round(index * STEP, 9) for index in range(round(MAX_RATE / STEP) + 1))
_FRAME_SHARES = (1.0, 0.5, 0.25)
_SIZE_SHARES = (1.0, 0.75, 0.5)

Resample = Callable[[SamplingRequest], Sampled]
"""Samples the same video by another request."""


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
            raise UsageError("No budget is given. Expected --context or --max-tokens.")
        for name in ("context", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"Invalid {name} ({value}). Expected at least 1.")
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
    command: str
    """The ``evs prune`` line that does it."""


@dataclass(frozen=True)
class FitReport:
    """What fits a budget, the present sampling first."""

    name: str
    model: str
    budget: int
    unpruned_sequence_length: int
    """L at the present sampling without pruning."""
    present: FitChoice | None
    """The present sampling at the smallest rate that fits; None where no rate up to 0.95 does."""
    others: tuple[FitChoice, ...]
    """Other samplings and sizes that fit: least pruning first, then most frames, then largest frames."""


def fit(
    sampled: Sampled,
    encoder: VideoEncoder,
    sampling: SamplingRequest,
    options: EncodeOptions,
    request: FitRequest,
    resample: Resample,
) -> FitReport:
    """The smallest rate that fits, and the other ways.

    Args:
        sampled: the video at the sampling asked for.
        encoder: the model; its weights are not touched.
        sampling: that sampling.
        options: the user's options for the model.
        request: the budget.
        resample: samples the video by another request.

    Raises:
        BudgetError: nothing fits; it says what would.
    """
    plan = encoder.plan(sampled.clip, options)
    budget = request.budget
    present = _choice(sampled, plan, sampling, options, encoder, budget)
    others = [
        choice
        for other_sampling, other_options, other_sampled in _alternatives(
            sampled, plan, sampling, options, encoder, resample
        )
        if (
            choice := _choice(
                other_sampled,
                encoder.plan(other_sampled.clip, other_options),
                other_sampling,
                other_options,
                encoder,
                budget,
            )
        )
    ]
    if present is None and not others:
        raise _impossible(sampled, plan, budget)
    others.sort(key=lambda c: (c.q, -c.num_sampled_frames, -c.frame_size[0] * c.frame_size[1]))
    return FitReport(
        name=sampled.source.name,
        model=encoder.source.name,
        budget=budget,
        unpruned_sequence_length=plan.sequence_length(),
        present=present,
        others=tuple(others),
    )


def smallest_rate(plan: EncodePlan, budget: int) -> float | None:
    """The smallest multiple of 0.01, at most 0.95, with L(q) <= budget; None where there is none.

    L falls as q grows, so the rates are halved until one is left.
    """
    low, high = 0, len(_RATES)
    while low < high:
        middle = (low + high) // 2
        if plan.sequence_length(_RATES[middle]) <= budget:
            high = middle
        else:
            low = middle + 1
    return _RATES[low] if low < len(_RATES) else None


def _choice(
    sampled: Sampled,
    plan: EncodePlan,
    sampling: SamplingRequest,
    options: EncodeOptions,
    encoder: VideoEncoder,
    budget: int,
) -> FitChoice | None:
    q = smallest_rate(plan, budget)
    if q is None:
        return None
    return FitChoice(
        q=q,
        sequence_length=plan.sequence_length(q),
        retained_tokens=plan.retained_tokens(q),
        total_tokens=plan.total_tokens,
        num_sampled_frames=len(sampled.selection.frame_indices),
        frame_size=plan.frame_size,
        command=prune_command(sampled.source.path or "VIDEO", encoder.source.name, q, sampling, options),
    )


def _alternatives(
    sampled: Sampled,
    plan: EncodePlan,
    sampling: SamplingRequest,
    options: EncodeOptions,
    encoder: VideoEncoder,
    resample: Resample,
) -> Iterator[tuple[SamplingRequest, EncodeOptions, Sampled]]:
    """Fewer frames and smaller frames than the present, each with each; the present itself is left out."""
    seen: set[tuple[int, tuple[int, int]]] = {(len(sampled.selection.frame_indices), plan.frame_size)}
    for frame_share in _FRAME_SHARES:
        other_sampling = _fewer_frames(sampled, sampling, frame_share)
        other = sampled if frame_share == 1 else resample(other_sampling)
        for size_share in _SIZE_SHARES:
            other_options = smaller_frames(plan, encoder, options, size_share, len(other.selection.frame_indices))
            if other_options is None:
                continue
            size = encoder.plan(other.clip, other_options).frame_size
            key = (len(other.selection.frame_indices), size)
            if key not in seen:
                seen.add(key)
                yield other_sampling, other_options, other


def _fewer_frames(sampled: Sampled, sampling: SamplingRequest, share: float) -> SamplingRequest:
    """The request for a share of the present frames, in the terms the user thinks in: a rate, or a number."""
    if share == 1:
        return sampling
    selection = sampled.selection
    if selection.rule == "fps" and selection.requested_fps and not selection.max_frames_bound:
        return replace(sampling, fps=round(selection.requested_fps * share, 6), num_frames=None)
    frames = max(1, round(len(selection.frame_indices) * share))
    return replace(sampling, fps=None, num_frames=frames)


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


def prune_command(video: str, model: str, q: float, sampling: SamplingRequest, options: EncodeOptions) -> str:
    """The ``evs prune`` line for a choice, as a shell takes it."""
    words = ["evs", "prune", video, "--model", model, "--q", f"{q:g}"]
    flags = {"start_seconds": "--start", "end_seconds": "--end"}
    for values in (vars(sampling), vars(options)):
        for name, value in values.items():
            flag = flags.get(name, "--" + name.replace("_", "-"))
            if isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            elif value is not None:
                words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def _impossible(sampled: Sampled, plan: EncodePlan, budget: int) -> BudgetError:
    """The error for a video that cannot fit: what its least length is made of, and the budget that would do."""
    least, rest = plan.sequence_length(MAX_RATE), plan.sequence_length() - plan.total_tokens
    return BudgetError(
        f"{sampled.source.name} does not fit {budget:,} tokens: at q = {MAX_RATE:g} it needs {least:,}, of which "
        f"frame 0 alone is {plan.tokens_per_frame:,} and {rest:,} are text and separators.",
        hint=f"Allow {least:,} tokens, sample fewer frames, or take a model with fewer tokens a frame.",
    )
