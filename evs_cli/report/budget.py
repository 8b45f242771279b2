"""Plans for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from evs_cli.jobs.runner import OutcomeTally
from evs_cli.report.clip_rows import PLAN_SORTS, draw_plans, in_order, kept, size_and_grid, tell_failed, tell_notes
from evs_cli.report.tables import plain_table, summary_grid

if TYPE_CHECKING:
    from evs_cli.cost import CostReport, PromptCost
    from evs_cli.dialects.limits import UsedLimit
    from evs_cli.jobs.budget import BudgetReport
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink

_SHOWN_FRAMES = 8
_PRUNED_COSTS = ("kv_cache_bytes", "recurrent_state_bytes", "prefill_flops", "prompts_in_kv_budget")
COLUMNS = (
    *("video", "dialect", "model", "path", "duration_seconds", "size", "grid", "num_sampled_frames", "total_tokens"),
    *("separator_tokens", "text_tokens", "context_limit", "is_at_most", "q", "retained_tokens"),
    *("exact_retained_tokens", "sequence_length", "context_share", "limit_hit", *_PRUNED_COSTS),
    *("vision_flops", "embedding_bytes", "error"),
)
"""Of CSV; a video that failed has its name and ``error`` alone."""


def render_plan(
    outcomes: Iterable[Outcome[BudgetReport]], sink: Sink, *, is_row_each: bool = False, sort: str | None = None
) -> None:
    """Show each plan as it comes, a total where there are several, then refuse what does not fit.

    Args:
        outcomes: one a video.
        sink: where they are shown.
        is_row_each: whether the table has a row a video, in place of each whole plan.
        sort: one of ``PLAN_SORTS``, for which all plans are waited for; None is the order in which they come.

    Raises:
        UsageError: an unknown ``sort``, before any work.
        SomeVideosFailedError: one of several videos failed.
        BudgetError: a video does not fit at any rate asked for.
    """
    done: list[Outcome[BudgetReport]] = []
    tally = OutcomeTally()
    for _, report in tally.results(
        kept(in_order(outcomes, sort, PLAN_SORTS), done), partial(tell_failed, sink, COLUMNS)
    ):
        view = (lambda: None) if is_row_each else partial(_draw, report, sink)
        sink.show([plan_record(report)], plan_rows(report), view)
    reports = [outcome.result for outcome in done if outcome.result is not None]
    if is_row_each:
        sink.show((), (), partial(_draw_rows, done, _totals(reports), sink))
    else:
        sink.show((), (), lambda: _draw_totals(reports, sink))
    sink.finish(totals=_totals(reports))
    tally.raise_errors()


def _draw_rows(done: list[Outcome[BudgetReport]], totals: list[dict[str, Any]], sink: Sink) -> None:
    tell_notes(done, sink)
    draw_plans(done, totals, sink)


def plan_record(report: BudgetReport) -> dict[str, Any]:
    """The JSON record of one plan."""
    record: dict[str, Any] = asdict(report)
    for rate, counted in zip(record["rates"], report.rates, strict=True):
        rate["walls"] = wall_records(counted.server_limits)
        del rate["server_limits"]
    if record["server_source"] is not None:
        del record["server_source"]["lost"]  # told in a note
    return {
        "video": report.source.path or report.source.name,
        **record,
        "unpruned_sequence_length": report.unpruned_sequence_length,
    }


def wall_records(limits: Iterable[UsedLimit]) -> list[dict[str, Any]]:
    """The JSON records of a server's limits."""
    return [{**asdict(limit), "margin": limit.margin, "passes": limit.passes} for limit in limits]


def _draw(report: BudgetReport, sink: Sink) -> None:
    for note in report.notes:
        sink.notice(f"{report.source.name}: {note}")
    sink.result(_plan_view(report))


def _plan_view(report: BudgetReport) -> RenderableType:
    grid = summary_grid()
    for index, factor in enumerate(report.factors):
        grid.add_row("count" if index == 0 else "", factor)
    if report.server_source is not None:
        grid.add_row("as served", _server_text(report))
    grid.add_row("frames", _frames_text(report))
    outer = f" ({report.outer_tokens} around the video)" if report.outer_tokens else ""
    grid.add_row(
        "tokens",
        f"{report.total_tokens:,} video + {report.separator_tokens:,} separators{outer} + "
        f"{report.text_tokens:,} text = {report.unpruned_sequence_length:,} ids",
    )
    for rate in report.rates:
        exact = rate.exact_retained_tokens
        note = "" if exact == rate.retained_tokens else f" ({exact:,} in exact decimals)"
        share = "" if rate.context_share is None else f", {rate.context_share:.1%} of {report.context_limit:,}"
        over = "may not fit" if report.is_at_most else "does not fit"
        is_over = rate.context_share is not None and rate.context_share > 1
        grid.add_row(
            f"q = {rate.q:g}",
            f"{'at most ' if report.is_at_most else ''}{rate.retained_tokens:,} video tokens{note}, "
            f"sequence {rate.sequence_length:,}{share}{f': {over}' if is_over else ''}",
        )
        if rate.cost is not None and rate.cost.pruned is not None:
            grid.add_row("", _cost_text(rate.cost, rate.cost.pruned))
        for limit in rate.server_limits:
            grid.add_row("", f"{limit_text(limit)}; clips of {limit.reach} pass")
    vision = next((rate.cost.vision_flops for rate in report.rates if rate.cost), None)
    if vision is not None:
        grid.add_row("vision", f"{_tflops(vision)} at any rate: frames are encoded whole before they are ranked")
    dialect = "" if report.server_source is None else f", {report.dialect}"
    return Group(Text(f"{report.source.name}  ({report.model}{dialect})", style="bold"), grid)


