"""What ``evs plan --dialect all`` ends with, where a video has an outcome a dialect and one that takes it is enough."""

from __future__ import annotations

from collections.abc import Sequence

from evs_cli.errors import BudgetError, EvsError
from evs_cli.jobs.budget import BudgetReport
from evs_cli.jobs.runner import Outcome, raise_if_failed, raise_refused


class DialectTally:
    """Counts videos while their plans are shown, and raises what the command ends with once all of them are."""

    def __init__(self) -> None:
        self._num_videos = 0
        self._failed: list[tuple[str, list[EvsError]]] = []
        """Videos without a plan, and why each dialect has none."""
        self._refusals: list[EvsError | None] = []

    def add(self, outcomes: Sequence[Outcome[BudgetReport]]) -> None:
        """Count one video: its outcomes under every dialect."""
        self._num_videos += 1
        planned = [outcome for outcome in outcomes if outcome.result is not None]
        if not planned:
            errors = [outcome.error for outcome in outcomes if outcome.error is not None]
            self._failed.append((outcomes[0].video, errors))
        elif all(outcome.refusal is not None for outcome in planned):
            self._refusals.append(planned[-1].refusal)

    def raise_errors(self) -> None:
        """Raise what the command ends with; for after everything is shown.

        Raises:
            BudgetError: a video that fits no server; or the only one, which every dialect refuses.
            EvsError: why the only video fails, where that is the same under every dialect: it cannot be read.
            SomeVideosFailedError: one of several videos has no plan.
        """
        raise_refused(self._refusals)
        if self._num_videos == 1:
            for _, errors in self._failed:
                if len({error.exit_code for error in errors}) == 1:
                    raise errors[0]
                raise BudgetError(f"no dialect takes it: {errors[-1].message}")
        raise_if_failed([video for video, _ in self._failed], self._num_videos)
