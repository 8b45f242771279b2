"""Measurements for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.text import Text

from evs_cli.jobs.runner import OutcomeTally
from evs_cli.report.render import size_text
from evs_cli.report.tables import plain_table, summary_grid

if TYPE_CHECKING:
    from evs_cli.jobs.bench import BenchResult, Measurement
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink


def render_bench(outcomes: Iterable[Outcome[BenchResult]], sink: Sink) -> None:
    """Show each result: a table and what follows from it, a JSON record, or a row a measurement."""
    tally = OutcomeTally()
    for outcome, result in tally.results(outcomes, sink.outcome_failed):
        record = {**bench_record(result), "video": outcome.video}
        sink.show([record], [_row(each) for each in result.measurements], partial(_draw, result, sink))
    sink.finish()
    tally.raise_errors()


def bench_record(result: BenchResult) -> dict[str, Any]:
    """The JSON record of a result."""
    return {
        "video": result.video,
        "model": result.model,
        "machine": dict(result.machine),
        "device": result.device,
        "dtype": result.dtype,
        "batch_frames": result.batch_frames,
        "num_sampled_frames": result.num_sampled_frames,
        "token_grid_thw": list(result.token_grid_thw),
        "reused_frames": result.reused_frames,
        "measurements": [{**_row(each), "seconds": list(each.seconds)} for each in result.measurements],
        "encoder_busy_share": result.busy_share,
        "encoder_busy_shares": list(result.busy_shares),
        "mask_speedup": result.mask_speedup,
        "mask_share_of_encode": result.mask_share,
        "peak_memory_bytes": result.peak_memory_bytes,
        "peak_device_bytes": result.peak_device_bytes,
    }


def _row(each: Measurement) -> dict[str, Any]:
    """A measurement as one value a column."""
    return {
        "step": each.step,
        "what": each.what,
        "unit": each.unit,
        "amount": each.amount,
        "repeats": len(each.seconds),
        "median_seconds": each.median_seconds,
        "min_seconds": min(each.seconds),
        "max_seconds": max(each.seconds),
        "per_second": each.per_second,
    }


def _draw(result: BenchResult, sink: Sink) -> None:
    machine = result.machine
    accelerator = f", {machine['accelerator']}" if machine["accelerator"] else ""
    num_frames, height, width = result.token_grid_thw
    grid = summary_grid()
    grid.add_row(
        "machine",
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads{accelerator}, "
        f"{machine['system']}, torch {machine['torch']}",
    )
    grid.add_row(
        "frames",
        f"{result.num_sampled_frames} sampled, {num_frames} of {height} x {width} tokens, {result.batch_frames} a batch"
        + (f"; {result.reused_frames} repeat the one before" if result.reused_frames else ""),
    )
    grid.add_row("run", f"{result.device} {result.dtype}, medians of {len(result.busy_shares)} after one warm-up")
    sink.result(Text(f"{result.video}  ({result.model})", style="bold"))
    sink.result(grid)
    table = plain_table(("step",), is_terminal=sink.is_terminal, justify="left")
    for heading in ("amount", "median s", "a second"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what was run", no_wrap=True)
    for each in result.measurements:
        amount, rate = f"{each.amount:,} {each.unit}", f"{each.per_second:,.3g}"
        if each.per_second >= 1000:
            rate = f"{each.per_second:,.0f}"
        table.add_row(each.step, amount, f"{each.median_seconds:.4f}", rate, each.what)
    sink.result(table)
    sink.result(_conclusions(result))


def _conclusions(result: BenchResult) -> Any:
    """What follows from the measurements, a line each."""
    grid = summary_grid()
    grid.add_row("encoder busy", f"{result.busy_share:.0%} of a pass's wall time, once it is planned")
    grid.add_row(
        "mask",
        f"{result.mask_speedup:.1f} times as fast as the plain formula; {result.mask_share:.2%} of encoding time",
    )
    if result.peak_memory_bytes is not None:
        on_device = "" if result.peak_device_bytes is None else f", {size_text(result.peak_device_bytes)} on the device"
        grid.add_row("peak memory", f"{size_text(result.peak_memory_bytes)}, libraries and weights with it{on_device}")
    return grid
