"""Runs a command's work on each input in turn, and yields an ``Outcome`` for each.

One input that fails does not stop the others. Whoever shows the outcomes counts them in an ``OutcomeTally``, which
settles the exit code at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from evs_cli.errors import BudgetError, EvsError, ModelLoadError
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


def sorted_outcomes(outcomes: Iterable[Outcome[Result]], key: Callable[[Result], float | str]) -> list[Outcome[Result]]:
    """All outcomes, waited for: numbers from the largest, texts from A to Z, and those that failed last."""
    done = list(outcomes)
    keys = [None if outcome.result is None else key(outcome.result) for outcome in done]
    is_text = any(isinstance(each, str) for each in keys)
    order = [index for index, each in enumerate(keys) if each is not None]
    order.sort(key=lambda index: keys[index], reverse=not is_text)  # type: ignore[arg-type,return-value]
    return [done[index] for index in order] + [each for each in done if each.result is None]


class OutcomeTally:
    """Counts outcomes while they are shown, and raises what the command ends with once all of them are."""

    def __init__(self) -> None:
        self._num_outcomes = 0
        self._failed: list[str] = []
        self._unfit: list[str] = []
        """Those that failed as nothing makes them fit."""
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
                (self._unfit if isinstance(outcome.error, BudgetError) else self._failed).append(outcome.video)
                tell_failed(outcome, outcome.error)

    @property
    def any_failed(self) -> bool:
        """Whether one did so far."""
        return bool(self._failed or self._unfit)

    def raise_errors(self, what: str = "videos", *, num_inputs: int | None = None) -> None:
        """Raise what the command ends with; for after everything is shown.

        Args:
            what: what failed, in the plural.
            num_inputs: of how many; None counts the outcomes, of which a video may have several.

        Raises:
            EvsError: the first refusal, which goes before failures: it names its own exit code.
            BudgetError: one of several does not fit.
            SomeVideosFailedError: one of several failed.
        """
        raise_refused(self._refusals)
        total = num_inputs or self._num_outcomes
        if self._unfit:
            verb = "does" if len(self._unfit) == 1 else "do"
            failed = f"; {len(self._failed)} failed: {', '.join(self._failed)}" if self._failed else ""
            raise BudgetError(f"{len(self._unfit)} of {total} {what} {verb} not fit: {', '.join(self._unfit)}{failed}")
        raise_if_failed(self._failed, total, what)


def raise_refused(refusals: Iterable[EvsError | None]) -> None:
    """Raise the first refusal, if there is one; for after everything is shown."""
    for refusal in refusals:
        if refusal is not None:
            raise refusal


def raise_if_failed(failed: Sequence[str], num_outcomes: int, what: str = "videos") -> None:
    """Raise ``SomeVideosFailedError`` if any failed; for after everything is shown."""
    if failed:
        raise SomeVideosFailedError(f"{len(failed)} of {num_outcomes} {what} failed: {', '.join(failed)}")
