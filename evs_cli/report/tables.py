"""Results for people: a summary of a pruned video, a bar a frame, a row a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evs_cli.core.placeholders import run_lengths

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.encoders.base import EncodePlan
    from evs_cli.encoders.registry import Family
    from evs_cli.jobs.stored_session import StoredPlan
    from evs_cli.pipeline.clip_plan import ClipPlan
    from evs_cli.report.signs import Signs

_FRAMES_A_LINE = 60
_SHOWN_RUNS = 24
_SHOWN_IDS = 4
_STEPS = {
    "probe": "scan",
    "plan": "plan",
    "load_model": "load",
    "decode": "decode",
    "encode": "encode",
    "rank": "rank",
    "write": "write",
}


def pruned_summary(
    title: str, pruned: PrunedVideo, record: Mapping[str, Any], signs: Signs, *, q_source: str | None = None
) -> RenderableType:
    """All of a pruned video on about fifteen lines.

    Args:
        title: the video's or the file's name.
        pruned: the video.
        record: its record, whose numbers are shown.
        signs: what to draw with.
        q_source: where the rate comes from; None for a file read back.
    """
    grid = summary_grid()
    num_frames, height, width = pruned.token_grid_thw
    method = "" if pruned.method == "evs" else f", method {pruned.method}"
    grid.add_row("rate", f"q = {pruned.q:g}" + (f" ({q_source})" if q_source else "") + method + _exact_note(pruned))
    grid.add_row(
        "frames",
        f"{record['num_sampled_frames']} sampled, {num_frames} of {height} x {width} = "
        f"{pruned.tokens_per_frame} tokens" + _empty_note(record),
    )
    if record["reused_frames"]:
        grid.add_row("", f"{record['reused_frames']:,} of them repeat the one before and were not encoded again")
    grid.add_row(
        "tokens", f"{pruned.retained_tokens:,} of {pruned.total_tokens:,} kept ({record['retained_share']:.1%})"
    )
    if pruned.min_dissimilarity:  # nothing differs by less than 0
        dropped = pruned.planned["retained_tokens"] - pruned.retained_tokens
        grid.add_row("", f"{dropped:,} more would fit the rate, but differ by less than {pruned.min_dissimilarity:g}")
    if pruned.noise_tokens:
        grid.add_row("", f"{pruned.noise_tokens:,} of them differ from the frame before by no more than rounding")
    if pruned.zero_frames:
        grid.add_row("", f"{len(pruned.zero_frames)} frames hold all-zero tokens, which count as new")
    grid.add_row("sequence", f"{pruned.unpruned_sequence_length:,} ids before, {pruned.sequence_length:,} after")
    norm = record["embeddings_norm"]
    levels = f", and {len(pruned.deepstack_embeddings)} DeepStack levels" if pruned.deepstack_embeddings else ""
    grid.add_row(
        "embeddings",
        f"({', '.join(str(n) for n in pruned.embeddings.shape)}) {record['embeddings_dtype']}{levels}; "
        f"norms {norm['min']:.3g} to {norm['max']:.3g}, mean {norm['mean']:.3g}",
    )
    if record.get("timings_seconds"):
        grid.add_row("time", timings_text(record["timings_seconds"]))
    return Group(
        Text(title, style="bold"),
        grid,
        Text(f"tokens kept of each frame ({signs.full} = {pruned.tokens_per_frame}, {signs.none} = none)", style="dim"),
        *_bars(pruned, signs),
        Text("the sequence: ids, and each run of placeholders as id x length", style="dim"),
        Text(_run_length_text(pruned)),
    )


def plan_summary(title: str, plan: ClipPlan, q: float, output: str | None, *, is_at_most: bool) -> RenderableType:
    """What a run would read, compute and write."""
    grid = summary_grid()
    for label, text in plan_rows(plan):
        grid.add_row(label, text)
    _add_rate(grid, plan.encode, q, output, is_at_most=is_at_most)
    return Group(Text(title, style="bold"), grid)


def stored_summary(title: str, stored: StoredPlan, q: float, output: str | None, *, is_at_most: bool) -> RenderableType:
    """What would be read of an encoding, and written."""
    grid = summary_grid()
    num_frames, height, width = stored.encode.token_grid_thw
    grid.add_row("frames", f"{num_frames} of {height} x {width} = {stored.encode.tokens_per_frame} tokens")
    _add_rate(grid, stored.encode, q, output, is_at_most=is_at_most)
    grid.add_row("reads", f"at most {stored.read_bytes:,} of {stored.size_bytes:,} bytes")
    return Group(Text(title, style="bold"), grid)


def plan_rows(plan: ClipPlan) -> list[tuple[str, str]]:
    """Labels and texts of what a run would read and sample."""
    video, encode = plan.video, plan.encode
    num_frames, height, width = encode.token_grid_thw
    return [
        ("video", f"{video.width}x{video.height}, {video.duration_seconds:.1f} s, {video.num_frames} frames"),
        (
            "frames",
            f"{len(encode.pts_seconds)} would be sampled and resized to {encode.frame_size[1]}x{encode.frame_size[0]}: "
            f"{num_frames} of {height} x {width} = {encode.tokens_per_frame} tokens",
        ),
    ]


def _add_rate(grid: Table, encode: EncodePlan, q: float, output: str | None, *, is_at_most: bool) -> None:
    most = "at most " if is_at_most else ""
    grid.add_row("tokens", f"{most}{encode.retained_tokens(q):,} of {encode.total_tokens:,} would be kept at q = {q:g}")
    grid.add_row("sequence", f"{encode.sequence_length():,} ids before, {most}{encode.sequence_length(q):,} after")
    grid.add_row("output", Text(output or "none (print only)"))


def families_table(families: Sequence[Family], *, is_terminal: bool) -> Table:
    """A row a model family."""
    headings = ("family", "for example", "layout", "positions", "sampling", "needs", "verified with")
    table = plain_table(headings, is_terminal=is_terminal, justify="left")
    for family in families:
        table.add_row(
            family.model_type,
            family.example,
            family.layout,
            family.positions,
            family.sampling,
            family.needs,
            family.verified,
        )
    return table


def families_list(families: Sequence[Family]) -> Table:
    """The families on two lines each, for terminals too narrow for a table."""
    grid = summary_grid()
    for family in families:
        grid.add_row(family.model_type, f"{family.layout}; positions {family.positions}; {family.sampling}")
        grid.add_row("", f"for example {family.example}; needs {family.needs}; verified with {family.verified}")
    return grid


def plain_table(headings: Sequence[str], *, is_terminal: bool, justify: Literal["left", "right"] = "right") -> Table:
    """A table with a line under its headings on a terminal, and without any elsewhere; no cell is wrapped."""
    table = Table(box=box.SIMPLE_HEAD if is_terminal else None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify=justify, no_wrap=True)
    return table


def summary_grid() -> Table:
    """A grid of a dim label and a text a row."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    return grid


