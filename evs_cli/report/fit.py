"""Fits for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from evs_cli.jobs.fit import MAX_RATE
from evs_cli.jobs.runner import OutcomeTally
from evs_cli.report.tables import plain_table

if TYPE_CHECKING:
    from evs_cli.dialects.requests import ServerRecipe
    from evs_cli.jobs.fit import FitReport
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink


def render_fit(outcomes: Iterable[Outcome[FitReport]], sink: Sink) -> None:
    """Show how each video fits, the present sampling first, and the lines to run.

    Raises:
        SomeVideosFailedError: one of several videos failed, or cannot fit.
    """
    tally = OutcomeTally()
    for outcome, report in tally.results(outcomes, sink.outcome_failed):
        sink.show([_fit_record(outcome.video, report)], _fit_rows(report), partial(_draw, report, sink))
    sink.finish()
    tally.raise_errors()


def _fit_record(video: str, report: FitReport) -> dict[str, Any]:
    record = asdict(report)
    del record["name"]
    return {"video": video, **record}


def _fit_rows(report: FitReport) -> list[dict[str, Any]]:
    rows = []
    for choice in report.choices:
        row = {"name": report.name, "dialect": report.dialect, "model": report.model, "budget": report.budget}
        row |= {**asdict(choice), "server": None if choice.server is None else choice.server.command}
        row["frame_height"], row["frame_width"] = choice.frame_size
        row["request"] = None if choice.server is None else json.dumps(choice.server.request)
        del row["frame_size"]
        rows.append(row)
    return rows


def _draw(report: FitReport, sink: Sink) -> None:
    """A table of the choices, and below it their lines whole, so that they can be copied."""
    for note in report.notes:
        sink.notice(f"{report.name}: {note}")
    if report.present is None:
        head = (
            f"No rate up to {MAX_RATE:g} fits {report.budget:,} tokens at the present sampling ({report.obstacle}); "
            "these do:"
        )
    elif report.present.q == 0:
        head = f"It fits {report.budget:,} tokens without pruning ({report.unpruned_sequence_length:,})."
    else:
        head = (
            f"q = {report.present.q:g} fits {report.budget:,} tokens: {report.unpruned_sequence_length:,} ids become "
            f"{report.present.sequence_length:,}."
        )
    headings = ("", "q", "keep", "frames", "size", "video tokens", "sequence")
    table = plain_table(headings, is_terminal=sink.is_terminal)
    choices = report.choices
    for number, choice in enumerate(choices, 1):
        table.add_row(
            str(number),
            f"{choice.q:g}",
            f"{1 - choice.q:.2f}",
            f"{choice.num_sampled_frames}",
            f"{choice.frame_size[1]}x{choice.frame_size[0]}",
            f"{choice.retained_tokens:,}",
            f"{choice.sequence_length:,}",
        )
    note = "1 is the present sampling" if report.present is not None else "The present sampling is none of them"
    sink.result(Group(Text(f"{report.name}  ({report.model})", style="bold"), Text(head), table))
    sink.result(Text(f"{note}; then least pruning, most frames, largest frames. The lines to run:", style="dim"))
    for number, choice in enumerate(choices, 1):
        sink.text(f"{number:2}  {choice.command}")
        if choice.server is not None:
            for line in _server_lines(choice.server):
                sink.text(f"    {line}")
    first = choices[0].server
    if first is not None and first.command is not None:
        sink.result(Text("The whole request of 1:", style="dim"))
        sink.text(json.dumps(first.request))


def _server_lines(server: ServerRecipe) -> list[str]:
    """The server's line, and what a request says beside its messages."""
    if server.command is None:
        return [f"apply_chat_template({', '.join(f'{name}={value!r}' for name, value in server.request.items())})"]
    said = {name: value for name, value in server.request.items() if name not in ("model", "messages")}
    return [server.command, *([f"request: {json.dumps(said)}"] if said else [])]
