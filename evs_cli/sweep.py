"""One encoding, many rates: what each rate keeps, costs and loses.

In: an ``EncodedVideo`` and rates. Out: a ``SweepRow`` a rate, all from the one ranking; nothing is encoded or sorted
twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evs_cli.core.counts import check_pruning_rate, exact_retained_tokens_count
from evs_cli.errors import UsageError

if TYPE_CHECKING:
    from evs_cli.core.methods import RetentionRule
    from evs_cli.encoded_video import EncodedVideo
    from evs_cli.progress import Progress
    from evs_cli.session import SessionRequest

_MAX_RATES = 1000


@dataclass(frozen=True)
class SweepRow:
    """One rate of a sweep."""

    q: float
    retained_tokens: int
    """K."""
    exact_retained_tokens: int
    """K in decimal arithmetic, where the servers' float rule may be one token off."""
    retained_share: float
    """K / N, in (0, 1]."""
    sequence_length: int
    """Length of ``input_ids``."""
    empty_frames: int
    """Frames that keep no token."""
    dissimilarity_kept: float
    """Share of the total dissimilarity outside frame 0 that is kept, in [0, 1]."""
    noise_tokens: int
    """Kept tokens outside frame 0 whose dissimilarity is within rounding of zero."""


def sweep(encoded: EncodedVideo, rates: Sequence[float], rule: RetentionRule | None = None) -> list[SweepRow]:
    """A row a rate, in the order given; by EVS unless ``rule`` says otherwise.

    Raises:
        UsageError: a rate outside [0, 1).
    """
    from evs_cli.core.methods import RetentionRule

    plan = encoded.actual
    num_frames, height, width = plan.token_grid_thw
    return [
        SweepRow(
            q=retention.q,
            retained_tokens=retention.retained_tokens,
            exact_retained_tokens=exact_retained_tokens_count(height * width, num_frames, retention.q),
            retained_share=retention.retained_tokens / plan.total_tokens,
            sequence_length=plan.layout.sequence_length - plan.total_tokens + retention.retained_tokens,
            empty_frames=retention.empty_frames,
            dissimilarity_kept=retention.dissimilarity_kept,
            noise_tokens=retention.noise_tokens,
        )
        for retention in (rule or RetentionRule()).sweep(encoded.ranking, list(rates))
    ]


def sweep_named(video: str, rates: Sequence[float], request: SessionRequest, progress: Progress) -> list[SweepRow]:
    """Encode a video named on the command line (``-`` is standard input) once, and a row a rate."""
    from evs_cli.session import Session, opened

    session = Session(request, progress)
    with opened(video) as source:
        return sweep(session.encode(source), rates, session.rule)


def parse_rates(text: str) -> list[float]:
    """Rates of ``0.5,0.75`` or ``0:0.9:0.1`` (start, end included, step) or a mix, rounded to 1e-9, ascending.

    Raises:
        UsageError: anything that is no rate in [0, 1), a step of 0, or more than 1,000 rates.
    """
    rates: set[float] = set()
    for part in text.split(","):
        rates.update(_parse_part(part.strip(), text))
        if len(rates) > _MAX_RATES:
            raise UsageError(f"Invalid rates {text!r}: more than {_MAX_RATES}. Expected fewer, or a longer step.")
    return sorted(rates)


def _parse_part(part: str, text: str) -> list[float]:
    try:
        numbers = [float(number) for number in part.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        return [check_pruning_rate(round(numbers[0], 9))]
    if len(numbers) != 3:
        raise UsageError(f"Invalid rates {text!r}. Expected rates like 0.5,0.75 or start:end:step like 0:0.9:0.1.")
    start, end, step = numbers
    check_pruning_rate(start)
    check_pruning_rate(end)
    if not 0 < step <= 1 or end < start:
        raise UsageError(f"Invalid rates {part!r}. Expected start:end:step with start <= end and 0 < step <= 1.")
    count = int(round((end - start) / step, 6)) + 1
    if count > _MAX_RATES:
        raise UsageError(f"Invalid rates {text!r}: more than {_MAX_RATES}. Expected fewer, or a longer step.")
    return [check_pruning_rate(round(start + i * step, 9)) for i in range(count)]
