"""Results as plain records: the keys of ``--json`` and the columns of ``--format csv``, in one place.

Every number a table shows is in a record, so that the two cannot disagree.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evs_cli.core.dtypes import dtype_name
from evs_cli.errors import EvsError, first_line
from evs_cli.jobs.stored_session import StoredPlan

if TYPE_CHECKING:
    from evs_cli.core.pruned_video import PrunedVideo
    from evs_cli.encoders.base import EncodePlan
    from evs_cli.jobs.prune import PruneResult
    from evs_cli.jobs.runner import Input, Outcome

PRINTABLE = ("ids", "embeddings")
"""What ``--print`` can add whole to the JSON of prune and show."""


def error_record(video: str | None, error: EvsError, **which: str | None) -> dict[str, Any]:
    """The JSON record of a video that failed, the same for every command; None where no video was named."""
    return {"video": video, **which, "error": error.message, "hint": error.hint, "exit_code": error.exit_code}


def ended_record(video: str | None, error: BaseException) -> dict[str, Any]:
    """The JSON record of a video that what ended the command left undone: an error, Ctrl-C, or a bug."""
    if isinstance(error, EvsError):
        return error_record(video, error)
    is_interrupt = isinstance(error, KeyboardInterrupt)
    message = "interrupted" if is_interrupt else f"unexpected {type(error).__name__}: {first_line(error)}"
    return {"video": video, "error": message, "hint": None, "exit_code": 130 if is_interrupt else 1}


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row for CSV: what of a record is one value each."""
    return {key: value for key, value in record.items() if not isinstance(value, (list, dict))}


def skipped_record(named: Input) -> dict[str, Any]:
    """The JSON record of a video whose output was there already."""
    rate = {} if named.q is None else {"q": named.q}
    return {"video": named.video, "output": str(named.output), "model": named.model, **rate, "skipped": True}


def prune_record(outcome: Outcome[PruneResult], printed: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON record of a video that did not fail: counts, the file, where the time went; ``printed`` parts whole."""
    named, result = outcome.input, outcome.result
    assert result is not None
    head: dict[str, Any] = {"video": named.video, "output": None if named.output is None else str(named.output)}
    head |= {"model": result.model, "q": result.q}
    timings = {step: round(value, 6) for step, value in outcome.timings_seconds.items()}
    if result.plan is not None:
        counts = plan_counts(result.plan.encode, result.q)
        reads = {"read_bytes": result.plan.read_bytes} if isinstance(result.plan, StoredPlan) else {}
        return {**head, "dry_run": True, "at_most": result.is_at_most, **counts, **reads, "timings_seconds": timings}
    assert result.pruned is not None
    return {
        **head,
        **pruned_counts(result.pruned),
        "output_bytes": result.output_bytes,
        "timings_seconds": timings,
        **printed_parts(result.pruned, printed),
    }


def plan_counts(encode: EncodePlan, q: float) -> dict[str, Any]:
    """The counts of a planned video at rate q."""
    return {
        "video_grid_thw": list(encode.video_grid_thw),
        "token_grid_thw": list(encode.token_grid_thw),
        "tokens_per_frame": encode.tokens_per_frame,
        "total_tokens": encode.total_tokens,
        "retained_tokens": encode.retained_tokens(q),
        "sequence_length": encode.sequence_length(q),
        "unpruned_sequence_length": encode.sequence_length(),
        "num_sampled_frames": len(encode.pts_seconds),
        "frame_size": list(encode.frame_size),
    }


def pruned_counts(pruned: PrunedVideo) -> dict[str, Any]:
    """The counts of a pruned video."""
    norms = pruned.embedding_norms()
    return {
        "video_grid_thw": list(pruned.video_grid_thw),
        "token_grid_thw": list(pruned.token_grid_thw),
        "tokens_per_frame": pruned.tokens_per_frame,
        "total_tokens": pruned.total_tokens,
        "retained_tokens": pruned.retained_tokens,
        "retained_share": pruned.retained_tokens / pruned.total_tokens,
        "num_tokens_per_frame": pruned.num_tokens_per_frame.tolist(),
        "sequence_length": pruned.sequence_length,
        "unpruned_sequence_length": pruned.unpruned_sequence_length,
        "empty_frames": pruned.empty_frames,
        "method": pruned.method,
        "min_dissimilarity": pruned.min_dissimilarity,
        "noise_tokens": pruned.noise_tokens,
        "zero_frames": list(pruned.zero_frames),
        "embeddings_shape": list(pruned.embeddings.shape),
        "embeddings_dtype": dtype_name(pruned.embeddings.dtype),
        "embeddings_norm": {"min": float(norms.min()), "mean": float(norms.mean()), "max": float(norms.max())},
        "deepstack_levels": len(pruned.deepstack_embeddings),
        "num_sampled_frames": int(pruned.frame_indices.shape[0]),
        "reused_frames": pruned.provenance.get("reused_frames", 0),
        "pts_seconds": pruned.pts_seconds.tolist(),
        "prompt_seconds": pruned.prompt_seconds.tolist(),
        "planned": dict(pruned.planned),
        "actual": dict(pruned.actual),
    }


def printed_parts(pruned: PrunedVideo, printed: Sequence[str]) -> dict[str, Any]:
    """The parts named in ``PRINTABLE``, whole."""
    parts: dict[str, Any] = {}
    if "ids" in printed:
        parts["input_ids"] = pruned.input_ids.tolist()
        parts["frame_offsets"] = pruned.frame_offsets.tolist()
    if "embeddings" in printed:
        parts["embeddings"] = pruned.embeddings.tolist()
    return parts


def frame_rows(video: str, pruned: PrunedVideo) -> list[dict[str, Any]]:
    """A row a frame of tokens, for CSV."""
    frames = zip(
        pruned.frame_pts_seconds.tolist(),
        pruned.prompt_seconds.tolist(),
        pruned.num_tokens_per_frame.tolist(),
        pruned.frame_offsets.tolist(),
        strict=True,
    )
    return [
        {
            "video": video,
            "frame": index,
            "pts_seconds": pts,
            "prompt_seconds": prompt_pts,
            "tokens": count,
            "start": start,
            "end": end,
            "q": pruned.q,
        }
        for index, (pts, prompt_pts, count, (start, end)) in enumerate(frames)
    ]


def csv_rows(video: str, result: PruneResult, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a frame of a pruned video; of a dry run one row, its counts."""
    return frame_rows(video, result.pruned) if result.pruned is not None else [flat(record)]


def to_csv(rows: Sequence[Mapping[str, Any]], *, header: bool = True) -> str:
    """Rows of the same keys as CSV text."""
    if not rows:
        return ""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