def _server_text(report: BudgetReport) -> str:
    """The file as the server sees it, and what it prunes at."""
    source, pruning = report.server_source, report.pruning
    assert source is not None
    assert pruning is not None
    rate = f"{source.average_fps:.4g} fps" if source.average_fps else "unknown rate"
    return (
        f"{source.num_frames:,} frames at {rate}, {source.width}x{source.height}; q = {pruning.q:g} ({pruning.source})"
    )


def limit_text(limit: UsedLimit) -> str:
    """One limit: what is used of it, and what is left."""
    left = f"{limit.margin:,} left" if limit.passes else f"{-limit.margin:,} too many"
    return f"{limit.name} {limit.used:,} of {limit.limit:,} {limit.unit}: {left}"


def _cost_text(cost: CostReport, pruned: PromptCost) -> str:
    """Cache and prefill of one rate, and how many such prompts a budget holds."""
    parts = [f"KV cache {_mib(pruned.kv_cache_bytes)} ({cost.kv_dtype})"]
    if pruned.recurrent_state_bytes:
        parts.append(f"state {_mib(pruned.recurrent_state_bytes)}")
    ratio = cost.prefill_flops_ratio
    parts.append(
        f"prefill {_tflops(pruned.prefill_flops)}" + ("" if ratio in (None, 1.0) else f" ({ratio:.0%} of q = 0)")
    )
    if pruned.prompts_in_kv_budget is not None and cost.kv_budget_bytes is not None:
        parts.append(f"{pruned.prompts_in_kv_budget:,} such prompts in {cost.kv_budget_bytes / 2**30:g} GiB")
    return ", ".join(parts)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"


def _tflops(flops: int) -> str:
    return f"{flops / 1e12:,.2f} TFLOP"


def _frames_text(report: BudgetReport) -> str:
    """``index at seconds`` of the first and last sampled frames, and the time the model is told where it is another."""
    shown = []
    for frame in report.frames:
        told = frame.prompt_seconds
        other = "" if abs(told - frame.pts_seconds) < 0.005 else f" (told {told:.2f})"
        shown.append(f"{frame.index} at {frame.pts_seconds:.2f} s{other}")
    if len(shown) > _SHOWN_FRAMES:
        half = _SHOWN_FRAMES // 2
        shown = [*shown[:half], "…", *shown[-half:]]
    return ", ".join(shown)


def _totals(reports: list[BudgetReport]) -> list[dict[str, Any]]:
    """Sums over the videos at each rate."""
    rates = {rate.q: 0 for report in reports for rate in report.rates}
    return [
        {
            "q": q,
            "retained_tokens": sum(r.retained_tokens for report in reports for r in report.rates if r.q == q),
            "sequence_length": sum(r.sequence_length for report in reports for r in report.rates if r.q == q),
        }
        for q in rates
    ]


def _draw_totals(reports: list[BudgetReport], sink: Sink) -> None:
    """The sums of several videos; nothing of one."""
    if len(reports) < 2:
        return
    table = plain_table(("q", "video tokens", "sequence"), is_terminal=sink.is_terminal)
    for total in _totals(reports):
        table.add_row(f"{total['q']:g}", f"{total['retained_tokens']:,}", f"{total['sequence_length']:,}")
    sink.result(Group(Text(f"all {len(reports)} videos", style="bold"), table))


def plan_rows(report: BudgetReport) -> list[dict[str, Any]]:
    """The CSV rows of one plan, one a rate."""
    return [
        {
            "video": report.source.path or report.source.name,
            "dialect": report.dialect,
            "model": report.model,
            **size_and_grid(report.source, report.token_grid_thw),
            "num_sampled_frames": len(report.frames),
            "total_tokens": report.total_tokens,
            "separator_tokens": report.separator_tokens,
            "text_tokens": report.text_tokens,
            "context_limit": report.context_limit,
            "is_at_most": report.is_at_most,
            **{key: value for key, value in asdict(rate).items() if key not in ("cost", "server_limits")},
            "limit_hit": rate.limit_hit,
            **_cost_columns(rate.cost),
            "error": None,
        }
        for rate in report.rates
    ]


def _cost_columns(cost: CostReport | None) -> dict[str, Any]:
    """The costs of a CSV row: the pruned prompt's, the vision part's, the rows' on disk."""
    pruned = None if cost is None else cost.pruned
    return {
        **{name: None if pruned is None else getattr(pruned, name) for name in _PRUNED_COSTS},
        "vision_flops": None if cost is None else cost.vision_flops,
        "embedding_bytes": None if cost is None else cost.embedding_bytes,
    }
