"""What it takes to make the same bytes again: versions, model, video, sampling, device. No times, hosts or paths."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evs_cli._version import __version__
from evs_cli.core.dtypes import dtype_name
from evs_cli.encoders.base import EncodeOptions, VideoEncoder
from evs_cli.encoders.source import ModelSource
from evs_cli.video.source import file_sha256

if TYPE_CHECKING:
    from evs_cli.pipeline.clip_plan import ClipPlan
    from evs_cli.pipeline.settings import EncodeSettings


def provenance_of(
    plan: ClipPlan,
    encoder: VideoEncoder,
    settings: EncodeSettings,
    options: EncodeOptions,
    batch_frames: int,
    reused_frames: int,
) -> dict[str, Any]:
    """The provenance record of an encoding: plain strings, numbers, lists and dicts alone.

    Args:
        plan: the planned video.
        encoder: the model's encoder.
        settings: how it was decoded and encoded.
        options: what the user asked of the family.
        batch_frames: frames a batch in the end; it may move embeddings within rounding, so it is part of the record.
        reused_frames: frames that repeat the one before and were not encoded again; like the batches, it may move
            embeddings within rounding.
    """
    video, selection = plan.video, plan.selection
    return {
        "evs": __version__,
        "torch": str(version("torch")),
        "transformers": str(version("transformers")),
        "model": model_record(encoder.source),
        "video": {
            "name": video.name,
            "size_bytes": video.size_bytes,
            "sha256": file_sha256(video.source),
            "width": video.width,
            "height": video.height,
            "duration_seconds": video.duration_seconds,
        },
        "sampling": {
            "rule": selection.rule,
            "fps": selection.requested_fps,
            "num_frames": selection.requested_num_frames,
            "max_frames_bound": selection.max_frames_bound,
            "start_seconds": selection.start_seconds,
            "window_seconds": selection.window_seconds,
        },
        "options": {name: getattr(options, name) for name in options.given()},
        "processing": dict(plan.encode.processing),
        "frame_size": list(plan.encode.frame_size),
        "pixel_region": plan.encode.pixel_region.as_list(),
        "dialect": plan.dialect,
        "decoder": settings.decoder,
        "device": settings.runtime.device,
        "dtype": settings.runtime.dtype_name,
        "score_dtype": None if settings.score_dtype is None else dtype_name(settings.score_dtype),
        "batch_frames": batch_frames,
        "reuse": settings.reuses_frames and encoder.frames_are_independent,
        "reused_frames": reused_frames,
    }


def model_record(source: ModelSource) -> dict[str, Any]:
    """The model's name without folders, its revision, and a hash of its configuration."""
    canonical = json.dumps(dict(source.config), sort_keys=True, separators=(",", ":"))
    is_folder = source.is_local and not source.is_embedded
    return {
        "id": Path(source.location).resolve().name if is_folder else source.name,
        "revision": source.revision,
        "model_type": source.model_type,
        "config_sha256": hashlib.sha256(canonical.encode()).hexdigest(),
    }
