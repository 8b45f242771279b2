"""What must fit, and what fits: the types of ``fit``.

A ``FitRequest`` is the budget, a ``FitReport`` the ways to meet it, a ``TogetherFit`` those of several videos in one
request. The search is in ``fit_search``, the lines that do it in ``fit_lines``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from evs_cli.core.counts import TokenGrid
from evs_cli.dialects.requests import ServerRecipe
from evs_cli.errors import UsageError
from evs_cli.jobs.budget import check_context
from evs_cli.pipeline.clip_plan import SourceFacts

STEP = 0.01
MAX_RATE = 0.95
ORDER = "least pruning, then most frames, then largest frames"
"""Which way is the best: pruning drops tokens by what repeats, so that the way that needs none goes first."""


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
class Way:
    """One way to fit, of one video or of several in one request."""

    q: float
    """The smallest rate, a multiple of 0.01, at which it fits."""
    sequence_length: int
    """L at that rate, at most the budget."""
    retained_tokens: int
    total_tokens: int
    command: str
    """The ``evs`` line that does it: ``evs prune``, or ``evs plan`` of what is counted and not run."""
    server: ServerRecipe | None
    """The server line and the request that do it, under a dialect."""


@dataclass(frozen=True)
class FitChoice(Way):
    """One way to fit one video."""

    num_sampled_frames: int
    frame_size: tuple[int, int]
    """(height, width) in pixels."""
    token_grid_thw: TokenGrid

    @property
    def frame_sizes(self) -> tuple[tuple[int, int], ...]:
        """The one size."""
        return (self.frame_size,)

    @property
    def num_pixels(self) -> int:
        """Of all sampled frames."""
        return self.num_sampled_frames * self.frame_size[0] * self.frame_size[1]


@dataclass(frozen=True)
class FittedVideo:
    """One of several videos at one way to fit."""

    video: str
    """As it was named."""
    num_sampled_frames: int
    frame_size: tuple[int, int]
    """(height, width) in pixels."""
    token_grid_thw: TokenGrid
    retained_tokens: int


@dataclass(frozen=True)
class TogetherChoice(Way):
    """One way to fit several videos into one request."""

    videos: tuple[FittedVideo, ...]
    """Each, in the order of the request; all by one sampling and one limit of pixels."""

    @property
    def num_sampled_frames(self) -> int:
        """Of all videos."""
        return sum(video.num_sampled_frames for video in self.videos)

    @property
    def frame_size(self) -> tuple[int, int]:
        """(height, width) in pixels of the largest frames."""
        return max((video.frame_size for video in self.videos), key=lambda size: size[0] * size[1])

    @property
    def frame_sizes(self) -> tuple[tuple[int, int], ...]:
        """Of each video; one where all have the same."""
        sizes = tuple(video.frame_size for video in self.videos)
        return sizes[:1] if len(set(sizes)) == 1 else sizes

    @property
    def num_pixels(self) -> int:
        """Of all sampled frames of all videos."""
        return sum(video.num_sampled_frames * video.frame_size[0] * video.frame_size[1] for video in self.videos)


ChoiceT = TypeVar("ChoiceT", FitChoice, TogetherChoice)


@dataclass(frozen=True, kw_only=True)
class Fit(Generic[ChoiceT]):
    """What fits a budget, the present sampling first."""

    dialect: str
    model: str
    budget: int
    unpruned_sequence_length: int
    """L at the present sampling without pruning."""
    present: ChoiceT | None
    """The present sampling at the smallest rate that fits; None where no rate up to 0.95 does."""
    obstacle: str | None
    """What the present sampling runs into at the highest rate: its length, or a limit of the server; None where it
    fits."""
    others: tuple[ChoiceT, ...]
    """Other samplings and sizes that fit, the best of them first."""
    notes: tuple[str, ...] = ()
    """What was put into the requests, or is missing there."""

    @property
    def choices(self) -> tuple[ChoiceT, ...]:
        """The present sampling where it fits, then the others."""
        present: tuple[ChoiceT, ...] = () if self.present is None else (self.present,)
        return present + self.others

    @property
    def best(self) -> ChoiceT:
        """The first of all by ``ORDER``."""
        return min(self.choices, key=order_key)


@dataclass(frozen=True, kw_only=True)
class FitReport(Fit[FitChoice]):
    """What fits one video into a budget."""

    source: SourceFacts

    @property
    def name(self) -> str:
        """The file's name."""
        return self.source.name


@dataclass(frozen=True, kw_only=True)
class TogetherFit(Fit[TogetherChoice]):
    """What fits several videos into one request."""

    sources: tuple[SourceFacts, ...]

    @property
    def name(self) -> str:
        """How many they are."""
        return f"{len(self.sources)} videos in one request"


def order_key(choice: FitChoice | TogetherChoice) -> tuple[float, int, int]:
    """The key of ``ORDER``, the best first."""
    return choice.q, -choice.num_sampled_frames, -choice.num_pixels


@dataclass(frozen=True)
class CommonFit:
    """The one rate at which several videos fit, each at its present sampling and in a request of its own."""

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
