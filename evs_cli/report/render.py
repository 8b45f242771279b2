"""From outcomes to the sink, for ``prune``, ``show`` and ``models``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from evs_cli.jobs.runner import OutcomeTally
from evs_cli.jobs.stored_session import StoredPlan
from evs_cli.report import records, tables

if TYPE_CHECKING:
    from pathlib import Path

    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.jobs.fetch import FetchedModel
    from evs_cli.jobs.prune import PruneResult
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink
    from evs_cli.report.shown_frames import FramesView


def render_prune(
    outcomes: Iterable[Outcome[PruneResult]], sink: Sink, printed: Sequence[str] = (), *, num_videos: int
) -> list[Path]:
    """Show each outcome as it comes, then raise if one of several videos failed.

    Args:
        outcomes: one a video and rate.
        sink: where they are shown.
        printed: parts that JSON has whole.
        num_videos: how many videos there are.

    Returns:
        The files that were written.

    Raises:
        SomeVideosFailedError: after everything is shown, naming the videos that failed.
    """
    written: list[Path] = []
    tally = OutcomeTally()
    for outcome, result in tally.results(outcomes, sink.outcome_failed):
        if result.is_skipped:
            show_skipped(outcome, sink)
            continue
        record = records.prune_record(outcome, printed)
        rows = records.csv_rows(outcome.video, result, record)
        path = None if result.output_bytes is None else result.output
        show_written([record], rows, partial(_draw, outcome.video, result, record, sink), path, sink)
        if path is not None:
            written.append(path)
            sink.status(f"wrote {path} ({size_text(result.output_bytes or 0)})")
    sink.finish()
    tally.raise_errors(num_inputs=num_videos)
    return written


def show_written(
    records_of_one: Iterable[Mapping[str, Any]],
    rows: Iterable[Mapping[str, Any]],
    view: Callable[[], None],
    path: Path | None,
    sink: Sink,
) -> None:
    """``Sink.show`` of a result that became the file ``path``: where the user wants quiet, its table is the path."""
    is_path_alone = path is not None and sink.style.quiet
    sink.show(records_of_one, rows, partial(sink.path, path) if is_path_alone and path is not None else view)


def show_skipped(outcome: Outcome[Any], sink: Sink) -> None:
    """Tell of a video whose result was there already; it has no table and no row of CSV."""
    sink.show([records.skipped_record(outcome.input)], (), lambda: None)
    sink.status(f"skipped {outcome.video}: {outcome.input.output} is there already")


def _draw(video: str, result: PruneResult, record: dict[str, Any], sink: Sink) -> None:
    title = f"{video}  ({result.model})"
    output = None if result.output is None else str(result.output)
    if result.pruned is not None:
        sink.result(tables.pruned_summary(title, result.pruned, record, sink.signs, q_source=result.q_source))
    elif isinstance(result.plan, StoredPlan):
        sink.result(tables.stored_summary(title, result.plan, result.q, output, is_at_most=result.is_at_most))
    elif result.plan is not None:
        sink.result(tables.plan_summary(title, result.plan, result.q, output, is_at_most=result.is_at_most))


def render_show(
    path: str, pruned: PrunedVideo, sink: Sink, printed: Sequence[str] = (), frames: FramesView | None = None
) -> None:
    """Show an artifact that was read back; ``frames`` are drawn in place of its summary."""
    model = pruned.provenance.get("model", {})
    video = pruned.provenance.get("video", {}).get("name", "?")
    record = {
        "file": path,
        "video": video,
        "model": model.get("id"),
        "q": pruned.q,
        **records.pruned_counts(pruned),
        "provenance": dict(pruned.provenance),
        **records.printed_parts(pruned, printed),
    }
    title = f"{path}  ({video}, {model.get('id')})"
    if frames is not None:
        sink.show([{**record, "frames": frames.records()}], frames.rows(), partial(frames.draw, title, sink))
    else:
        sink.show(
            [record],
            records.frame_rows(video, pruned),
            lambda: sink.result(tables.pruned_summary(title, pruned, record, sink.signs)),
        )
    sink.finish()


def size_text(size_bytes: int) -> str:
    """A size for people: bytes, KB, MB or GB in powers of 1000."""
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB"):
        if round(size, 1) < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def render_fetched(models: Sequence[FetchedModel], sink: Sink) -> None:
    """Show which files of each model are here now."""

    def draw() -> None:
        for model in models:
            sink.result(f"{model.location}, revision {model.revision or 'local'}: {size_text(model.size_bytes)}")
            sink.result("\n".join(f"  {path}" for path in model.files))

    made = [asdict(model) for model in models]
    sink.show(made, [{**row, "files": " ".join(row["files"])} for row in made], draw)
    sink.finish("models")


def render_models(sink: Sink) -> None:
    """Show the families and the short names."""
    from evs_cli.encoders.registry import FAMILIES
    from evs_cli.encoders.source import SHORT_NAMES

    families = list(FAMILIES.values())

    def draw() -> None:
        table = tables.families_table(families, is_terminal=sink.is_terminal)
        sink.result(table if sink.fits(table) else tables.families_list(families))
        sink.result(f"Short names: {', '.join(SHORT_NAMES)}")
        sink.hint("--model also takes a folder, or any Hugging Face id of these families.")

    rows = [asdict(family) for family in families]
    for row in rows:
        del row["encoder"]
    sink.show(rows, rows, draw)
    sink.finish("families", short_names=dict(SHORT_NAMES))
