"""Runs a command's work on each input in turn, and yields an ``Outcome`` for each.

One input that fails does not stop the others. Whoever shows the outcomes counts them in an ``OutcomeTally``, which
settles the exit code at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from evs_cli.errors import EvsError, ModelLoadError
from evs_cli.pipeline.progress import Progress, Timings


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
    is_skipped: bool = False
    """Whether ``output`` is there already, and is left as it is."""


Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Outcome(Generic[Result]):
    """The result of one input, or its error."""

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


def announced(items: Sequence[Item], progress: Progress) -> Iterator[Item]:
    """The items of a command, one a video; ``progress`` is told of each just before it is worked on."""
    for number, item in enumerate(items, 1):
        progress.begin_video(number, len(items))
        yield item


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
            raise  # the next input would fail the same way, after as long a wait
        except EvsError as error:
            if is_single:
                raise
            yield Outcome(each, error=error)
        else:
            yield Outcome(each, result, refusal=refuses(result), timings_seconds=timings.seconds)


class OutcomeTally:
    """Counts outcomes while they are shown, and raises what the command ends with once all of them are."""

    def __init__(self) -> None:
        self._num_outcomes = 0
        self._failed: list[str] = []
        self._refusals: list[EvsError | None] = []

    def results(
        self, outcomes: Iterable[Outcome[Result]], tell_failed: Callable[[Outcome[Result], EvsError], None]
    ) -> Iterator[tuple[Outcome[Result], Result]]:
        """The outcomes that have a result, each beside it; the others are told at once, in their place."""
        for outcome in outcomes:
            self._num_outcomes += 1
            self._refusals.append(outcome.refusal)
            if outcome.result is not None:
                yield outcome, outcome.result
            else:
                assert outcome.error is not None
                self._failed.append(outcome.video)
                tell_failed(outcome, outcome.error)

    @property
    def any_failed(self) -> bool:
        """Whether one did so far."""
        return bool(self._failed)

    def raise_errors(self, what: str = "videos", *, num_inputs: int | None = None) -> None:
        """Raise what the command ends with; for after everything is shown.

        Args:
            what: what failed, in the plural.
            num_inputs: of how many; None counts the outcomes, of which a video may have several.

        Raises:
            EvsError: the first refusal, which goes before failures: it names its own exit code.
            SomeVideosFailedError: one of several failed.
        """
        raise_refused(self._refusals)
        raise_if_failed(self._failed, num_inputs or self._num_outcomes, what)


def raise_refused(refusals: Iterable[EvsError | None]) -> None:
    """Raise the first refusal, if there is one; for after everything is shown."""
    for refusal in refusals:
        if refusal is not None:
            raise refusal


def raise_if_failed(failed: Sequence[str], num_outcomes: int, what: str = "videos") -> None:
    """Raise ``SomeVideosFailedError`` if any failed; for after everything is shown."""
    if failed:
        raise SomeVideosFailedError(f"{len(failed)} of {num_outcomes} {what} failed: {', '.join(failed)}")
