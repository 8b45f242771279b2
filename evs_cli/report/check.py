"""A server's count beside the plan's, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from evs_cli.jobs.runner import OutcomeTally
from evs_cli.report.tables import plain_table, summary_grid

if TYPE_CHECKING:
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink
    from evs_cli.servers.comparison import CheckReport


def render_check(outcomes: Iterable[Outcome[CheckReport]], sink: Sink) -> None:
    """Show each check, then refuse one that differs.

    Raises:
        PlanDiffersError: the server counts otherwise than the plan.
    """
    tally = OutcomeTally()
    for outcome, report in tally.results(outcomes, sink.outcome_failed):
        sink.show([check_record(outcome.video, report)], check_rows(report), partial(_draw, report, sink))
    sink.finish()
    tally.raise_errors()


def check_record(video: str, report: CheckReport) -> dict[str, Any]:
    """The JSON record of a check."""
    content = asdict(report)
    asked = content.pop("asked")
    return {**asked, "video": video, "equal": not report.differs, **content}


def check_rows(report: CheckReport) -> list[dict[str, Any]]:
    """The CSV rows, one a kind."""
    asked = report.asked
    head = {"video": asked.video, "model": asked.model, "dialect": asked.dialect, "q": asked.q, "url": asked.url}
    return [{**head, **asdict(comparison)} for comparison in report.comparisons]


def _draw(report: CheckReport, sink: Sink) -> None:
    for note in report.notes:
        sink.notice(f"{report.asked.video}: {note}")
    sink.result(_check_view(report, is_terminal=sink.is_terminal))


def _check_view(report: CheckReport, *, is_terminal: bool) -> RenderableType:
    asked = report.asked
    title = Text(f"{asked.video}  ({asked.model}, {asked.dialect}, q = {asked.q:g})", style="bold")
    kind = " ".join(part for part in (asked.owner, asked.version) if part is not None) or "of no name"
    what = "its ids" if asked.endpoint == "tokenize" else "its number of prompt tokens"
    table = plain_table(("", "planned", "served", ""), is_terminal=is_terminal)
    table.columns[0].justify = table.columns[-1].justify = "left"
    for comparison in report.comparisons:
        numbers = ("" if number is None else f"{number:,}" for number in (comparison.planned, comparison.served))
        detail = comparison.detail or ("differs" if comparison.differs else "")
        table.add_row(comparison.kind, *numbers, Text(detail))  # text of a server is no markup
    parts: list[RenderableType] = [title, Text(f"against {asked.url} ({kind}): {what} for {asked.served_model}"), table]
    grid = summary_grid()
    if report.parting is not None:
        grid.add_row("they part", f"at id {report.parting.position:,}")
        grid.add_row("planned", Text(report.parting.planned))
        grid.add_row("served", Text(report.parting.served))
    for index, suggestion in enumerate(report.suggestions):
        grid.add_row("perhaps" if index == 0 else "", Text(suggestion))
    if not report.differs:
        grid.add_row("equal", "to the id" if asked.endpoint == "tokenize" else "to the token")
    return Group(*parts, grid)
