"""Exports for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from evs_cli.jobs.runner import OutcomeTally
from evs_cli.report.records import flat
from evs_cli.report.render import size_text
from evs_cli.report.tables import summary_grid

if TYPE_CHECKING:
    from evs_cli.jobs.export import Exported
    from evs_cli.jobs.frames_export import FramesExport
    from evs_cli.jobs.runner import Outcome
    from evs_cli.report.console import Sink
    from evs_cli.servers.chat_answer import ChatAnswer

_SHOWN_TIMES = 3


def render_export(outcomes: Iterable[Outcome[Exported]], sink: Sink) -> None:
    """Show what was written, the line that posts it, and the server's answer."""
    tally = OutcomeTally()
    for _, exported in tally.results(outcomes, sink.outcome_failed):
        frames, record = exported.frames, export_record(exported)
        for note in frames.notes:
            sink.notice(note)
        sink.notice("JPEG is lossy: which tokens a server prunes may differ from those of the frames themselves")
        sink.show([record], [flat(record)], partial(_draw, exported, sink))
        if frames.output is not None:
            sink.status(f"wrote {frames.output} ({size_text(frames.body_bytes)})")
    sink.finish()
    tally.raise_errors()


def _draw(exported: Exported, sink: Sink) -> None:
    sink.result(_summary(exported.frames, exported.answer))
    if exported.curl is not None:
        sink.text(exported.curl)


def export_record(exported: Exported) -> dict[str, Any]:
    """The JSON record of an export."""
    export, answer = exported.frames, exported.answer
    sent, plan = export.sent, export.plan
    return {
        "video": export.video,
        "video_bytes": export.video_bytes,
        "model": export.model,
        "sampled_by": export.sampled_by,
        "served_by": export.served_by,
        "output": None if export.output is None else str(export.output),
        "body_bytes": export.body_bytes,
        "jpeg_bytes": export.jpeg_bytes,
        "decoded_bytes": sent.decoded_bytes,
        "decoded_bytes_limit": export.decoded_bytes_limit,
        "quality": export.quality,
        "num_frames": sent.num_frames,
        "num_repeated_frames": export.num_repeated,
        "temporal_patch_size": export.temporal_patch_size,
        "frame_height": sent.height,
        "frame_width": sent.width,
        "token_grid_thw": list(plan.token_grid_thw),
        "total_tokens": plan.total_tokens,
        "q": export.q,
        "retained_tokens": export.retained_tokens,
        "prompt_tokens": export.prompt_tokens,
        "context_limit": export.context_limit,
        "seconds_per_grid": plan.seconds_per_grid,
        "pts_seconds": export.pts_seconds.tolist(),
        "prompt_seconds": plan.prompt_seconds.tolist(),
        "prompt_times": list(export.told),
        "notes": list(export.notes),
        "server_option": export.server_option,
        "curl": exported.curl,
        "answer": None if answer is None else asdict(answer),
    }


def _summary(export: FramesExport, answer: ChatAnswer | None) -> Group:
    sent, plan = export.sent, export.plan
    grid = summary_grid()
    grid.add_row("frames", _frames_text(export))
    grid.add_row(
        "JPEG",
        f"quality {export.quality}: {size_text(export.jpeg_bytes)}, {size_text(export.body_bytes)} as a request; "
        f"the video itself is {size_text(export.video_bytes)}",
    )
    grid.add_row("decoded", f"{sent.decoded_bytes:,} of {export.decoded_bytes_limit:,} bytes, 4 a pixel")
    num_grids, height, width = plan.token_grid_thw
    kept = "" if export.q == 0 else f", {export.retained_tokens:,} kept at q = {export.q:g}"
    grid.add_row("tokens", f"{num_grids} x {height} x {width} = {plan.total_tokens:,} video tokens{kept}")
    if export.prompt_tokens is not None:
        grid.add_row("prompt", _prompt_text(export.prompt_tokens, export.context_limit))
    for index, line in enumerate(_times(export)):
        grid.add_row("times" if index == 0 else "", Text(line))
    if export.server_option is not None:
        grid.add_row("server", f"must be started with {export.server_option}")
    if answer is not None:
        grid.add_row("answered", Text(_usage_text(export, answer)))
        grid.add_row("answer", Text(answer.text))
    return Group(Text(f"{export.video}  ({export.model}, {export.served_by})", style="bold"), grid)


def _prompt_text(prompt_tokens: int, context_limit: int | None) -> str:
    """The prompt's length, and whether it leaves room for an answer."""
    if context_limit is None:
        return f"{prompt_tokens:,} ids"
    over = "" if prompt_tokens < context_limit else ": the server refuses it"
    return f"{prompt_tokens:,} ids of {context_limit:,}{over}"


def _frames_text(export: FramesExport) -> str:
    sent, patch = export.sent, export.temporal_patch_size
    whole = "" if patch == 1 else f", {sent.num_frames // patch} whole tubelets of {patch}"
    repeated = f" (the last one {export.num_repeated + 1} times)" if export.num_repeated else ""
    return f"{sent.num_frames} of {sent.width}x{sent.height}{whole}{repeated}, sampled by {export.sampled_by}"


def _times(export: FramesExport) -> list[str]:
    """What the model is told of the times, a line each; long lists are cut."""
    told = export.told
    if not told:
        return [f"none are told; positions are {export.plan.seconds_per_grid:.4g} s a tubelet apart"]
    if len(told) <= 2 * _SHOWN_TIMES:
        return list(told)
    return [*told[:_SHOWN_TIMES], f"… {len(told) - 2 * _SHOWN_TIMES} more …", *told[-_SHOWN_TIMES:]]


def _usage_text(export: FramesExport, answer: ChatAnswer) -> str:
    """The server's count beside ours."""
    completion = "" if answer.completion_tokens is None else f", {answer.completion_tokens:,} answered"
    if answer.prompt_tokens is None:
        return f"no usage{completion}"
    planned = export.prompt_tokens
    if planned is None:
        return f"{answer.prompt_tokens:,} prompt tokens{completion}"
    difference = answer.prompt_tokens - planned
    compared = "as planned" if difference == 0 else f"{difference:+,} to the plan"
    return f"{answer.prompt_tokens:,} prompt tokens, {compared}{completion}"
