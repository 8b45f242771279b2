"""Whole encodings for people and for programs: what was written, and what a file holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evs_cli.jobs.encode import SkippedEncoding, WrittenEncoding
from evs_cli.jobs.runner import OutcomeTally
from evs_cli.report.records import flat
from evs_cli.report.render import show_skipped, show_written, size_text
from evs_cli.report.tables import plain_table, plan_rows, summary_grid, timings_text

if TYPE_CHECKING:
    from pathlib import Path

    from evs_cli.encoders.base import EncodePlan
    from evs_cli.files.encoding.reader import Encoding
    from evs_cli.files.encoding.record import StoreFacts
    from evs_cli.jobs.encode import Encoded
    from evs_cli.jobs.runner import Input, Outcome
    from evs_cli.pipeline.clip_plan import ClipPlan
    from evs_cli.report.console import Sink
    from evs_cli.report.shown_frames import FramesView

_SHOWN_RATES = (0.0, 0.5, 0.7, 0.9)


def render_encodings(outcomes: Iterable[Outcome[Encoded]], sink: Sink) -> list[Path]:
    """Show each outcome of ``evs encode`` as it comes, then raise if one of several videos failed.

    Returns:
        The files that were written.

    Raises:
        SomeVideosFailedError: after everything is shown, naming the videos that failed.
    """
    written: list[Path] = []
    tally = OutcomeTally()
    for outcome, result in tally.results(outcomes, sink.outcome_failed):
        if isinstance(result, SkippedEncoding):
            show_skipped(outcome, sink)
            continue
        record = encode_record(outcome.input, result, outcome.timings_seconds)
        path = outcome.input.output if isinstance(result, WrittenEncoding) else None
        show_written([record], [flat(record)], partial(_draw, outcome.input, result, record, sink), path, sink)
        if path is not None and isinstance(result, WrittenEncoding):
            written.append(path)
            sink.status(f"wrote {path} ({size_text(result.size_bytes)})")
    sink.finish()
    tally.raise_errors()
    return written


def encode_record(
    named: Input, result: WrittenEncoding | ClipPlan, timings_seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The JSON record of one video that did not fail."""
    head = {"video": named.video, "output": str(named.output), "model": named.model}
    timings = {step: round(value, 6) for step, value in timings_seconds.items()}
    if not isinstance(result, WrittenEncoding):
        return {**head, "dry_run": True, **_counts(result.encode), "timings_seconds": timings}
    return {
        **head,
        **_counts(result.encode),
        "reused_frames": result.reused_frames,
        **_stored(result.store),
        "output_bytes": result.size_bytes,
        "timings_seconds": timings,
    }


def _counts(plan: EncodePlan) -> dict[str, Any]:
    """The counts of a whole encoding."""
    return {
        "video_grid_thw": list(plan.video_grid_thw),
        "token_grid_thw": list(plan.token_grid_thw),
        "tokens_per_frame": plan.tokens_per_frame,
        "total_tokens": plan.total_tokens,
        "unpruned_sequence_length": plan.sequence_length(),
        "num_sampled_frames": len(plan.pts_seconds),
        "frame_size": list(plan.frame_size),
    }


def _stored(store: StoreFacts) -> dict[str, Any]:
    return {
        "embeddings_dtype": store.embedding_dtype,
        "store_dtype": store.dtype,
        "embedding_sizes": list(store.dims),
        "model_levels": store.num_model_levels,
        "row_bytes": store.row_bytes,
        "store_errors": [None if error is None else asdict(error) for error in store.errors],
    }


def _draw(named: Input, result: WrittenEncoding | ClipPlan, record: dict[str, Any], sink: Sink) -> None:
    grid = summary_grid()
    if not isinstance(result, WrittenEncoding):
        for label, text in plan_rows(result):
            grid.add_row(label, text)
        grid.add_row("tokens", f"{result.encode.total_tokens:,} would be kept, in rank order")
        grid.add_row("sequence", f"{result.encode.sequence_length():,} ids")
        grid.add_row("output", Text(str(named.output)))
    else:
        _add_counts(grid, result.encode, result.reused_frames)
        _add_store(grid, result.store)
        grid.add_row("time", timings_text(record["timings_seconds"]))
    sink.result(Group(Text(f"{named.video}  ({named.model})", style="bold"), grid))


