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

_HEADINGS = ("dialect", "frames", "size", "grid", "video tokens", "q", "kept", "sequence", "first limit hit")
_DROPPED = ("grid", "size", "frames", "video tokens", "first limit hit")
"""What is left out where there is no room, in this order; no cell is cut, and JSON has all."""


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
    sink.result(_dialects_view(outcomes, sink))
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


def _dialects_view(outcomes: list[Outcome[BudgetReport]], sink: Sink) -> RenderableType:
    """A row a dialect, at the rate it prunes at, in as many columns as there is room for."""
    title, rows = "", []
    for outcome in outcomes:
        report = outcome.result
        if report is None:
            rows.append({"dialect": outcome.input.dialect or "", "first limit hit": "refused"})
            continue
        title = f"{report.source.name}  ({report.model})"
        rows.append({"dialect": outcome.input.dialect or "", **_cells(report)})
    for dropped in range(len(_DROPPED) + 1):
        headings = [heading for heading in _HEADINGS if heading not in _DROPPED[:dropped]]
        table = plain_table(headings, is_terminal=sink.is_terminal)
        for row in rows:
            table.add_row(*(row.get(heading, "-") for heading in headings))
        if sink.fits(table):
            break
    return Group(Text(title, style="bold"), table)


def _cells(report: BudgetReport) -> dict[str, str]:
    rate = report.rates[-1]
    hit = rate.limit_hit
    if hit is None and not rate.server_limits and rate.context_share is not None and rate.context_share > 1:
        hit = "context"
    return {
        "frames": f"{len(report.frames)}",
        "size": f"{report.frame_size[1]}x{report.frame_size[0]}",
        "grid": "x".join(str(n) for n in report.token_grid_thw),
        "video tokens": f"{report.total_tokens:,}",
        "q": f"{rate.q:g}",
        "kept": f"{rate.retained_tokens:,}",
        "sequence": f"{rate.sequence_length:,}",
        "first limit hit": hit or "",
    }
