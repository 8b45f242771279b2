"""Fits for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from evs_cli.errors import BudgetError
from evs_cli.jobs.fit import MAX_RATE, ORDER, TogetherChoice, common_fit
from evs_cli.jobs.runner import OutcomeTally
from evs_cli.report.clip_rows import FIT_SORTS, common_text, draw_fits, in_order, kept, size_and_grid, tell_failed
from evs_cli.report.tables import plain_table
from evs_cli.report.together import TOGETHER

if TYPE_CHECKING:
    from evs_cli.dialects.requests import ServerRecipe
    from evs_cli.jobs.fit import ChoiceT, CommonFit, Fit, FitChoice, FitReport, TogetherFit
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink


_MOST_LISTED = 4
COLUMNS = (
    *("video", "name", "dialect", "model", "path", "duration_seconds", "size", "grid", "budget", "q"),
    *("sequence_length", "retained_tokens", "total_tokens", "num_sampled_frames", "frame_height", "frame_width"),
    *("command", "server", "request", "is_best", "error"),
)
"""Of CSV; a video that failed has its name and ``error`` alone."""


def render_fit(
    outcomes: Iterable[Outcome[FitReport]], sink: Sink, *, is_row_each: bool = False, sort: str | None = None
) -> None:
    """Show how each video fits, the present sampling first, and the lines to run; of several the one rate for all.

    Args:
        outcomes: one a video.
        sink: where they are shown.
        is_row_each: whether the table has a row a video, in place of all ways of each.
        sort: one of ``FIT_SORTS``, for which all are waited for; None is the order in which they come.

    Raises:
        UsageError: an unknown ``sort``, before any work.
        BudgetError: one of several videos cannot fit.
        SomeVideosFailedError: one of several videos failed.
    """
    done: list[Outcome[FitReport]] = []
    tally = OutcomeTally()
    for outcome, report in tally.results(
        kept(in_order(outcomes, sort, FIT_SORTS), done), partial(tell_failed, sink, COLUMNS)
    ):
        view = (lambda: None) if is_row_each else partial(_draw, report, sink)
        sink.show([_fit_record(outcome.video, report)], _fit_rows(outcome.video, report), view)
    common = common_fit([(each.video, _needed(each)) for each in done if _is_known(each)])
    sink.show((), (), partial(_draw_all, done, common, sink, is_row_each=is_row_each))
    sink.finish(fits_all=asdict(common))
    tally.raise_errors()


def _is_known(outcome: Outcome[FitReport]) -> bool:
    """Whether it is known if a video fits: it was planned, though perhaps nothing makes it fit."""
    return outcome.result is not None or isinstance(outcome.error, BudgetError)


def _needed(outcome: Outcome[FitReport]) -> float | None:
    """The smallest rate at which the present sampling fits; None where none does."""
    report = outcome.result
    return None if report is None or report.present is None else report.present.q


def _draw_all(done: list[Outcome[FitReport]], common: CommonFit, sink: Sink, *, is_row_each: bool) -> None:
    """What is told of several videos together; nothing of one."""
    if is_row_each:
        draw_fits(done, common, sink)
    elif len(done) > 1:
        sink.result(Text(common_text(common, len(done)), style="bold"))


def render_together_fit(report: TogetherFit, sink: Sink) -> None:
    """Show how several videos fit one request, and the lines to run."""
    records = [{"video": source.path, **asdict(source)} for source in report.sources]
    sink.show(records, [_row(TOGETHER, report, choice) for choice in report.choices], partial(_draw, report, sink))
    facts = {name: value for name, value in asdict(report).items() if name != "sources"}
    sink.finish(together={**facts, "best": asdict(report.best)})


def _fit_record(video: str, report: FitReport) -> dict[str, Any]:
    return {"video": video, **asdict(report), "best": asdict(report.best)}


def _fit_rows(video: str, report: FitReport) -> list[dict[str, Any]]:
    """The CSV rows of one video, one a way to fit."""
    return [
        {**_row(video, report, choice), **size_and_grid(report.source, choice.token_grid_thw)}
        for choice in report.choices
    ]


def _row(video: str, report: Fit[ChoiceT], choice: ChoiceT) -> dict[str, Any]:
    """The CSV row of one way to fit; what is of one video alone is empty."""
    shared = ("name", "dialect", "model", "budget")
    counted = ("q", "sequence_length", "retained_tokens", "total_tokens", "num_sampled_frames", "command")
    height, width = choice.frame_size if len(choice.frame_sizes) == 1 else (None, None)  # JSON tells each video's
    return {
        **dict.fromkeys(COLUMNS),
        "video": video,
        **{name: getattr(report, name) for name in shared},
        **{name: getattr(choice, name) for name in counted},
        "frame_height": height,
        "frame_width": width,
        "server": None if choice.server is None else choice.server.command,
        "request": None if choice.server is None else json.dumps(choice.server.request),
        "is_best": choice is report.best,
    }


def _draw(report: FitReport | TogetherFit, sink: Sink) -> None:
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
    choices: Sequence[FitChoice | TogetherChoice] = report.choices
    for number, choice in enumerate(choices, 1):
        table.add_row(
            str(number),
            f"{choice.q:g}",
            f"{1 - choice.q:.2f}",
            _frames_text(choice),
            _size_text(choice),
            f"{choice.retained_tokens:,}",
            f"{choice.sequence_length:,}",
        )
    sink.result(Group(Text(f"{report.name}  ({report.model})", style="bold"), Text(head), table))
    best = next(number for number, choice in enumerate(choices, 1) if choice is report.best)
    note = "1 is the present sampling" if report.present is not None else "The present sampling is none of them"
    sink.result(Text(f"{note}. {best} is the best: {ORDER}. The lines to run:", style="dim"))
    for number, choice in enumerate(choices, 1):
        sink.text(f"{number:2}  {choice.command}")
        if choice.server is not None:
            for line in _server_lines(choice.server):
                sink.text(f"    {line}")
    server = report.best.server
    if server is not None and server.command is not None:
        sink.result(Text(f"The whole request of {best}:", style="dim"))
        sink.text(json.dumps(server.request))


def _frames_text(choice: FitChoice | TogetherChoice) -> str:
    """The sampled frames, of each video of a request where they are few."""
    if isinstance(choice, TogetherChoice) and len(choice.videos) <= _MOST_LISTED:
        return " + ".join(str(video.num_sampled_frames) for video in choice.videos)
    return f"{choice.num_sampled_frames}"


def _size_text(choice: FitChoice | TogetherChoice) -> str:
    """The size of the frames, of each video of a request where they differ and are few."""
    if len(choice.frame_sizes) > _MOST_LISTED:
        return f"up to {choice.frame_size[1]}x{choice.frame_size[0]}"
    return " + ".join(f"{width}x{height}" for height, width in choice.frame_sizes)


def _server_lines(server: ServerRecipe) -> list[str]:
    """The server's line, and what a request says beside its messages."""
    if server.command is None:
        return [f"apply_chat_template({', '.join(f'{name}={value!r}' for name, value in server.request.items())})"]
    said = {name: value for name, value in server.request.items() if name not in ("model", "messages")}
    return [server.command, *([f"request: {json.dumps(said)}"] if said else [])]