def _add_counts(grid: Table, plan: EncodePlan, reused_frames: int) -> None:
    num_frames, height, width = plan.token_grid_thw
    grid.add_row(
        "frames",
        f"{len(plan.pts_seconds)} sampled, {num_frames} of {height} x {width} = {plan.tokens_per_frame} tokens",
    )
    if reused_frames:
        grid.add_row("", f"{reused_frames:,} of them repeat the one before and were not encoded again")
    grid.add_row("tokens", f"{plan.total_tokens:,} in rank order: any rate is the first of them")
    grid.add_row("sequence", f"{plan.sequence_length():,} ids")


def _add_store(grid: Table, store: StoreFacts) -> None:
    sizes = " + ".join(str(dim) for dim in store.dims)
    left_out = store.num_model_levels - len(store.dims)
    levels = f"; {left_out} further levels left out" if left_out else ""
    grid.add_row("rows", f"{sizes} {store.dtype}, {store.row_bytes:,} bytes a token{levels}")
    for level, error in enumerate(store.errors):
        if error is not None:
            grid.add_row(
                "error" if level == 0 else "",
                f"level {level} against {store.embedding_dtype}: at most {error.max_abs:.3g}, {error.mean_abs:.3g} on "
                f"average; cosine at least {error.cosine_min:.6f}, {error.cosine_mean:.6f} on average",
            )


def render_encoding(path: str, encoding: Encoding, sink: Sink, frames: FramesView | None = None) -> None:
    """Show what a file of ``evs encode`` holds; ``frames`` are drawn in place of that."""
    rates = [_rate(encoding, q) for q in _SHOWN_RATES]
    record = _encoding_record(path, encoding, rates)
    if frames is not None:
        draw = partial(frames.draw, _title(path, encoding), sink)
        sink.show([{**record, "frames": frames.records()}], frames.rows(), draw)
    else:
        sink.show([record], rates, partial(_draw_encoding, path, encoding, rates, sink))
    sink.finish()


def _title(path: str, encoding: Encoding) -> str:
    return f"{path}  ({_video_name(encoding)}, {encoding.model.source.name})"


def _encoding_record(path: str, encoding: Encoding, rates: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "file": path,
        "kind": "encoding",
        "video": _video_name(encoding),
        "model": encoding.model.source.name,
        **_counts(encoding.plan),
        "reused_frames": _reused(encoding),
        **_stored(encoding.store),
        "file_bytes": encoding.size_bytes,
        "front_bytes": encoding.front_bytes,
        "zero_frames": list(encoding.video.zero_frames),
        "pts_seconds": encoding.plan.pts_seconds.tolist(),
        "prompt_seconds": encoding.plan.prompt_seconds.tolist(),
        "rates": rates,
        "provenance": dict(encoding.provenance),
    }


def _draw_encoding(path: str, encoding: Encoding, rates: Sequence[dict[str, Any]], sink: Sink) -> None:
    grid = summary_grid()
    _add_counts(grid, encoding.plan, _reused(encoding))
    _add_store(grid, encoding.store)
    grid.add_row("file", f"{size_text(encoding.size_bytes)}, {size_text(encoding.front_bytes)} of it before the rows")
    sink.result(Text(_title(path, encoding), style="bold"))
    sink.result(grid)
    sink.result(_rates_table(rates, is_terminal=sink.is_terminal))


def _video_name(encoding: Encoding) -> str:
    return str(encoding.provenance.get("video", {}).get("name", "?"))


def _reused(encoding: Encoding) -> int:
    return int(encoding.provenance.get("reused_frames", 0))


def _rate(encoding: Encoding, q: float) -> dict[str, Any]:
    """What a rate keeps, and what it reads of the file."""
    retained = encoding.plan.retained_tokens(q)
    return {
        "q": q,
        "retained_tokens": retained,
        "sequence_length": encoding.plan.length_with(retained),
        "read_bytes": encoding.front_bytes + retained * encoding.store.row_bytes,
    }


def _rates_table(rates: Sequence[dict[str, Any]], *, is_terminal: bool) -> RenderableType:
    table = plain_table(("q", "tokens", "sequence", "reads"), is_terminal=is_terminal)
    for row in rates:
        table.add_row(
            f"{row['q']:g}",
            f"{row['retained_tokens']:,}",
            f"{row['sequence_length']:,}",
            size_text(row["read_bytes"]),
        )
    return table