def _exact_note(pruned: PrunedVideo) -> str:
    from evs_cli.core.counts import exact_retained_tokens_count

    exact = exact_retained_tokens_count(pruned.tokens_per_frame, pruned.token_grid_thw.t, pruned.q)
    return "" if exact == pruned.retained_tokens else f"; {exact:,} in exact decimals, servers count as shown"


def _empty_note(record: Mapping[str, Any]) -> str:
    if record["retained_tokens"] == record["tokens_per_frame"] and record["token_grid_thw"][0] > 1:
        return "; only frame 0 is left"
    empty = record["empty_frames"]
    return f"; {empty} keep{'s' if empty == 1 else ''} none" if empty else ""


def timings_text(timings: Mapping[str, float]) -> str:
    """Where the seconds of a run went."""
    parts = [f"{_STEPS.get(step, step)} {value:.2f}" for step, value in timings.items() if value >= 0.005]
    whole = f"{sum(timings.values()):.2f} s in all"
    return f"{', '.join(parts)}; {whole}" if parts else whole


def _bars(pruned: PrunedVideo, signs: Signs) -> list[Text]:
    """Lines of one bar a frame, each line behind the time it begins at."""
    counts, times = pruned.num_tokens_per_frame.tolist(), pruned.frame_pts_seconds.tolist()
    lines = []
    for start in range(0, len(counts), _FRAMES_A_LINE):
        bars = "".join(signs.bar(count, pruned.tokens_per_frame) for count in counts[start : start + _FRAMES_A_LINE])
        lines.append(Text.assemble((f"{times[start]:8.1f} s ", "dim"), (bars, "green")))
    return lines


def _run_length_text(pruned: PrunedVideo) -> str:
    """``id x length`` of each run of placeholders, and the ids between them; long stretches of either are cut."""
    placeholder = pruned.placeholder_token_id
    shown: list[str] = []
    between: list[str] = []
    for token, length in [*run_lengths(pruned.input_ids.numpy()), (placeholder, 0)]:
        if token != placeholder:
            between += [str(token)] * length
            continue
        shown.append(" ".join(between) if len(between) <= _SHOWN_IDS else f"[{len(between)} ids]")
        between = []
        if length:
            shown.append(f"{token}x{length}")
    shown = [part for part in shown if part]
    if len(shown) > _SHOWN_RUNS:
        half = _SHOWN_RUNS // 2
        shown = [*shown[:half], f"… {len(shown) - 2 * half} more …", *shown[-half:]]
    return " ".join(shown)
