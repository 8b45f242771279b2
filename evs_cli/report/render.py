"""From outcomes to the sink: a table as each video is done, or one JSON or CSV document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evs_cli.jobs.runner import raise_if_failed
from evs_cli.jobs.stored_session import StoredPlan
from evs_cli.report import records, tables

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.jobs.prune import PruneResult
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink


def render_prune(outcomes: Iterable[Outcome[PruneResult]], sink: Sink, printed: Sequence[str] = ()) -> None:
    """Show each outcome as it comes, then raise if one of several videos failed.

    Raises:
        SomeVideosFailedError: after everything is shown, naming the videos that failed.
    """
    documents: list[dict[str, Any]] = []
    failed: list[str] = []
    for outcome in outcomes:
        record = records.prune_record(outcome, printed)
        documents.append(record)
        result = outcome.result
        if result is None:
            assert outcome.error is not None
            failed.append(outcome.video)
            sink.error(outcome.error.message, outcome.error.hint)
            continue
        if sink.style.format == "csv":
            rows = records.csv_rows(outcome.video, result, record)
            sink.text(records.to_csv(rows, header=len(documents) - len(failed) == 1))
        elif sink.style.format == "table":
            _show_result(outcome.video, result, record, sink)
        if result.output_bytes is not None:
            sink.status(f"wrote {result.output} ({size_text(result.output_bytes)})")
        if sink.style.format != "json":
            documents[-1] = {}  # only a JSON document is made of all of them
    if sink.style.format == "json":
        sink.json(records.prune_document(documents))
    raise_if_failed(failed, len(documents))


def _show_result(video: str, result: PruneResult, record: dict[str, Any], sink: Sink) -> None:
    title = f"{video}  ({result.model})"
    output = None if result.output is None else str(result.output)
    if result.pruned is not None:
        sink.result(tables.pruned_summary(title, result.pruned, record, q_source=result.q_source))
    elif isinstance(result.plan, StoredPlan):
        sink.result(tables.stored_summary(title, result.plan, result.q, output, is_at_most=result.is_at_most))
    elif result.plan is not None:
        sink.result(tables.plan_summary(title, result.plan, result.q, output, is_at_most=result.is_at_most))


def render_show(path: str, pruned: PrunedVideo, sink: Sink, printed: Sequence[str] = ()) -> None:
    """Show an artifact that was read back."""
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
    if sink.style.format == "json":
        sink.json({"schema_version": records.SCHEMA_VERSION, **record})
    elif sink.style.format == "csv":
        sink.text(records.to_csv(records.frame_rows(video, pruned)))
    else:
        sink.result(tables.pruned_summary(f"{path}  ({video}, {model.get('id')})", pruned, record))


def size_text(size_bytes: int) -> str:
    """A size for people: bytes, KB, MB or GB in powers of 1000."""
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB"):
        if round(size, 1) < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def render_models(sink: Sink) -> None:
    """Show the families and the short names."""
    from evs_cli.encoders.registry import FAMILIES
    from evs_cli.encoders.source import SHORT_NAMES

    rows = [asdict(family) for family in FAMILIES.values()]
    for row in rows:
        del row["encoder"]
    if sink.style.format == "json":
        sink.json({"schema_version": records.SCHEMA_VERSION, "families": rows, "short_names": dict(SHORT_NAMES)})
    elif sink.style.format == "csv":
        sink.text(records.to_csv(rows))
    else:
        families = list(FAMILIES.values())
        table = tables.families_table(families, is_terminal=sink.is_terminal)
        sink.result(table if sink.fits(table) else tables.families_list(families))
        sink.result(f"Short names: {', '.join(SHORT_NAMES)}")
        sink.hint("--model also takes a folder, or any Hugging Face id of these families.")
