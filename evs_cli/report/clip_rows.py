"""Plans and fits of several videos, a row a clip, and the keys by which the rows can be sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Group
from rich.text import Text

from evs_cli.errors import BudgetError, EvsError, UsageError
from evs_cli.jobs.fit import MAX_RATE, CommonFit, FitReport
from evs_cli.jobs.runner import Outcome, sorted_outcomes
from evs_cli.report.clip_table import NONE, Column, clip_table
from evs_cli.report.escaped_text import one_line

if TYPE_CHECKING:
    from evs_cli.jobs.budget import BudgetReport, RateBudget
    from evs_cli.pipeline.clip_plan import SourceFacts
    from evs_cli.report.console import Sink

Report = TypeVar("Report")
PLAN_SORTS: Mapping[str, Callable[[BudgetReport], float | str]] = {
    "name": lambda report: report.source.path or report.source.name,
    "duration": lambda report: report.source.duration_seconds,
    "frames": lambda report: len(report.frames),
    "tokens": lambda report: report.total_tokens,
    "sequence": lambda report: report.unpruned_sequence_length,
}
"""By the values of ``evs plan --sort``."""
FIT_SORTS: Mapping[str, Callable[[FitReport], float | str]] = {
    "name": lambda report: report.source.path or report.source.name,
    "duration": lambda report: report.source.duration_seconds,
    "tokens": lambda report: report.unpruned_sequence_length,
    "q": lambda report: 1.0 if report.present is None else report.present.q,  # no rate is enough
}
"""By the values of ``evs fit --sort``."""


def in_order(
    outcomes: Iterable[Outcome[Report]], sort: str | None, sorts: Mapping[str, Callable[[Report], float | str]]
) -> Iterable[Outcome[Report]]:
    """The outcomes as they come, or all of them sorted.

    Raises:
        UsageError: an order that is not known, before any work.
    """
    if sort is None:
        return outcomes
    if sort not in sorts:
        raise UsageError(f"Invalid --sort {sort!r}. Expected one of {', '.join(sorts)}.")
    return sorted_outcomes(outcomes, sorts[sort])


def kept(outcomes: Iterable[Outcome[Report]], done: list[Outcome[Report]]) -> Iterator[Outcome[Report]]:
    """The outcomes, each put into ``done`` as it comes."""
    for outcome in outcomes:
        done.append(outcome)
        yield outcome


def size_and_grid(source: SourceFacts, grid: Sequence[int]) -> dict[str, Any]:
    """The columns of CSV on a file and its tokens: ``size`` is width x height in pixels, ``grid`` is T x h x w."""
    return {
        "path": source.path,
        "duration_seconds": source.duration_seconds,
        "size": f"{source.width}x{source.height}",
        "grid": "x".join(str(n) for n in grid),
    }


def tell_failed(sink: Sink, columns: Sequence[str], outcome: Outcome[Any], error: EvsError) -> None:
    """Tell a video that failed; its row of CSV has its name and why, and nothing else."""
    sink.outcome_failed(outcome, error)
    row = {**dict.fromkeys(columns), "path": outcome.video, "error": error.message, "video": outcome.video}
    sink.show((), [row], lambda: None)


def draw_plans(
    done: Sequence[Outcome[BudgetReport]],
    totals: Sequence[Mapping[str, Any]],
    sink: Sink,
    *,
    is_together: bool = False,
) -> None:
    """A row a clip with its sequence at each rate, and below the sums.

    Args:
        done: each clip.
        totals: the sums at each rate.
        sink: where it is shown.
        is_together: whether all are of one request, so that no clip is judged alone and no prompts are summed.
    """
    reports = [outcome.result for outcome in done]
    planned = [report for report in reports if report is not None]
    names = [outcome.video for outcome in done]
    has_sums = len(planned) > 1 and not is_together
    if has_sums:
        names.append(f"all {len(planned)}")
    sums = {total["q"]: f"{total['sequence_length']:,}" for total in totals}

    def column(heading: str, cell: Callable[[BudgetReport], str], rank: int, total: str = "") -> Column:
        cells = [NONE if report is None else cell(report) for report in reports]
        return Column(heading, [*cells, *([total] if has_sums else [])], rank)

    rates = sorted({rate.q for report in planned for rate in report.rates})
    seconds = sum(report.source.duration_seconds for report in planned)
    tokens = sum(report.total_tokens for report in planned)
    verdicts = [_plan_verdict(outcome) for outcome in done]
    columns = [
        column("seconds", lambda report: f"{report.source.duration_seconds:.1f}", 4, f"{seconds:.1f}"),
        column("size", lambda report: f"{report.source.width}x{report.source.height}", 7),
        column("frames", lambda report: f"{len(report.frames)}", 3),
        column("grid", lambda report: "x".join(str(n) for n in report.token_grid_thw), 6),
        column("tokens", lambda report: f"{report.total_tokens:,}", 2, f"{tokens:,}"),
        *(
            # The rates in the middle go first, and the highest stays.
            column(f"q = {q:g}", _sequence_at(q), 0 if q == rates[-1] else 1 if q == rates[0] else 8, sums.get(q, ""))
            for q in rates
        ),
    ]
    if not is_together:
        columns += [
            Column("context", [*map(_context, reports), *([""] if has_sums else [])], 5),
            Column("fits", [*verdicts, *([""] if has_sums else [])], is_text=True),
        ]
    if planned:
        dialect = "" if planned[0].server_source is None else f", {planned[0].dialect}"
        sink.result(Text(f"{len(done)} clips  ({planned[0].model}{dialect})", style="bold"))
    sink.result(clip_table(names, columns, sink))
    if planned and not is_together:
        sink.result(Text("Below each rate q: ids of the sequence. --details prints each plan.", style="dim"))


def tell_notes(done: Sequence[Outcome[BudgetReport]], sink: Sink) -> None:
    """Tell each note once, with the clips it is of."""
    clips: dict[str, list[str]] = {}
    for outcome in done:
        for note in () if outcome.result is None else outcome.result.notes:
            clips.setdefault(note, []).append(one_line(outcome.video))
    for note, names in clips.items():
        sink.notice(f"{names[0] if len(names) == 1 else f'{names[0]} and {len(names) - 1} more'}: {note}")


def _sequence_at(q: float) -> Callable[[BudgetReport], str]:
    def cell(report: BudgetReport) -> str:
        return next((f"{rate.sequence_length:,}" for rate in report.rates if rate.q == q), NONE)

    return cell


def _context(report: BudgetReport | None) -> str:
    """The share of the context at the highest rate; empty where no limit is known."""
    share = None if report is None else max(report.rates, key=lambda rate: rate.q).context_share
    return "" if share is None else f"{share:.1%}"


def _plan_verdict(outcome: Outcome[BudgetReport]) -> str:
    """From which rate on a clip fits; empty where no limit is known."""
    report = outcome.result
    if report is None:
        return "no" if isinstance(outcome.error, BudgetError) else "failed"
    if report.context_limit is None and not report.rates[0].server_limits:
        return ""
    fitting = [rate.q for rate in report.rates if _fits(rate)]
    return f"q = {min(fitting):g}" if fitting else "no"


def _fits(rate: RateBudget) -> bool:
    return rate.limit_hit is None and (rate.context_share is None or rate.context_share <= 1)


def draw_fits(done: Sequence[Outcome[FitReport]], common: CommonFit, sink: Sink) -> None:
    """A row a clip with the smallest rate at which it fits, and below the one rate for all."""
    reports = [outcome.result for outcome in done]

    def column(heading: str, cell: Callable[[FitReport], str], rank: int) -> Column:
        return Column(heading, [NONE if report is None else cell(report) for report in reports], rank)

    columns = [
        column("seconds", lambda report: f"{report.source.duration_seconds:.1f}", 3),
        column("size", lambda report: f"{report.source.width}x{report.source.height}", 5),
        column("frames", _of_present("num_sampled_frames"), 4),
        column("grid", _present_grid, 6),
        column("before", lambda report: f"{report.unpruned_sequence_length:,}", 1),
        column("q", _of_present("q"), 0),
        column("keep", lambda report: NONE if report.present is None else f"{1 - report.present.q:.2f}", 2),
        column("sequence", _of_present("sequence_length"), 0),
        Column("fits", [_fit_verdict(outcome) for outcome in done], is_text=True),
    ]
    known = [report for report in reports if report is not None]
    table = clip_table([outcome.video for outcome in done], columns, sink)
    if known:
        title = Text(f"{len(done)} clips into {known[0].budget:,} tokens  ({known[0].model})", style="bold")
        sink.result(Group(title, table))
    else:
        sink.result(table)
    sink.result(Text(common_text(common, len(done))))
    if known:
        sink.result(Text("--details prints the other ways of each clip, and the lines to run.", style="dim"))


def common_text(common: CommonFit, num_videos: int) -> str:
    """The one rate for all, in a sentence."""
    if common.num_videos == 0:
        return "No clip could be planned."
    binding = one_line(common.binding_video or "")
    if common.q is None:
        return f"No one rate up to {MAX_RATE:g} fits all: {binding} does not fit at its present sampling."
    is_all = common.num_videos == num_videos
    which = f"all {num_videos} clips" if is_all else f"the {common.num_videos} clips that could be read"
    if common.q == 0:
        return f"q = 0 fits {which}: none needs pruning."
    return f"q = {common.q:g} fits {which}; {binding} needs it."


def _of_present(name: str) -> Callable[[FitReport], str]:
    def cell(report: FitReport) -> str:
        value = None if report.present is None else getattr(report.present, name)
        return NONE if value is None else f"{value:g}" if isinstance(value, float) else f"{value:,}"

    return cell


def _present_grid(report: FitReport) -> str:
    return NONE if report.present is None else "x".join(str(n) for n in report.present.token_grid_thw)


def _fit_verdict(outcome: Outcome[FitReport]) -> str:
    if outcome.result is None:
        return "no" if isinstance(outcome.error, BudgetError) else "failed"
    return "yes" if outcome.result.present is not None else "resampled"
