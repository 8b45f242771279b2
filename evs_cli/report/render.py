"""From outcomes to the sink, for ``prune``, ``show`` and ``models``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from evs_cli.errors import EvsError
from evs_cli.report import records, tables

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.jobs.prune import PruneOutcome
    from evs_cli.report.console import Sink


class SomeVideosFailedError(EvsError):
    """One of several videos failed; the others are done."""


def render_prune(outcomes: Iterable[PruneOutcome], sink: Sink, printed: Sequence[str] = ()) -> None:
    """Show each outcome as it comes, then raise if one of several videos failed.

    Raises:
        SomeVideosFailedError: after everything is shown, naming the videos that failed.
    """
    failed: list[str] = []
    num_outcomes = 0
    for outcome in outcomes:
        num_outcomes += 1
        if outcome.error is not None:
            failed.append(outcome.video)
            sink.failed(outcome.video, outcome.error)
            continue
        record = records.prune_record(outcome, printed)
        sink.show([record], records.csv_rows(outcome, record), partial(_draw, outcome, record, sink))
        if outcome.output_bytes is not None:
            sink.status(f"wrote {outcome.output} ({size_text(outcome.output_bytes)})")
    sink.finish()
    raise_if_failed(failed, num_outcomes)


def raise_if_failed(failed: Sequence[str], num_outcomes: int, what: str = "videos") -> None:
    """Raise ``SomeVideosFailedError`` if any failed; for after everything is shown."""
    if failed:
        raise SomeVideosFailedError(f"{len(failed)} of {num_outcomes} {what} failed: {', '.join(failed)}")


def _draw(outcome: PruneOutcome, record: dict[str, Any], sink: Sink) -> None:
    title = f"{outcome.video}  ({outcome.model})"
    if outcome.plan is not None:
        output = None if outcome.output is None else str(outcome.output)
        sink.result(tables.plan_summary(title, outcome.plan, outcome.q, output, is_at_most=outcome.is_at_most))
    elif outcome.stored is not None:
        output = None if outcome.output is None else str(outcome.output)
        sink.result(tables.stored_summary(title, outcome.stored, outcome.q, output, is_at_most=outcome.is_at_most))
    elif outcome.pruned is not None:
        sink.result(tables.pruned_summary(title, outcome.pruned, record, q_source=outcome.q_source))


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
    title = f"{path}  ({video}, {model.get('id')})"
    sink.show(
        [record],
        records.frame_rows(video, pruned),
        lambda: sink.result(tables.pruned_summary(title, pruned, record)),
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
