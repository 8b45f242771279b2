"""Sweeps for people and for programs: a row a rate, a curve in the terminal, a picture with its numbers beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from evs_cli.jobs.runner import OutcomeTally
from evs_cli.jobs.sweep import Sweep, summarise
from evs_cli.report import records
from evs_cli.report.tables import plain_table

if TYPE_CHECKING:
    from evs_cli.jobs.runner import Outcome
    from evs_cli.jobs.sweep import SweepRow, SweepSummary
    from evs_cli.report.console import Sink
    from evs_cli.report.signs import Signs

_CURVE_WIDTH = 20
NamedSweep = tuple[str, Sweep]
"""A video as it was named, and its rates."""


def render_sweeps(
    outcomes: Iterable[Outcome[Sweep]], sink: Sink, plot: Path | None = None, *, overwrite: bool = False
) -> None:
    """Show each sweep as it comes, a summary over several videos, and draw them where ``plot`` says.

    ``overwrite`` tells whether the picture may exist.

    Raises:
        SomeVideosFailedError: one of several videos failed.
        ArtifactError: the picture cannot be written.
    """
    done: list[NamedSweep] = []
    tally = OutcomeTally()
    for outcome, sweep in tally.results(outcomes, partial(sink.outcome_failed, with_model=True)):
        done.append((outcome.video, sweep))
        sink.show([_record(outcome.video, sweep)], None, partial(_draw, outcome.video, sweep, sink))
    summary = summarise([each for _, each in done])
    is_single = len(done) == 1 and not tally.any_failed
    sink.show((), _csv_rows(done, is_single=is_single), lambda: _draw_summary(done, summary, sink))
    sink.finish(summary=[asdict(row) for row in summary])
    if plot is not None and done:
        from evs_cli.report.plot import save_sweep_plot

        table = save_sweep_plot(done, plot, records.to_csv(_csv_rows(done, is_single=False)), overwrite=overwrite)
        sink.status(f"wrote {plot} and {table}")
    tally.raise_errors("sweeps")


def _record(video: str, sweep: Sweep) -> dict[str, Any]:
    return {"video": video, "model": sweep.model, "rows": [asdict(row) for row in sweep.rows]}


def _draw(video: str, sweep: Sweep, sink: Sink) -> None:
    sink.result(Text(f"{video}  ({sweep.model})", style="bold"))
    sink.result(_fitting_table(sweep.rows, sink))


def _draw_summary(done: Sequence[NamedSweep], summary: Sequence[SweepSummary], sink: Sink) -> None:
    """The sums of several videos; nothing of one, however many models it has."""
    if len({video for video, _ in done}) > 1:
        sink.result(Text("all videos", style="bold"))
        sink.result(_summary_table(summary, is_terminal=sink.is_terminal))


def _fitting_table(rows: Sequence[SweepRow], sink: Sink) -> Table:
    """The table with as many columns as stdout has room for; what is left out is in ``--json`` and ``--format csv``."""
    for count in range(len(_LEFT_OUT_FIRST) + 1):
        table = sweep_table(rows, sink.signs, is_terminal=sink.is_terminal, leave_out=_LEFT_OUT_FIRST[:count])
        if sink.fits(table):
            break
    return table


def sweep_table(rows: Sequence[SweepRow], signs: Signs, *, is_terminal: bool, leave_out: Sequence[str] = ()) -> Table:
    """A row a rate, with the change kept as a curve; columns without values, and those of ``leave_out``, are not there.

    Args:
        rows: the rates.
        signs: what to draw the curve with.
        is_terminal: whether lines and padding help.
        leave_out: headings of columns to leave out, ``curve`` among them.
    """
    columns = {heading: cells for heading, cells in _columns(rows, signs).items() if heading not in leave_out}
    table = plain_table((), is_terminal=is_terminal)
    for heading in columns:
        is_bar = heading in ("curve", "knee")
        is_text = is_bar or heading == "method"
        table.add_column("" if is_bar else heading, justify="left" if is_text else "right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


# The first to go where a terminal is narrow.
_LEFT_OUT_FIRST = (
    "curve",
    "in a row",
    "share",
    "drift a frame",
    "noise",
    "prefill TFLOP",
    "empty frames",
    "p5",
    "KV MiB",
    "context",
)


def _columns(rows: Sequence[SweepRow], signs: Signs) -> dict[str, list[str]]:
    """Cells of every column that has values, by heading."""
    columns = {"q": [f"{row.q:g}" for row in rows]}
    if any(row.method != "evs" for row in rows):
        columns["method"] = [row.method for row in rows]
    columns |= {
        "tokens": [f"{row.retained_tokens:,}" for row in rows],
        "share": [f"{row.retained_share:.1%}" for row in rows],
        "sequence": [f"{row.sequence_length:,}" for row in rows],
    }
    if any(row.context_share is not None for row in rows):
        columns["context"] = [_percent(row.context_share) for row in rows]
    if any(row.kv_cache_bytes is not None for row in rows):
        columns["KV MiB"] = [f"{(row.kv_cache_bytes or 0) / 2**20:,.1f}" for row in rows]
        columns["prefill TFLOP"] = [f"{(row.prefill_flops or 0) / 1e12:,.2f}" for row in rows]
    columns |= {
        "empty frames": [str(row.empty_frames) for row in rows],
        "in a row": [str(row.longest_empty_run) for row in rows],
        "noise": [f"{row.noise_share:.1%}" for row in rows],
        "change kept": [f"{row.dissimilarity_kept:.1%}" for row in rows],
    }
    if any(row.quality is not None for row in rows):
        cells = [_quality_cells(row) for row in rows]
        columns |= dict(zip(("coverage", "p5", "drift a frame"), map(list, zip(*cells, strict=True)), strict=True))
    columns["curve"] = [signs.long_bar(row.dissimilarity_kept, _CURVE_WIDTH) for row in rows]
    # In a comparison a control's knee is no advice: its curve is a straight line, about.
    advising = rows[0].method if len({row.method for row in rows}) == 1 else "evs"
    columns["knee"] = ["knee" if row.is_knee and row.method == advising else "" for row in rows]
    return columns


def _quality_cells(row: SweepRow) -> list[str]:
    quality = row.quality
    if quality is None or quality.coverage_mean is None:
        return ["-", "-", "-"]
    error = f" ± {quality.coverage_error:.3f}" if (quality.coverage_error or 0) >= 0.0005 else ""
    drift = "-" if quality.drift_per_frame is None else f"{round(quality.drift_per_frame, 4) + 0.0:.4f}"
    return [f"{quality.coverage_mean:.3f}{error}", f"{quality.coverage_p5:.3f}", drift]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _summary_table(rows: Sequence[SweepSummary], *, is_terminal: bool) -> Table:
    table = plain_table((), is_terminal=is_terminal)
    table.add_column("model")
    has_methods = any(row.method != "evs" for row in rows)
    if has_methods:
        table.add_column("method", no_wrap=True)
    for heading in ("q", "videos", "tokens", "sequence", "empty frames", "change kept"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.model,
            *([row.method] if has_methods else ()),
            f"{row.q:g}",
            str(row.num_videos),
            f"{row.retained_tokens:,}",
            f"{row.sequence_length:,}",
            str(row.empty_frames),
            f"{row.dissimilarity_kept:.1%}",
        )
    return table


def _csv_rows(sweeps: Sequence[NamedSweep], *, is_single: bool) -> list[dict[str, Any]]:
    """Flat rows; the video and model in front where there are several."""
    rows = []
    for video, sweep in sweeps:
        head = {} if is_single else {"video": video, "model": sweep.model}
        for row in sweep.rows:
            flat = asdict(row)
            quality = flat.pop("quality") or {}
            rows.append({**head, **flat, **quality})
    return rows
