"""The cache of encodings for people and for programs: what is in it, and what was removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from evs_cli.files.cache.store import CacheEntry, EncodingCache, read_facts
from evs_cli.report.render import size_text
from evs_cli.report.tables import plain_table

if TYPE_CHECKING:
    from evs_cli.report.console import Sink

_UNKNOWN = "?"  # of an entry that is damaged


def render_cache(cache: EncodingCache, sink: Sink) -> None:
    """Show every entry, the last used first, and how full the cache is."""
    entries = [entry_record(entry) for entry in cache.entries()]
    total = sum(entry["size_bytes"] for entry in entries)
    full = f"{size_text(total)} of {size_text(cache.limit_bytes)} in {cache.folder}"
    sink.show(entries, (_flat(entry) for entry in entries), lambda: _draw(entries, full, sink))
    sink.finish("entries", folder=str(cache.folder), limit_bytes=cache.limit_bytes, size_bytes=total)


def render_removed(removed: Sequence[CacheEntry], sink: Sink) -> None:
    """Show what was removed."""
    freed = sum(entry.size_bytes for entry in removed)
    rows = [{"entry": entry.name, "size_bytes": entry.size_bytes} for entry in removed]
    told = Text(f"removed {_counted(rows)}, {size_text(freed)}")
    sink.show(rows, rows, lambda: sink.result(told))
    sink.finish("removed", freed_bytes=freed)


def entry_record(entry: CacheEntry) -> dict[str, Any]:
    """The JSON record of an entry; null where its header is damaged."""
    facts = read_facts(entry.path)
    return {
        "entry": entry.name,
        "video": None if facts is None else facts.video,
        "model": None if facts is None else facts.model,
        "num_sampled_frames": None if facts is None else facts.num_sampled_frames,
        "token_grid_thw": None if facts is None else list(facts.token_grid_thw),
        "dtype": None if facts is None else facts.dtype,
        "size_bytes": entry.size_bytes,
        "last_used": datetime.fromtimestamp(entry.last_used_seconds, UTC).isoformat(timespec="seconds"),
    }


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A row for CSV: the grid in three columns' stead as T x h x w."""
    return {**record, "token_grid_thw": _grid(record)}


def _grid(record: dict[str, Any]) -> str:
    grid = record["token_grid_thw"]
    return _UNKNOWN if grid is None else " x ".join(str(n) for n in grid)


def _counted(entries: Sequence[object]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries)} entries"


def _draw(entries: Sequence[dict[str, Any]], full: str, sink: Sink) -> None:
    """A row an entry, and how full the cache is."""
    if entries:
        sink.result(_table(entries, is_terminal=sink.is_terminal))
    sink.result(Text(f"{_counted(entries)}, {full}"))


def _table(entries: Sequence[dict[str, Any]], *, is_terminal: bool) -> Table:
    headings = ("entry", "video", "model", "frames", "grid", "dtype", "size", "last used")
    table = plain_table(headings, is_terminal=is_terminal, justify="left")
    for entry in entries:
        used = datetime.fromisoformat(entry["last_used"]).astimezone()
        table.add_row(
            entry["entry"],
            Text(entry["video"] or f"{_UNKNOWN} (damaged)"),
            Text(entry["model"] or _UNKNOWN),
            str(entry["num_sampled_frames"] or _UNKNOWN),
            _grid(entry),
            entry["dtype"] or _UNKNOWN,
            size_text(entry["size_bytes"]),
            f"{used:%Y-%m-%d %H:%M}",
        )
    return table
