"""Several videos in one request, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from evs_cli.jobs.runner import OutcomeTally
from evs_cli.jobs.together import together_refusal
from evs_cli.report.budget import COLUMNS, limit_text, plan_record, plan_rows, wall_records
from evs_cli.report.clip_rows import draw_plans, tell_failed, tell_notes
from evs_cli.report.tables import summary_grid

if TYPE_CHECKING:
    from evs_cli.jobs.budget import BudgetReport
    from evs_cli.jobs.runner import Outcome
    from evs_cli.jobs.together import TogetherReport
    from evs_cli.report.console import Sink

TOGETHER = "together"
"""In place of a video's name, in the rows of CSV."""


def render_together(
    each: list[Outcome[BudgetReport]], account: TogetherReport | None, sink: Sink, *, context: int | None
) -> None:
    """Show a row a video, and the account of one request with all of them, then refuse what does not fit.

    Args:
        each: a plan of each video, or its error.
        account: of the request; None where a video failed.
        sink: where it is shown.
        context: the longest sequence that was asked for.

    Raises:
        SomeVideosFailedError: a video failed.
        BudgetError: the request does not fit at any rate asked for.
    """
    tally = OutcomeTally()
    for _, report in tally.results(each, partial(tell_failed, sink, COLUMNS)):
        sink.show([plan_record(report)], plan_rows(report), lambda: None)
    sink.show((), None if account is None else _rows(account), partial(_draw, each, account, sink))
    sink.finish(together=None if account is None else _record(account))
    tally.raise_errors()
    refusal = None if account is None else together_refusal(account, context)
    if refusal is not None:
        raise refusal


def _record(account: TogetherReport) -> dict[str, Any]:
    record: dict[str, Any] = asdict(account)
    for rate, counted in zip(record["rates"], account.rates, strict=True):
        rate["walls"] = wall_records(counted.limits)
        del rate["limits"]
    return {**record, "unpruned_sequence_length": account.unpruned_sequence_length}


def _rows(account: TogetherReport) -> list[dict[str, Any]]:
    """The CSV rows of the request, one a rate, behind those of its videos."""
    shared = ("dialect", "model", "total_tokens", "separator_tokens", "text_tokens", "context_limit")
    counted = ("q", "retained_tokens", "sequence_length", "context_share", "limit_hit")
    return [
        {
            **dict.fromkeys(COLUMNS),
            "video": TOGETHER,
            **{name: getattr(account, name) for name in shared},
            **{name: getattr(rate, name) for name in counted},
        }
        for rate in account.rates
    ]


def _draw(each: list[Outcome[BudgetReport]], account: TogetherReport | None, sink: Sink) -> None:
    tell_notes(each, sink)
    draw_plans(each, (), sink, is_together=True)
    if account is None:
        return
    grid = summary_grid()
    grid.add_row(
        "tokens",
        f"{account.total_tokens:,} video + {account.separator_tokens:,} separators + {account.text_tokens:,} text = "
        f"{account.unpruned_sequence_length:,} ids",
    )
    for rate in account.rates:
        share = "" if rate.context_share is None else f", {rate.context_share:.1%} of {account.context_limit:,}"
        over = ": does not fit" if rate.context_share is not None and rate.context_share > 1 else ""
        grid.add_row(
            f"q = {rate.q:g}", f"{rate.retained_tokens:,} video tokens, sequence {rate.sequence_length:,}{share}{over}"
        )
        for limit in rate.limits:
            grid.add_row("", limit_text(limit))
    sink.result(Group(Text(f"one request with these {len(account.videos)} videos", style="bold"), grid))
