"""One video under every dialect, a row a server, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from evs_cli.jobs.dialect_tally import DialectTally
from evs_cli.report.budget import plan_record, plan_rows
from evs_cli.report.records import error_record
from evs_cli.report.tables import plain_table

if TYPE_CHECKING:
    from evs_cli.jobs.budget import BudgetReport
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink


def render_dialects(plans: Iterable[list[Outcome[BudgetReport]]], sink: Sink) -> None:
    """Show each video's plans under every dialect, a row a server; what one refuses is a row that says why.

    Args:
        plans: of each video, an outcome a dialect.
        sink: where it is shown.

    Raises:
        EvsError: as ``DialectTally.raise_errors``.
    """
    reports: list[BudgetReport] = []
    tally = DialectTally()
    for outcomes in plans:
        tally.add(outcomes)
        reports += [outcome.result for outcome in outcomes if outcome.result is not None]
        sink.show([_record(outcome) for outcome in outcomes], None, partial(_draw, outcomes, sink))
    sink.show((), (row for report in reports for row in plan_rows(report)), lambda: None)
    sink.finish()
    tally.raise_errors()


def _record(outcome: Outcome[BudgetReport]) -> dict[str, Any]:
    """The JSON record of one row; ``evs plan`` goes on where a server refuses a video."""
    if outcome.result is not None:
        return plan_record(outcome.result)
    assert outcome.error is not None
    return error_record(outcome.video, outcome.error, dialect=outcome.input.dialect)


def _draw(outcomes: list[Outcome[BudgetReport]], sink: Sink) -> None:
    sink.result(_dialects_view(outcomes, is_terminal=sink.is_terminal))
    notes = [(outcome.input.dialect, note) for outcome in outcomes for note in _notes(outcome)]
    told = Counter(note for _, note in notes)
    for note in dict.fromkeys(note for _, note in notes if told[note] == len(outcomes) > 1):  # said of every row: once
        sink.notice(f"{outcomes[0].video}: {note}")
    for dialect, note in notes:
        if not told[note] == len(outcomes) > 1:
            sink.notice(f"{dialect}: {note}")


def _notes(outcome: Outcome[BudgetReport]) -> list[str]:
    """What is to be said of one row."""
    failed = [outcome.error.message] if outcome.error is not None else []
    return [*failed, *(() if outcome.result is None else outcome.result.notes)]


def _dialects_view(outcomes: list[Outcome[BudgetReport]], *, is_terminal: bool) -> RenderableType:
    """A row a dialect, at the rate it prunes at."""
    headings = ("dialect", "frames", "size", "grid", "video tokens", "q", "kept", "sequence", "first limit hit")
    table = plain_table(headings, is_terminal=is_terminal)
    title = ""
    for outcome in outcomes:
        report, dialect = outcome.result, outcome.input.dialect or ""
        if report is None:
            table.add_row(dialect, *["-"] * 7, "refused")
            continue
        title = f"{report.source.name}  ({report.model})"
        rate = report.rates[-1]
        hit = rate.limit_hit
        if hit is None and not rate.server_limits and rate.context_share is not None and rate.context_share > 1:
            hit = "context"
        table.add_row(
            dialect,
            f"{len(report.frames)}",
            f"{report.frame_size[1]}x{report.frame_size[0]}",
            "x".join(str(n) for n in report.token_grid_thw),
            f"{report.total_tokens:,}",
            f"{rate.q:g}",
            f"{rate.retained_tokens:,}",
            f"{rate.sequence_length:,}",
            hit or "",
        )
    return Group(Text(title, style="bold"), table)
