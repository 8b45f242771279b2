"""SGLang 0.5.23 with GLM-4.1V, 4.5V and 4.6V: transformers' sampling, unless a number of frames is asked for.

Read from the release of that number: ``multimodal/processors/glm4v.py``. A request's ``fps`` and ``max_frames`` are
read for this family, and may lower what the server allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evs_cli.dialects import sampling
from evs_cli.dialects import sglang_0_5_23 as sglang
from evs_cli.dialects import transformers_5_24_glm as hf_glm
from evs_cli.dialects.base import (
    GlmModel,
    Int64Array,
    RefusedByServerError,
    ServerOptions,
    ServerPlan,
    ServerSource,
)
from evs_cli.dialects.resize import sglang_glm_frame_size

ARCHITECTURES = ("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration")
"""What SGLang has models of its own for."""
_SAMPLING_KEYS = ("fps", "max_frames", "max_tokens_per_frame")


def glm(
    source: ServerSource, model: GlmModel, options: ServerOptions, *, is_bounded_by_server: bool = True
) -> ServerPlan:
    """GLM-4.1V and 4.5V: 2 frames a second; GLM-4.6V: by the clip's length; with ``max_frames``, a sampling of its own.

    Args:
        source: the file as the server counts it.
        model: the checkpoint.
        options: the server's and the request's.
        is_bounded_by_server: whether a request can only lower the server's ``fps`` and ``max_frames``.

    Raises:
        RefusedByServerError: the server has no model of the checkpoint, or would fail on the clip or its options.
    """
    if model.architecture not in ARCHITECTURES:
        raise RefusedByServerError(
            f"SGLang has no model of {model.architecture}, and runs no video through transformers' own.",
            hint=f"Expected a checkpoint whose config.json names {' or '.join(ARCHITECTURES)}.",
        )
    given, notes = _sampling_options(model, options, is_bounded_by_server)
    if "max_frames" in given:
        indices, rule = _bounded_indices(source, given["fps"], given["max_frames"])
    else:
        indices, rule = hf_glm.glm_indices(source, model, given)
    most = given.get("max_tokens_per_frame")
    plan = hf_glm.glm_plan(
        source,
        model,
        {name: value for name, value in options.mm_process.items() if name not in _SAMPLING_KEYS},
        indices,
        rule,
        sglang.pruning(model, options),
        frame=None
        if most is None
        else sglang_glm_frame_size(source.height, source.width, max_tokens_per_frame=int(most)),
    )
    return plan.with_notes(notes)


def _sampling_options(model: GlmModel, options: ServerOptions, is_bounded: bool) -> tuple[Mapping[str, Any], list[str]]:
    """What settles the sampling, and what is to be said of it: the server's, lowered or replaced by the request."""
    given = {
        "fps": model.fps,
        **{name: options.mm_process[name] for name in _SAMPLING_KEYS if name in options.mm_process},
    }
    most = {"fps": given["fps"], "max_frames": given.get("max_frames", int(model.max_seconds * given["fps"]))}
    notes = [
        f"{name} does nothing for this model; fps and max_frames do"
        for name in ("num_frames", "nframes", "min_frames")
        if name in options.request or name in options.mm_process
    ]
    for name, limit in most.items():
        if name not in options.request:
            continue
        asked = options.request[name]
        if not is_bounded:
            given[name] = asked
            continue
        if asked > limit:
            notes.append(f"{name} {asked:g} of the request is lowered to {limit:g}; --mm-process-config raises it")
        given[name] = min(asked, limit)
    is_asked = "fps" in options.request or "fps" in options.mm_process
    if model.samples_by_length and is_asked and "max_frames" not in given:
        notes.append("fps does nothing for this model without max_frames; the clip's length settles the number")
    return given, notes


def _bounded_indices(source: ServerSource, fps: float, max_frames: int) -> tuple[Int64Array, str]:
    """(S,) frames at a rate, ``max_frames`` at most, an even number of them, and the rule in words.

    Raises:
        RefusedByServerError: the rate of the file is unknown.
    """
    if source.average_fps <= 0:
        raise RefusedByServerError("the file's frame rate is unknown, and this sampling divides by it.")
    num_frames = max(1, min(int(source.duration_seconds * fps), int(max_frames)))
    indices = sampling.pad_to_even(sampling.timed_indices(source, fps, num_frames))
    return indices, f"{fps:g} fps, at most {max_frames} frames"
