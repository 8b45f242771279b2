"""The one shape of a command's work: inputs in turn, an ``Outcome`` each.

One input that fails does not stop the others. Whoever shows the outcomes ends with ``raise_refused`` and
``raise_if_failed``, which settle the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from evs_cli.errors import EvsError, ModelLoadError
from evs_cli.pipeline.progress import Timings


@dataclass(frozen=True)
class Input:
    """One video of a command, and what is settled for it before any work."""

    video: str
    """As it was named; numbers alone have their size for a name."""
    output: Path | None = None
    """Where the result goes; None prints only."""
    model: str | None = None
    """As it was named; None of a file of evs, which tells it when it is read."""
    q: float | None = None
    dialect: str | None = None


Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Outcome(Generic[Result]):
    """What became of one input: a result or an error."""

    input: Input
    result: Result | None = None
    error: EvsError | None = None
    """Why it failed."""
    refusal: EvsError | None = None
    """What the command ends with although the result is there: that it does not fit."""
    timings_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def video(self) -> str:
        """As it was named."""
        return self.input.video


class SomeVideosFailedError(EvsError):
    """One of several videos failed; the others are done."""


def run_each(
    items: Iterable[tuple[Input, Item]],
    work: Callable[[Item, Timings], Result],
    *,
    is_single: bool,
    refuses: Callable[[Result], EvsError | None] = lambda _: None,
) -> Iterator[Outcome[Result]]:
    """``work`` on each item; of several, one that fails becomes an outcome of its own and the others go on.

    Args:
        items: each input, and what ``work`` takes of it.
        work: makes a result, and adds the seconds of its steps.
        is_single: whether there is one input, whose error is raised.
        refuses: the verdict on a result.

    Raises:
        EvsError: the error of a single item.
        ModelLoadError: weights that cannot be loaded concern every item.
    """
    for each, item in items:
        timings = Timings()
        try:
            result = work(item, timings)
        except ModelLoadError:
            raise
        except EvsError as error:
            if is_single:
                raise
            yield Outcome(each, error=error)
        else:
            yield Outcome(each, result, refusal=refuses(result), timings_seconds=timings.seconds)


def raise_refused(refusals: Iterable[EvsError | None]) -> None:
    """Raise the first refusal, if there is one; for after everything is shown."""
    for refusal in refusals:
        if refusal is not None:
            raise refusal


def raise_if_failed(failed: Sequence[str], num_outcomes: int, what: str = "videos") -> None:
    """Raise ``SomeVideosFailedError`` if any failed; for after everything is shown."""
    if failed:
        raise SomeVideosFailedError(f"{len(failed)} of {num_outcomes} {what} failed: {', '.join(failed)}")
